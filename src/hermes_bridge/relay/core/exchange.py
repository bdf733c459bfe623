"""One exchange: an ask and the single outcome that ends it (docs/protocol/bridge.md, part 3).

The table `TRANSITIONS` is the law and the source of the documentation's diagram. Times are unix
milliseconds. Records hold no live objects, so that another process can own them later.
"""

from enum import Enum, StrEnum

import msgspec


class Status(StrEnum):
    """Where an exchange stands; the values are wire names and table values."""

    OPENING = "opening"
    QUEUED = "queued"
    SENT = "sent"
    TAKEN = "taken"
    SETTLING = "settling"

    OK = "ok"
    TIMEOUT = "timeout"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    AGENT_DISCONNECTED = "agent_disconnected"
    AGENT_OFFLINE = "agent_offline"
    CANCELLED = "cancelled"
    FAILED = "failed"

    UNKNOWN_AGENT = "unknown_agent"
    UNKNOWN_CONVERSATION = "unknown_conversation"
    NOT_ALLOWED = "not_allowed"
    WOULD_DEADLOCK = "would_deadlock"
    TURN_LIMIT = "turn_limit"
    QUEUE_FULL = "queue_full"
    RATE_LIMITED = "rate_limited"
    MESSAGE_TOO_LARGE = "message_too_large"
    INVALID_MESSAGE = "invalid_message"
    SHUTTING_DOWN = "shutting_down"


ENDS = frozenset(
    {
        Status.OK,
        Status.TIMEOUT,
        Status.DEADLINE_EXCEEDED,
        Status.AGENT_DISCONNECTED,
        Status.AGENT_OFFLINE,
        Status.CANCELLED,
        Status.FAILED,
    }
)
"""The outcomes that end an exchange which was opened."""

REFUSALS = frozenset(
    {
        Status.UNKNOWN_AGENT,
        Status.UNKNOWN_CONVERSATION,
        Status.NOT_ALLOWED,
        Status.WOULD_DEADLOCK,
        Status.TURN_LIMIT,
        Status.QUEUE_FULL,
        Status.RATE_LIMITED,
        Status.MESSAGE_TOO_LARGE,
        Status.INVALID_MESSAGE,
        Status.AGENT_OFFLINE,
        Status.SHUTTING_DOWN,
    }
)
"""The outcomes that open nothing."""

TRANSITIONS: dict[Status, frozenset[Status]] = {
    Status.OPENING: frozenset({Status.QUEUED, Status.SETTLING}),
    Status.QUEUED: frozenset({Status.SENT, Status.SETTLING}),
    Status.SENT: frozenset({Status.SENT, Status.TAKEN, Status.SETTLING}),
    Status.TAKEN: frozenset({Status.SENT, Status.SETTLING}),
    Status.SETTLING: ENDS,
    **{end: frozenset() for end in ENDS},
}
"""From each status, where an exchange may go. `taken` -> `sent` is a wake sent again to a seed adapter."""

LATE_AFTER = frozenset(
    {Status.TIMEOUT, Status.DEADLINE_EXCEEDED, Status.AGENT_DISCONNECTED, Status.CANCELLED}
)
"""Ends after which an answer is still worth keeping."""


MOST_MARKS = 128
"""How many marks an exchange keeps; beyond that every other heartbeat is forgotten."""


_SHIFT = 1 << 40


class Mark(Enum):
    """What an exchange remembers the instant of, beside its turning points."""

    BEAT = (1, 0)
    AGAIN = (-1, 0)
    """Its wake was sent again."""
    LOST = (-1, _SHIFT)
    """The target's link was lost after the wake had been sent."""
    BACK = (1, _SHIFT)


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """How an exchange ends: decided by `Commit`, true once committed."""

    status: Status
    answer: str | None = None
    data: bytes | None = None
    """JSON that came with the answer."""
    reason: str | None = None
    """What the target said of its failure, or who cancelled."""


