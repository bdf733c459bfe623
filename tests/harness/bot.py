"""An agent on its WebSocket: a seed adapter, or version 2; it answers, hangs, lies or vanishes as told."""

import asyncio
import contextlib
import inspect
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.harness.mcp import Mcp
from tests.harness.waits import WAIT_S
from tests.harness.wire import Json

if TYPE_CHECKING:
    from tests.harness.relay import RelayProcess

Answer = str | None
OnWake = Callable[[Json], Answer | Awaitable[Answer]]


class Bot:
    """An agent's link. Without `hello` it speaks like the seed's adapters, with it version 2."""

    def __init__(
        self,
        relay: "RelayProcess",
        name: str,
        *,
        hello: bool | Json = False,
        token: str | None = None,
        ack: bool = True,
        max_size: int | None = 2**20,
        **options: Any,
    ) -> None:
        self.relay, self.name = relay, name
        self.hello, self.ack_wakes = hello, ack
        self.token = token or relay.token(name)
        self._options = {
            "max_size": max_size,
            "open_timeout": WAIT_S,
            "close_timeout": 1,
            **options,
        }
        self.frames: list[Json] = []
        """Every frame that came, in order, with `at` (seconds of the monotonic clock)."""
        self.on_wake: OnWake | None = None
        self.welcome: Json = {}
        self._wakes: asyncio.Queue[Json] = asyncio.Queue()
        self._cancels: asyncio.Queue[Json] = asyncio.Queue()
        self._results: dict[Any, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._mcp: Mcp | None = None
        self.socket: ClientConnection

    async def __aenter__(self) -> "Bot":
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> "Bot":
        """Dial, say hello if this bot does, and read from now on."""
        headers = {"Authorization": f"Bearer {self.token}"}
        self.socket = await connect(
            self.relay.bridge_url, additional_headers=headers, proxy=None, **self._options
        )
        if self.hello:
            said = {"type": "hello", "protocol": 2, "client": "test", "features": []}
            await self.send(**said | (self.hello if isinstance(self.hello, dict) else {}))
            async with asyncio.timeout(WAIT_S):
                self.welcome = json.loads(await self.socket.recv())
            assert self.welcome["type"] == "welcome", self.welcome
        self._spawn(self._read())
        return self

    async def close(self, code: int = 1000) -> None:
        with contextlib.suppress(ConnectionClosed, OSError):
            await self.socket.close(code)
        if self._mcp is not None:
            await self._mcp.close()
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def vanish(self) -> None:
        """Reset the connection without a goodbye."""
        self.socket.transport.abort()

    async def closed(self, timeout: float = WAIT_S) -> tuple[int, str]:
        """Wait until the relay ends the link; the close code and its reason."""
        async with asyncio.timeout(timeout):
            await self.socket.wait_closed()
        return self.socket.close_code or 1006, self.socket.close_reason or ""

    async def send(self, **frame: Any) -> None:
        await self.socket.send(json.dumps(frame))

    async def beat(self, rid: str, note: str | None = None) -> None:
        more = {} if note is None else {"note": note}
        await self.send(type="heartbeat", request_id=rid, **more)

    async def ack(self, rid: str) -> None:
        await self.send(type="ack", request_id=rid)

    async def wake(self, timeout: float = WAIT_S) -> Json:
        """The next wake that `on_wake` did not take."""
        async with asyncio.timeout(timeout):
            return await self._wakes.get()

    async def no_wake(self) -> None:
        """Fail if there is a wake: what the relay wrote before it answers a call has come by then."""
        await self.lives()
        assert self._wakes.empty(), self._wakes.get_nowait()

    async def cancelled(self, timeout: float = WAIT_S) -> Json:
        """The next `cancel` frame."""
        async with asyncio.timeout(timeout):
            return await self._cancels.get()

    async def call(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        turn: str | None = None,
        trace: Any = None,
        timeout: float = WAIT_S,
    ) -> Any:
        """A `call` frame; returns the verb's result."""
        call_id = next(self._ids)
        answer = self._results[call_id] = asyncio.get_running_loop().create_future()
        more = {k: v for k, v in (("request_id", turn), ("trace", trace)) if v is not None}
        await self.send(type="call", id=call_id, tool=tool, args=dict(args or {}), **more)
        async with asyncio.timeout(timeout):
            return await answer

    async def reply(self, rid: str, answer: str, *, trace: Any = None, **more: Any) -> Any:
        """Answer a wake: with a `call`, or through MCP as the seed's bots do."""
        args = {"request_id": rid, "answer": answer, **more}
        if self.hello:
            return await self.call("reply", args, trace=trace)
        if self._mcp is None:
            self._mcp = Mcp(self.relay, self.name, token=self.token)
        return await self._mcp.tool("reply", args)

    async def lives(self) -> None:
        """Fail unless the link still answers."""
        assert await self.call("list_agents")

    async def beating(self, rid: str, every: float) -> None:
        """Beat for ever (to be cancelled)."""
        while True:
            await self.beat(rid)
            await asyncio.sleep(every)

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in self.socket:
                frame: Json = {**json.loads(text), "at": time.monotonic()}
                self.frames.append(frame)
                await self._take(frame)
        for waiting in self._results.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the link ended"))
                waiting.exception()

    async def _take(self, frame: Json) -> None:
        kind = frame.get("type", "wake")
        if kind == "wake":
            if self.hello and self.ack_wakes:
                await self.ack(frame["request_id"])
            if self.on_wake is None:
                self._wakes.put_nowait(frame)
            else:
                self._spawn(self._answer(frame))
        elif kind == "cancel":
            self._cancels.put_nowait(frame)
        elif kind == "result" and frame["id"] in self._results:
            waiting = self._results.pop(frame["id"])
            if not waiting.done():
                waiting.set_result(frame["result"])

    async def _answer(self, wake: Json) -> None:
        assert self.on_wake is not None
        answer = self.on_wake(wake)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None:
            with contextlib.suppress(ConnectionClosed, ConnectionError):  # the link ended meanwhile
                await self.reply(wake["request_id"], answer)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
