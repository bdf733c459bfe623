import pytest
from tests.relay.core.world import LIMITS, START, World

from hermes_bridge.relay.core.book import ACK_WAIT, Answer, ExchangeBook
from hermes_bridge.relay.core.effects import Commit, Record, Wake
from hermes_bridge.relay.core.exchange import (
    ENDS,
    TRANSITIONS,
    IllegalMove,
    Outcome,
    Status,
    move,
)
from hermes_bridge.relay.core.policy import Limits

OK = Outcome(Status.OK, answer="yes")


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


@pytest.mark.clause("bridge.life.4")
def test_one_wake_at_a_time_in_a_conversation_in_order() -> None:
    world = World()
    world.link("b")
    first, second, third = (world.ask(conv="same") for _ in range(3))
    other = world.ask(conv="other")
    assert world.wakes == [(first.rid, 1), (other.rid, 1)]
    world.pass_ms(1_000)
    world.reply(first.rid)
    assert world.wakes[-1] == (second.rid, 1)
    world.cancel(second.rid)
    assert world.wakes[-1] == (third.rid, 1)


@pytest.mark.clause("bridge.life.4")
def test_waiting_behind_another_exchange_is_not_silence() -> None:
    world = World()
    world.link("b")
    first, second = world.ask(conv="same"), world.ask(conv="same")
    for _ in range(4):
        world.pass_ms(1_500)
        world.beat(first.rid)
    assert second.status is Status.QUEUED
    world.reply(first.rid)
    world.pass_ms(1_999)
    assert second.status is Status.SENT
    world.pass_ms(1)
    assert second.status is Status.TIMEOUT


@pytest.mark.clause("bridge.life.6")
def test_an_unacked_wake_is_sent_again_on_the_next_link_and_an_acked_one_is_not() -> None:
    world = World()
    world.link("b")
    acked, unacked = world.ask(), world.ask()
    world.ack(acked.rid)
    world.unlink("b")
    world.pass_ms(1_000)
    world.link("b")
    assert world.wakes == [(acked.rid, 1), (unacked.rid, 1), (unacked.rid, 2)]


@pytest.mark.clause("bridge.life.6")
def test_a_seed_adapter_gets_unanswered_wakes_again() -> None:
    world = World()
    world.link("b", protocol=1)
    exchange = world.ask()
    world.beat(exchange.rid)
    world.unlink("b")
    world.link("b", protocol=1)
    assert world.wakes == [(exchange.rid, 1), (exchange.rid, 2)]


@pytest.mark.clause("bridge.life.6")
def test_a_wake_that_a_live_link_does_not_take_is_announced_again_without_a_fresh_window() -> None:
    world = World(Limits(ask_timeout_ms=25_000, ask_max_ms=100_000))
    world.link("b")
    exchange = world.ask()
    acked = world.ask()
    world.ack(acked.rid)
    world.pass_ms(ACK_WAIT)
    world.pass_ms(ACK_WAIT)
    assert world.wakes == [(exchange.rid, 1), (acked.rid, 1), (exchange.rid, 2), (exchange.rid, 3)]
    world.pass_ms(5_000)
    assert exchange.status is Status.TIMEOUT and exchange.ended_at == START + 25_000


def test_a_seed_adapter_is_not_announced_to_again() -> None:
    world = World(Limits(ask_timeout_ms=25_000, ask_max_ms=100_000))
    world.link("b", protocol=1)
    world.ask()
    world.pass_ms(ACK_WAIT + 1)
    assert len(world.wakes) == 1


@pytest.mark.clause("bridge.link.6")
def test_a_newer_link_gets_the_wakes_even_if_the_old_one_still_stands() -> None:
    world = World()
    old = world.link("b")
    exchange = world.ask()
    world.link("b")
    assert world.wakes == [(exchange.rid, 1), (exchange.rid, 2)]
    assert not world.roster.link_down("b", old, world.now)


@pytest.mark.clause("bridge.life.5")
def test_a_lost_link_ends_its_exchanges_only_after_the_grace() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.unlink("b")
    world.pass_ms(LIMITS.reconnect_grace_ms - 1)
    assert not exchange.ended
    world.pass_ms(1)
    assert exchange.status is Status.AGENT_DISCONNECTED


def test_a_target_back_within_the_grace_has_a_fresh_window() -> None:
    world = World()
    world.link("b")
    exchange = world.ask()
    world.ack(exchange.rid)
    world.unlink("b")
    world.pass_ms(2_900)
    world.link("b")
    world.pass_ms(1_900)
    assert world.reply(exchange.rid) is Answer.OK


@pytest.mark.clause("bridge.life.5")
def test_an_ask_that_never_reached_its_target_is_offline() -> None:
    world = World()
    world.link("b")
    world.unlink("b")
    exchange = world.ask()
    world.pass_ms(LIMITS.reconnect_grace_ms)
    assert exchange.status is Status.AGENT_OFFLINE


@pytest.mark.clause("bridge.life.7")
def test_a_queued_ask_waits_for_its_target_and_its_cap_begins_with_the_first_wake() -> None:
    world = World()
    exchange = world.ask(queue=True)
    world.pass_ms(LIMITS.queue_ttl_ms - 1)
    world.link("b")
    assert world.wakes == [(exchange.rid, 1)]
    assert exchange.cap == world.now + LIMITS.ask_max_ms


def test_a_queued_ask_ends_when_its_time_is_over() -> None:
    world = World()
    exchange = world.ask(queue=True)
    world.pass_ms(LIMITS.queue_ttl_ms)
    assert exchange.status is Status.AGENT_OFFLINE


@pytest.mark.clause("bridge.life.9")
def test_a_cancelled_ask_stops_the_target_only_if_it_was_woken() -> None:
    world = World()
    world.link("b")
    woken, waiting = world.ask(conv="same"), world.ask(conv="same")
    world.cancel(waiting.rid)
    assert world.stopped == []
    world.cancel(woken.rid)
    assert world.stopped == [woken.rid]
    world.cancel(woken.rid)
    assert len(world.settled) == 2


def test_releasing_and_loading_a_queue_ends_and_tells_nothing() -> None:
    world = World()
    world.link("b")
    acked, waiting = world.ask(conv="same"), world.ask(conv="same")
    world.ack(acked.rid)
    records = world.book.release("b")
    assert len(world.book) == 0 and world.settled == []
    world.unlink("b")
    world.book = ExchangeBook(world.roster, LIMITS, epoch=2)
    world.perform(world.book.load("b", reversed(records), world.now))
    world.wakes.clear()
    world.link("b")
    assert world.wakes == []
    world.reply(acked.rid)
    assert world.wakes == [(waiting.rid, 1)]


@pytest.mark.clause("bridge.life.10")
def test_a_queue_loaded_from_a_crash_sends_what_was_not_acked() -> None:
    world = World()
    world.link("b")
    sent = world.ask()
    opening, _ = world.book.submit(world.make(), "here", world.now)
    settling = world.ask()
    world.book.answer(settling.rid, "b", OK, world.now)
    records = world.book.release("b")
    assert records == [sent, opening, settling]
    world.book = ExchangeBook(world.roster, LIMITS, epoch=2)
    world.wakes.clear()
    world.perform(world.book.load("b", records, world.now))
    assert world.wakes == [(sent.rid, 2), (opening.rid, 1), (settling.rid, 2)]


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
