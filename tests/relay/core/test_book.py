import pytest
from tests.relay.core.world import LIMITS, OK, START, World

from hermes_bridge.relay.core.book import Answer, ExchangeBook
from hermes_bridge.relay.core.effects import Commit, Record, Wake
from hermes_bridge.relay.core.exchange import (
    ENDS,
    TRANSITIONS,
    IllegalMove,
    Outcome,
    Status,
    move,
)


@pytest.mark.clause("bridge.life.1")
def test_an_ask_to_a_linked_agent_is_recorded_then_sent() -> None:
    world = World()
    generation = world.link("b")
    exchange, effects = world.book.submit(world.make(), "here", world.now)
    assert effects == [Record(exchange)]
    assert exchange.status is Status.OPENING
    assert world.book.recorded(exchange.rid, world.now) == [Wake(exchange, generation)]
    assert exchange.status is Status.SENT


def test_nothing_is_sent_before_it_is_recorded() -> None:
    world = World()
    exchange, _ = world.book.submit(world.make(), "here", world.now)
    world.link("b")
    assert world.wakes == []
    assert exchange.status is Status.OPENING


def test_an_outcome_is_told_to_nobody_before_it_is_committed() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    said, effects = world.book.answer(exchange.rid, "b", OK, world.now)
    assert (said, effects) == (Answer.OK, [Commit(exchange.rid, OK)])
    assert exchange.status is Status.SETTLING and not exchange.ended
    world.perform(world.book.committed(exchange.rid, OK, world.now))
    assert (world.told, exchange.answer, exchange.status) == ([exchange.rid], "yes", Status.OK)


def test_the_stored_outcome_wins_over_the_one_that_was_asked_for() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.book.answer(exchange.rid, "b", OK, world.now)
    world.perform(world.book.committed(exchange.rid, Outcome(Status.TIMEOUT), world.now))
    assert (exchange.status, exchange.answer) == (Status.TIMEOUT, None)


@pytest.mark.clause("bridge.ask.8")
def test_submitting_the_same_id_again_attaches_and_wakes_nobody() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    again = world.make()
    again.rid = exchange.rid
    found, effects = world.book.submit(again, "there", world.now)
    assert found is exchange and effects == []
    assert exchange.origins == ("here", "there")
    world.reply(exchange.rid)
    assert world.told == [exchange.rid, exchange.rid]
    assert world.book.submit(again, "third", world.now) == (exchange, [])
    assert exchange.origins == ("here", "there")


@pytest.mark.clause("bridge.life.8", "bridge.reply.1")
@pytest.mark.parametrize("who", ["a", "c"])
def test_only_the_target_may_answer_beat_or_ack(who: str) -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    deadline = exchange.deadline
    world.now += 500
    world.beat(exchange.rid, who)
    world.ack(exchange.rid, who)
    assert world.reply(exchange.rid, who) is Answer.NOT_YOURS
    assert (exchange.status, exchange.deadline, exchange.beats) == (Status.SENT, deadline, 0)
    assert world.reply(exchange.rid, "b") is Answer.OK


@pytest.mark.clause("bridge.reply.5")
def test_a_reply_to_an_unknown_request_is_unknown() -> None:
    assert World().reply("nothing") is Answer.UNKNOWN


@pytest.mark.clause("bridge.reply.2", "bridge.life.1")
def test_the_same_answer_again_is_ok_and_another_one_is_refused() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.reply(exchange.rid)
    assert world.reply(exchange.rid) is Answer.OK
    assert world.reply(exchange.rid, answer="no") is Answer.ALREADY
    assert world.fail(exchange.rid) is Answer.ALREADY
    assert exchange.answer == "yes" and len(world.settled) == 1


@pytest.mark.clause("bridge.life.2")
def test_silence_for_a_whole_window_ends_as_timeout() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.pass_ms(LIMITS.ask_timeout_ms - 1)
    assert not exchange.ended
    world.pass_ms(1)
    assert exchange.status is Status.TIMEOUT


