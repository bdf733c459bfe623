"""The relay's own work between its cores and its doors, with a clock in the hand."""

import logging

import pytest

from hermes_bridge.db.sqlite import MEMORY, SqliteDatabase
from hermes_bridge.relay.core.admission import Ask
from hermes_bridge.relay.core.book import ACK_WAIT
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.core.policy import Limits
from hermes_bridge.relay.core.roster import Agent
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.relay import Relay
from hermes_bridge.testing import HandClock

pytestmark = pytest.mark.anyio


class Port:
    """A link that remembers its wakes."""

    def __init__(self) -> None:
        self.wakes: list[int] = []

    def send(self, frame: bytes) -> None:
        raise AssertionError(frame)

    def wake(self, exchange: Exchange) -> None:
        self.wakes.append(exchange.attempt)

    def close(self, code: int, reason: str) -> None:
        raise AssertionError(reason)


def linked(relay: Relay, port: Port) -> None:
    """Give agent `b` a version 2 link that is ready."""
    link = relay.link_up("b", port)
    relay.roster.greet("b", link.generation, protocol=2)
    relay.link_ready("b", link.generation)


def woken(clock: HandClock) -> tuple[Relay, Port, Exchange]:
    """A relay whose agent `b`, on a version 2 link, was just woken."""
    agents = [Agent(name="a"), Agent(name="b")]
    ledger = Ledger(SqliteDatabase(MEMORY))
    relay, port = Relay(agents, Limits(), clock=clock, ledger=ledger), Port()
    linked(relay, port)
    exchange = relay.open(Ask(asker="a", target="b", message="?"))
    assert isinstance(exchange, Exchange)
    return relay, port, exchange


@pytest.mark.clause("bridge.life.6")
async def test_a_bot_that_is_connected_and_takes_no_wake_is_named_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """T52: connected is not read. One line a minute names the bot until it takes its wakes."""
    caplog.set_level(logging.WARNING)
    clock = HandClock()
    relay, port, exchange = woken(clock)
    for _ in range(3):
        clock.pass_ms(ACK_WAIT)
        relay.ring()
    assert port.wakes == [1, 2, 3, 4]
    lines = [r for r in caplog.records if r.getMessage() == "wake.untaken"]
    fields = [r.bridge_fields for r in lines]  # type: ignore[attr-defined]
    assert [(f["agent"], f["waits_ms"]) for f in fields] == [("b", ACK_WAIT)]
    relay.ack(exchange.rid, "b")
    clock.pass_ms(ACK_WAIT)
    relay.ring()
    assert port.wakes == [1, 2, 3, 4]
    assert exchange.status is Status.TAKEN


async def test_wakes_that_are_sent_again_on_a_new_link_are_no_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    clock = HandClock()
    relay, _, _ = woken(clock)
    clock.pass_ms(ACK_WAIT // 2)
    relay.link_down("b", 1)
    again = Port()
    linked(relay, again)
    assert again.wakes == [2]
    assert not caplog.records
