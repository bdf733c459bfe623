"""The one place that reads the time.

Deadlines must not move when somebody sets the system clock, and rows must carry a date. So a
process reads the date once, at start, and adds a steady counter to it from then on.
"""

import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """What shells ask for the time; cores are handed the number."""

    def now(self) -> int:
        """Give unix milliseconds that never jump while the process lives."""
        ...


_steady_ns = (
    # CLOCK_BOOTTIME also counts the time a machine slept; elsewhere monotonic has to do.
    partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic_ns
)


class SystemClock:
    """Unix milliseconds, anchored once and steady afterwards."""

    def __init__(self) -> None:
        self._anchor = int(time.time() * 1000) - _steady_ns() // 1_000_000

    def now(self) -> int:
        """Give unix milliseconds; an operator who sets the system clock does not move them."""
        return self._anchor + _steady_ns() // 1_000_000


def wall_ms() -> int:
    """Give the system's date now, in unix milliseconds (for tokens that carry a date)."""
    return int(time.time() * 1000)
