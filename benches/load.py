"""A load driver for a relay: agents on WebSockets, askers on keep-alive HTTP. Standard library only.

It plays both sides, checks that every answer belongs to its question, and costs a fifth of what it
measures. Used by `relay.py`; aim it only at this machine.
"""

import asyncio
import base64
import json
import os
import struct
import time
from collections import deque
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Give the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def rss_mib(pid: int) -> float:
    """Give the resident memory of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Http(asyncio.Protocol):
    """One keep-alive connection: one request at a time, JSON or an event stream."""

    def __init__(self, free: deque["Http"]) -> None:
        self._free = free
        self._buffer = b""
        self._waiting: asyncio.Future[bytes] | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("the relay closed the connection"))

    def request(self, data: bytes) -> asyncio.Future[bytes]:
        self._waiting = asyncio.get_running_loop().create_future()
        self._buffer = b""
        self._transport.write(data)
        return self._waiting

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, gap, rest = self._buffer.partition(b"\r\n\r\n")
        if not gap or self._waiting is None:
            return
        lower = head.lower()
        if b"content-length: " in lower:
            length = int(lower.split(b"content-length: ", 1)[1].split(b"\r\n", 1)[0])
            if len(rest) < length:
                return
            body = rest[:length]
        elif rest.endswith(b"0\r\n\r\n"):
            body = rest.rpartition(b"data: ")[2].split(b"\n", 1)[0]
        else:
            return
        waiting, self._waiting = self._waiting, None
        if not waiting.done():
            waiting.set_result(body)
        self._free.append(self)


class Asker:
    """One agent's HTTP side: a pool of connections."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._free: deque[Http] = deque()
        self._head = (
            f"POST /mcp HTTP/1.1\r\nHost: {HOST}:{port}\r\nAuthorization: Bearer {token}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            "MCP-Protocol-Version: 2025-06-18\r\nContent-Length: "
        ).encode()

    async def post(self, body: bytes) -> bytes:
        while self._free and self._free[-1].closed:
            self._free.pop()
        if self._free:
            connection = self._free.pop()
        else:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(lambda: Http(self._free), HOST, self._port)
        return await connection.request(self._head + b"%d\r\n\r\n" % len(body) + body)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        body = json.dumps(
            {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments},
            }
        ).encode()
        message = json.loads(await self.post(body))
        return json.loads(message["result"]["content"][0]["text"])


class Link(asyncio.Protocol):
    """An agent's WebSocket, as a seed adapter has it: it reads wakes."""

    def __init__(self, port: int, token: str, on_wake: Any) -> None:
        self._on_wake = on_wake
        self._buffer = b""
        self.open: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        key = base64.b64encode(os.urandom(16)).decode()
        self._hello = (
            f"GET /bridge/connect HTTP/1.1\r\nHost: {HOST}:{port}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        ).encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._transport.write(self._hello)

    def close(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self.open.done():
            head, gap, self._buffer = self._buffer.partition(b"\r\n\r\n")
            if not gap:
                self._buffer = head
                return
            assert b" 101 " in head, head
            self.open.set_result(None)
        while len(self._buffer) >= 2:
            length, start = self._buffer[1] & 127, 2
            if length == 126:
                length, start = int.from_bytes(self._buffer[2:4], "big"), 4
            elif length == 127:
                length, start = int.from_bytes(self._buffer[2:10], "big"), 10
            if len(self._buffer) < start + length:
                return
            opcode, payload = self._buffer[0] & 15, self._buffer[start : start + length]
            self._buffer = self._buffer[start + length :]
            if opcode == 1:
                self._on_wake(json.loads(payload))
            elif opcode == 9:
                mask = b"\0\0\0\0"
                self._transport.write(
                    struct.pack("!BB", 0x8A, 0x80 | len(payload)) + mask + payload
                )


class Rig:
    """Askers and targets against one relay."""

    def __init__(self, port: int, tokens: dict[str, str]) -> None:
        self.port, self.tokens = port, tokens
        self.names = list(tokens)
        self.askers = {name: Asker(port, token) for name, token in tokens.items()}
        self.links: list[Link] = []
        self.held: list[tuple[str, str, str]] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.wrong = 0

    async def join(self, names: list[str]) -> None:
        for name in names:
            loop = asyncio.get_running_loop()
            _, link = await loop.create_connection(
                lambda name=name: Link(self.port, self.tokens[name], lambda w: self._wake(name, w)),  # type: ignore[misc]
                HOST,
                self.port,
            )
            await link.open
            self.links.append(link)

    def _wake(self, name: str, wake: dict[str, str]) -> None:
        if self.held is not None:
            self.held.append((name, wake["request_id"], wake["message"]))
            return
        self._later(self.reply(name, wake["request_id"], wake["message"]))

    def _later(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def reply(self, name: str, rid: str, message: str) -> None:
        args = {"request_id": rid, "answer": f"answer to {message}"}
        said = await self.askers[name].call("reply", args)
        self.wrong += said.get("ok") is not True

    async def ask(self, asker: str, target: str, text: str) -> float:
        begun = time.perf_counter()
        result = await self.askers[asker].call("ask_agent", {"to": target, "message": text})
        self.wrong += result.get("answer") != f"answer to {text}"
        return time.perf_counter() - begun

    def leave(self) -> None:
        for link in self.links:
            link.close()
        self.links.clear()
