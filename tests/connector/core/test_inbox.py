"""What is owed to gateways: sentences for every promise.

Planted mutants that these tests kill (each was seen to fail): what is given back goes to the end;
an ack of what was never sent; an old connection's end takes the newer one away; one repeat more
before a delivery is parked; a delivery that is claimed twice.
"""

import pytest

from hermes_bridge.connector.core.inbox import (
    ACKED,
    EXPIRED,
    WRITTEN,
    Deliver,
    Done,
    Effect,
    Entry,
    Inbox,
    Parked,
    Rules,
    Wake,
)
from hermes_bridge.connector.core.message import Message

RULES = Rules(ack_timeout_ms=100, ttl_ms=10_000, max_replays=2, busy_hold_ms=1000, settle_ms=50)


def entry(
    number: int, bot: str = "a", channel: str = "room", *, at: int = 0, urgent: bool = False
) -> Entry:
    message = Message("p", channel, f"m{number}", "ada", f"text {number}")
    return Entry(number, bot, channel, f"m{number}", message, at, urgent=urgent)


def delivered(inbox: Inbox, now: int = 0) -> list[tuple[int, int]]:
    """Perform every `Deliver` at once: give (entry, connection) of what was written."""
    written = []
    while effects := [each for each in inbox.take() if isinstance(each, Deliver)]:
        for effect in effects:
            link = inbox.claim(effect.entry, now)
            if link is not None:
                written.append((effect.entry.id, link))
    return written


def linked(rules: Rules = RULES) -> Inbox:
    """An inbox whose bot has its first connection."""
    inbox = Inbox(rules)
    inbox.link_up("a", 1, 0)
    return inbox


def held() -> Inbox:
    """The first of two messages was acknowledged, and the second waits for the final answer."""
    inbox = linked()
    inbox.learned("a", finals=True, types=False)
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 0)
    delivered(inbox, 0)
    inbox.acked(1, 0)
    return inbox


def kinds(effects: list[Effect], kind: type) -> list[Effect]:
    return [each for each in effects if isinstance(each, kind)]


@pytest.mark.clause("relay.inbox.1")
def test_a_message_waits_until_its_bot_has_a_connection() -> None:
    inbox = Inbox(RULES)
    inbox.add(entry(1), 0)
    assert delivered(inbox) == []
    inbox.link_up("a", 7, 0)
    assert delivered(inbox) == [(1, 7)]


@pytest.mark.clause("relay.inbox.2")
def test_one_message_of_a_chat_is_out_at_a_time_and_others_are_not_held_up() -> None:
    inbox = linked()
    for number, channel in ((1, "room"), (2, "room"), (3, "other")):
        inbox.add(entry(number, channel=channel), 0)
    assert delivered(inbox) == [(1, 1), (3, 1)]
    inbox.acked(1, 0)
    assert delivered(inbox) == [(2, 1)]


@pytest.mark.clause("relay.inbox.3")
def test_a_lost_connection_gives_back_what_it_did_not_acknowledge_first() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 0)
    delivered(inbox)
    inbox.link_down("a", 1, 0)
    assert delivered(inbox) == []
    inbox.link_up("a", 2, 0)
    assert delivered(inbox) == [(1, 2)]


@pytest.mark.clause("relay.inbox.3")
def test_a_newer_connection_takes_over_and_the_old_ones_end_changes_nothing() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    assert delivered(inbox) == [(1, 1)]
    inbox.link_up("a", 2, 0)
    assert delivered(inbox) == [(1, 2)]
    inbox.link_down("a", 1, 0)
    inbox.add(entry(2, channel="other"), 0)
    assert delivered(inbox) == [(2, 2)]


@pytest.mark.clause("relay.inbox.4")
def test_silence_repeats_a_message_and_too_many_repeats_park_it() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 0)
    written = []
    for now in (0, 100, 200):
        inbox.expire(now)
        written += delivered(inbox, now)
    assert written == [(1, 1)] * 3
    inbox.expire(300)
    effects = inbox.take()
    assert [each.entry.id for each in kinds(effects, Parked)] == [1]
    assert [each.entry.id for each in kinds(effects, Deliver)] == [2]


