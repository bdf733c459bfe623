"""Whose turn it is: what is due, what is at hand, and how many calls may run.

Used by two threads: the worker's loop takes turns and ends them; the outbox's thread, while it stores
a row, may promise it a turn at once. No clock, no I/O: callers pass `now` (unix ms).
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable

from .breaker import Gate
from .config import Settings
from .outbox import Job
from .pace import FEWEST, MOST, Pace
from .verdict import Verdict

LEASE_MARGIN_MS = 30_000
Wanted = tuple[str, int, int]
"""An endpoint, how many of its rows, and for how long they are leased (ms)."""


class Turns:
    """The gates of all endpoints and the rows that wait before them."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        """`settings` is asked whenever a limit matters."""
        self._settings = settings
        self._lock = threading.Lock()
        self._gates: dict[str, Gate] = {}
        self._due: dict[str, int] = {}
        self._ready: dict[str, deque[Job]] = {}
        self._promised: list[str] = []
        self._running = 0
        self._claiming = False
        self._fitted: Settings | None = None
        self.open = False
        """Whether rows may be promised a turn: the worker is there to take them."""

    # -- from the outbox's thread ------------------------------------------------------------------

    def offer(self, key: str, now: int) -> int:
        """Promise the row that is being stored a turn; give its lease (ms), or 0: it has to wait."""
        with self._lock:
            behind = key in self._ready or self._due.get(key, now + 1) <= now
            if not self.open or self._claiming or behind or not self._room():
                return 0
            if not self._gate(key).slots(now):
                return 0
            self._begin(key, 1, now)
            self._promised.append(key)
            return self._lease(key)

    def keep_promises(self, jobs: Iterable[Job]) -> None:
        """Of what was promised, `jobs` are stored; take the rest of the promises back."""
        with self._lock:
            for job in jobs:
                self._promised.remove(job.endpoint)
            for key in self._promised:
                self._gate(key).in_flight -= 1
                self._running -= 1
            self._promised.clear()

    # -- from the worker's loop --------------------------------------------------------------------

    def begin(self, due: dict[str, int], gates: dict[str, Gate]) -> None:
        """Start from what is stored; nothing runs yet."""
        with self._lock:
            self._due, self._gates = dict(due), gates
            self._ready.clear()
            self._running, self._claiming = 0, False
            self.open = True

    def new_gate(self, key: str) -> Gate:
        """Make the gate of an endpoint, as its settings say."""
        endpoint = self._settings().of(key)
        fixed = endpoint.concurrency
        return Gate(Pace(fixed) if fixed else Pace(FEWEST, MOST), rate=endpoint.rate)

    def refit(self) -> None:
        """Give the gates their limits again when the settings have changed."""
        settings = self._settings()
        if settings is not self._fitted:
            with self._lock:
                for key, gate in self._gates.items() if self._fitted else ():
                    fresh = self.new_gate(key)
                    gate.rate = fresh.rate
                    if not fresh.pace.most or not gate.pace.most:
                        gate.pace = fresh.pace
            self._fitted = settings

    def gate(self, key: str) -> Gate:
        """Give an endpoint's gate."""
        with self._lock:
            return self._gate(key)

    def forget(self, kept: Collection[str]) -> None:
        """Open gates that have a story and are not among `kept`: the operator says they are well."""
        with self._lock:
            for gate in (self._gates[key] for key in set(self._gates) - set(kept)):
                if gate.open_until or gate.failing_since:
                    gate.open_until = gate.hold_until = gate.failures = gate.failing_since = 0

    def note_due(self, due: dict[str, int | None], *, whole: bool = False) -> None:
        """Learn when endpoints' next rows are due (`whole`: there are no others)."""
        with self._lock:
            if whole:
                self._due.clear()
            for key, at in due.items():
                if at is None:
                    self._due.pop(key, None)
                else:
                    self._due[key] = at

    def note_new(self, key: str, now: int) -> None:
        """Learn that a row was stored that is due now."""
        with self._lock:
            self._due[key] = min(self._due.get(key, now), now)

    def wanted(self, now: int) -> list[Wanted]:
        """Say which rows to lease. Until `took` is called nothing is promised."""
        with self._lock:
            total = self._settings().concurrency
            room, spare = total - self._running, total - self._at_hand()
            found: list[Wanted] = []
            for key, due in sorted(self._due.items(), key=lambda item: item[1]):
                if due > now or (room <= 0 and spare <= 0):
                    break
                now_, ahead = self._demand(key, now, room, spare)
                room, spare = room - now_, spare - ahead
                if now_ + ahead:
                    found.append((key, now_ + ahead, self._lease(key)))
            self._claiming = bool(found)
            return found

    def _demand(self, key: str, now: int, room: int, spare: int) -> tuple[int, int]:
        """Give how many rows of an endpoint can start now, and how many to have at hand."""
        gate = self._gate(key)
        waiting = len(self._ready.get(key, ()))
        starts = max(0, min(gate.slots(now), room) - waiting)
        if not gate.steady or waiting > gate.pace.calls // 2:
            return starts, 0
        return starts, max(0, min(gate.pace.calls - waiting, spare))

    def took(self, jobs: list[Job]) -> None:
        """Learn what was leased (nothing, when that failed)."""
        with self._lock:
            self._claiming = False
            for job in jobs:
                self._ready.setdefault(job.endpoint, deque()).append(job)

    def starts(self, now: int, keys: Iterable[str] | None = None) -> list[Job]:
        """Give the rows at hand that may start now (of `keys`: of these endpoints); they count."""
        found: list[Job] = []
        with self._lock:
            for key in list(self._ready) if keys is None else keys:
                queue = self._ready.get(key)
                while queue and self._room() and self._gate(key).slots(now):
                    self._begin(key, 1, now)
                    found.append(queue.popleft())
                if queue is not None and not queue:
                    del self._ready[key]
        return found

    def give_back(self, now: int, *, everything: bool = False) -> list[Job]:
        """Take the rows at hand whose gate has shut (or all of them): their leases go back."""
        with self._lock:
            keys = [key for key in self._ready if everything or self._gate(key).ready_at() > now]
            return [job for key in keys for job in self._ready.pop(key)]

    def ended(self, key: str, verdict: Verdict, ms: int, now: int) -> bool:
        """Note a call's end; True when the breaker opened or closed by it."""
        with self._lock:
            crowded = self._running * 2 > self._settings().concurrency
            self._running -= 1
            return self._gate(key).ended(
                now, healthy=verdict.healthy, hold_ms=verdict.hold_ms, ms=ms, crowded=crowded
            )

    def at_hand(self) -> set[int]:
        """Give the numbers of the rows that are leased and have not begun."""
        with self._lock:
            return {job.seq for queue in self._ready.values() for job in queue}

    def is_idle(self, now: int) -> bool:
        """Tell whether nothing is due or at hand."""
        with self._lock:
            return not self._ready and not any(at <= now for at in self._due.values())

    def next_at(self, latest: int) -> int:
        """Say when to look again, `latest` at the latest. A call's end wakes the worker anyway."""
        with self._lock:
            if not self._room():
                return latest
            for key, due in self._due.items():
                gate = self._gate(key)
                # A full gate opens when one of its calls ends.
                full = gate.in_flight >= gate.pace.calls
                if not full and not (gate.open_until and gate.in_flight):
                    latest = min(latest, max(due, gate.ready_at()))
            return latest

    # -- under the lock ----------------------------------------------------------------------------

    def _gate(self, key: str) -> Gate:
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = self.new_gate(key)
        return gate

    def _room(self) -> bool:
        return self._running < self._settings().concurrency

    def _at_hand(self) -> int:
        return sum(map(len, self._ready.values()))

    def _begin(self, key: str, count: int, now: int) -> None:
        self._gate(key).started(count, now)
        self._running += count

    def _lease(self, key: str) -> int:
        # A row at hand may wait for the call before it.
        return int(self._settings().of(key).timeout * 2000) + LEASE_MARGIN_MS
