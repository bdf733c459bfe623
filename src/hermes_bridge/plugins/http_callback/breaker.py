"""One endpoint's gate: is it well enough to be called, and how many calls may run at once?

Pure: told what happened and when, it answers how many may start. Open after five failures in a row
or when half of at least ten calls in a minute failed; it stays shut 30 s, doubling to 5 min, then
lets one probe through. Rows that wait behind it spend no attempts.
"""

from collections import deque
from dataclasses import dataclass, field

from .pace import Pace

FAILURES_IN_A_ROW = 5
WINDOW_MS, WINDOW_CALLS = 60_000, 10
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 30_000, 300_000


@dataclass
class Gate:
    """The state of one endpoint. `pause` is the length of the present or next shut period (ms)."""

    pace: Pace = field(default_factory=Pace)
    rate: float = 0.0
    failures: int = 0
    pause: int = FIRST_PAUSE_MS
    open_until: int = 0
    hold_until: int = 0
    failing_since: int = 0
    in_flight: int = 0
    probing: bool = False
    _next_start: int = 0
    _recent: deque[tuple[int, bool]] = field(default_factory=lambda: deque(maxlen=200))

    @property
    def state(self) -> str:
        """Name the state for people: closed, open or probing."""
        return "probing" if self.probing else "open" if self.open_until else "closed"

    @property
    def steady(self) -> bool:
        """Tell whether rows may be held at hand for it: it is well, fast, and not slowed down."""
        return self.pace.quick and not (self.rate or self.open_until or self.failing_since)

    def slots(self, now: int) -> int:
        """Say how many calls may start now."""
        if now < self.ready_at():
            return 0
        if self.open_until:
            return 0 if self.in_flight else 1
        free = self.pace.calls - self.in_flight
        if self.rate > 0:
            # A second's worth may burst; the rest is spread by `started`.
            free = min(free, max(1, int(self.rate)))
        return max(0, free)

    def ready_at(self) -> int:
        """Say when the next call may start, as far as this gate is concerned (ms)."""
        return max(self.open_until, self.hold_until, self._next_start)

    def started(self, count: int, now: int) -> None:
        """Note that `count` calls began."""
        self.in_flight += count
        if self.open_until and count:
            self.probing = True
        if self.rate > 0:
            self._next_start = max(now, self._next_start) + int(count * 1000 / self.rate)

    def ended(
        self,
        now: int,
        *,
        healthy: bool | None,
        hold_ms: int = 0,
        ms: int = 0,
        crowded: bool = False,
    ) -> bool:
        """Note that a call ended; True when the breaker opened or closed by it.

        `healthy` None: it says nothing about the endpoint's health (an answer like 429, a call that
        was given up). `hold_ms` is what the receiver asked for with `Retry-After`, `ms` how long it
        took; `crowded`: other endpoints need the room.
        """
        if healthy:
            full = self.in_flight >= self.pace.calls
            self.pace.answered(ms, wanted=full, crowded=crowded)
        elif hold_ms or healthy is False:
            self.pace.failed()
        self.in_flight = max(0, self.in_flight - 1)
        if hold_ms:
            self.hold_until = max(self.hold_until, now + hold_ms)
        if healthy is None:
            self.probing = False
            return False
        self._recent.append((now, healthy))
        return self._healed() if healthy else self._failed(now)

    def _healed(self) -> bool:
        was_open = bool(self.open_until)
        self.failures = self.open_until = self.failing_since = 0
        self.pause, self.probing = FIRST_PAUSE_MS, False
        if was_open:
            self._recent.clear()
        return was_open

    def _failed(self, now: int) -> bool:
        self.failures += 1
        self.failing_since = self.failing_since or now
        if self.open_until:
            # A probe failed, or a call that began before the gate shut came back.
            if self.probing:
                self.probing = False
                self._shut(now)
            return False
        if self.failures >= FAILURES_IN_A_ROW or self._mostly_failing(now):
            self._shut(now)
            return True
        return False

    def _shut(self, now: int) -> None:
        self.open_until = now + self.pause
        self.pause = min(LONGEST_PAUSE_MS, self.pause * 2)

    def _mostly_failing(self, now: int) -> bool:
        calls = [healthy for at, healthy in self._recent if at > now - WINDOW_MS]
        return len(calls) >= WINDOW_CALLS and calls.count(False) * 2 >= len(calls)