def test_nothing_is_repeated_before_its_time() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    delivered(inbox, 0)
    assert inbox.next_deadline() == 100
    inbox.expire(99)
    assert delivered(inbox, 99) == []


def test_an_ack_that_comes_after_the_repeat_was_scheduled_still_counts() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    delivered(inbox, 0)
    inbox.link_down("a", 1, 10)
    assert inbox.acked(1, 20) is not None
    inbox.link_up("a", 2, 30)
    assert delivered(inbox, 30) == []


def test_an_ack_of_something_never_sent_removes_nothing() -> None:
    inbox = Inbox(RULES)
    inbox.add(entry(1), 0)
    assert inbox.acked(1, 0) is None
    assert inbox.acked(99, 0) is None
    inbox.link_up("a", 1, 0)
    assert delivered(inbox) == [(1, 1)]


@pytest.mark.clause("relay.inbox.5")
def test_what_is_too_old_is_dropped_by_name() -> None:
    inbox = Inbox(RULES)
    inbox.add(entry(1, at=0), 0)
    inbox.add(entry(2, at=9_000), 9_000)
    inbox.take()
    inbox.sweep(10_001)
    assert [(each.entry.id, each.reason) for each in kinds(inbox.take(), Done)] == [(1, EXPIRED)]


@pytest.mark.clause("relay.inbox.6")
def test_an_absent_gateway_is_woken_at_most_once_a_minute() -> None:
    inbox = Inbox(RULES)
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 10)
    assert len(kinds(inbox.take(), Wake)) == 1
    inbox.add(entry(3), 60_000)
    assert len(kinds(inbox.take(), Wake)) == 1
    inbox.link_up("a", 1, 60_000)
    inbox.add(entry(4, channel="other"), 130_000)
    assert kinds(inbox.take(), Wake) == []


def test_a_claim_without_a_connection_keeps_the_place_in_the_lane() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 0)
    (deliver,) = kinds(inbox.take(), Deliver)
    inbox.link_down("a", 1, 0)
    assert isinstance(deliver, Deliver)
    assert inbox.claim(deliver.entry, 0) is None
    inbox.link_up("a", 2, 0)
    assert delivered(inbox) == [(1, 2)]


def test_a_delivery_is_claimed_once() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    (deliver,) = kinds(inbox.take(), Deliver)
    assert isinstance(deliver, Deliver)
    assert inbox.claim(deliver.entry, 0) == 1
    assert inbox.claim(deliver.entry, 0) is None


def test_without_acks_what_is_written_is_done() -> None:
    inbox = linked(Rules(acks=False))
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 0)
    effects = inbox.take()
    (deliver,) = kinds(effects, Deliver)
    assert isinstance(deliver, Deliver)
    inbox.claim(deliver.entry, 0)
    assert [each.reason for each in kinds(inbox.take(), Done)] == [WRITTEN]


@pytest.mark.clause("relay.hold.1")
def test_after_an_ack_the_chat_is_held_until_the_final_answer() -> None:
    inbox = linked()
    inbox.learned("a", finals=True, types=False)
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 0)
    assert delivered(inbox, 0) == [(1, 1)]
    inbox.acked(1, 10)
    assert delivered(inbox, 10) == []
    inbox.final("a", "room", 500)
    inbox.expire(549)
    assert delivered(inbox, 549) == []
    inbox.expire(550)
    assert delivered(inbox, 550) == [(2, 1)]


@pytest.mark.clause("relay.hold.1")
def test_while_a_final_answer_is_being_posted_its_turn_still_runs() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    delivered(inbox, 0)
    inbox.acked(1, 0)
    inbox.answering("a", "room", 10)
    inbox.add(entry(2), 20)
    assert delivered(inbox, 20) == []
    inbox.final("a", "room", 30)
    inbox.expire(80)
    assert delivered(inbox, 80) == [(2, 1)]


@pytest.mark.clause("relay.hold.1")
def test_a_hold_ends_by_itself() -> None:
    inbox = held()
    inbox.expire(999)
    assert delivered(inbox, 999) == []
    inbox.expire(1000)
    assert delivered(inbox, 1000) == [(2, 1)]


