"""One timer for many instants: it rings at the earliest, or a little too early, never too late."""

import asyncio
from collections.abc import Callable

from hermes_bridge.clock import Clock


class Alarm:
    """Calls `ring` at the earliest instant it was set to; who is rung sets the next one."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock, self._ring = clock, ring
        self._timer: asyncio.TimerHandle | None = None
        self._set_to = 0

    def at(self, instant: int | None) -> None:
        """Ring at `instant` (unix ms) at the latest; None: there is nothing to ring for."""
        if instant is None or (self._timer is not None and self._set_to <= instant):
            return
        self.off()
        self._set_to = instant
        wait = max(0, instant - self._clock.now()) / 1000
        self._timer = asyncio.get_running_loop().call_later(wait, self._now)

    def off(self) -> None:
        """Do not ring."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _now(self) -> None:
        self._timer = None
        self._ring()
