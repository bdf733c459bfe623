"""Raw HTTP/1.1: bytes out, answers in, streams as they come."""

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.harness.waits import WAIT_S

Json = dict[str, Any]


@dataclass
class Sign:
    """What came on a stream: a comment, a message, or blanks before a late JSON body."""

    at: float
    kind: str
    data: Json | None = None


@dataclass
class Reply:
    """An HTTP answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    signs: list[Sign] = field(default_factory=list)
    opened_at: float = 0.0
    """When the head came."""
    ended_at: float = 0.0

    @property
    def streamed(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def messages(self) -> list[Any]:
        """All JSON-RPC messages, notifications included."""
        if self.streamed:
            return [sign.data for sign in self.signs if sign.kind == "message"]
        return [json.loads(self.body)] if self.body.strip() else []

    @property
    def message(self) -> Any:
        """The last message: the response."""
        return self.messages[-1]

    @property
    def progress(self) -> list[Json]:
        found = [m for m in self.messages if m.get("method") == "notifications/progress"]
        return [m["params"] for m in found]

    @property
    def error(self) -> Json:
        found: Json = self.message["error"]
        return found

    @property
    def tool_result(self) -> Json:
        found: Json = self.message["result"]
        return found

    @property
    def result(self) -> Any:
        """What the verb gave: the JSON in the one text block."""
        blocks = self.tool_result["content"]
        assert len(blocks) == 1 and blocks[0]["type"] == "text", blocks
        return json.loads(blocks[0]["text"])


class Wire:
    """One HTTP/1.1 connection: bytes out, `Reply` in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.reusable = True
        self.reading: Reply | None = None
        """The answer whose head came last, with what came of its body until now."""

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1") -> "Wire":
        async with asyncio.timeout(WAIT_S):
            return cls(*await asyncio.open_connection(host, port, limit=2**24))

    async def send(self, data: bytes) -> None:
        self.reading = None
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Reply:
        """Read the status line and the headers."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.split("\r\n")[:-2]
        headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
        self.reading = Reply(int(first.split()[1]), headers, opened_at=time.monotonic())
        return self.reading

    async def rest(self, reply: Reply, method: str = "POST") -> Reply:
        """Read the body; signs of life carry the time at which they came."""
        headers = reply.headers
        pending = b""
        async for piece in self._pieces(headers, reply.status, method):
            reply.body += piece
            if not reply.streamed:
                if not piece.strip():
                    reply.signs.append(Sign(time.monotonic(), "blank"))
                continue
            pending += piece
            while b"\n\n" in pending:
                block, _, pending = pending.partition(b"\n\n")
                reply.signs.append(_sign(block))
        reply.ended_at = time.monotonic()
        if headers.get("connection", "").lower() == "close":
            self.reusable = False
        return reply

    async def _pieces(self, headers: dict[str, str], status: int, method: str) -> Any:
        if method == "HEAD" or status in (204, 304):
            return
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readline(), 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        elif "content-length" in headers:
            if length := int(headers["content-length"]):
                yield await self.reader.readexactly(length)
        else:
            self.reusable = False
            while piece := await self.reader.read(65536):
                yield piece

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Reply:
        await self.send(request_bytes(method, path, headers, body))
        return await self.rest(await self.head(), method)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self.writer.wait_closed()

    def reset(self) -> None:
        """End with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def _sign(block: bytes) -> Sign:
    now = time.monotonic()
    lines = block.decode().split("\n")
    if all(line.startswith(":") for line in lines):
        return Sign(now, "comment")
    data = "\n".join(line[5:].lstrip() for line in lines if line.startswith("data:"))
    return Sign(now, "message", json.loads(data))


def request_bytes(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def raw(port: int, data: bytes, *, end: bool = False, timeout: float = 5) -> bytes:
    """Send bytes; return what came until the relay closed, or until it was silent after a whole
    answer came. `end` closes our sending side."""
    wire = await Wire.open(port)
    got = b""
    with contextlib.suppress(ConnectionError):
        await wire.send(data)
        if end:
            wire.writer.write_eof()
    try:
        async with asyncio.timeout(timeout):
            while not _whole(got):
                if not (piece := await wire.reader.read(65536)):
                    return got
                got += piece
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                while piece := await wire.reader.read(65536):
                    got += piece
    except ConnectionError:
        pass
    finally:
        await wire.close()
    return got


def _whole(answer: bytes) -> bool:
    """Whether bytes hold a response with all of its body."""
    head, found, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return bool(found) and len(body) >= int(length or 0)
