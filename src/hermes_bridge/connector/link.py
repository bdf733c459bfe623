"""One open connection of a gateway: what is to be written, in order, without waiting for it."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from hermes_bridge.connector.core.session import RelaySession

_MAX_WAITING = 8 * 1024 * 1024
_BATCH = 256 * 1024

Send = Callable[[dict[str, Any]], Awaitable[None]]


class Link:
    """A connection. `number` grows with every connection; `base` is how the gateway reaches us."""

    def __init__(self, number: int, session: RelaySession, send: Send, base: str) -> None:
        self.number, self.session, self.base = number, session, base
        self.running = 0
        self._send = send
        self._out: deque[str] = deque()
        self._waiting = 0
        self._wake = asyncio.Event()
        self._close: tuple[int, str] | None = None
        self.cut: Callable[[], object] = self._nothing

    def __repr__(self) -> str:
        return f"Link({self.number}, {self.session!r})"

    @property
    def closing(self) -> bool:
        """Whether it was told to close."""
        return self._close is not None

    def write(self, line: str) -> None:
        """Write a line soon, after what was written before. A peer that never reads is cut off."""
        if self._close is not None:
            return
        self._out.append(line)
        self._waiting += len(line)
        if self._waiting > _MAX_WAITING:
            self.cut()
        self._wake.set()

    def close(self, code: int, reason: str) -> None:
        """Close after what is still to be written. The first reason counts."""
        if self._close is None:
            self._close = (code, reason)
            self._wake.set()

    async def run(self) -> None:
        """Write until closed. Frames that wait together share one WebSocket message."""
        with contextlib.suppress(OSError):  # the peer is gone: its door notices
            await self._run()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._out:
                await self._send({"type": "websocket.send", "text": self._batch()})
            if self._close is not None:
                code, reason = self._close
                await self._send({"type": "websocket.close", "code": code, "reason": reason[:120]})
                return

    def _nothing(self) -> None:
        """Nobody serves this connection yet."""

    def _batch(self) -> str:
        first = self._out.popleft()
        if not self._out or len(first) >= _BATCH:
            self._waiting -= len(first)
            return first
        parts, size = [first], len(first)
        while self._out and size + len(self._out[0]) <= _BATCH:
            parts.append(self._out.popleft())
            size += len(parts[-1])
        self._waiting -= size
        return "".join(parts)
