"""The HTTP protocol of the server: uvicorn's, with limits and a direct lane.

Limits: a bounded request head that must arrive in time, idle connections that end.

The direct lane is for the endpoint that does the relay's work. A request to a path in
`ServerConfig.direct` is handed to its door as headers and body, without a task and without ASGI
messages, and is answered with one write; the door may answer later. Everything else goes the
usual way through ASGI. With its like for WebSockets (`websocket.py`) that is half of the CPU time
of an ask (benches/README.md).
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Protocol

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD = 32_768
"""Bytes of request line and headers together."""
MAX_DIRECT_BODY = 4_194_304
ARRIVAL_S = 20.0
"""How long a request that has begun may take to arrive."""
IDLE_S = 75.0
"""How long a connection may wait between two requests."""
_LINGER_S = 2.0
"""How long a refused request may go on arriving, unread."""

_log = logging.getLogger("hermes_bridge.http")


class Out(Protocol):
    """How a door answers a direct request: whole, or as a stream. `on_gone` hears of a hang-up."""

    on_gone: Callable[[], None] | None
    port: int
    """The client's port, or 0."""

    def respond(self, status: int, headers: bytes, content: bytes) -> None:
        """Send a whole response; `headers` are lines that end with CR LF, without content-length."""
        ...

    def stream(self, headers: bytes) -> None:
        """Begin a response of unknown length with status 200."""
        ...

    def chunk(self, content: bytes) -> None:
        """Send a piece of it; dropped while the client does not read."""
        ...

    def end(self, content: bytes) -> None:
        """Send the last piece."""
        ...


class DirectDoor(Protocol):
    """A door that is called without ASGI. Header names are in lower case."""

    def __call__(
        self, method: str, headers: dict[bytes, bytes], body: bytes, peer: str, out: Out
    ) -> None:
        """Serve one request whose body has arrived; `out` may be answered now or later."""
        ...


class ServerConfig(uvicorn.Config):
    """uvicorn's configuration with the direct doors by path."""

    direct: dict[bytes, DirectDoor]


