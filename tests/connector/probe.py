"""A gateway's side of the contract, as small as Hermes' own: dial, hello, act, acknowledge."""

import asyncio
import itertools
import json
import time
from typing import Any

import websockets

from hermes_bridge.contract.token import mint


class Gateway:
    """One connection. `events` are the deliveries, in order; acks are sent unless `acks` is off."""

    def __init__(self, url: str, gateway_id: str, secret: str, *, acks: bool = True) -> None:
        self.url, self.gateway_id, self.secret, self.acks = url, gateway_id, secret, acks
        self.events: list[dict[str, Any]] = []
        self.buffers: list[str] = []
        self.frames: list[dict[str, Any]] = []
        self.closed = asyncio.Event()
        self.code: int | None = None
        self.reason = ""
        self._news = asyncio.Condition()
        self._results: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = itertools.count(1)
        self._ws: websockets.ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None

    async def dial(self, *, token: str | None = None, path: str = "") -> "Gateway":
        token = (
            token
            if token is not None
            else mint(self.gateway_id, self.secret, int(time.time()) + 300)
        )
        self._ws = await websockets.connect(
            self.url + path,
            additional_headers={"Authorization": f"Bearer {token}"},
            max_size=1 << 20,
        )
        self._task = asyncio.create_task(self._read())
        return self

    async def join(self, *bots: str) -> "Gateway":
        """Dial and declare identities."""
        await self.dial()
        for bot in bots:
            answer = await self.hello(bot)
            assert answer["type"] == "descriptor", answer
        return self

    async def hello(self, bot: str, platform: str = "agentschat") -> dict[str, Any]:
        count = len(self.of("descriptor", "error"))
        await self.send({"type": "hello", "platform": platform, "botId": bot})
        await self.until(lambda: len(self.of("descriptor", "error")) > count)
        return self.of("descriptor", "error")[-1]

    def of(self, *kinds: str) -> list[dict[str, Any]]:
        return [each for each in self.frames if each["type"] in kinds]

    async def send(self, frame: dict[str, Any]) -> None:
        await self.raw(json.dumps(frame) + "\n")

    async def raw(self, text: str | bytes) -> None:
        assert self._ws is not None
        await self._ws.send(text)

    async def ask(self, action: dict[str, Any], *, request: str = "", **envelope: Any) -> str:
        """Ask for an operation and do not wait; give the request's id."""
        request = request or f"r{next(self._numbers)}"
        self._results.setdefault(request, asyncio.get_running_loop().create_future())
        frame = {"type": "outbound", "requestId": request, "action": action} | envelope
        await self.send(frame)
        return request

    async def result(self, request: str, timeout: float = 30.0) -> dict[str, Any]:
        future = asyncio.get_running_loop().create_future()
        async with asyncio.timeout(timeout):
            return await asyncio.shield(self._results.setdefault(request, future))

    async def act(self, op: str, chat: str, **fields: Any) -> dict[str, Any]:
        envelope = {key: fields.pop(key) for key in ("botId", "platform") if key in fields}
        return await self.result(await self.ask({"op": op, "chat_id": chat} | fields, **envelope))

    async def ack(self, buffer: str) -> None:
        await self.send({"type": "inbound_ack", "bufferId": buffer})

    async def until(self, condition: Any, timeout: float = 30.0) -> None:
        async with asyncio.timeout(timeout), self._news:
            await self._news.wait_for(condition)

    async def got(self, count: int, timeout: float = 30.0) -> list[dict[str, Any]]:
        """Wait for that many deliveries."""
        try:
            await self.until(lambda: len(self.events) >= count, timeout)
        except TimeoutError:
            raise AssertionError(f"{len(self.events)} of {count}: {self.texts()}") from None
        return self.events

    def texts(self) -> list[str]:
        return [each["text"] for each in self.events]

    async def ended(self, timeout: float = 30.0) -> tuple[int | None, str]:
        async with asyncio.timeout(timeout):
            await self.closed.wait()
        return self.code, self.reason

    async def close(self) -> None:
        if self._ws is not None:
            await self._ws.close()
        if self._task is not None:
            await self._task

    def stop_reading(self) -> None:
        """Read nothing from now on."""
        assert self._ws is not None
        self._ws.transport.pause_reading()

    def cut(self) -> None:
        """End the TCP connection without a word."""
        assert self._ws is not None
        self._ws.transport.abort()

    async def _read(self) -> None:
        assert self._ws is not None
        carry = ""
        try:
            async for chunk in self._ws:
                carry += chunk if isinstance(chunk, str) else chunk.decode()
                *lines, carry = carry.split("\n")
                for line in lines:
                    await self._heard(json.loads(line))
        except (websockets.ConnectionClosed, ConnectionError):
            pass
        self.code, self.reason = self._ws.close_code, self._ws.close_reason or ""
        self.closed.set()

    async def _heard(self, frame: dict[str, Any]) -> None:
        self.frames.append(frame)
        if frame["type"] == "inbound":
            self.events.append(frame["event"])
            self.buffers.append(frame.get("bufferId", ""))
            if self.acks and "bufferId" in frame:
                await self.ack(frame["bufferId"])
        elif frame["type"] == "outbound_result":
            waiting = self._results.setdefault(
                frame["requestId"], asyncio.get_running_loop().create_future()
            )
            if not waiting.done():
                waiting.set_result(frame["result"])
        async with self._news:
            self._news.notify_all()
