"""One open connection of a gateway: what is to be written, in order, without waiting for it."""

import asyncio
from collections import deque
from collections.abc import Callable

from hermes_bridge.connector.core.session import RelaySession
from hermes_bridge.web.websocket import DirectSocket

_MAX_WAITING = 8 * 1024 * 1024
_FULL = 1024 * 1024
_BATCH = 256 * 1024
_BUSY = 8
_COLLECT_S = 0.002


class Link:
    """A connection. `number` grows with every connection; `base` is how the gateway reaches us.

    Lines that are written within one step of the event loop share a WebSocket message.
    """

    def __init__(self, number: int, session: RelaySession, socket: DirectSocket, base: str) -> None:
        self.number, self.session, self.base = number, session, base
        self.running = 0
        self.running_bytes = 0
        self._socket = socket
        self._out: deque[str] = deque()
        self._waiting = 0
        self._scheduled: asyncio.Handle | None = None
        self._loop = asyncio.get_running_loop()
        self.asked_to_close = asyncio.Event()
        self.goodbye: tuple[int, str] | None = None
        self._later: deque[Callable[[], None]] = deque()
        socket.on_writable = self.flush

    def __repr__(self) -> str:
        return f"Link({self.number}, {self.session!r})"

    @property
    def closing(self) -> bool:
        """Whether it was told to close."""
        return self.goodbye is not None

    def write(self, line: str) -> None:
        """Write a line soon, after what was written before. A peer that never reads is cut off."""
        if self.goodbye is not None:
            return
        self._out.append(line)
        self._waiting += len(line)
        if self._waiting > _MAX_WAITING:
            self.close(1008, "the gateway does not read")
            self._socket.abort()
        elif self._scheduled is None:
            # Under load, answers travel together: a write costs more than what it carries.
            if self.running > _BUSY:
                self._scheduled = self._loop.call_later(_COLLECT_S, self.flush)
            else:
                self._scheduled = self._loop.call_soon(self.flush)

    @property
    def full(self) -> bool:
        """Whether deliveries should wait until the gateway has read what is on its way."""
        return self._waiting > _FULL

    def when_read(self, work: Callable[[], None]) -> None:
        """Do something when the gateway has read, or is gone."""
        self._later.append(work)

    def gone(self) -> None:
        """The connection is over: whoever waited for it goes on."""
        self._out.clear()
        self._waiting = 0
        while self._later:
            self._later.popleft()()

    def close(self, code: int, reason: str) -> None:
        """Close after what is still to be written. The first reason counts."""
        if self.goodbye is None:
            self.goodbye = (code, reason[:120])
            self.asked_to_close.set()

    def abort(self) -> None:
        """End the connection without waiting for anything."""
        self._socket.abort()

    def flush(self) -> None:
        """Write what waits, as far as the peer reads."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._scheduled = None
        while self._out:
            batch, count = self._batch()
            if not self._socket.write(batch.encode()):
                return
            self._waiting -= len(batch)
            for _ in range(count):
                self._out.popleft()
            while self._later and not self.full:
                self._later.popleft()()

    def _batch(self) -> tuple[str, int]:
        if len(self._out) == 1:
            return self._out[0], 1
        count = size = 0
        for line in self._out:
            if count and size + len(line) > _BATCH:
                break
            count += 1
            size += len(line)
        return "".join(self._out[place] for place in range(count)), count
