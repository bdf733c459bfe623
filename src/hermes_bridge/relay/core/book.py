"""The exchange book: the life of every open exchange, one queue an agent.

The book decides when a wake goes out, what a sign of life means and when an exchange ends. It is
told the time and what happened, changes at once, and answers with effects (`effects.py`). Every
outcome takes two steps: `Commit` (the exchange is `settling`), then `committed`. With one process
the second follows in the same instant; with several a compare-and-set lies between.

Its heap holds one entry an exchange. A heartbeat only moves `Exchange.deadline`; the entry is
pushed again when its old instant comes.
"""

from collections.abc import Iterable
from enum import StrEnum
from heapq import heapify, heappop, heappush

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
from hermes_bridge.relay.core.exchange import LATE_AFTER, Exchange, Mark, Outcome, Status, move
from hermes_bridge.relay.core.lately import EndedLately
from hermes_bridge.relay.core.policy import Limits
from hermes_bridge.relay.core.queue import Queue
from hermes_bridge.relay.core.roster import Roster

_NOTE_LENGTH = 200
ACK_WAIT = 10_000
"""How long a version 2 link may take to acknowledge a wake before it is announced again."""


class Answer(StrEnum):
    """What the book says to a reply."""

    OK = "ok"
    LATE = "late"
    UNKNOWN = "unknown_request"
    NOT_YOURS = "not_your_request"
    ALREADY = "already_answered"


