"""Who gets a message, and the name of every reason why somebody does not.

A planted mutant that these tests kill (it was seen to fail): a direct message without an owner goes to
everybody.
"""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.connector.core import route
from hermes_bridge.connector.core.identity import IdentityTable, table_of
from hermes_bridge.connector.core.message import Attachment, Message, Tick
from hermes_bridge.connector.core.route import Plan, Router, Skip, policies_of
from hermes_bridge.contract.frames import Policy


def table(*bots: str, **agents: str) -> IdentityTable:
    rows = [
        {"botId": bot, "token": "t", "gatewayId": f"gw-{bot}", "secret": "s"}
        | ({"agentId": agents[bot]} if bot in agents else {})
        for bot in bots
    ]
    return table_of(rows, source="test")


def group(text: str, *, id: str = "m1", sender: str = "ada", **more: Any) -> Message:
    return Message("agentschat", "room", id, sender, text, at="2026-01-01T00:00:00Z", **more)


def dm(text: str, *, id: str = "m1", sender: str = "ada", **more: Any) -> Message:
    return Message("agentschat", "dm-1", id, sender, text, direct=True, **more)


def reasons(plan: Plan) -> set[tuple[str, str]]:
    return {(skip.reason, skip.bot_id) for skip in plan.skips}


@pytest.mark.clause("relay.route.1")
def test_a_group_message_goes_to_everyone_it_calls_once_in_the_tables_order() -> None:
    router = Router(table("x", "y", "z"))
    plan = router.plan(group("@z and @x, @x!"), "y", 0)
    assert plan.bots == ("x", "z")


@pytest.mark.clause("relay.route.2")
def test_mirrored_sockets_and_backfill_deliver_once() -> None:
    router = Router(table("x", "y"))
    assert router.plan(group("@x @y"), "x", 0).bots == ("x", "y")
    again = router.plan(group("@x @y"), "y", 5)
    assert (again.bots, reasons(again)) == ((), {(route.MIRRORED, "")})


def test_nobody_called_is_named_so() -> None:
    plan = Router(table("x")).plan(group("hello all"), "x", 0)
    assert (plan.bots, plan.skips) == ((), (Skip(route.NOT_ADDRESSED),))


def test_an_explicit_annotation_counts_like_a_mention() -> None:
    router = Router(table("x", "y"))
    assert router.plan(group("hello", mentioned=("y", "q")), "x", 0).bots == ("y",)


def test_an_agent_id_is_called_like_a_bot_id() -> None:
    router = Router(table("x", x="account-7"))
    assert router.plan(group("@account-7"), "x", 0).bots == ("x",)


@pytest.mark.clause("relay.route.3")
def test_a_bot_hears_others_but_not_itself_whoevers_socket_it_came_on() -> None:
    router = Router(table("x", "y"))
    plan = router.plan(group("@x @y", sender="x"), "y", 0)
    assert plan.bots == ("y",)
    assert (route.OWN_MESSAGE, "x") in reasons(plan)


def test_a_bots_own_words_are_known_by_its_account() -> None:
    router = Router(table("x", "y", x="account-7"))
    assert router.plan(group("@x @y", sender="account-7"), "y", 0).bots == ("y",)
    assert router.plan(dm("hi", sender="account-7"), "x", 0).bots == ()
    assert router.plan(group("@x", id="m2", sender="x"), "y", 0).bots == ("x",)


@pytest.mark.clause("relay.route.4")
def test_a_direct_message_goes_to_the_account_that_received_it() -> None:
    router = Router(table("x", "y"))
    assert router.plan(dm("hi"), "y", 0).bots == ("y",)
    assert router.plan(dm("hi", id="m2", sender="y"), "y", 0).bots == ()
    unknown = router.plan(dm("hi", id="m3"), "gone", 0)
    assert reasons(unknown) == {(route.UNKNOWN_OWNER, "")}


def test_a_direct_message_without_arrival_goes_to_its_owner_or_the_only_identity() -> None:
    assert Router(table("x", "y")).plan(dm("hi", owner="x"), None, 0).bots == ("x",)
    assert Router(table("x", "y")).plan(dm("hi", owner=""), None, 0).bots == ()
    assert Router(table("x", "y")).plan(dm("hi"), None, 0).bots == ()
    assert Router(table("x")).plan(dm("hi"), None, 0).bots == ("x",)


