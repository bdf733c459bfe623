"""The island's clock: unix milliseconds that never jump, and the system's date for signatures.

Deadlines must not move when somebody sets the system clock, and rows must carry a date. So the
date is read once and a steady counter added to it from then on.
"""

import time


def _steady_ms() -> int:
    # CLOCK_BOOTTIME also counts the time a machine slept; elsewhere monotonic has to do.
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
    return time.monotonic_ns() // 1_000_000


_ANCHOR = int(time.time() * 1000) - _steady_ms()


def now_ms() -> int:
    """Give unix milliseconds, anchored once per process and steady afterwards."""
    return _ANCHOR + _steady_ms()


def wall_seconds() -> int:
    """Give the system's date in unix seconds: a receiver compares it with its own clock."""
    return int(time.time())
