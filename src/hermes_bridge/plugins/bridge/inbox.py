"""What this bot was asked: one queue a conversation, one turn at a time, one answer each.

Pure: no clock, no socket, no disk. Every method is told what happened and returns effects, in the
order in which the shell must perform them. Times are seconds of one clock that goes forward over
restarts (`time.time()`).

An exchange is `QUEUED` (its wake was taken), `RUNNING` (its turn is on) or `SETTLED` (answered,
failed or cancelled here). A turn may outlive its exchange: the reply tool answers in mid-turn.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from .frames import Wake

REST_S = 0.25
"""After a turn the next wake of that conversation waits: Hermes closes the turn behind the text."""
KEEP_S = 24 * 3600.0
"""How long a request id is remembered, so that it runs once."""
MAX_OPEN = 1_000
MAX_STARTS = 3
KEPT_ANSWERS = 256


class State(Enum):
    """Where an exchange stands, as this bot sees it."""

    QUEUED = "queued"
    RUNNING = "running"
    SETTLED = "settled"


class Event(Enum):
    """What moves an exchange."""

    START = "start"
    POSTPONE = "postpone"
    REPLY = "reply"
    CANCEL = "cancel"


TRANSITIONS: dict[State, dict[Event, State]] = {
    State.QUEUED: {
        Event.START: State.RUNNING,
        Event.REPLY: State.SETTLED,
        Event.CANCEL: State.SETTLED,
    },
    State.RUNNING: {
        Event.POSTPONE: State.QUEUED,
        Event.REPLY: State.SETTLED,
        Event.CANCEL: State.SETTLED,
    },
    State.SETTLED: {},
}


@dataclass(frozen=True, slots=True)
class Reply:
    """What is sent to the asker: an answer, or why there is none."""

    text: str
    failure: bool = False
    data: Any = None


@dataclass(slots=True)
class Exchange:
    """One question and what came of it."""

    wake: Wake
    arrived: float
    state: State = State.QUEUED
    starts: int = 0
    reply: Reply | None = None
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """Tell the relay that the wake is taken, once its `Keep` is on disk."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Write down what an exchange has become."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Start:
    """Begin the turn."""

    wake: Wake


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the turn of a conversation: its exchange was cancelled."""

    conversation_id: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Send:
    """Bring a reply to the relay, however long that takes."""

    request_id: str
    reply: Reply


Effect = Ack | Keep | Start | Interrupt | Send


@dataclass(slots=True)
class _Lane:
    """One conversation: who waits, whose turn is on, when the next may start."""

    waiting: deque[str] = field(default_factory=deque)
    turn: str | None = None
    ready_at: float = 0.0


class Inbox:
    """All exchanges that were asked of this bot and are not older than a day."""

    def __init__(self) -> None:
        self._exchanges: dict[str, Exchange] = {}
        self._lanes: dict[str, _Lane] = {}
        self._forget_at = 0.0

    # What is true now

    def get(self, request_id: str) -> Exchange | None:
        """Give an exchange by its id."""
        return self._exchanges.get(request_id)

    def turn(self, conversation: str) -> str | None:
        """Give the exchange whose turn is on in a conversation."""
        lane = self._lanes.get(conversation)
        return lane.turn if lane else None

    def open(self) -> list[str]:
        """Give the exchanges that the bot still works on, the waiting ones included."""
        return [
            rid
            for lane in self._lanes.values()
            for rid in ([lane.turn] if lane.turn else []) + list(lane.waiting)
            if self._exchanges[rid].state is not State.SETTLED
        ]

    def turns(self) -> list[tuple[str, str]]:
        """Give (conversation, exchange) of every turn that is on."""
        return [(c, lane.turn) for c, lane in self._lanes.items() if lane.turn]

    def all(self) -> list[Exchange]:
        """Give every exchange that is remembered, oldest first."""
        return list(self._exchanges.values())

    def next_deadline(self) -> float | None:
        """When `due` has something to do, if nothing else happens first."""
        return min(
            (lane.ready_at for lane in self._lanes.values() if lane.waiting and not lane.turn),
            default=None,
        )

    # What happens

    def arrived(self, wake: Wake, now: float) -> list[Effect]:
        """A wake came in, perhaps not for the first time."""
        known = self._exchanges.get(wake.request_id)
        if known is not None:
            again: list[Effect] = [Ack(wake.request_id)]
            if known.reply is not None:
                again.append(Send(wake.request_id, known.reply))
            return again
        if now >= self._forget_at:
            self._forget(now)
        exchange = self._exchanges[wake.request_id] = Exchange(wake, now)
        effects: list[Effect] = [Keep(wake.request_id), Ack(wake.request_id)]
        if len(self.open()) >= MAX_OPEN:
            full = Reply(
                "This agent has too many questions waiting; ask again later.", failure=True
            )
            return effects + self._settle(exchange, Event.REPLY, full)
        self._lane(wake.conversation_id).waiting.append(wake.request_id)
        return effects + self.due(now)

    def due(self, now: float) -> list[Effect]:
        """Start every turn that may start now."""
        effects: list[Effect] = []
        for lane in list(self._lanes.values()):
            while lane.waiting and lane.turn is None and lane.ready_at <= now:
                exchange = self._exchanges[lane.waiting.popleft()]
                if exchange.state is State.SETTLED:
                    continue
                rid = exchange.wake.request_id
                if exchange.starts >= MAX_STARTS:
                    broken = f"The agent stopped {MAX_STARTS} times while it worked on this."
                    effects += self._settle(exchange, Event.REPLY, Reply(broken, failure=True))
                    continue
                self._move(exchange, Event.START)
                exchange.starts += 1
                lane.turn = rid
                attempt = max(exchange.wake.attempt, exchange.starts)
                effects += [Keep(rid), Start(replace(exchange.wake, attempt=attempt))]
        self._sweep()
        return effects

    def postponed(self, request_id: str, until: float) -> list[Effect]:
        """The turn could not be begun (the gateway starts, stops or is busy): try again later."""
        exchange = self._exchanges[request_id]
        lane = self._lane(exchange.wake.conversation_id)
        if lane.turn != request_id:
            return []
        lane.turn, lane.ready_at = None, until
        if exchange.state is State.RUNNING:
            self._move(exchange, Event.POSTPONE)
            exchange.starts -= 1
            lane.waiting.appendleft(request_id)
        self._sweep()
        return []

    def replied(self, request_id: str, reply: Reply) -> list[Effect]:
        """The bot answered, by its final text or by the reply tool; the first one counts."""
        exchange = self._exchanges.get(request_id)
        if exchange is None or exchange.state is State.SETTLED:
            return []
        return self._settle(exchange, Event.REPLY, reply)

    def turn_over(self, request_id: str, now: float, reason: str) -> list[Effect]:
        """A turn ended; without an answer it failed, for the given reason."""
        exchange = self._exchanges.get(request_id)
        if exchange is None:
            return []
        lane = self._lane(exchange.wake.conversation_id)
        if lane.turn != request_id:
            self._sweep()
            return []
        effects = self.replied(request_id, Reply(reason, failure=True))
        lane.turn, lane.ready_at = None, now + REST_S
        self._sweep()
        return effects

    def cancelled(self, request_id: str) -> list[Effect]:
        """Nobody waits for this exchange any more."""
        exchange = self._exchanges.get(request_id)
        if exchange is None or exchange.state is State.SETTLED:
            return []
        conversation = exchange.wake.conversation_id
        effects = self._settle(exchange, Event.CANCEL, None)
        if self.turn(conversation) == request_id:
            effects.append(Interrupt(conversation, request_id))
        return effects

    def confirmed(self, request_id: str) -> list[Effect]:
        """The relay has the reply."""
        exchange = self._exchanges.get(request_id)
        if exchange is None or exchange.confirmed:
            return []
        exchange.confirmed = True
        return [Keep(request_id)]

    def loaded(self, exchanges: Iterable[Exchange], now: float) -> list[Effect]:
        """Go on after a restart: what was running starts again, what was answered is sent again."""
        effects: list[Effect] = []
        for exchange in exchanges:
            wake = exchange.wake
            if exchange.arrived + KEEP_S <= now or wake.request_id in self._exchanges:
                continue
            self._exchanges[wake.request_id] = exchange
            if exchange.state is State.SETTLED:
                if exchange.reply is not None and not exchange.confirmed:
                    effects.append(Send(wake.request_id, exchange.reply))
                continue
            if wake.deadline_ms is not None and exchange.arrived + wake.deadline_ms / 1000 <= now:
                effects += self._settle(exchange, Event.CANCEL, None)
                continue
            exchange.state = State.QUEUED
            self._lane(wake.conversation_id).waiting.append(wake.request_id)
        return effects + self.due(now)

    # How

    def _lane(self, conversation: str) -> _Lane:
        return self._lanes.setdefault(conversation, _Lane())

    def _move(self, exchange: Exchange, event: Event) -> None:
        exchange.state = TRANSITIONS[exchange.state][event]

    def _settle(self, exchange: Exchange, event: Event, reply: Reply | None) -> list[Effect]:
        self._move(exchange, event)
        rid = exchange.wake.request_id
        exchange.reply, exchange.confirmed = reply, reply is None
        kept: list[Effect] = [Keep(rid)]
        return kept if reply is None else [*kept, Send(rid, reply)]

    def _sweep(self) -> None:
        """Drop conversations with nothing to do, the resting ones only when there are many."""
        idle = [c for c, lane in self._lanes.items() if not lane.waiting and lane.turn is None]
        for conversation in idle:
            if len(self._lanes) > KEPT_ANSWERS or self._lanes[conversation].ready_at == 0.0:
                del self._lanes[conversation]

    def _forget(self, now: float) -> None:
        """Let go of what is a day old, and of the texts of old confirmed answers."""
        self._forget_at = now + 60
        old = [r for r, e in self._exchanges.items() if e.arrived + KEEP_S <= now]
        busy = set(self.open()) | {lane.turn for lane in self._lanes.values() if lane.turn}
        for rid in old:
            if rid not in busy:
                del self._exchanges[rid]
        answered = [e for e in self._exchanges.values() if e.reply is not None and e.confirmed]
        for exchange in answered[:-KEPT_ANSWERS]:
            exchange.reply = None
