"""`/mcp`: the relay's tools for MCP clients of both eras, stateless (docs/protocol/mcp.md).

A call that is answered within a second gets plain JSON. A longer one becomes a stream: comments
and progress keep proxies and clients from giving up, and a hang-up is noticed. Sessions, GET
streams and resumption do not exist here; nothing is lost with a connection that the answer in
the relay would not outlive (`wait_answer`, idempotency keys).

The door is called on the direct lane (`server.py`): headers and body in, an `Out` to answer now
or later. A held call is an object, not a task.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from hermes_bridge.log import Quiet
from hermes_bridge.relay.auth import Tokens
from hermes_bridge.relay.core import carrier, results
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.doors import mcp_wire as wire
from hermes_bridge.relay.doors.mcp_calls import (
    JSON,
    Answer,
    Client,
    Headers,
    Many,
    McpCall,
    One,
    ToolRequest,
)
from hermes_bridge.relay.doors.mcp_gate import Gate, accepted
from hermes_bridge.relay.doors.mcp_wire import Fault, Id
from hermes_bridge.relay.held import Poke
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.verbs import Broken, Caller, Done, Given, Verbs, Waits, spell
from hermes_bridge.web.server import Out

if TYPE_CHECKING:
    from hermes_bridge.relay.traces import ToolCall, Tracer

QUICK_MS = 1_000
"""A call answered within this time gets plain JSON; after it, a stream."""
KEEPALIVE_MS = 4_000
"""Between two signs of life on a stream: below the 5 s that common clients wait for a byte."""
_SWEEP_S = 0.25
_MOST_IN_BATCH = 64

_CHALLENGE = b'www-authenticate: Bearer realm="hermes-bridge", error="invalid_token"\r\n'
_UNAUTHORIZED = (
    b'{"error":"unauthorized","hint":"Send Authorization: Bearer <the token of this agent>."}'
)
_log = logging.getLogger("hermes_bridge.mcp")
_TOOLS = frozenset(tool["name"] for tool in wire.TOOLS)


class McpDoor:
    """The endpoint. One instance serves every agent."""

    def __init__(
        self, relay: Relay, verbs: Verbs, tokens: Tokens, *, origins: frozenset[str] = frozenset()
    ) -> None:
        self.relay, self.verbs, self.tokens = relay, verbs, tokens
        self._quiet = Quiet(_log, relay.clock.now)
        self._gate = Gate(origins, self._quiet)
        self._fresh: deque[McpCall] = deque()
        self._streams: deque[tuple[int, McpCall]] = deque()
        self._sweeping = False
        self._legacy: dict[tuple[str, Id], list[McpCall]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.tracer: Tracer | None = None

    def __call__(self, method: str, headers: Headers, body: bytes, peer: str, out: Out) -> None:
        """Serve one HTTP request."""
        odd = method != "POST" or b"origin" in headers
        odd = odd or headers.get(b"content-type") != b"application/json"
        if odd and self._gate.refused(method, headers, out, peer):
            return
        agent = self.tokens.agent(headers.get(b"authorization"))
        if agent is None:
            self._quiet.event("mcp.refused", "bad token", peer=peer)
            out.respond(401, JSON + _CHALLENGE, _UNAUTHORIZED)
            return
        json, sse = accepted(headers.get(b"accept", b"*/*"))
        if not json and not sse:
            what = b'{"error":"accept application/json and text/event-stream"}'
            out.respond(406, JSON, what)
            return
        version = headers.get(b"mcp-protocol-version")
        named = version.decode("latin-1") if version is not None else None
        client = Client(agent, headers, json, sse, peer, out.port, named)
        if not (body.isascii() or _is_utf8(body)):
            fault = Fault(400, wire.PARSE_ERROR, "The body is not UTF-8")
            out.respond(400, JSON, wire.error(None, fault))
            return
        if body[:1] != b"{" and body.lstrip()[:1] == b"[":
            self._batch(body, client, out)
            return
        self._message(body, client, One(self, client, out))

    # One message

    def _message(self, content: bytes | msgspec.Raw, client: Client, answer: Answer) -> None:
        """Read and do one JSON-RPC message; `answer` is told what came of it, now or later."""
        try:
            message = wire.request(content)
        except msgspec.ValidationError:
            answer.fault(None, Fault(400, wire.INVALID_REQUEST, _NOT_RPC))
            return
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            answer.fault(None, Fault(400, wire.PARSE_ERROR, "The body is not valid JSON"))
            return
        rid = None if message.id is UNSET else message.id
        version = client.version
        if message.jsonrpc != "2.0" or (message.id is None and message.method is not UNSET):
            answer.fault(rid, Fault(400, wire.INVALID_REQUEST, _NOT_RPC))
        elif version is not None and version not in wire.SUPPORTED:
            answer.fault(rid, wire.unsupported(version))
        elif message.method is UNSET:
            answer.nothing()  # a response to a request that this server never makes
        elif message.id is UNSET:
            self._notified(message, client.agent)
            answer.nothing()
        else:
            self._request(message, rid, client, answer)

    def _request(self, message: wire.Request, rid: Id, client: Client, answer: Answer) -> None:
        try:
            if message.method == "tools/call":
                self._tool(message, rid, client, answer)
            else:
                began = self.relay.clock.now()
                error = self._other(message, rid, client, answer)
                self._count(message.method, error, began)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            status = 400 if client.version == wire.MODERN else 200
            text = "The parameters do not fit the method"
            method = "tools/call" if message.method == "tools/call" else "(other)"
            self.relay.tally.called(method, "", str(wire.INVALID_PARAMS), 0.0)
            answer.fault(rid, Fault(status, wire.INVALID_PARAMS, text))

    def _tool(self, message: wire.Request, rid: Id, client: Client, answer: Answer) -> None:
        call = wire.call(message.params)
        meta = call.meta
        modern = client.version == wire.MODERN
        if modern or (meta is not None and meta.version == wire.MODERN):
            fault = wire.check_modern(client.headers, message, call.name, meta)
            if fault is not None:
                self.relay.tally.called("tools/call", "", str(fault.code), 0.0)
                answer.fault(rid, fault)
                return
            modern = True
        began = self.relay.clock.now()
        trace = _trace(meta, client.headers)
        caller = Caller(client.agent, trace=trace)
        given = self.verbs.call(call.name, caller, call.arguments)
        progress = meta.progress if meta is not None else None
        request = ToolRequest(
            rid,
            modern,
            call.name == "ask_agent",
            progress,
            client,
            call.name,
            began,
            call if self.tracer is not None else None,
            trace,
        )
        self._given(request, given, answer)

    def _given(self, request: ToolRequest, given: Given, answer: Answer) -> None:
        if isinstance(given, Waits):
            answer.held(McpCall(self, request, given, answer))
        elif isinstance(given, Awaitable):
            task = asyncio.get_running_loop().create_task(self._given_later(request, given, answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(given, Broken) and given.code == "unknown_tool":
            status = 400 if request.modern else 200
            self.over(request, str(wire.INVALID_PARAMS), given, None)
            answer.fault(request.rid, Fault(status, wire.INVALID_PARAMS, "Unknown tool"))
        elif given is results.DONE:
            self.over(request, "", given, None)
            answer.result(request.rid, _DONE[request.modern])
        else:
            broken = isinstance(given, Broken)
            self.over(request, "tool_error" if broken else "", given, None)
            text = wire.tool_result(spell(given), modern=request.modern, broken=broken)
            answer.result(request.rid, text)

    def over(
        self,
        request: ToolRequest,
        error: str,
        given: Done | None,
        exchange: Exchange | None,
    ) -> None:
        """A tool call is over: count it, and tell the tracer. `error` is empty if none went wrong."""
        now = self.relay.clock.now()
        tool = request.tool if request.tool in _TOOLS else "(unknown)"
        self.relay.tally.called("tools/call", tool, error, (now - request.began) / 1000)
        if self.tracer is not None and request.call is not None:
            self.tracer.called(_traced, tool, request, now, error, given, exchange)

    def _count(self, method: Any, error: str, began: int) -> None:
        known = method in wire.MODERN_RESULTS or method in wire.LEGACY_RESULTS
        name = str(method) if known or method == "initialize" else "(other)"
        self.relay.tally.called(name, "", error, (self.relay.clock.now() - began) / 1000)

    async def _given_later(
        self, request: ToolRequest, given: Awaitable[Any], answer: Answer
    ) -> None:
        try:
            self._given(request, await given, answer)
        except Exception as error:  # noqa: BLE001 - the client is told, the process goes on
            self._quiet.event("door.failed", type(error).__name__, logging.ERROR)
            self.over(request, str(wire.INTERNAL_ERROR), None, None)
            answer.fault(request.rid, Fault(500, wire.INTERNAL_ERROR, "Internal error"))

    def _other(self, message: wire.Request, rid: Id, client: Client, answer: Answer) -> str:
        """Serve what is no tool call; give the code of the error, or nothing."""
        method = message.method
        fault: Fault | None = None
        meta = wire.params(message.params).meta
        if client.version == wire.MODERN or (meta is not None and meta.version == wire.MODERN):
            fault = wire.check_modern(client.headers, message, None, meta)
            known = wire.MODERN_RESULTS.get(str(method))
            if fault is None and known is not None:
                answer.result(rid, known)
            else:
                fault = fault or Fault(404, wire.METHOD_NOT_FOUND, "Method not found")
        elif method == "initialize":
            answer.result(rid, wire.initialized(wire.initialize(message.params).version))
        elif (known := wire.LEGACY_RESULTS.get(str(method))) is not None:
            answer.result(rid, known)
        else:
            fault = Fault(200, wire.METHOD_NOT_FOUND, "Method not found")
        if fault is None:
            return ""
        answer.fault(rid, fault)
        return str(fault.code)

    def _notified(self, message: wire.Request, agent: str) -> None:
        """Old clients cancel with a notification. An id that two calls share cancels neither."""
        if message.method != "notifications/cancelled":
            return
        try:
            rid = wire.cancelled(message.params).request_id
        except (msgspec.MsgspecError, RecursionError):
            return
        calls = self._legacy.get((agent, rid), [])
        if len(calls) != 1:
            return
        if calls[0].request.asks:
            self.relay.cancel(calls[0].exchange.rid, f"cancelled by {agent}")
        else:
            calls[0].poke(Poke.SLICE)

    def _batch(self, content: bytes, client: Client, out: Out) -> None:
        """Serve a batch (2025-03-26): all its answers together, when the last is there."""
        try:
            items = wire.batch(content)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            fault = Fault(400, wire.PARSE_ERROR, "The body is not valid JSON")
            out.respond(400, JSON, wire.error(None, fault))
            return
        if not items or len(items) > _MOST_IN_BATCH or client.version == wire.MODERN:
            fault = Fault(
                400, wire.INVALID_REQUEST, f"A batch holds 1 to {_MOST_IN_BATCH} requests"
            )
            out.respond(400, JSON, wire.error(None, fault))
            return
        whole = Many(self, client, out, len(items))
        for item in items:
            self._message(item, client, whole)

    # Held calls

    def enter(self, call: McpCall) -> None:
        """Begin to hold a call."""
        if not call.request.modern:
            key = (call.request.client.agent, call.request.rid)
            self._legacy.setdefault(key, []).append(call)
        if call.until - call.since < QUICK_MS:
            self.relay.slices.add(call)
        else:
            self._fresh.append(call)
            self._arm()
        self.relay.hold(call)

    def leave(self, call: McpCall) -> None:
        """The call is over."""
        self.relay.let_go(call)
        if not call.request.modern:
            key = (call.request.client.agent, call.request.rid)
            calls = self._legacy.get(key)
            if calls is not None and call in calls:
                calls.remove(call)
                if not calls:
                    del self._legacy[key]

    def _arm(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Turn calls that are no longer quick into streams, and give streams their signs of life."""
        now = self.relay.clock.now()
        self._sweeping = False
        fresh, streams = self._fresh, self._streams
        while fresh and fresh[0].since <= now - QUICK_MS:
            call = fresh.popleft()
            if not call.done:
                self.relay.slices.add(call)
                call.answer.open_stream()
                call.sign()
                streams.append((now + KEEPALIVE_MS, call))
        while streams and streams[0][0] <= now:
            _, call = streams.popleft()
            if not call.done:
                call.sign()
                streams.append((now + KEEPALIVE_MS, call))
        if fresh or streams:
            self._arm()

    def gone(self, call: McpCall) -> None:
        """The client hung up. For a modern client that is a cancel, unless it can come back with a key."""
        exchange, request = call.exchange, call.request
        self.leave(call)
        self.over(request, "client_gone", None, exchange)
        ends = request.modern and request.asks and not exchange.keyed
        if ends and not self.relay.is_held(exchange.rid):
            self.relay.cancel(exchange.rid, f"{request.client.agent} hung up")


