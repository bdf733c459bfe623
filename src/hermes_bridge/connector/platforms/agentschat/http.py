"""HTTP/1.1 to one server, as lean as a call allows: kept connections, one write, one parser.

A general client takes three times the CPU of the system calls it makes, and a post is most of
what a send costs (benches/README.md). This one makes the calls that this platform has: a request
with a whole body, an answer with a bounded one. It follows no redirects and keeps no cookies.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

import httptools

_MAX_HEAD = 64 * 1024
_CONNECT_S = 10.0
_KEEP_S = 30.0
_INFORMAL = 200


class Answer(NamedTuple):
    """What a server said; header names are in lower case."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class Unreachable(Exception):
    """No connection: nothing was sent."""


class Broken(Exception):
    """The connection ended, or what came is no HTTP: nobody knows what the server did."""


class TooLarge(Broken):
    """The answer is larger than was allowed."""


class Pool:
    """Connections to the server of `base`, a URL; at most `most` at a time."""

    def __init__(self, base: str, *, most: int = 100) -> None:
        where = urlsplit(base)
        self._tls = where.scheme == "https"
        self._host = where.hostname or ""
        self._port = where.port or (443 if self._tls else 80)
        self._context: ssl.SSLContext | None = None
        self._shared = f"host: {where.netloc.rpartition('@')[2]}\r\nuser-agent: hermes-bridge\r\n"
        self._idle: list[_Wire] = []
        self._slots = asyncio.Semaphore(most)
        self._closed = False

    async def call(self, method: str, target: str, head: str, body: bytes, *, limit: int) -> Answer:
        """Make one call. `head` is header lines that end with CR LF; the caller sets a deadline.

        Raises:
            Unreachable: nothing was sent.
            Broken: it may have been.
        """
        lines = f"{method} {target} HTTP/1.1\r\n{self._shared}{head}"
        if body or method == "POST":
            lines += f"content-length: {len(body)}\r\n"
        request = f"{lines}\r\n".encode("latin-1") + body
        async with self._slots:
            wire, kept = await self._wire()
            try:
                return await self._exchange(wire, request, limit)
            except Broken:
                # A server may end a kept connection just as it is used again. To ask twice is safe.
                if not (kept and method == "GET" and not wire.heard):
                    raise
            return await self._exchange(await self._connect(), request, limit)

    async def _exchange(self, wire: "_Wire", request: bytes, limit: int) -> Answer:
        try:
            answer = await wire.exchange(request, limit)
        except BaseException:
            wire.end()
            raise
        if wire.reusable and not self._closed:
            wire.rest(_KEEP_S)
            self._idle.append(wire)
        else:
            wire.end()
        return answer

    async def _wire(self) -> "tuple[_Wire, bool]":
        while self._idle:
            wire = self._idle.pop()
            if wire.reusable:
                wire.wake()
                return wire, True
        return await self._connect(), False

    async def _connect(self) -> "_Wire":
        if self._tls and self._context is None:
            self._context = ssl.create_default_context()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, wire = await asyncio.get_running_loop().create_connection(
                    lambda: _Wire(self._forget), self._host, self._port, ssl=self._context
                )
        except (OSError, ValueError) as error:
            raise Unreachable(type(error).__name__) from None
        return wire

    def _forget(self, wire: "_Wire") -> None:
        with contextlib.suppress(ValueError):
            self._idle.remove(wire)

    def close(self) -> None:
        """End all connections that nobody uses, and the others after their call."""
        self._closed = True
        for wire in self._idle.copy():
            wire.end()


class _Parser(Protocol):
    def feed_data(self, data: bytes) -> None: ...
    def get_status_code(self) -> int: ...
    def should_keep_alive(self) -> bool: ...


class _Wire(asyncio.Protocol):
    """One connection: one call at a time."""

    def __init__(self, forget: Callable[["_Wire"], None]) -> None:
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._parser: _Parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._limit = self._size = 0
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._in_body = False
        self.heard = False
        self.reusable = True

    async def exchange(self, request: bytes, limit: int) -> Answer:
        """Send a request and wait for its answer."""
        if self._transport is None or self._transport.is_closing():
            raise Broken("the connection is gone")
        self._limit, self._size, self.heard = limit, 0, False
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def rest(self, seconds: float) -> None:
        """Wait for the next call, but not for ever."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def wake(self) -> None:
        """The next call comes."""
        if self._timer is not None:
            self._timer.cancel()

    def end(self) -> None:
        """End the connection now."""
        self.reusable = False
        self._waiting = None
        self._forget(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        if self._waiting is None:
            self.end()  # nobody asked
            return
        self.heard = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            cause = error.__context__
            known = isinstance(cause, Broken)
            self._fail(cause if known else Broken("the server's answer is no HTTP"))

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone; an answer without a length ends with it."""
        self.reusable = False
        self._forget(self)
        if self._timer is not None:
            self._timer.cancel()
        measured = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        if error is None and self._in_body and not measured:
            self.on_message_complete()
        else:
            self._fail(Broken("the connection was lost"))

    def _fail(self, error: BaseException | None) -> None:
        self.reusable = False
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error or Broken())

    # -- the parser's calls

    def on_message_begin(self) -> None:
        """An answer begins. One that nobody asked for would be taken for the next call's."""
        if self._waiting is None:
            raise Broken("the server answered twice")
        self._headers, self._body, self._in_body = {}, [], False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header came."""
        self._size += len(name) + len(value)
        if self._size > _MAX_HEAD:
            raise TooLarge("the server's answer has too large a head")
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._size = 0
        self._in_body = self._parser.get_status_code() >= _INFORMAL

    def on_body(self, piece: bytes) -> None:
        """A piece of the body came."""
        self._size += len(piece)
        if self._size > self._limit:
            raise TooLarge("the server's answer is too large")
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """The answer is whole; one below 200 only announces another."""
        if not self._in_body:
            return
        self._in_body = False
        waiting, self._waiting = self._waiting, None
        if not self._parser.should_keep_alive():
            self.reusable = False
        if waiting is not None and not waiting.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            waiting.set_result(Answer(self._parser.get_status_code(), self._headers, body))
