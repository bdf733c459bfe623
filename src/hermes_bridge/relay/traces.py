"""What the relay does, as spans of one trace: the caller's (docs/guides/observability.md).

    caller's span (_meta.traceparent)
      tools/call ask_agent     SERVER   the call at our door
        invoke_agent b         CLIENT   the exchange; its context goes out with the wake
          tools/call reply     SERVER   the answer, and whatever b asks in that turn

Ids are derived from the request id, so no table of running spans exists: a span is written when
its exchange or call is over, also by a relay that was restarted in between. Who has no trace begins
one whose id is the request id without its dashes. A caller that does not sample is not exported.

What is over is noted, and written as bytes (`otlp`) with others that were: between asks the same
work costs twice as much, because the processor has forgotten it (benches/README.md).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import lru_cache
from random import getrandbits
from typing import Any, NamedTuple

import msgspec

from hermes_bridge.log import Quiet
from hermes_bridge.relay import otlp
from hermes_bridge.relay.core import carrier, frames
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.otlp import Fact

SERVER, CLIENT = 2, 3
"""Kinds, as OTLP numbers them."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_FLIPPED = bytes(byte ^ 0x5A for byte in range(256))
_encode = msgspec.json.Encoder().encode
_LONGEST = 100_000
"""Characters of one text that are exported."""
_AT_ONCE = 36
"""Spans that are written at a time: asks wait for that, a millisecond at most."""
_SOON_S = 0.05
"""How long a note may wait for others."""
_log = logging.getLogger("hermes_bridge.traces")

Sink = Callable[[list[bytes], list[bytes]], None]
"""Takes spans without their texts and, for targets that want those, the same spans with them."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call that is over. Instants are unix milliseconds."""

    tool: str
    agent: str
    began: int
    ended: int
    arguments: bytes | memoryview | msgspec.Raw
    parent: str | None = None
    """The caller's context."""
    link: str | None = None
    """The context of the HTTP request, where it is another one."""
    rpc_id: str = ""
    version: str | None = None
    door: str = "http"
    peer: str = ""
    port: int = 0
    error: str = ""
    given: Any = None
    """What the verb gave."""
    exchange: Exchange | None = None


Sort = tuple[str, str, str, str, str, str, str, str, str, str]
"""Tool, agent, door, address, version; asker, target, how the exchange ended; outcome, error."""


class Context(NamedTuple):
    """A span's place: ids in bytes."""

    trace: bytes
    span: bytes
    sampled: bool

    def __str__(self) -> str:
        return f"00-{self.trace.hex()}-{self.span.hex()}-0{int(self.sampled)}"


