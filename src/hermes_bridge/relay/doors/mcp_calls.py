"""Tool calls that are held over MCP, and the answers of one HTTP request: JSON, or a stream.

Made by `mcp.py`, which decides; here is only how an answer travels.
"""

from typing import Protocol

import msgspec

from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.doors import mcp_wire as wire
from hermes_bridge.relay.doors.mcp_wire import Fault, Id
from hermes_bridge.relay.held import Held, Poke
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.verbs import Done, Verbs, Waits, spell
from hermes_bridge.web.server import Out

Headers = dict[bytes, bytes]

JSON = b"content-type: application/json\r\n"
STREAM = (
    b"content-type: text/event-stream\r\n"
    b"cache-control: no-cache, no-transform\r\n"
    b"x-accel-buffering: no\r\n"
)


class Calls(Protocol):
    """What a held call needs of its door."""

    relay: Relay
    verbs: Verbs

    def enter(self, call: "McpCall") -> None:
        """Begin to hold it."""
        ...

    def leave(self, call: "McpCall") -> None:
        """It is no longer held."""
        ...

    def gone(self, call: "McpCall") -> None:
        """Its client hung up."""
        ...

    def over(
        self, request: "ToolRequest", error: str, given: Done | None, exchange: Exchange | None
    ) -> None:
        """It is over: count it, tell the tracer."""
        ...


class Client(msgspec.Struct, frozen=True, gc=False):
    """What the headers say of a client."""

    agent: str
    headers: Headers
    json: bool
    sse: bool
    peer: str
    port: int
    version: str | None
    """The protocol version it names, if it names one."""


class ToolRequest(msgspec.Struct, frozen=True, gc=False):
    """A tool call: what its answer must know of its question."""

    rid: Id
    modern: bool
    asks: bool
    """Whether its end is the end of an ask: of `wait_answer` only the waiting ends."""
    progress: int | str | None
    client: Client
    tool: str
    began: int
    """When it came, in unix milliseconds."""
    call: wire.Call | None
    """The whole call, if it is traced."""
    trace: str | None
    """The caller's context."""


class McpCall(Held):
    """A tool call that is held."""

    __slots__ = ("answer", "door", "request", "signs")

    def __init__(self, door: Calls, request: ToolRequest, waits: Waits, answer: "Answer") -> None:
        super().__init__(waits.exchange, request.began, waits.wait_ms)
        self.door, self.request, self.answer = door, request, answer
        self.signs = 0

    def poke(self, why: Poke) -> None:
        """Answer it."""
        self.door.leave(self)
        given = self.door.verbs.outcome(self.exchange)
        self.door.over(self.request, "", given, self.exchange)
        text = spell(given)
        self.answer.result(self.request.rid, wire.tool_result(text, modern=self.request.modern))

    def sign(self) -> None:
        """Give a sign of life: progress if the client asked for it, else a comment."""
        self.signs += 1
        token = self.request.progress
        if token is None:
            self.answer.sign(None)
        else:
            note = self.exchange.note or f"waiting for {self.exchange.target}"
            self.answer.sign(wire.progress(token, self.signs, note))


class Answer:
    """Where the answers of one HTTP request go. Begins as plain JSON, may become a stream."""

    def __init__(self, door: Calls, client: Client, out: Out) -> None:
        self._door, self._client, self._out = door, client, out
        self._streaming = False

    def result(self, rid: Id, content: bytes) -> None:
        """Take a result."""
        self._message(wire.result(rid, content), 200)

    def fault(self, rid: Id, fault: Fault) -> None:
        """Take a protocol error."""
        self._message(wire.error(rid, fault), fault.status)

    def nothing(self) -> None:
        """Take that nothing will come (a notification)."""
        raise NotImplementedError

    def held(self, call: McpCall) -> None:
        """Take a call that will be answered later."""
        raise NotImplementedError

    def _message(self, content: bytes, status: int) -> None:
        raise NotImplementedError

    def open_stream(self) -> None:
        """Send the headers of a stream, once. A client without streams gets JSON after blanks."""
        if not self._streaming:
            self._streaming = True
            self._out.stream(STREAM if self._client.sse else JSON)

    def sign(self, notification: bytes | None) -> None:
        """Send a sign of life."""
        if not self._client.sse:
            self._out.chunk(b" ")
        elif notification is None:
            self._out.chunk(b": waiting\n\n")
        else:
            self._out.chunk(_event(notification))

    def _send(self, status: int, content: bytes, events: list[bytes]) -> None:
        """Send all: `content` as JSON, or `events` as a stream."""
        if self._streaming:
            self._out.end(b"".join(map(_event, events)) if self._client.sse else content)
        elif self._client.json:
            self._out.respond(status, JSON, content)
        else:
            self._out.respond(status, STREAM, b"".join(map(_event, events)))


class One(Answer):
    """The answer of a request that holds one message."""

    def nothing(self) -> None:
        """Accept a notification."""
        self._out.respond(202, b"", b"")

    def held(self, call: McpCall) -> None:
        """Hold the one call; hear of a hang-up."""
        self._out.on_gone = lambda: self._door.gone(call)
        self._door.enter(call)

    def _message(self, content: bytes, status: int) -> None:
        self._out.on_gone = None
        self._send(status, content, [content])


class Many(Answer):
    """The answers of a batch, sent together when the last is there."""

    def __init__(self, door: Calls, client: Client, out: Out, count: int) -> None:
        super().__init__(door, client, out)
        self._missing = count
        self._answers: list[bytes] = []
        self._calls: list[McpCall] = []
        out.on_gone = self._gone

    def nothing(self) -> None:
        """Count a notification."""
        self._one_less()

    def held(self, call: McpCall) -> None:
        """Hold one of the calls."""
        self._calls.append(call)
        self._door.enter(call)

    def _gone(self) -> None:
        for call in self._calls:
            if not call.done:
                self._door.gone(call)

    def _message(self, content: bytes, status: int) -> None:
        self._answers.append(content)
        self._one_less()

    def _one_less(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        self._out.on_gone = None
        if self._answers:
            self._send(200, b"[" + b",".join(self._answers) + b"]", self._answers)
        else:
            self._out.respond(202, b"", b"")


def _event(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"
