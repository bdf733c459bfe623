"""How many and how long: plain numbers that grow, read when somebody asks (`doors/metrics.py`).

Every key is bounded by the configuration: names of agents, outcomes, tools. Nothing of a message,
no id of a request or a conversation is ever part of one.
"""

from bisect import bisect_left
from collections import Counter

from hermes_bridge.relay.core.exchange import Exchange

CALL_BUCKETS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
"""Seconds; those of `mcp.server.operation.duration` in the conventions of OpenTelemetry."""
ASK_BUCKETS = (0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
STRANGER = "(unknown)"
"""The name under which all names that are not configured are counted."""


class Histogram:
    """Durations in seconds, counted by upper bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.total += seconds

    def copy(self) -> "Histogram":
        """Give a snapshot, to be read on another thread."""
        same = Histogram(self.bounds)
        same.counts, same.total = self.counts[:], self.total
        return same

    def merge(self, other: "Histogram") -> None:
        """Add the counts of another histogram with the same bounds."""
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.total += other.total


class Tally:
    """All that is counted of a relay's asks and calls."""

    def __init__(self) -> None:
        self.asks: dict[tuple[str, str], Histogram] = {}
        self.refused: Counter[tuple[str, str]] = Counter()
        self.wakes = Histogram(CALL_BUCKETS)
        self.beats: Counter[str] = Counter()
        self.links: Counter[str] = Counter()
        self.calls: dict[tuple[str, str, str], Histogram] = {}

    def ended(self, x: Exchange) -> None:
        """Count an exchange that was opened and has its outcome."""
        key = (x.target, x.status)
        found = self.asks.get(key)
        if found is None:
            found = self.asks[key] = Histogram(ASK_BUCKETS)
        found.add((x.ended_at - x.at) / 1000)
        # A wake that was sent again began anew; one that was taken before that was not taken again.
        if 0 < x.woken_at <= x.taken_at:
            self.wakes.add((x.taken_at - x.woken_at) / 1000)
        if x.beats:
            self.beats[x.target] += x.beats

    def was_refused(self, target: str, status: str, *, known: bool) -> None:
        """Count an ask that opened nothing."""
        self.refused[target if known else STRANGER, status] += 1

    def called(self, method: str, tool: str, error: str, seconds: float) -> None:
        """Count a call of the MCP endpoint. All three names come from fixed sets."""
        key = (method, tool, error)
        found = self.calls.get(key)
        if found is None:
            found = self.calls[key] = Histogram(CALL_BUCKETS)
        found.add(seconds)