_NOT_RPC = "This is not a JSON-RPC 2.0 request"
_DONE = tuple(wire.tool_result(spell(results.DONE), modern=modern) for modern in (False, True))


def _is_utf8(content: bytes) -> bool:
    """Whether all of it is text: a decoder that skips a value does not look into it."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _trace(meta: wire.Meta | None, headers: Headers) -> str | None:
    """Give the caller's context: of the message, else of the HTTP request."""
    stated = None
    if meta is not None:
        stated = carrier.taken(meta.traceparent, meta.tracestate, meta.baggage)
    return stated or _header_trace(headers)


def _traced(
    make: "type[ToolCall]",
    tool: str,
    request: ToolRequest,
    ended: int,
    error: str,
    given: Done | None,
    exchange: Exchange | None,
) -> "ToolCall":
    """Give a call that is over, for the tracer."""
    client, call = request.client, request.call
    return make(
        tool=tool,
        agent=client.agent,
        began=request.began,
        ended=ended,
        arguments=call.arguments if call is not None else b"",
        parent=request.trace,
        link=_header_trace(client.headers),
        rpc_id=str(request.rid),
        version=client.version,
        peer=client.peer,
        port=client.port,
        error=error,
        given=given,
        exchange=exchange,
    )


def _header_trace(headers: Headers) -> str | None:
    parent, baggage = headers.get(b"traceparent"), headers.get(b"baggage")
    if parent is None and baggage is None:
        return None
    stated = (parent, headers.get(b"tracestate"), baggage)
    return carrier.taken(*(s.decode("latin-1") if s is not None else None for s in stated))
