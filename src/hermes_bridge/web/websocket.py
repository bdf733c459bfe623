"""The WebSocket protocol of the server: uvicorn's, with limits and a direct way in and out.

Text frames must be UTF-8, and peers must read. An accepted WebSocket gives its frames to a sink
and is written to at once, without a task and without ASGI messages.
"""

from collections.abc import Callable
from typing import Any, Protocol

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import OPEN

SOCKET = "hermes_bridge.socket"
"""The ASGI extension that gives a WebSocket's door its `DirectSocket`."""
_LINGER_S = 0.5
_UNREADABLE = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class DirectSocket(Protocol):
    """An accepted WebSocket: frames come to `sink`, frames go out at once."""

    sink: Callable[[str | None], None] | None
    on_writable: Callable[[], None] | None

    def write(self, frame: bytes) -> bool:
        """Send UTF-8 as a text frame now; false if the peer does not read (`on_writable` says when)."""
        ...

    def abort(self) -> None:
        """End the connection without waiting for the peer."""
        ...

    def forget_handshake(self) -> None:
        """Let go of the request that opened the connection: links live long, and there are many."""
        ...


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose peer must speak UTF-8 and read. It is its own `DirectSocket`."""

    sink: Callable[[str | None], None] | None = None
    on_writable: Callable[[], None] | None = None

    def data_received(self, data: bytes) -> None:
        """Read frames; refuse a handshake that cannot be read."""
        if self.close_sent and self.conn.parser_exc is not None:
            return
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            self.handshake_complete = True
            self.transport.write(_UNREADABLE)
            self.transport.close()

    def handle_connect(self, event: Any) -> None:
        """Offer the direct way to the application."""
        super().handle_connect(event)
        if self.response.status_code == 101:
            extensions: dict[str, Any] = self.scope["extensions"]
            extensions[SOCKET] = self

    def send_receive_event_to_app(self) -> None:
        """Give a frame to the sink; close with 1007, without a traceback, when it is not UTF-8."""
        if self.sink is None:
            super().send_receive_event_to_app()
            return
        data = self.frames[0] if len(self.frames) == 1 else b"".join(self.frames)
        self.frames = []
        if self.close_sent:
            return
        if self.curr_msg_data_type != "text":
            self.sink(None)
            return
        try:
            text = bytes(data).decode()
        except UnicodeDecodeError:
            self.conn.fail(1007, "text frames must be UTF-8")
            self.handle_parser_exception()
            return
        self.sink(text)

    def handle_parser_exception(self) -> None:
        """Say why the connection ends, and read on for a moment without looking.

        An end while the peer still sends would reset the connection, and the reason with it.
        """
        self.stop_keepalive()
        said = self.conn.close_sent
        code, reason = (said.code, said.reason) if said is not None else (1006, "")
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(_LINGER_S, self.transport.close)

    def write(self, frame: bytes) -> bool:
        """Send a text frame now, if the peer reads and the connection lives."""
        if self.close_sent or self.conn.state is not OPEN or not self.writable.is_set():
            return False
        if self.transport.is_closing():
            return False
        self.transport.write(_text_head(len(frame)) + frame)
        return True

    def abort(self) -> None:
        """End the connection without waiting for the peer."""
        if self.transport is not None:
            self.transport.abort()

    def forget_handshake(self) -> None:
        """Let go of the request and the response."""
        self.scope["headers"] = []
        self.request = self.response = None  # type: ignore[assignment]

    def resume_writing(self) -> None:
        """The peer reads again."""
        super().resume_writing()
        if self.on_writable is not None:
            self.on_writable()

    def keepalive_timeout(self) -> None:
        """A peer that answers no ping is gone, whatever waits in its buffer."""
        super().keepalive_timeout()
        self.transport.abort()


def _text_head(size: int) -> bytes:
    """Give the head of an unmasked, unfragmented text frame (RFC 6455, 5.2): most of what is sent."""
    if size < 126:
        return bytes((0x81, size))
    if size < 65_536:
        return b"\x81\x7e" + size.to_bytes(2, "big")
    return b"\x81\x7f" + size.to_bytes(8, "big")
