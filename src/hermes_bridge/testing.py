"""Doubles for tests and demos: a clock in the hand, an agent that is a few lines of Python.

`FakeAgent` is a complete version 2 client of the bridge protocol, so it also serves as the
smallest example of one.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, NamedTuple, Self


class HandClock:
    """A clock that moves only when it is told to."""

    def __init__(self, now: int = 1_800_000_000_000) -> None:
        self.time = now

    def now(self) -> int:
        """Give the time, in unix milliseconds."""
        return self.time

    def pass_ms(self, ms: int) -> int:
        """Let time pass; give the new time."""
        self.time += ms
        return self.time


class Wake(NamedTuple):
    """A wake as an agent sees it."""

    request_id: str
    conversation_id: str
    sender: str
    message: str
    attempt: int = 1
    data: Any = None


Turn = Callable[["FakeAgent", Wake], Awaitable[str]]


class FakeAgent:
    """An agent: joins the relay, answers wakes with `turn`, calls tools.

    Use as `async with FakeAgent(url, token, turn) as agent`. Every wake is acknowledged, runs in
    a task of its own, and is answered with what `turn` returns, or as failed if it raises.
    """

    def __init__(
        self,
        url: str,
        token: str,
        turn: Turn | None = None,
        *,
        description: str = "",
        skills: tuple[str, ...] = (),
    ) -> None:
        """`url` is `ws(s)://host:port/bridge/connect`."""
        self._url, self._token, self._turn = url, token, turn
        self._hello = {
            "type": "hello",
            "protocol": 2,
            "client": "hermes-bridge-testing",
            "features": [],
            "description": description,
            "skills": list(skills),
        }
        self._results: dict[str, asyncio.Future[Any]] = {}
        self._count = itertools.count(1)
        self._turns: set[asyncio.Task[None]] = set()
        self.welcome: dict[str, Any] = {}
        self.wakes: list[Wake] = []
        self.cancelled: list[str] = []

    async def __aenter__(self) -> Self:
        """Join: connect, say hello, wait for the welcome."""
        from websockets.asyncio.client import connect

        headers = {"Authorization": f"Bearer {self._token}"}
        self._socket = await connect(self._url, additional_headers=headers, max_size=2**21)
        await self._send(self._hello)
        self.welcome = json.loads(await self._socket.recv())
        self._reader = asyncio.get_running_loop().create_task(self._read())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave."""
        for task in (self._reader, *self._turns):
            task.cancel()
        await self._socket.close()

    async def call(self, tool: str, args: dict[str, Any], request_id: str | None = None) -> Any:
        """Call a tool of the relay; `request_id` names the exchange in whose turn it is called."""
        call_id = f"c{next(self._count)}"
        future = self._results[call_id] = asyncio.get_running_loop().create_future()
        frame = {"type": "call", "id": call_id, "tool": tool, "args": args}
        if request_id is not None:
            frame["request_id"] = request_id
        await self._send(frame)
        return await future

    async def beat(self, request_id: str, note: str = "") -> None:
        """Say that the exchange is still being worked on."""
        await self._send({"type": "heartbeat", "request_id": request_id, "note": note})

    async def _send(self, frame: dict[str, Any]) -> None:
        await self._socket.send(json.dumps(frame))

    async def _read(self) -> None:
        async for text in self._socket:
            frame = json.loads(text)
            kind = frame.get("type")
            if kind == "wake":
                await self._wake(frame)
            elif kind == "result":
                future = self._results.pop(frame["id"], None)
                if future is not None and not future.done():
                    future.set_result(frame["result"])
            elif kind == "cancel":
                self.cancelled.append(frame["request_id"])

    async def _wake(self, frame: dict[str, Any]) -> None:
        wake = Wake(
            frame["request_id"],
            frame["conversation_id"],
            frame["from"],
            frame["message"],
            frame["attempt"],
            frame.get("data"),
        )
        self.wakes.append(wake)
        await self._send({"type": "ack", "request_id": wake.request_id})
        if self._turn is not None:
            task = asyncio.get_running_loop().create_task(self._answer(self._turn, wake))
            self._turns.add(task)
            task.add_done_callback(self._turns.discard)

    async def _answer(self, turn: Turn, wake: Wake) -> None:
        args: dict[str, Any] = {"request_id": wake.request_id}
        try:
            args["answer"] = await turn(self, wake)
        except Exception as error:  # noqa: BLE001 - a turn that fails is an outcome
            args |= {"kind": "failure", "answer": f"{type(error).__name__}: {error}"}
        await self.call("reply", args)
