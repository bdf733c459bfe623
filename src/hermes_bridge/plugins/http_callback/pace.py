"""How many calls an endpoint is given at once: few at first, more while it keeps up.

Pure. A receiver that answers as fast under more calls gets one more for each good answer; one that
answers slower than twice its best gets fewer again; a failure halves what it gets.
"""

from dataclasses import dataclass

FEWEST, MOST = 4, 64
SLACK_MS = 25
QUICK_MS = 100
FORGET = 0.002


@dataclass
class Pace:
    """`calls` at once now. `most` is how far they may grow; 0: they are fixed."""

    calls: int = FEWEST
    most: int = 0
    best_ms: float = -1.0

    @property
    def quick(self) -> bool:
        """Tell whether this receiver answers so fast that the next rows should be at hand."""
        return 0 <= self.best_ms < QUICK_MS

    def answered(self, ms: int, *, wanted: bool, crowded: bool) -> None:
        """Note a good answer. `wanted`: all calls were in use. `crowded`: others need the room."""
        if self.best_ms < 0 or ms < self.best_ms:
            self.best_ms = float(ms)
        slow = ms > 2 * self.best_ms + SLACK_MS
        # The best time is forgotten slowly: a receiver may become slower for good.
        self.best_ms += (ms - self.best_ms) * FORGET
        if slow or crowded:
            self._fewer(self.calls - 1)
        elif wanted and self.calls < self.most:
            self.calls += 1

    def failed(self) -> None:
        """Note a failure, or a receiver that asks for time."""
        self._fewer(self.calls // 2)

    def _fewer(self, calls: int) -> None:
        if self.most:
            self.calls = min(self.calls, max(FEWEST, calls))
