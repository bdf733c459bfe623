"""Whether a connector serves: still starting, serving, or down with a cause."""

import asyncio


class Readiness:
    """What doors ask before they let anybody in."""

    def __init__(self) -> None:
        self._settled = asyncio.Event()
        self.serving = False
        self.cause = ""

    @property
    def starting(self) -> bool:
        """Whether it may serve in a moment."""
        return not self.serving and not self.cause

    def serves(self) -> None:
        """Everything is there."""
        self.serving, self.cause = True, ""
        self._settled.set()

    def down(self, cause: str) -> None:
        """It does not serve, and why, in words for people."""
        self.serving, self.cause = False, cause
        self._settled.set()

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is clear whether it serves, at most `seconds`; tell whether it does."""
        try:
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        except TimeoutError:
            return False
        return self.serving