@pytest.mark.clause("relay.hold.2")
def test_typing_holds_a_chat_and_its_end_lets_it_go() -> None:
    inbox = linked(Rules(busy_hold_ms=60_000, typing_ms=6_000))
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 0)
    delivered(inbox, 0)
    inbox.typing("a", "room", 5)
    inbox.acked(1, 10)
    for now in (2_000, 4_000):
        inbox.typing("a", "room", now)
    inbox.expire(9_999)
    assert delivered(inbox, 9_999) == []
    inbox.expire(10_000)
    assert delivered(inbox, 10_000) == [(2, 1)]


@pytest.mark.clause("relay.hold.3")
def test_the_owners_stop_is_never_held() -> None:
    inbox = held()
    inbox.add(entry(3, urgent=True), 5)
    assert delivered(inbox, 5) == [(3, 1)]


def test_a_gateway_that_stops_marking_its_finals_is_waited_for_once() -> None:
    inbox = linked()
    inbox.learned("a", finals=True, types=False)
    for number in (1, 2, 3):
        inbox.add(entry(number), 0)
    delivered(inbox, 0)
    inbox.acked(1, 0)
    inbox.expire(1000)
    assert delivered(inbox, 1000) == [(2, 1)]
    inbox.acked(2, 1000)
    assert delivered(inbox, 1000) == [(3, 1)]
    assert inbox.traits("a") == (False, False)


def test_typing_before_the_ack_is_forgotten_does_not_matter() -> None:
    inbox = linked(Rules(busy_hold_ms=60_000, typing_ms=6_000))
    inbox.add(entry(1), 0)
    delivered(inbox, 0)
    inbox.acked(1, 0)
    inbox.typing("a", "room", 10)
    inbox.add(entry(2), 20)
    assert delivered(inbox, 20) == []
    inbox.expire(6_010)
    assert delivered(inbox, 6_010) == [(2, 1)]
    inbox.acked(2, 6_020)
    inbox.add(entry(3), 6_030)
    assert delivered(inbox, 6_030) == [(3, 1)]


def test_a_gateway_that_shows_no_signs_is_never_held() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    inbox.add(entry(2), 0)
    delivered(inbox)
    inbox.acked(1, 0)
    assert delivered(inbox) == [(2, 1)]


def test_a_lost_connection_ends_the_hold() -> None:
    inbox = held()
    inbox.link_down("a", 1, 10)
    inbox.link_up("a", 2, 20)
    assert delivered(inbox, 20) == [(2, 2)]


def test_what_was_learned_of_a_gateway_can_be_read_back() -> None:
    inbox = Inbox(RULES)
    assert inbox.traits("a") == (False, False)
    inbox.typing("a", "room", 0)
    inbox.final("a", "room", 0)
    assert inbox.traits("a") == (True, True)


def test_time_does_not_take_back_what_is_still_being_prepared() -> None:
    inbox = linked()
    inbox.add(entry(1), 0)
    delivered(inbox, 0)
    inbox.expire(100)
    (again,) = kinds(inbox.take(), Deliver)
    inbox.typing("a", "room", 100)
    inbox.expire(1100)
    assert inbox.take() == []
    assert isinstance(again, Deliver)
    assert inbox.claim(again.entry, 1100) == 1


def test_a_lane_that_waits_for_two_things_is_looked_at_for_both() -> None:
    inbox = linked(Rules(ack_timeout_ms=100, typing_ms=50))
    inbox.typing("a", "room", 0)
    inbox.add(entry(1, urgent=True), 10)
    assert delivered(inbox, 10) == [(1, 1)]
    inbox.expire(50)
    assert delivered(inbox, 50) == []
    assert inbox.next_deadline() == 110
    inbox.expire(110)
    assert delivered(inbox, 110) == [(1, 1)]


def test_depth_counts_what_waits_and_what_is_out() -> None:
    inbox = linked()
    inbox.add(entry(1, at=5), 5)
    inbox.add(entry(2, at=9), 9)
    delivered(inbox)
    assert inbox.depth("a") == (2, 5)
    found = inbox.entry(2)
    assert found is not None
    inbox.dropped(found, "dropped", 10)
    inbox.acked(1, 10)
    assert inbox.depth("a") == (0, 0)
    assert {each.reason for each in kinds(inbox.take(), Done)} == {"dropped", ACKED}
