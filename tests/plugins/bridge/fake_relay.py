"""A relay that the test plays: real sockets, the frames of bridge.md, and no life of its own.

It welcomes a `hello`, acknowledges `reply` calls, and keeps every frame it got. Only for what a
well-behaved relay never does, and for the plugin's own units; everything else runs against the
real one (tests/e2e/hermes).
"""

import asyncio
import http
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

Frame = dict[str, Any]


class FakeRelay:
    """`start()`, `wake(...)`, `expect(...)`, `drop()`, `stop()`; usable from a test's thread."""

    def __init__(self, token: str = "t" * 16, *, heartbeat_ms: int = 5_000, port: int = 0) -> None:
        self.token = token
        self.port = port
        self.welcomes = True
        self.refuse = False
        self.answer: Callable[[Frame], Any] = lambda call: {"ok": True}
        """What a call gives; `None` sends no result."""
        self.heartbeat_ms = heartbeat_ms
        self.frames: list[Frame] = []
        self.dials = self.probes = 0
        self.headers: dict[str, str] = {}
        self._news = threading.Condition()
        self._socket: ServerConnection | None = None
        self._server: Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/bridge/connect"

    def start(self) -> "FakeRelay":
        if not self._thread.is_alive():
            self._thread.start()
        self._run(self._listen())
        return self

    def stop(self) -> None:
        """Stop listening and close the link with 1012, as a relay that restarts does."""
        self._run(self._stop())

    def close(self) -> None:
        if self._thread.is_alive():
            self._run(self._stop())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(5)
        self._loop.close()

    def __enter__(self) -> "FakeRelay":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, frame: Frame | str) -> None:
        text = frame if isinstance(frame, str) else json.dumps(frame)

        async def out() -> None:
            assert self._socket is not None, "no link"
            await self._socket.send(text)

        self._run(out())

    def wake(self, rid: str, message: str, conversation: str = "c1", **more: Any) -> None:
        wake = {"type": "wake", "request_id": rid, "conversation_id": conversation}
        self.send({**wake, "from": "asker", "message": message, "attempt": 1, **more})

    def drop(self, code: int = 1012) -> None:
        """Close the present link."""

        async def out() -> None:
            if self._socket is not None:
                await self._socket.close(code)

        self._run(out())

    def expect(self, timeout: float = 20, count: int = 1, **fields: Any) -> Frame:
        """Wait for the count-th frame whose fields are these; `args__x` looks into args."""

        def found() -> list[Frame]:
            return [f for f in self.frames if all(_field(f, k) == v for k, v in fields.items())]

        with self._news:
            if not self._news.wait_for(lambda: len(found()) >= count, timeout):
                raise AssertionError(f"no {fields} x{count}; got {self.frames[-20:]}")
            return found()[count - 1]

    def reply(self, rid: str, timeout: float = 30) -> Frame:
        """Wait for the answer to an exchange; give its args."""
        call = self.expect(timeout, type="call", tool="reply", args__request_id=rid)
        args: Frame = call["args"]
        return args

    def none(self, **fields: Any) -> None:
        """There is no such frame: what the bot sent before it takes a wake of now has come."""
        self.probes += 1
        self.wake(f"probe-{self.probes}", "?", conversation=f"probe-{self.probes}")
        self.expect(type="ack", request_id=f"probe-{self.probes}")
        with self._news:
            seen = [f for f in self.frames if all(_field(f, k) == v for k, v in fields.items())]
        assert not seen, seen

    def of(self, **fields: Any) -> list[Frame]:
        with self._news:
            return [f for f in self.frames if all(_field(f, k) == v for k, v in fields.items())]

    async def _listen(self) -> None:
        self._server = await serve(
            self._serve, "127.0.0.1", self.port, process_request=self._admit, max_size=2**24
        )
        self.port = next(iter(self._server.sockets)).getsockname()[1]

    async def _stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close(close_connections=False)
            if self._socket is not None:
                await self._socket.close(1012)
            await server.wait_closed()

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        with self._news:
            self.dials += 1
            self.headers = dict(request.headers.raw_items())
            self._news.notify_all()
        bearer = request.headers.get("Authorization") == f"Bearer {self.token}"
        if self.refuse or not bearer:
            return connection.respond(http.HTTPStatus.UNAUTHORIZED, "no\n")
        if not re.match(r"/bridge/connect$", request.path):
            return connection.respond(http.HTTPStatus.NOT_FOUND, "no\n")
        return None

    async def _serve(self, socket: ServerConnection) -> None:
        self._socket = socket
        try:
            async for text in socket:
                await self._take(socket, json.loads(text))
        except ConnectionClosed:
            pass

    async def _take(self, socket: ServerConnection, frame: Frame) -> None:
        if frame["type"] == "hello" and self.welcomes:
            welcome = {"type": "welcome", "protocol": 2, "agent": "bot", "window_ms": 120_000}
            welcome |= {"heartbeat_ms": self.heartbeat_ms, "max_message_bytes": 262_144}
            await socket.send(json.dumps(welcome))
        result = self.answer(frame) if frame["type"] == "call" else None
        if result is not None:
            body = {"type": "result", "id": frame["id"], "result": result}
            await socket.send(json.dumps(body))
        with self._news:
            self.frames.append({**frame, "at": time.monotonic()})
            self._news.notify_all()

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(10)


def _field(frame: Frame, key: str) -> Any:
    value: Any = frame
    for part in key.split("__"):
        value = value.get(part) if isinstance(value, dict) else None
    return value
