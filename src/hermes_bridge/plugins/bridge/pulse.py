"""Heartbeats by the clock: a turn is on, whatever its model or its tools are doing.

One timer while there is anything to beat for, none otherwise.
"""

import asyncio
from collections.abc import Callable


class Pulse:
    """Calls `beat` every `every` seconds, as long as it answers that there is more to come."""

    def __init__(self, beat: Callable[[], bool], every: float = 5.0) -> None:
        self.every = every
        self._beat = beat
        self._timer: asyncio.TimerHandle | None = None

    def stir(self) -> None:
        """There is something to beat for: start the timer unless it runs."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.every, self._tick)

    def retune(self, every: float) -> None:
        """The relay wants another pace; a running timer keeps its place only if it is sooner."""
        changed, self.every = every != self.every, every
        if changed and self._timer is not None:
            self.stop()
            self.stir()

    def stop(self) -> None:
        """No more beats."""
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()

    def _tick(self) -> None:
        self._timer = None
        if self._beat():
            self.stir()
