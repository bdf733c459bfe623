import pytest
from tests.relay.core.world import LIMITS, World

from hermes_bridge.relay.core.admission import Admission, Ask
from hermes_bridge.relay.core.conversation import Conversations
from hermes_bridge.relay.core.exchange import Status
from hermes_bridge.relay.core.policy import Limits, Rates
from hermes_bridge.relay.core.roster import Agent
from hermes_bridge.relay.core.waits import WaitGraph


class Door:
    def __init__(self, limits: Limits = LIMITS, *agents: Agent) -> None:
        self.world = World(limits)
        self.world.roster.replace(agents or [Agent(name=n) for n in ("a", "b", "c", "d", "e", "f")])
        self.talks, self.waits = Conversations(), WaitGraph()
        self.admission = Admission(
            self.world.roster, self.world.book, self.talks, self.waits, Rates()
        )

    def refusal(self, **fields: object) -> Status | None:
        ask = Ask(**{"asker": "a", "target": "b", "message": "hello", **fields})  # type: ignore[arg-type]
        found = self.admission.check(ask, self.world.now)
        return found.status if found else None


@pytest.mark.clause("bridge.ask.2")
def test_an_unknown_target_names_the_close_ones() -> None:
    door = Door(LIMITS, Agent(name="a"), Agent(name="daniel-bot"))
    found = door.admission.check(Ask(asker="a", target="daniel-bt", message="x"), door.world.now)
    assert found is not None and found.status is Status.UNKNOWN_AGENT
    assert found.detail == "daniel-bot"


@pytest.mark.clause("bridge.ask.2")
def test_who_is_not_on_the_list_is_not_allowed() -> None:
    door = Door(LIMITS, Agent(name="a", may_ask=frozenset({"c"})), Agent(name="b"), Agent(name="c"))
    assert door.refusal() is Status.NOT_ALLOWED
    assert door.refusal(target="c") is Status.AGENT_OFFLINE


@pytest.mark.clause("bridge.ask.3")
def test_a_conversation_of_others_is_unknown() -> None:
    door = Door()
    door.world.link("b")
    door.talks.began("theirs", "b", "c", door.world.now, 5_000)
    door.talks.began("ours", "b", "a", door.world.now, 5_000)
    assert door.refusal(conversation="theirs") is Status.UNKNOWN_CONVERSATION
    assert door.refusal(conversation="nobody's") is Status.UNKNOWN_CONVERSATION
    assert door.refusal(conversation="ours") is None


@pytest.mark.clause("bridge.ask.7")
def test_a_target_must_be_reachable_or_waited_for() -> None:
    door = Door()
    assert door.refusal() is Status.AGENT_OFFLINE
    assert door.refusal(queue=True) is None
    door.world.link("b")
    assert door.refusal() is None
    door.world.unlink("b")
    assert door.refusal() is None
    door.world.now += LIMITS.reconnect_grace_ms
    assert door.refusal() is Status.AGENT_OFFLINE


@pytest.mark.clause("bridge.ask.6")
def test_a_full_queue_and_a_high_rate_are_refused() -> None:
    door = Door(Limits(max_pending=2, rate_per_minute=3))
    door.world.link("b")
    assert [door.refusal() for _ in range(4)] == [None, None, None, Status.RATE_LIMITED]
    door.world.ask()
    door.world.ask()
    assert door.refusal(asker="c") is Status.QUEUE_FULL


def test_an_agents_own_limits_win() -> None:
    door = Door(LIMITS, Agent(name="a", rate_per_minute=1), Agent(name="b", max_pending=1))
    door.world.link("b")
    assert [door.refusal(), door.refusal()] == [None, Status.RATE_LIMITED]
    door.world.ask()
    assert door.refusal() is Status.QUEUE_FULL


@pytest.mark.clause("bridge.ring.1", "bridge.ring.5")
def test_an_agent_that_would_wait_for_itself_is_refused() -> None:
    door = Door()
    door.world.link("a")
    assert door.refusal(target="a") is Status.WOULD_DEADLOCK
    assert door.refusal(target="a", holds=False) is None


@pytest.mark.clause("bridge.ring.2", "bridge.ring.4")
def test_asking_back_nests_in_a_new_conversation_and_not_in_the_same() -> None:
    door = Door()
    for name in ("a", "b"):
        door.world.link(name)
    door.talks.began("x", "b", "a", door.world.now, 5_000)
    door.waits.add("r", "b", "a", "x")
    assert door.refusal() is None
    assert door.refusal(conversation="x") is Status.WOULD_DEADLOCK


@pytest.mark.clause("bridge.ring.3")
@pytest.mark.parametrize("deaf", ["a", "b"])
def test_a_ring_with_an_agent_that_cannot_answer_while_it_waits_is_refused(deaf: str) -> None:
    door = Door()
    for name in ("a", "b"):
        door.world.link(name, protocol=1 if name == deaf else 2)
    door.waits.add("r", "b", "a", "x")
    assert door.refusal() is Status.WOULD_DEADLOCK
    assert door.refusal(holds=False) is None


@pytest.mark.clause("bridge.ring.4", "bridge.ask.4")
def test_a_ring_longer_than_the_depth_is_refused_with_its_chain() -> None:
    door = Door()
    names = ("a", "b", "c", "d", "e")
    for name in names:
        door.world.link(name)
    for asker, target in zip(names[1:], (*names[2:], "a"), strict=True):
        door.waits.add(asker, asker, target, asker)
    found = door.admission.check(Ask(asker="a", target="b", message="x"), door.world.now)
    assert found is not None and found.status is Status.WOULD_DEADLOCK
    assert found.chain == (*names, "a")
    assert LIMITS.max_depth == 4


@pytest.mark.clause("bridge.ring.4")
def test_nesting_is_counted_from_the_exchange_in_whose_turn_an_ask_is_made() -> None:
    door = Door()
    for name in "abcdef":
        door.world.link(name)
    parent = door.world.ask("a", "f")
    parent.depth, parent.chain = 3, ("x", "y", "z")
    assert door.refusal(parent=parent) is None
    parent.depth = 4
    found = door.admission.check(
        Ask(asker="a", target="b", message="x", parent=parent), door.world.now
    )
    assert found is not None and found.status is Status.WOULD_DEADLOCK
    assert found.chain == ("x", "y", "z", "f", "a", "b")


def test_data_counts_towards_the_size_of_a_message() -> None:
    door = Door(Limits(max_message_bytes=100))
    door.world.link("b")
    assert door.refusal(message="x" * 60, data=b"1" * 40) is None
    assert door.refusal(message="x" * 61, data=b"1" * 40) is Status.MESSAGE_TOO_LARGE


def test_the_checks_come_in_the_order_of_the_contract() -> None:
    door = Door(
        Limits(max_message_bytes=10), Agent(name="a", may_ask=frozenset({"b"})), Agent(name="b")
    )
    wrong = {"message": "", "target": "nobody", "conversation": "no"}
    order = []
    for fix in (
        {},
        {"message": "x" * 11},
        {"message": "x"},
        {"target": "a"},
        {"target": "b"},
        {"conversation": None},
    ):
        wrong |= fix
        order.append(door.refusal(**wrong))
    assert order == [
        Status.INVALID_MESSAGE,
        Status.MESSAGE_TOO_LARGE,
        Status.UNKNOWN_AGENT,
        Status.NOT_ALLOWED,
        Status.UNKNOWN_CONVERSATION,
        Status.AGENT_OFFLINE,
    ]