class BoundedHttp(HttpToolsProtocol):
    """HTTP/1.1 with limits and the direct lane. It is the `Out` of its own connection."""

    on_gone: Callable[[], None] | None = None
    _door: DirectDoor | None = None
    _answering = False
    _chunked = True
    _last = False
    """Whether the connection ends with the response that is under way."""
    _other = False
    """Whether the request offers a protocol that is not spoken here."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count."""
        super().connection_made(transport)
        self._fed = 0
        self._whole = True
        self._since = self._begun = self.loop.time()
        self._direct: dict[bytes, DirectDoor] = getattr(self.config, "direct", {})
        self._peer, self.port = self.client or ("?", 0)
        self._fields: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._body_size = 0
        self._data = b""

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell a door that still owes an answer."""
        gone, self.on_gone = self.on_gone, None
        if gone is not None:
            gone()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, within the bound of a head."""
        self._since = self.loop.time()
        if self._last:
            return
        if not self._whole or self._fed == 0:
            self._fed += len(data)
        self._data = data
        super().data_received(data)
        self._data = b""
        if not self._whole and self._fed > MAX_HEAD and not self._headed:
            self._refuse(431, "The request head is too large.")

    def on_message_begin(self) -> None:
        """A request begins. One that comes while another is unanswered ends the connection after it."""
        self.url = b""
        self.headers = []
        self._fields = {}
        self._door = None
        self._headed = self._whole = False
        self._begun = self._since
        self.expect_100_continue = False
        if self._answering:
            self._last = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, once as a pair for ASGI and once by name."""
        name = name.lower()
        self.headers.append((name, value))
        if name in self._fields:
            value = self._fields[name] + b"," + value
        self._fields[name] = value

    def on_headers_complete(self) -> None:
        """Choose the lane."""
        self._headed = True
        if self._fed > MAX_HEAD and self._head_size() > MAX_HEAD:
            self._refuse(431, "The request head is too large.")
            raise ValueError("head too large")
        if self._last:
            raise ValueError("pipelined behind an unanswered request")
        upgrade = self.parser.should_upgrade()
        self._other = upgrade and self._offers_other()
        if self._other:
            return
        door = self._direct.get(self.url) or self._direct.get(_path_of(self.url))
        if door is not None and not upgrade:
            self._door = door
            self._body, self._body_size = [], 0
            if b"expect" in self._fields:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        self._usual_scope()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Collect a direct request's body, within its bound."""
        if self._door is None:
            super().on_body(body)
            return
        self._body_size += len(body)
        if self._body_size <= MAX_DIRECT_BODY:
            self._body.append(body)
        elif not self._last:
            self._refuse(413, f"The body is larger than {MAX_DIRECT_BODY} bytes.")

    def on_message_complete(self) -> None:
        """The request is whole: serve it."""
        if self._other:
            return
        self._whole = True
        self._fed = 0
        door = self._door
        if door is None:
            super().on_message_complete()
            return
        if self._last:
            return
        if self._usual_busy():
            self._refuse(400, "Pipelined requests are not served here.")
            return
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self._answering = True
        self._keep = self.parser.should_keep_alive()
        try:
            door(self.parser.get_method().decode("latin-1"), self._fields, body, self._peer, self)
        except Exception as error:  # noqa: BLE001 - one request ends, never the process
            _log.error("door.failed", exc_info=error)
            self.respond(500, b"content-type: application/json\r\n", b'{"error":"internal error"}')

    def _offers_other(self) -> bool:
        """Whether the client offers to go on in a protocol that is not spoken here (`Upgrade: h2c`)."""
        return not self._should_upgrade() and self.parser.get_method() != b"CONNECT"

    def _unsupported_upgrade_warning(self) -> None:
        """Ignore such an offer (RFC 9110, 7.8). The parser stopped at it: read the request without it."""
        stopped = sys.exc_info()[1]
        if not self._other or stopped is None:
            return
        lines = [self.parser.get_method() + b" " + self.url + b" HTTP/1.1"]
        lines += [b"%b: %b" % pair for pair in self.headers if pair[0] != b"upgrade"]
        rest = self._data[stopped.args[0] :]
        self.parser = httptools.HttpRequestParser(self)
        self.data_received(b"\r\n".join([*lines, b"", b""]) + rest)

    # Out

    def respond(self, status: int, headers: bytes, content: bytes) -> None:
        """Send a whole response."""
        if self.transport.is_closing():
            return
        if not self._keep or self._last:
            headers += b"connection: close\r\n"
        self.transport.write(
            b"%b%bcontent-length: %d\r\n\r\n%b" % (_LINES[status], headers, len(content), content)
        )
        self._answered()

    def stream(self, headers: bytes) -> None:
        """Begin a response of unknown length."""
        self._chunked = bool(self.parser) and self.parser.get_http_version() == "1.1"
        if self._chunked:
            headers += b"transfer-encoding: chunked\r\n"
        else:
            self._last = True
        if not self._keep or self._last:
            headers += b"connection: close\r\n"
        if not self.transport.is_closing():
            self.transport.write(b"%b%b\r\n" % (_LINES[200], headers))

    def chunk(self, content: bytes) -> None:
        """Send a piece; a client that does not read gets no more signs of life."""
        if not self.flow.write_paused and not self.transport.is_closing():
            self.transport.write(_chunk(content) if self._chunked else content)

    def end(self, content: bytes) -> None:
        """Send the last piece."""
        if not self.transport.is_closing():
            last = _chunk(content) + b"0\r\n\r\n" if self._chunked else content
            self.transport.write(last)
            self._answered()

    def _answered(self) -> None:
        self._answering = False
        self.on_gone = None
        if not self._keep or self._last:
            self.transport.close()
        elif self.flow.write_paused:
            self.flow.pause_reading()

    def resume_writing(self) -> None:
        """The client reads again: so do we."""
        super().resume_writing()
        self.flow.resume_reading()

    # Ends

    def shutdown(self) -> None:
        """The server stops: end now, or after the response that is under way."""
        if self._answering:
            self._last = True
        else:
            super().shutdown()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, once."""
        if not self._last and not self.transport.is_closing():
            super().send_400_response(msg)

    def sweep(self, now: float) -> None:
        """Close a connection that is idle, or whose request does not arrive."""
        if not self._whole:
            if now - self._begun > ARRIVAL_S:
                self._refuse(408, "The request did not arrive in time.")
            return
        if not self._answering and not self._usual_busy() and now - self._since > IDLE_S:
            self.transport.close()

    def _refuse(self, status: int, text: str) -> None:
        """Answer without a door and end the connection."""
        if self.transport.is_closing():
            return
        self._last = True
        if not self._answering and not (self._usual_busy() and self.cycle.response_started):
            head = b"%bcontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (_LINES[status], len(text)) + text.encode())
        if self._whole:
            self.transport.close()
        else:  # an end while the client still sends would reset the connection, and the answer with it
            self.loop.call_later(_LINGER_S, self.transport.close)

    def _usual_busy(self) -> bool:
        """Whether a request of the usual lane is under way (uvicorn's `cycle` is None before the first)."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _usual_scope(self) -> None:
        """Make what uvicorn makes for every request, for those that go through ASGI."""
        headers, url = self.headers, self.url
        super().on_message_begin()
        self.url, self.headers = url, headers
        self.scope["headers"] = headers
        self.expect_100_continue = self._fields.get(b"expect", b"").lower() == b"100-continue"


def sweep(server: uvicorn.Server) -> None:
    """Look after every HTTP connection of a server; call it every few seconds."""
    now = asyncio.get_running_loop().time()
    for connection in list(server.server_state.connections):
        if isinstance(connection, BoundedHttp):
            connection.sweep(now)


def _path_of(target: bytes) -> bytes:
    """Give the path of a request target that has a query or is in absolute form; else nothing."""
    path = target.partition(b"?")[0]
    if path[:4].lower() == b"http":
        path = b"/" + path.partition(b"://")[2].partition(b"/")[2]
    return path


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
