"""Calls that wait for an exchange, and the end of their slices.

A held call is no task: it is a small object that is poked when its exchange ends or the relay
stops, and told when its slice is over. So ten thousand of them cost ten thousand small objects.
"""

from enum import Enum, auto
from heapq import heapify, heappop, heappush

from hermes_bridge.clock import Clock
from hermes_bridge.relay.alarm import Alarm
from hermes_bridge.relay.core.exchange import Exchange


class Poke(Enum):
    """Why a held call is over."""

    ENDED = auto()
    SLICE = auto()
    DRAIN = auto()


class Held:
    """One call held for one exchange from `since` until `until` (unix ms). Doors derive from it."""

    __slots__ = ("done", "exchange", "since", "until")

    def __init__(self, exchange: Exchange, since: int, wait_ms: int) -> None:
        self.exchange = exchange
        self.since, self.until = since, since + wait_ms
        self.done = False

    def poke(self, why: Poke) -> None:
        """Answer the call now. Called at most once, and never after `Relay.let_go`."""
        raise NotImplementedError


class Slices:
    """The ends of slices: one heap, one timer for all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[int, int, Held]] = []
        self._count = 0
        self._sift_at = 1024
        self._alarm = Alarm(clock, self._ring)

    def add(self, held: Held) -> None:
        """Poke the call when its slice is over, unless it is done by then."""
        heap = self._heap
        self._count += 1
        heappush(heap, (held.until, self._count, held))
        if len(heap) > self._sift_at:
            heap[:] = [entry for entry in heap if not entry[2].done]
            heapify(heap)
            self._sift_at = max(1024, 2 * len(heap))
        self._alarm.at(heap[0][0])

    def _ring(self) -> None:
        now, heap = self._clock.now(), self._heap
        while heap and heap[0][0] <= now:
            held = heappop(heap)[2]
            if not held.done:
                held.poke(Poke.SLICE)
        if heap:
            self._alarm.at(heap[0][0])
