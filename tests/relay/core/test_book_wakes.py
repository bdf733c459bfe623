"""When the book wakes a target: order, links that go and come, queues, crashes."""

import pytest
from tests.relay.core.world import LIMITS, OK, START, World

from hermes_bridge.relay.core.book import ACK_WAIT, Answer, ExchangeBook
from hermes_bridge.relay.core.exchange import Mark, Status
from hermes_bridge.relay.core.policy import Limits


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


def test_an_exchange_remembers_when_the_link_was_lost_and_came_back() -> None:
    world = World()
    world.link("b")
    exchange, waiting = world.ask(), world.ask()
    world.now += 100
    world.ack(exchange.rid)
    world.unlink("b")
    assert world.touched[-2:] == [exchange.rid, waiting.rid], "their ends are nearer now"
    world.now += 400
    world.link("b")
    world.now += 50
    world.unlink("b")
    assert exchange.outages() == [[START + 100, START + 500], [START + 550]]
    assert exchange.cut_off
    assert waiting.marked(Mark.AGAIN) == [START + 500]
    assert exchange.marked(Mark.AGAIN) == exchange.marked(Mark.BEAT) == []


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
