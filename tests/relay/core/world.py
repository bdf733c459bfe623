"""A book with its roster and a shell that performs effects at once, as the relay does."""

from hermes_bridge.relay.core.book import Answer, ExchangeBook
from hermes_bridge.relay.core.effects import (
    Commit,
    Effect,
    Record,
    Settled,
    Stop,
    Tell,
    Touched,
    Wake,
)
from hermes_bridge.relay.core.exchange import Exchange, Outcome, Status
from hermes_bridge.relay.core.policy import Limits
from hermes_bridge.relay.core.roster import Agent, Roster

LIMITS = Limits(
    ask_timeout_ms=2_000,
    ask_max_ms=10_000,
    reconnect_grace_ms=3_000,
    queue_ttl_ms=20_000,
)
NAMES = ("a", "b", "c")
OK = Outcome(Status.OK, answer="yes")
"""What `World.reply` answers unless it is told otherwise."""
START = 1_800_000_000_000


class World:
    """One clock, one roster, one book, and everything they said."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.now = START
        self.roster = Roster(Agent(name=name) for name in NAMES)
        self.limits = limits
        self.book = ExchangeBook(self.roster, limits, epoch=1)
        self.wakes: list[tuple[str, int]] = []
        self.told: list[str] = []
        self.settled: list[Exchange] = []
        self.stopped: list[str] = []
        self.touched: list[str] = []
        self.recorded: list[str] = []
        self._count = 0

    def link(self, agent: str, protocol: int = 2) -> int:
        link, _ = self.roster.link_up(agent, self.now)
        self.roster.greet(agent, link.generation, protocol=protocol)
        self.perform(self.book.link_up(agent, self.now))
        return link.generation

    def unlink(self, agent: str) -> None:
        link = self.roster.link(agent)
        assert link is not None
        self.roster.link_down(agent, link.generation, self.now)
        self.perform(self.book.link_lost(agent, self.now))

    def make(
        self, target: str = "b", asker: str = "a", conv: str | None = None, *, queue: bool = False
    ) -> Exchange:
        self._count += 1
        until = self.now + self.limits.queue_ttl_ms if queue else 0
        return Exchange(
            rid=f"r{self._count}",
            conv=conv or f"conv{self._count}",
            asker=asker,
            target=target,
            message=f"question {self._count}",
            at=self.now,
            cap=max(until, self.now) + self.limits.ask_max_ms,
            window=self.limits.ask_timeout_ms,
            queue_until=until,
        )

    def ask(
        self, target: str = "b", asker: str = "a", conv: str | None = None, *, queue: bool = False
    ) -> Exchange:
        exchange, effects = self.book.submit(
            self.make(target, asker, conv, queue=queue), "here", self.now
        )
        self.perform(effects)
        return exchange

    def reply(self, rid: str, who: str = "b", answer: str = "yes") -> Answer:
        said, effects = self.book.answer(rid, who, Outcome(Status.OK, answer=answer), self.now)
        self.perform(effects)
        return said

    def fail(self, rid: str, who: str = "b") -> Answer:
        said, effects = self.book.answer(
            rid, who, Outcome(Status.FAILED, reason="broken"), self.now
        )
        self.perform(effects)
        return said

    def ack(self, rid: str, who: str = "b") -> None:
        self.perform(self.book.ack(rid, who, self.now))

    def beat(self, rid: str, who: str = "b", note: str | None = None) -> None:
        self.perform(self.book.beat(rid, who, note, self.now))

    def cancel(self, rid: str) -> None:
        self.perform(self.book.cancel(rid, Outcome(Status.CANCELLED, reason="cancelled by a")))

    def pass_ms(self, ms: int) -> None:
        self.now += ms
        self.perform(self.book.expire(self.now))

    def perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Record(exchange):
                    self.recorded.append(exchange.rid)
                    self.perform(self.book.recorded(exchange.rid, self.now))
                case Commit(rid, outcome):
                    self.perform(self.book.committed(rid, outcome, self.now))
                case Wake(exchange, generation):
                    link = self.roster.link(exchange.target)
                    assert link is not None and link.generation == generation
                    self.wakes.append((exchange.rid, exchange.attempt))
                case Tell(_, exchange):
                    self.told.append(exchange.rid)
                case Settled(exchange):
                    self.settled.append(exchange)
                case Stop(exchange, _):
                    self.stopped.append(exchange.rid)
                case Touched(exchange):
                    self.touched.append(exchange.rid)