class Exchange(msgspec.Struct, kw_only=True, gc=False):
    """An ask with everything that happened to it. Only `ExchangeBook` changes an open one."""

    v: int = 1
    rid: str
    conv: str
    asker: str
    target: str
    message: str
    at: int
    """When it was accepted."""
    cap: int
    """The longest it may live: an instant."""
    window: int
    """The silence that is tolerated: milliseconds."""
    data: bytes | None = None
    queue_until: int = 0
    """With `if_offline: queue`, how long it may wait for a link; 0 = only the grace."""
    order: tuple[int, int] = (0, 0)
    """(epoch, counter): the order of acceptance, without a common clock."""
    depth: int = 0
    chain: tuple[str, ...] = ()
    """The agents whose turns led to this ask, outermost first."""
    keyed: bool = False
    trace: str | None = None
    """The caller's trace context (see `carrier`); the ask's own one where spans are exported."""
    origins: tuple[str, ...] = ()
    """Places that hold a call waiting for the outcome."""

    status: Status = Status.OPENING
    attempt: int = 0
    """How often the wake was sent."""
    deadline: int = 0
    """When it ends if nothing happens: an instant."""
    timer: int = 0
    """The instant for which the book's heap holds an entry of it."""
    sent_at: int = 0
    woken_at: int = 0
    """When its wake was sent last."""
    taken_at: int = 0
    heard_at: int = 0
    """The last sign of life of the target."""
    beats: int = 0
    note: str | None = None
    marks: list[int] | None = None
    """Instants (`Mark`) as ms after `at`, plus one, plus the kind's shift, times the kind's sign."""

    ended_at: int = 0
    answer: str | None = None
    answer_data: bytes | None = None
    reason: str | None = None
    late_answer: str | None = None
    late_data: bytes | None = None
    late_at: int = 0
    fetched_at: int = 0
    """When the asker fetched a late answer."""

    @property
    def ended(self) -> bool:
        """Whether it has its outcome."""
        return self.ended_at != 0

    def mark(self, now: int, kind: Mark = Mark.BEAT) -> None:
        """Remember an instant."""
        marks = self.marks
        if marks is None:
            marks = self.marks = []
        elif len(marks) >= MOST_MARKS:
            beats = [m for m in marks if 0 < m < _SHIFT]
            forgotten = set(beats[1:-1:2])
            marks[:] = [m for m in marks if m not in forgotten][-MOST_MARKS + 1 :]
        sign, shift = kind.value
        marks.append(sign * (max(0, now - self.at) + 1 + shift))

    def marked(self, kind: Mark) -> list[int]:
        """Give the instants of one kind, oldest first."""
        if self.marks is None:
            return []
        sign, shift = kind.value
        return [
            self.at + sign * m - shift - 1 for m in self.marks if shift < sign * m <= shift + _SHIFT
        ]

    def outages(self) -> list[list[int]]:
        """Give when the target's link was lost and, if it did, came back; oldest first."""
        found = [[lost] for lost in self.marked(Mark.LOST)]
        for back in self.marked(Mark.BACK):
            waits = next(
                (outage for outage in found if len(outage) == 1 and outage[0] <= back), None
            )
            if waits is not None:
                waits.append(back)
        return found

    @property
    def cut_off(self) -> bool:
        """Whether the target's link was lost and is not back."""
        return len(self.marked(Mark.LOST)) > len(self.marked(Mark.BACK))

    def weight(self) -> int:
        """Estimate the bytes it keeps in memory."""
        size = 700 + len(self.message)
        for text in (self.data, self.answer, self.answer_data, self.late_answer, self.late_data):
            if text is not None:
                size += len(text)
        return size


class IllegalMove(AssertionError):
    """A status change that `TRANSITIONS` does not know: a fault of the relay itself."""


def move(exchange: Exchange, to: Status) -> None:
    """Change the status, or raise `IllegalMove` and change nothing."""
    if to not in TRANSITIONS[exchange.status]:
        raise IllegalMove(f"{exchange.rid}: {exchange.status} -> {to}")
    exchange.status = to