class ExchangeBook:
    """The sole writer of open exchanges. Reads presence from the roster."""

    def __init__(self, roster: Roster, limits: Limits, *, epoch: int = 0) -> None:
        self._roster = roster
        self.limits = limits
        self._epoch, self._counter = epoch, 0
        self._queues: dict[str, Queue] = {}
        self._open: dict[str, Exchange] = {}
        self._heap: list[tuple[int, str]] = []
        self._lately = EndedLately()

    def __len__(self) -> int:
        return len(self._open)

    def get(self, rid: str) -> Exchange | None:
        """Give an exchange that is open or ended lately."""
        return self._open.get(rid) or self._lately.get(rid)

    def open_exchanges(self) -> list[Exchange]:
        """Give all open exchanges, oldest first."""
        return list(self._open.values())

    def ended_lately(self) -> list[Exchange]:
        """Give the ended exchanges that memory still holds, oldest end first."""
        return self._lately.all()

    def pending(self, agent: str) -> int:
        """Count the open exchanges asked of an agent."""
        queue = self._queues.get(agent)
        return len(queue.open) if queue else 0

    def working_on(self, agent: str) -> Exchange | None:
        """Give the oldest exchange that the agent has been woken for."""
        queue = self._queues.get(agent)
        if queue is None:
            return None
        return next((x for x in queue.open.values() if x.attempt), None)

    def submit(self, exchange: Exchange, origin: str, now: int) -> tuple[Exchange, list[Effect]]:
        """Open an exchange, or attach `origin` to the one that has its id already.

        Idempotent by request id: the exchange given back may be the old one, open or ended.
        """
        known = self.get(exchange.rid)
        if known is not None:
            self.attach(known.rid, origin)
            return known, []
        self._counter += 1
        exchange.order = (self._epoch, self._counter)
        exchange.origins = (origin,)
        self._seat(exchange)
        return exchange, [Record(exchange)]

    def attach(self, rid: str, origin: str) -> None:
        """Have `origin` told of the end of an exchange that was not opened by its submit."""
        exchange = self._open.get(rid)
        if exchange is not None and origin not in exchange.origins:
            exchange.origins = (*exchange.origins, origin)

    def recorded(self, rid: str, now: int) -> list[Effect]:
        """Go on after `Record`: the exchange is known to the store and may be sent."""
        exchange = self._open.get(rid)
        if exchange is None or exchange.status is not Status.OPENING:
            return []
        move(exchange, Status.QUEUED)
        effects = self._pump(exchange.target, exchange.conv, now)
        if not exchange.attempt:  # it waits for its turn, or for the link
            self._arm(exchange, now)
        return effects

    def ack(self, rid: str, who: str, now: int) -> list[Effect]:
        """The target's link took the wake."""
        exchange = self._mine(rid, who)
        if exchange is None or exchange.status not in (Status.SENT, Status.TAKEN):
            return []
        return self._alive(exchange, now)

    def beat(self, rid: str, who: str, note: str | None, now: int) -> list[Effect]:
        """The target still works on it; only the target may say so."""
        exchange = self._mine(rid, who)
        if exchange is None or exchange.status not in (Status.SENT, Status.TAKEN):
            return []
        exchange.beats += 1
        exchange.mark(now)
        if note:
            exchange.note = note[:_NOTE_LENGTH]
        return self._alive(exchange, now)

    def answer(self, rid: str, who: str, outcome: Outcome, now: int) -> tuple[Answer, list[Effect]]:
        """The target replies. The same reply again is `ok`; a late one is kept."""
        exchange = self.get(rid)
        if exchange is None:
            return Answer.UNKNOWN, []
        if exchange.target != who:
            return Answer.NOT_YOURS, []
        if exchange.ended:
            return self._late(exchange, outcome, now)
        if exchange.status is Status.SETTLING:
            return Answer.ALREADY, []
        return Answer.OK, [self._settle(exchange, outcome)]

    def cancel(self, rid: str, outcome: Outcome) -> list[Effect]:
        """End an open exchange as cancelled; whether the caller may is the verb's question."""
        exchange = self._open.get(rid)
        if exchange is None or exchange.status is Status.SETTLING:
            return []
        return [self._settle(exchange, outcome)]

    def committed(self, rid: str, outcome: Outcome, now: int) -> list[Effect]:
        """Go on after `Commit`, with the outcome that is stored (which may be another one)."""
        exchange = self._open.get(rid)
        if exchange is None:
            return []
        woken = exchange.attempt > 0
        if exchange.status is not Status.SETTLING:
            move(exchange, Status.SETTLING)
        move(exchange, outcome.status)
        exchange.ended_at = now
        exchange.answer, exchange.answer_data = outcome.answer, outcome.data
        exchange.reason = outcome.reason
        self._unseat(exchange)
        self._lately.keep(exchange)
        effects: list[Effect] = []
        for origin in exchange.origins:
            effects.append(Tell(origin, exchange))  # noqa: PERF401  a comprehension is one call more
        effects.append(Settled(exchange))
        if outcome.status is Status.CANCELLED and woken:
            effects.append(Stop(exchange, outcome.reason or "cancelled"))
        effects += self._pump(exchange.target, exchange.conv, now)
        return effects

    def link_up(self, agent: str, now: int) -> list[Effect]:
        """The agent's link is ready: every exchange gets a fresh window, heads are sent (again)."""
        queue = self._queues.get(agent)
        link = self._roster.link(agent)
        if queue is None or link is None or not link.ready:
            return []
        effects: list[Effect] = []
        for exchange in queue.open.values():
            if exchange.cut_off:
                exchange.mark(now, Mark.BACK)
            if exchange.status is Status.SENT or (
                exchange.status is Status.TAKEN and not link.acks
            ):
                effects += self._send(exchange, link.generation, now)
            elif exchange.status is Status.TAKEN:
                exchange.heard_at = now
                effects.append(Touched(exchange))
            self._arm(exchange, now)
        for conversation in list(queue.lanes):
            effects += self._pump(agent, conversation, now)
        return effects

    def link_lost(self, agent: str, now: int) -> list[Effect]:
        """The agent has no link: its exchanges end when the grace is over."""
        queue = self._queues.get(agent)
        effects: list[Effect] = []
        for exchange in queue.open.values() if queue is not None else ():
            self._arm(exchange, now)
            if exchange.attempt and not exchange.cut_off:
                exchange.mark(now, Mark.LOST)
                effects.append(Touched(exchange))
        return effects

    def expire(self, now: int) -> list[Effect]:
        """End what is overdue. Never acts by itself: every end is a `Commit`."""
        effects: list[Effect] = []
        heap = self._heap
        while heap and heap[0][0] <= now:
            instant, rid = heappop(heap)
            exchange = self._open.get(rid)
            if exchange is None or exchange.timer != instant:
                continue
            exchange.timer = 0
            if exchange.status is Status.SETTLING:
                continue
            if exchange.deadline > now:
                effects += self._wait_on(exchange, now)
            else:
                effects.append(self._settle(exchange, Outcome(self._why(exchange, now))))
        return effects

    def next_deadline(self) -> int | None:
        """Give the instant at which `expire` wants to be called; it may be too early, never too late."""
        return self._heap[0][0] if self._heap else None

    def load(self, agent: str, records: Iterable[Exchange], now: int) -> list[Effect]:
        """Take over an agent's queue (a restart, a seat that moved). Nothing ends, nobody is told.

        A take-over counts as a sign of life: windows are fresh, caps stay.
        """
        for exchange in sorted(records, key=lambda x: x.order):
            if exchange.rid in self._open or exchange.ended or exchange.target != agent:
                continue
            if exchange.status in (Status.OPENING, Status.SETTLING):
                exchange.status = Status.TAKEN if exchange.taken_at else Status.QUEUED
            exchange.timer = 0
            self._seat(exchange)
            self._arm(exchange, now)
        return self.link_up(agent, now)

    def release(self, agent: str) -> list[Exchange]:
        """Hand an agent's queue over. Nothing ends, nobody is told."""
        queue = self._queues.pop(agent, None)
        if queue is None:
            return []
        for rid in queue.open:
            del self._open[rid]
        return list(queue.open.values())

    def remember(self, exchange: Exchange) -> None:
        """Take an ended exchange back from the ledger, so that late answers find it."""
        if exchange.ended and exchange.rid not in self._open:
            self._lately.keep(exchange)

    def _mine(self, rid: str, who: str) -> Exchange | None:
        exchange = self._open.get(rid)
        return exchange if exchange is not None and exchange.target == who else None

    def _alive(self, exchange: Exchange, now: int) -> list[Effect]:
        exchange.heard_at = now
        deadline = min(exchange.cap, now + exchange.window)
        if deadline > exchange.deadline:
            exchange.deadline = deadline
        if exchange.status is Status.SENT:
            move(exchange, Status.TAKEN)
            exchange.taken_at = now
            return [Touched(exchange)]
        return []

    def _late(self, exchange: Exchange, outcome: Outcome, now: int) -> tuple[Answer, list[Effect]]:
        if exchange.status is Status.OK and outcome.status is Status.OK:
            same = exchange.answer == outcome.answer and exchange.answer_data == outcome.data
            return (Answer.OK if same else Answer.ALREADY), []
        if exchange.status is Status.FAILED and outcome.status is Status.FAILED:
            return Answer.OK, []
        if exchange.status not in LATE_AFTER:
            return Answer.ALREADY, []
        if outcome.status is not Status.OK:
            return Answer.LATE, []
        if exchange.late_at:
            return (Answer.LATE if exchange.late_answer == outcome.answer else Answer.ALREADY), []
        exchange.late_answer, exchange.late_data = outcome.answer, outcome.data
        exchange.late_at = now
        self._lately.grew(len(outcome.answer or ""))
        return Answer.LATE, [Touched(exchange)]

    def _settle(self, exchange: Exchange, outcome: Outcome) -> Commit:
        move(exchange, Status.SETTLING)
        return Commit(exchange.rid, outcome)

    def _pump(self, agent: str, conversation: str, now: int) -> list[Effect]:
        """Wake the head of a lane if it has not been woken and the link is there."""
        queue = self._queues.get(agent)
        lane = queue.lanes.get(conversation) if queue else None
        if not lane or lane[0].status is not Status.QUEUED:
            return []
        link = self._roster.link(agent)
        if link is None or not link.ready:
            return []
        return self._send(lane[0], link.generation, now)

    def _send(self, exchange: Exchange, generation: int, now: int) -> list[Effect]:
        again = exchange.attempt > 0
        if not again and exchange.queue_until:
            exchange.cap = min(exchange.cap, now + self.limits.ask_max_ms)
        move(exchange, Status.SENT)
        exchange.attempt += 1
        exchange.woken_at = now
        if again:
            exchange.mark(now, Mark.AGAIN)
        else:
            exchange.sent_at = now
        self._arm(exchange, now)
        wake = Wake(exchange, generation)
        return [wake, Touched(exchange)] if again else [wake]

    def _arm(self, exchange: Exchange, now: int) -> None:
        """Set the deadline anew from the exchange's status and the target's link."""
        limits = self.limits
        if self._roster.link(exchange.target) is not None:
            waits = exchange.status in (Status.OPENING, Status.QUEUED)
            silent = exchange.cap if waits else now + exchange.window
        else:
            lost = self._roster.seen(exchange.target).lost_at or now
            silent = lost + limits.reconnect_grace_ms
            if not exchange.attempt and exchange.queue_until > silent:
                silent = exchange.queue_until
        exchange.deadline = min(exchange.cap, silent)
        due = self._due(exchange)
        if not exchange.timer or due < exchange.timer:
            self._push(exchange, due)

    def _due(self, exchange: Exchange) -> int:
        """Give the instant at which something is to be done: the deadline, or a missing ack."""
        if exchange.status is Status.SENT and self._acking(exchange.target) is not None:
            return min(exchange.deadline, exchange.woken_at + ACK_WAIT)
        return exchange.deadline

    def _wait_on(self, exchange: Exchange, now: int) -> list[Effect]:
        """Its instant came and it is not overdue: announce a wake that nobody took again, wait on.

        That is no sign of life of the target: the deadline stays.
        """
        effects: list[Effect] = []
        generation = self._acking(exchange.target)
        untaken = exchange.status is Status.SENT and now >= exchange.woken_at + ACK_WAIT
        if untaken and generation is not None:
            exchange.attempt += 1
            exchange.woken_at = now
            exchange.mark(now, Mark.AGAIN)
            effects = [Wake(exchange, generation), Touched(exchange)]
        self._push(exchange, self._due(exchange))
        return effects

    def _acking(self, agent: str) -> int | None:
        """Give the generation of an agent's link if it is ready and acknowledges wakes."""
        link = self._roster.link(agent)
        return link.generation if link is not None and link.ready and link.acks else None

    def _push(self, exchange: Exchange, due: int) -> None:
        exchange.timer = due
        heap = self._heap
        if len(heap) > 256 and len(heap) > 4 * len(self._open):
            heap[:] = [(x.timer, x.rid) for x in self._open.values() if x.timer]
            heapify(heap)
        else:
            heappush(heap, (exchange.timer, exchange.rid))

    def _why(self, exchange: Exchange, now: int) -> Status:
        linked = self._roster.link(exchange.target) is not None
        if not linked and not exchange.attempt:
            return Status.AGENT_OFFLINE
        if now >= exchange.cap:
            return Status.DEADLINE_EXCEEDED
        return Status.TIMEOUT if linked else Status.AGENT_DISCONNECTED

    def _seat(self, exchange: Exchange) -> None:
        queue = self._queues.get(exchange.target)
        if queue is None:
            queue = self._queues[exchange.target] = Queue()
        queue.add(exchange)
        self._open[exchange.rid] = exchange

    def _unseat(self, exchange: Exchange) -> None:
        del self._open[exchange.rid]
        self._queues[exchange.target].remove(exchange)
