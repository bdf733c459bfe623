"""The relay: owns the cores, performs their effects, keeps the one timer.

Everything here runs on the event loop and changes the cores before its first `await`; so no lock
guards them. The doors call it through `verbs.py`; links are `LinkPort`s that it writes to.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from hermes_bridge import ids
from hermes_bridge.clock import Clock
from hermes_bridge.log import Quiet, event
from hermes_bridge.relay.alarm import Alarm
from hermes_bridge.relay.core import frames
from hermes_bridge.relay.core.admission import Admission, Ask, Refusal
from hermes_bridge.relay.core.book import ACK_WAIT, Answer, ExchangeBook
from hermes_bridge.relay.core.conversation import Conversations
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
from hermes_bridge.relay.core.policy import Limits, Rates
from hermes_bridge.relay.core.roster import Agent, Link, Roster
from hermes_bridge.relay.core.tally import Tally
from hermes_bridge.relay.core.waits import WaitGraph
from hermes_bridge.relay.held import Held, Poke, Slices
from hermes_bridge.relay.journal import Journal
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.recall import Recall
from hermes_bridge.relay.seats import LinkPort, Seats

_log = logging.getLogger("hermes_bridge.relay")
_HERE = "here"
"""The origin of every call that this process holds."""
_KEPT_REFUSED = 1_000
"""How much of a refused message is stored."""

Watcher = Callable[[str, Exchange], None]


class Relay:
    """One relay process: agents, open exchanges, held calls."""

    def __init__(
        self, agents: Sequence[Agent], limits: Limits, *, clock: Clock, ledger: Ledger
    ) -> None:
        self.clock = clock
        self.ledger = ledger
        self.journal = Journal(ledger, clock)
        self.roster = Roster(agents)
        self.conversations = Conversations()
        self.waits = WaitGraph()
        self.book = ExchangeBook(self.roster, limits, epoch=clock.now())
        self._admission = Admission(self.roster, self.book, self.conversations, self.waits, Rates())
        self.quiet = Quiet(_log, clock.now)
        self.recall = Recall(self.book, self.conversations, self.journal, clock, self.quiet)
        self._seats = Seats()
        self._held: dict[str, list[Held]] = {}
        self.slices = Slices(clock)
        self._alarm = Alarm(clock, self.ring)
        self.draining = self.loaded = False
        self.tally = Tally()
        self.watchers: list[Watcher] = []
        self._perform_one: dict[type, Callable[..., Sequence[Effect]]] = {
            Record: self._record,
            Wake: self._wake,
            Commit: self._commit,
            Tell: self._tell,
            Settled: self._settled,
            Stop: self._stop,
            Touched: self._touched,
        }

    # Start and stop

    async def start(self) -> None:
        """Read what an earlier process left open. A dead store is no reason not to start."""
        found = await self.recall.everything()
        if found is None:
            return
        remembered, left_open = found
        now = self.clock.now()
        for row in remembered:
            if row.name in self.roster:
                self.roster.restore(row.name, last_seen=row.last_seen, linked=row.linked, now=now)
        self._resume(left_open, now)
        self.loaded = True

    def _resume(self, left_open: Sequence[Exchange], now: int) -> None:
        queues: dict[str, list[Exchange]] = {}
        for exchange in left_open:
            if exchange.rid in self._held or self.book.get(exchange.rid):
                continue
            if exchange.target in self.roster:
                queues.setdefault(exchange.target, []).append(exchange)
            else:
                exchange.status, exchange.ended_at = Status.AGENT_OFFLINE, now
                exchange.reason = "the agent is no longer configured"
                self.journal.note(exchange)
        for agent, exchanges in queues.items():
            for exchange in exchanges:
                self.conversations.load(
                    exchange.conv, exchange.asker, exchange.target, (exchange.at,)
                )
            self._do(self.book.load(agent, exchanges, now), now)
        if left_open:
            event(_log, "relay.resumed", exchanges=sum(map(len, queues.values())))

    async def keep_trying_to_load(self) -> None:
        """Load what could not be loaded at the start, as soon as the store answers."""
        while not self.loaded:
            await asyncio.sleep(2)
            await self.start()

    def drain(self) -> None:
        """Begin to stop: refuse new asks, tell held calls `working`, close links with 1012."""
        self.draining = True
        for calls in list(self._held.values()):
            for held in list(calls):
                self.let_go(held)
                held.poke(Poke.DRAIN)
        for port in self._seats:
            port.close(1012, "the relay is restarting")
        self._alarm.off()

    # Asks

    def open(
        self, ask: Ask, *, key: str | None = None, generation: int = 0
    ) -> Exchange | tuple[Refusal, Exchange]:
        """Open an exchange, or give the refusal with the record of it. Changes everything at once."""
        now = self.clock.now()
        limits = self.book.limits
        rid = ids.keyed_id(ask.asker, key, generation) if key else ids.new_id(now)
        if key is not None and (known := self.book.get(rid)) is not None:
            return known  # the same key twice at once: the other call was first
        closed = Refusal(Status.SHUTTING_DOWN) if self.draining else None
        refusal = closed or self._admission.check(ask, now)
        if refusal is not None:
            return refusal, self._refused(ask, refusal, now)
        conv = ask.conversation or ids.new_id(now)
        parent = ask.parent
        cap = now + limits.ask_max_ms
        queue_until = now + limits.queue_ttl_ms if ask.queue else 0
        exchange = Exchange(
            rid=rid,
            conv=conv,
            asker=ask.asker,
            target=ask.target,
            message=ask.message,
            at=now,
            cap=max(cap, queue_until + limits.ask_max_ms) if queue_until else cap,
            window=limits.ask_timeout_ms,
            data=ask.data,
            queue_until=queue_until,
            depth=parent.depth + 1 if parent else 0,
            chain=(*parent.chain, parent.asker) if parent else (),
            keyed=key is not None,
            trace=ask.trace,
        )
        self.conversations.began(conv, ask.asker, ask.target, now, limits.run_pause_ms)
        exchange, effects = self.book.submit(exchange, _HERE, now)
        if self.watchers:
            self._watch("opened", exchange)
        self._do(effects, now)
        return exchange

    def _refused(self, ask: Ask, refusal: Refusal, now: int) -> Exchange:
        text = ask.message[:_KEPT_REFUSED].replace("\0", "\N{REPLACEMENT CHARACTER}")
        record = Exchange(
            rid=ids.new_id(now),
            conv=ask.conversation or ids.new_id(now),
            asker=ask.asker,
            target=ask.target[:64].encode("utf-8", "replace").decode(),
            message=text.encode("utf-8", "replace").decode(),
            at=now,
            cap=now,
            window=self.book.limits.ask_timeout_ms,
            status=refusal.status,
            ended_at=now,
            reason=", ".join(refusal.chain) or refusal.detail or None,
        )
        self.tally.was_refused(record.target, record.status, known=record.target in self.roster)
        self.journal.note(record)
        if self.watchers:
            self._watch("refused", record)
        return record

    def reply(self, rid: str, who: str, outcome: Outcome) -> Answer:
        """Take an answer, wherever it came in."""
        now = self.clock.now()
        said, effects = self.book.answer(rid, who, outcome, now)
        self._do(effects, now)
        return said

    def cancel(self, rid: str, reason: str) -> bool:
        """End an open exchange for its asker (or an operator)."""
        now = self.clock.now()
        effects = self.book.cancel(rid, Outcome(Status.CANCELLED, reason=reason))
        self._do(effects, now)
        return bool(effects)

    def touch(self, exchange: Exchange) -> None:
        """Store what a verb changed of an ended exchange, and tell who looks on."""
        self._touched(Touched(exchange), self.clock.now())

    # Held calls

    def hold(self, held: Held) -> None:
        """Hold a call for its exchange; while it is held the asker waits for the target."""
        exchange = held.exchange
        if exchange.ended or self.draining:
            held.done = True
            held.poke(Poke.ENDED if exchange.ended else Poke.DRAIN)
            return
        calls = self._held.get(exchange.rid)
        if calls is None:
            self._held[exchange.rid] = [held]
            if not exchange.origins:
                self.book.attach(exchange.rid, _HERE)  # it was resumed
        else:
            calls.append(held)
        self.waits.add(exchange.rid, exchange.asker, exchange.target, exchange.conv)

    def let_go(self, held: Held) -> None:
        """The call is over, one way or the other. Safe to call twice."""
        held.done = True
        rid = held.exchange.rid
        calls = self._held.get(rid)
        if calls is not None and held in calls:
            calls.remove(held)
            if not calls:
                del self._held[rid]
                self.waits.drop(rid)

    def is_held(self, rid: str) -> bool:
        """Whether some call waits for the exchange."""
        return rid in self._held

    # Links

    def link_up(self, agent: str, port: LinkPort) -> Link:
        """Seat a connection; an older one of the same agent is closed with 4409."""
        now = self.clock.now()
        link, _ = self.roster.link_up(agent, now)
        if (older := self._seats.take(agent, link.generation, port)) is not None:
            older.close(4409, "superseded: another connection of this agent took over")
            self.quiet.event("link.superseded", f"another connection of {agent}", agent=agent)
        self.journal.note_agent(agent, now, linked=True)
        self.tally.links[agent] += 1
        return link

    def link_ready(self, agent: str, generation: int) -> None:
        """Wakes may go out on that link now."""
        if self.roster.is_current(agent, generation):
            link = self.roster.link(agent)
            if link is not None:
                link.ready = True
            now = self.clock.now()
            self._do(self.book.link_up(agent, now), now)

    def link_down(self, agent: str, generation: int) -> bool:
        """A connection is gone; an older one's end changes nothing."""
        now = self.clock.now()
        if not self.roster.link_down(agent, generation, now):
            return False
        self._seats.leave(agent)
        self.journal.note_agent(agent, now, linked=self.draining)
        self._do(self.book.link_lost(agent, now), now)
        return True

    def ack(self, rid: str, who: str) -> None:
        """The target took a wake."""
        now = self.clock.now()
        self._do(self.book.ack(rid, who, now), now)

    def beat(self, rid: str, who: str, note: str | None) -> None:
        """The target still works."""
        now = self.clock.now()
        self._do(self.book.beat(rid, who, note, now), now)
        if self.watchers:
            exchange = self.book.get(rid)
            if exchange is not None and not exchange.ended:
                self._watch("beat", exchange)

    def replace(self, agents: Sequence[Agent], limits: Limits) -> list[str]:
        """Take a new configuration; give the agents that are gone."""
        gone = self.roster.replace(agents)
        self.book.limits = limits
        for name in gone:
            self.close_link(name, 4401, "this agent is no longer configured")
            for exchange in self.book.release(name):
                self.book.remember(exchange)
                self._end_orphan(exchange)
        return gone

    def close_link(self, agent: str, code: int, reason: str) -> None:
        """Close an agent's connection, if it has one."""
        port = self._seats.port(agent)
        if port is not None:
            port.close(code, reason)

    # Effects

    def _do(self, effects: Sequence[Effect], now: int) -> None:
        self._run(effects, now)
        self._alarm.at(self.book.next_deadline())

    def _run(self, effects: Sequence[Effect], now: int) -> None:
        for effect in effects:
            more = self._perform_one[type(effect)](effect, now)
            if more:
                self._run(more, now)

    def _record(self, effect: Record, now: int) -> Sequence[Effect]:
        self.journal.note(effect.exchange)
        return self.book.recorded(effect.exchange.rid, now)

    def _wake(self, effect: Wake, now: int) -> Sequence[Effect]:
        exchange = effect.exchange
        port = self._seats.of(exchange.target, effect.generation)
        if port is not None:
            port.wake(exchange)
            if exchange.attempt > 1:
                self._untaken(exchange, now)
            if self.watchers:
                self._watch("sent", exchange)
        return ()

    def _untaken(self, exchange: Exchange, now: int) -> None:
        """Say that a bot is connected and does not take its wakes: its turns never begin."""
        link, agent = self.roster.link(exchange.target), exchange.target
        if link is not None and now - link.since >= ACK_WAIT:
            cause = f"{agent} is connected and does not take its wakes"
            waits_ms = now - (exchange.sent_at or now)
            self.quiet.event("wake.untaken", cause, agent=agent, waits_ms=waits_ms)

    def _commit(self, effect: Commit, now: int) -> Sequence[Effect]:
        return self.book.committed(effect.rid, effect.outcome, now)

    def _tell(self, effect: Tell, now: int) -> Sequence[Effect]:
        rid = effect.exchange.rid
        calls = self._held.pop(rid, None)
        if calls is not None:
            self.waits.drop(rid)
            for held in calls:
                held.done = True
                held.poke(Poke.ENDED)
        return ()

    def _settled(self, effect: Settled, now: int) -> Sequence[Effect]:
        exchange = effect.exchange
        self.tally.ended(exchange)
        self.conversations.ended(exchange.conv, now)
        self.journal.note(exchange)
        if self.watchers:
            self._watch("ended", exchange)
        return ()

    def _stop(self, effect: Stop, now: int) -> Sequence[Effect]:
        link = self.roster.link(effect.exchange.target)
        port = self._seats.port(effect.exchange.target)
        if port is not None and link is not None and link.acks:
            port.send(frames.cancel(effect.exchange.rid, effect.reason))
        return ()

    def _touched(self, effect: Touched, now: int) -> Sequence[Effect]:
        self.journal.note(effect.exchange)
        if self.watchers:
            self._watch("changed", effect.exchange)
        return ()

    def _end_orphan(self, exchange: Exchange) -> None:
        now = self.clock.now()
        exchange.status, exchange.ended_at = Status.AGENT_OFFLINE, now
        exchange.reason = "the agent is no longer configured"
        self._tell(Tell(_HERE, exchange), now)
        self._settled(Settled(exchange), now)

    def _watch(self, what: str, exchange: Exchange) -> None:
        for watcher in self.watchers:
            try:
                watcher(what, exchange)
            except Exception:  # noqa: BLE001 - who only looks on must not hurt
                self.quiet.event("watcher.failed", type(watcher).__name__)

    def ring(self) -> None:
        """End or announce again what is due (the alarm calls it)."""
        now = self.clock.now()
        self._do(self.book.expire(now), now)