class Tracer:
    """Watches the relay and the doors; gives what is over to `sink`."""

    def __init__(
        self,
        sink: Sink,
        find: Callable[[str], Exchange | None],
        *,
        texts: bool = False,
        live: Sink | None = None,
    ) -> None:
        """`find` gives an exchange at hand; `texts` says whether anyone wants those.

        `live` takes an ask when it opens, as a span that has not gone on yet.
        """
        self._sink, self._find, self._texts, self._live = sink, find, texts, live
        self._noted: list[tuple[Callable[..., ToolCall] | None, Any]] = []
        self._written: list[bytes] = []
        self._full: list[bytes] = []
        self._last: Exchange | None = None
        self._due = False
        self._quiet = Quiet(_log, lambda: time.monotonic_ns() // 1_000_000)

    def watch(self, what: str, x: Exchange) -> None:
        """Hear of an exchange (a watcher of the relay)."""
        if what == "opened":
            if x.status is Status.OPENING:
                x.trace = carrier.under(x.trace, str(_place(x))) if x.trace else _root(x.rid)
                if self._live is not None:
                    self._exchange(x, "pending")
                    self._hand_over(self._live)
        elif what == "ended":
            self._note(None, x)

    def called(self, make: Callable[..., ToolCall], *args: Any) -> None:
        """Hear of a tool call that is over; `make(Call, *args)` gives it, a moment later."""
        self._note(make, args)

    def _note(self, make: Callable[..., ToolCall] | None, what: Any) -> None:
        self._noted.append((make, what))
        if len(self._noted) >= _AT_ONCE:
            self.flush()
        elif not self._due:
            self._due = True
            asyncio.get_running_loop().call_later(_SOON_S, self._now_due)

    def _now_due(self) -> None:
        self._due = False
        self.flush()

    def flush(self) -> None:
        """Write what was noted."""
        noted, self._noted = self._noted, []
        for make, what in noted:
            try:
                if make is None:
                    self._exchange(what, what.status)
                else:
                    self._call(make(ToolCall, *what))
            except Exception as error:  # noqa: BLE001 - who only looks on must not hurt
                self._quiet.event("span.failed", type(error).__name__, logging.ERROR)
        self._hand_over(self._sink)

    def _hand_over(self, sink: Sink) -> None:
        if self._written:
            written, self._written = self._written, []
            full, self._full = self._full, []
            sink(written, full if self._texts else written)

    def _exchange(self, x: Exchange, outcome: str) -> None:
        """Write the span of an exchange: `invoke_agent <target>`."""
        self._last = x
        at = context(x.trace) or _place(x)
        if not at.sampled:
            return
        head = _ask_head(x.asker, x.target, outcome, x.attempt, x.beats, x.depth)
        parts = [head, _ids(x.rid, x.conv)]
        if outcome not in ("ok", "pending"):
            why = (x.reason or outcome)[:500]
            parts.append(otlp.attribute("langfuse.observation.status_message", why))
        if x.sent_at:
            parts.append(otlp.happened(b"sent", x.sent_at))
        if x.taken_at:
            parts.append(otlp.happened(b"taken", x.taken_at))
        if x.trace is not None and "\n" in x.trace:
            parts.append(otlp.state(carrier.state(x.trace)))
        door = at.span.translate(_FLIPPED)
        self._written.append(otlp.span(at.trace, at.span, door, x.at, x.ended_at, parts))
        if self._texts:
            parts.append(otlp.attributes(_said(x)))
            self._full.append(otlp.span(at.trace, at.span, door, x.at, x.ended_at, parts))

    def _of(self, rid: str) -> Exchange | None:
        """Give the exchange that a call was about: a `reply` ends the one that was written last."""
        last = self._last
        return last if last is not None and last.rid == rid else self._find(rid)

    def _call(self, call: ToolCall) -> None:
        """Write the span of a tool call."""
        x = call.exchange or self._of(_request_id(call))
        place = context(x.trace) if x is not None else None
        above = context(call.parent)
        if place is not None and x is not None and call.tool == "ask_agent" and x.at >= call.began:
            trace, own, sampled = place.trace, place.span.translate(_FLIPPED), place.sampled
        else:
            above = above or place
            own = getrandbits(64).to_bytes(8)
            trace = above.trace if above else getrandbits(128).to_bytes(16)
            sampled = above.sampled if above else True
        if not sampled:
            return
        parts = [_call_head(_sort(call, x)), otlp.attribute("jsonrpc.request.id", call.rpc_id)]
        if x is not None:
            parts.append(_ids(x.rid, x.conv))
        elif isinstance(conv := getattr(call.given, "conversation_id", None), str):
            parts.append(_ids("", conv))
        if call.port:
            parts.append(_port(call.port))
        trail = call.parent or (x.trace if x is not None else None)
        if trail is not None and "\n" in trail:
            parts.append(otlp.state(carrier.state(trail)))
        if call.link and (link := context(call.link)) is not None and link != above:
            parts.append(otlp.link(link.trace, link.span))
        parent = above.span if above else b""
        self._written.append(otlp.span(trace, own, parent, call.began, call.ended, parts))
        if self._texts:
            parts.append(otlp.attributes(_passed(call)))
            self._full.append(otlp.span(trace, own, parent, call.began, call.ended, parts))


@lru_cache(maxsize=16)
def context(text: str | None) -> Context | None:
    """Read the `traceparent` of what `carrier.taken` let through.

    An ask's is read five times, nearly always one after the other: a larger memory would be slower.
    """
    if text is None or len(text) < 55 or text[0] == "\n":
        return None
    trace, span = bytes.fromhex(text[3:35]), bytes.fromhex(text[36:52])
    if trace == _NO_TRACE or span == _NO_SPAN:
        return None
    return Context(trace, span, text[54] in "13579bdf")


def _place(x: Exchange) -> Context:
    """Give the place of an exchange's own span, derived from its request id."""
    own = bytes.fromhex(x.rid.replace("-", ""))
    parent = context(x.trace)
    return Context(parent.trace if parent else own, own[8:], not parent or parent.sampled)


def _root(rid: str) -> str:
    """Give the `traceparent` of an exchange that begins a trace, as `_place` would."""
    return f"00-{rid.replace('-', '')}-{rid[19:23]}{rid[24:]}-01"


_UUID = 36
_RID, _CONVERSATION, _SESSION = (
    otlp.attribute(key, "-" * _UUID)[:-_UUID]
    for key in ("hermes_bridge.request_id", "gen_ai.conversation.id", "session.id")
)
"""What stands before a UUID as the value of these attributes."""


@lru_cache(maxsize=16)
def _ids(rid: str, conversation: str) -> bytes:
    """Give what all spans of an exchange carry, so that each can be found by it."""
    if len(rid) == len(conversation) == _UUID and conversation.isascii():
        talk = conversation.encode()
        return b"".join((_RID, rid.encode(), _CONVERSATION, talk, _SESSION, talk))
    pairs = [("hermes_bridge.request_id", rid)]
    pairs += [("gen_ai.conversation.id", conversation), ("session.id", conversation)]
    return otlp.attributes([pair for pair in pairs if pair[1]])


@lru_cache(maxsize=4096)
def _port(port: int) -> bytes:
    return otlp.attribute("client.port", port)


@lru_cache(maxsize=4096)
def _ask_head(
    asker: str, target: str, outcome: str, attempts: int, beats: int, depth: int
) -> bytes:
    """Give what all exchanges of a pair with one outcome have in common."""
    facts: list[tuple[str, Fact]] = [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.provider.name", "hermes_bridge"),
        ("gen_ai.agent.name", target),
        ("gen_ai.agent.id", target),
        ("user.id", asker),
        ("langfuse.trace.name", _title(asker, target)),
        ("langfuse.trace.tags", (outcome,)),
        ("langfuse.observation.type", "agent"),
        ("hermes_bridge.outcome", outcome),
        ("hermes_bridge.attempts", attempts),
        ("hermes_bridge.heartbeats", beats),
        ("hermes_bridge.depth", depth),
    ]
    error = "" if outcome in ("ok", "pending") else outcome
    if error:
        facts += (("error.type", error), ("langfuse.observation.level", "ERROR"))
    return otlp.head(f"invoke_agent {target}", CLIENT, facts, error)


def _sort(call: ToolCall, x: Exchange | None) -> Sort:
    """Give what makes calls alike."""
    given = call.given
    outcome = getattr(given, "error", None) or getattr(given, "code", None)
    said = outcome if isinstance(outcome, str) else ""
    who = call.tool, call.agent, call.door, call.peer, call.version or ""
    if x is None:
        return (*who, "", "", "", said, call.error)
    return (*who, x.asker, x.target, x.status if x.ended_at else "", said, call.error)


@lru_cache(maxsize=4096)
def _call_head(sort: Sort) -> bytes:
    """Give what calls of one sort have in common."""
    tool, agent, door, peer, version, asker, target, end, outcome, error = sort
    facts: list[tuple[str, Fact]] = [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", tool),
        ("gen_ai.operation.name", "execute_tool"),
        ("network.transport", "tcp"),
        ("network.protocol.name", door),
        ("user.id", agent),
        ("langfuse.trace.name", _title(asker, target) if target else tool),
        ("langfuse.observation.type", "tool"),
    ]
    final = end or ("" if target else outcome)
    if final:
        facts.append(("langfuse.trace.tags", (final,)))
    optional = (
        ("client.address", peer),
        ("mcp.protocol.version", version),
        ("hermes_bridge.outcome", outcome),
    )
    facts += [fact for fact in optional if fact[1]]
    if error:
        facts += (
            ("error.type", error),
            ("langfuse.observation.level", "ERROR"),
            ("langfuse.observation.status_message", error),
        )
        if error.lstrip("-").isdigit():
            facts.append(("rpc.response.status_code", error))
    return otlp.head(f"tools/call {tool}", SERVER, facts, error)


def _title(asker: str, target: str) -> str:
    return f"{asker} \N{RIGHTWARDS ARROW} {target}"


def _said(x: Exchange) -> list[tuple[str, str]]:
    """Give the texts of an exchange."""
    question = x.message[:_LONGEST]
    outermost = x.depth == 0
    found = [
        ("gen_ai.input.messages", _messages("user", question)),
        ("langfuse.observation.input", question),
    ]
    if outermost:  # what is asked within a turn is not what the trace is about
        found.append(("langfuse.trace.input", question))
    answer = (x.answer if x.answer is not None else x.reason or "")[:_LONGEST]
    if answer:
        found += [
            ("gen_ai.output.messages", _messages("assistant", answer, finish_reason="stop")),
            ("langfuse.observation.output", answer),
        ]
        if outermost:
            found.append(("langfuse.trace.output", answer))
    return found


def _messages(role: str, text: str, **more: str) -> str:
    return _encode([{"role": role, "parts": [{"type": "text", "content": text}], **more}]).decode()


def _passed(call: ToolCall) -> list[tuple[str, str]]:
    """Give the texts of a call."""
    asked = bytes(call.arguments).decode("utf-8", "replace")[:_LONGEST]
    found = [("gen_ai.tool.call.arguments", asked), ("langfuse.observation.input", asked)]
    if call.given is not None:
        said = _encode(call.given).decode()[:_LONGEST]
        found += [("gen_ai.tool.call.result", said), ("langfuse.observation.output", said)]
    return found


def _request_id(call: ToolCall) -> str:
    if call.tool in ("reply", "wait_answer", "cancel_ask"):
        return frames.named(call.arguments)
    named = getattr(call.given, "request_id", "")
    return named if isinstance(named, str) else ""