def test_the_same_direct_message_on_two_accounts_is_two_deliveries() -> None:
    router = Router(table("x", "y"))
    assert router.plan(dm("hi"), "x", 0).bots == ("x",)
    assert router.plan(dm("hi"), "y", 0).bots == ("y",)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (group("__typing__"), route.TYPING),
        (Message("agentschat", "", "m", "ada", "@x"), route.NO_CHANNEL),
        (dm("  "), route.EMPTY),
        (dm("/help", kind="slash_input"), "kind:slash_input"),
        (dm("status", kind="loop_status"), "kind:loop_status"),
        (dm("done", kind="slash_response"), "kind:slash_response"),
        (dm("x", kind="something new"), "kind:other"),
        (dm("tick", kind="loop_tick"), route.MALFORMED_TICK),
    ],
)
@pytest.mark.clause("relay.route.5")
def test_what_no_agent_may_see_is_skipped_by_name(message: Message, reason: str) -> None:
    plan = Router(table("x")).plan(message, "x", 0)
    assert (plan.bots, reasons(plan)) == ((), {(reason, "")})


def test_a_file_without_words_is_a_message() -> None:
    plan = Router(table("x")).plan(dm("", attachments=(Attachment("photo", "/f"),)), "x", 0)
    assert plan.bots == ("x",)


@pytest.mark.clause("relay.route.6")
def test_a_message_without_id_is_known_by_its_content_for_a_minute() -> None:
    router = Router(table("x"))
    first = router.plan(dm("hi", id=""), "x", 0)
    assert first.bots == ("x",)
    assert router.plan(dm("hi", id=""), "x", 59_000).bots == ()
    later = router.plan(dm("hi", id=""), "x", 60_001)
    assert later.bots == ("x",)
    assert first.message_id != later.message_id


@pytest.mark.clause("relay.route.7")
def test_a_loop_tick_reaches_only_its_own_agent_and_only_once() -> None:
    tick = Tick("loop_1", "think", 60_000, 120_000)
    router = Router(table("x", "y"))
    own = group("(loop tick — think)", sender="x", kind="loop_tick", tick=tick)
    assert router.plan(own, "y", 0).bots == ("x",)
    same = group("(loop tick — think)", id="m2", sender="x", kind="loop_tick", tick=tick)
    assert router.plan(same, "x", 0).bots == ()
    two = Router(table("x", "y", x="shared", y="shared"))
    ambiguous = group("(loop tick — think)", sender="shared", kind="loop_tick", tick=tick)
    assert reasons(two.plan(ambiguous, "x", 0)) == {(route.AMBIGUOUS_TICK, "")}


@pytest.mark.clause("relay.policy.1")
def test_a_declared_policy_is_obeyed() -> None:
    rows = table("x", "y")
    router = Router(rows)
    declared = {("gw-x", "agentschat"): Policy("agentschat", True, ("room",), False)}
    router.policies = policies_of(rows, declared)
    assert router.plan(group("no name"), "x", 0).bots == ("x",)
    other = Message("agentschat", "elsewhere", "m9", "ada", "no name")
    assert router.plan(other, "x", 0).bots == ()
    bot = router.plan(group("@x @y", id="m2", from_bot=True, sender="z"), "x", 0)
    assert bot.bots == ("y",)
    assert (route.OTHER_BOTS_OFF, "x") in reasons(bot)
    declared["gw-y", "agentschat"] = Policy("agentschat", require_address=False)
    router.policies = policies_of(rows, declared)
    assert router.plan(group("again", id="m3"), "x", 0).bots == ("x", "y")


def test_a_new_table_may_want_what_nobody_wanted_before() -> None:
    router = Router(table("x"))
    assert router.plan(group("@y"), "x", 0).bots == ()
    router.reloaded(table("x", "y"))
    assert router.plan(group("@y"), "x", 1).bots == ("y",)


@given(
    arrivals=st.lists(
        st.tuples(
            st.sampled_from("xy"), st.sampled_from(["@x", "@y @x", "nothing"]), st.integers(0, 3)
        ),
        max_size=20,
    )
)
def test_no_message_reaches_a_target_twice_and_every_skip_has_a_name(
    arrivals: list[tuple[str, str, int]],
) -> None:
    router = Router(table("x", "y"))
    seen: set[tuple[int, str]] = set()
    for now, (arrival, text, number) in enumerate(arrivals):
        plan = router.plan(group(text, id=f"m{number}"), arrival, now)
        for bot in plan.bots:
            assert (number, bot) not in seen
            seen.add((number, bot))
        assert plan.bots or plan.skips
        assert all(skip.reason in route.REASONS for skip in plan.skips)