@pytest.mark.clause("bridge.life.2")
def test_a_heartbeat_gives_a_fresh_window_and_makes_a_seed_ask_taken() -> None:
    world = World()
    world.link("b", protocol=1)
    exchange = world.ask()
    for _ in range(3):
        world.pass_ms(1_500)
        world.beat(exchange.rid, note="reading")
    assert (exchange.status, exchange.beats, exchange.note) == (Status.TAKEN, 3, "reading")
    world.pass_ms(2_000)
    assert exchange.status is Status.TIMEOUT


@pytest.mark.clause("bridge.life.3")
def test_heartbeats_do_not_pass_the_cap() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    for _ in range(10):
        world.pass_ms(1_000)
        world.beat(exchange.rid)
    assert exchange.status is Status.DEADLINE_EXCEEDED
    assert exchange.ended_at == START + LIMITS.ask_max_ms


def test_a_note_is_cut() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.beat(exchange.rid, note="x" * 5_000)
    assert exchange.note == "x" * 200


@pytest.mark.clause("bridge.reply.3")
def test_a_late_answer_is_kept_once() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.pass_ms(5_000)
    assert world.reply(exchange.rid) is Answer.LATE
    assert world.reply(exchange.rid) is Answer.LATE
    assert world.reply(exchange.rid, answer="no") is Answer.ALREADY
    assert (exchange.status, exchange.late_answer) == (Status.TIMEOUT, "yes")
    assert world.touched == [exchange.rid]


def test_a_late_failure_is_accepted_and_changes_nothing() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.pass_ms(5_000)
    assert world.fail(exchange.rid) is Answer.LATE
    assert exchange.late_at == 0


@pytest.mark.clause("bridge.reply.4")
def test_a_failure_ends_the_exchange_at_once_and_may_be_said_twice() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    assert world.fail(exchange.rid) is Answer.OK
    assert world.fail(exchange.rid) is Answer.OK
    assert world.reply(exchange.rid) is Answer.ALREADY
    assert (exchange.status, exchange.reason) == (Status.FAILED, "broken")


def test_the_answer_to_an_ended_exchange_from_the_ledger_is_late() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.pass_ms(5_000)
    book = ExchangeBook(world.roster, LIMITS)
    book.remember(exchange)
    assert book.answer(exchange.rid, "b", OK, world.now)[0] is Answer.LATE


def test_ended_exchanges_are_forgotten_beyond_a_bound() -> None:
    world = World()
    world.link("b")
    first = world.ask()
    world.reply(first.rid)
    for _ in range(2_100):
        world.reply(world.ask().rid)
    assert world.book.get(first.rid) is None
    big = world.ask()
    world.reply(big.rid, answer="x" * 17_000_000)
    assert world.book.get(big.rid) is big


def test_the_heap_does_not_grow_with_finished_exchanges() -> None:
    world = World()
    world.link("b")
    for _ in range(5_000):
        world.reply(world.ask().rid)
    assert len(world.book._heap) < 600


def test_no_illegal_move_is_made() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.reply(exchange.rid)
    with pytest.raises(IllegalMove):
        move(exchange, Status.QUEUED)
    assert exchange.status is Status.OK


def test_every_end_is_final_and_reached_through_settling() -> None:
    assert TRANSITIONS[Status.SETTLING] == ENDS
    assert all(TRANSITIONS[end] == frozenset() for end in ENDS)
    assert all(
        not (targets & ENDS) for source, targets in TRANSITIONS.items() if source != "settling"
    )


def test_what_an_agent_works_on_is_its_oldest_woken_exchange() -> None:
    world = World()
    assert world.book.working_on("b") is None
    first, second = world.ask(conv="same"), world.ask(conv="same")
    assert world.book.working_on("b") is None
    world.link("b")
    assert world.book.working_on("b") is first
    world.reply(first.rid)
    assert world.book.working_on("b") is second
    assert (world.book.pending("b"), world.book.pending("c")) == (1, 0)
    assert world.book.open_exchanges() == [second]
