"""What the relay does, as spans of one trace: the caller's (docs/guides/observability.md).

    caller's span (_meta.traceparent)
      tools/call ask_agent     SERVER   the call at our door
        invoke_agent b         CLIENT   the exchange; its context goes out with the wake
          tools/call reply     SERVER   the answer, and whatever b asks in that turn

Ids are derived from the request id, so no table of running spans exists: a span is written when
its exchange or call is over, also by a relay that was restarted in between. Who has no trace begins
one whose id is the request id without its dashes. A caller that does not sample is not exported.
"""

import random
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from hermes_bridge.relay.core import carrier
from hermes_bridge.relay.core.exchange import Exchange, Status

SERVER, CLIENT = 2, 3
"""Kinds, as OTLP numbers them."""
_NO_TRACE, _NO_SPAN = "0" * 32, "0" * 16
_FLIP = 0x5AA5_3CC3_0FF0_6996
_encode = msgspec.json.Encoder().encode
_LONGEST = 100_000
"""Characters of one text that are exported."""

Fact = str | int | tuple[str, ...]
Facts = tuple[tuple[str, Fact], ...]


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A tool call that is over. Instants are unix milliseconds."""

    tool: str
    agent: str
    began: int
    ended: int
    arguments: bytes
    parent: str | None = None
    """The caller's context."""
    link: str | None = None
    """The context of the HTTP request, where it is another one."""
    rpc_id: str = ""
    version: str | None = None
    door: str = "http"
    peer: str = ""
    error: str = ""
    given: Any = None
    """What the verb gave."""
    exchange: Exchange | None = None


class Context(NamedTuple):
    """One span's place: ids in hexadecimal."""

    trace: str
    span: str
    sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace}-{self.span}-0{int(self.sampled)}"


class Span(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A span to be exported. `content` gives the texts, for targets that take them."""

    name: str
    kind: int
    at: Context
    parent: str | None
    begin: int
    end: int
    conversation: str
    """`gen_ai.conversation.id` and `session.id`: on every span, so that each can be found by it."""
    facts: Facts
    """Attributes that many spans share."""
    own: list[tuple[str, str]]
    """Attributes of this span alone."""
    content: Callable[[], list[tuple[str, str]]]
    state: str = ""
    """The caller's `tracestate`."""
    error: str = ""
    events: list[tuple[str, int]] = []
    link: Context | None = None


class _Named(msgspec.Struct, gc=False):
    request_id: str = ""


_named = msgspec.json.Decoder(_Named).decode


Sink = Callable[[Callable[[], Span], int], None]


class Tracer:
    """Watches the relay and the doors; gives what is over to `sink`, to be made into spans there."""

    Call = ToolCall
    """What `called` takes, for doors that load nothing of this when nobody wants spans."""

    def __init__(
        self, sink: Sink, find: Callable[[str], Exchange | None], *, live: Sink | None = None
    ) -> None:
        """`sink` takes how to make a span and its size in bytes; `find` gives an exchange at hand.

        `live` takes an ask when it opens, as a span that has not gone on yet.
        """
        self._sink, self._find, self._live = sink, find, live

    def watch(self, what: str, x: Exchange) -> None:
        """Hear of an exchange (a watcher of the relay)."""
        if what == "opened":
            if x.status is Status.OPENING:
                x.trace = carrier.under(x.trace, str(_place(x, context(x.trace))))
                if self._live is not None and sampled(x.trace):
                    self._live(lambda: exchange_span(x, pending=True), 600 + len(x.message))
        elif what == "ended" and sampled(x.trace):
            size = 600 + len(x.message) + len(x.answer or "")
            self._sink(lambda: exchange_span(x), size)

    def called(self, call: ToolCall) -> None:
        """Hear of a tool call that is over."""
        x = call.exchange or self._find(_request_id(call))
        opened = x is not None and call.tool == "ask_agent" and x.at >= call.began
        of = x.trace if x is not None and (opened or call.parent is None) else call.parent
        if not sampled(of):
            return
        dice = f"{random.getrandbits(192) | 1 << 191:048x}"
        self._sink(lambda: call_span(call, x, opened, dice), 600 + 2 * len(call.arguments))


@lru_cache(maxsize=1024)
def context(text: str | None) -> Context | None:
    """Read the `traceparent` of what `carrier.taken` let through. An ask's is read eight times."""
    if text is None or len(text) < 55 or text[0] == "\n":
        return None
    trace, span = text[3:35], text[36:52]
    if trace == _NO_TRACE or span == _NO_SPAN:
        return None
    return Context(trace, span, text[54] in "13579bdf")


def sampled(text: str | None) -> bool:
    """Whether what belongs to this context is exported."""
    found = context(text)
    return found is None or found.sampled


def _place(x: Exchange, parent: Context | None) -> Context:
    """Give the place of an exchange's own span, derived from its request id."""
    own = x.rid.replace("-", "")
    return Context(parent.trace if parent else own, own[16:], parent.sampled if parent else True)


def _door_of(own: str) -> str:
    """Give the id of the span of the call that opened an exchange."""
    return f"{int(own, 16) ^ _FLIP:016x}"


def exchange_span(x: Exchange, *, pending: bool = False) -> Span:
    """Give the span of an exchange: `invoke_agent <target>`."""
    at = context(x.trace) or _place(x, None)
    outcome = "pending" if pending else x.status.value
    error = "" if pending or x.status is Status.OK else outcome
    own: list[tuple[str, str]] = [("hermes_bridge.request_id", x.rid)]
    if error:
        own.append(("langfuse.observation.status_message", (x.reason or error)[:500]))
    return Span(
        name=f"invoke_agent {x.target}",
        kind=CLIENT,
        at=at,
        parent=_door_of(at.span),
        begin=x.at,
        end=x.at if pending else x.ended_at,
        conversation=x.conv,
        facts=_of_ask(x.asker, x.target, outcome, error, (x.attempt, x.beats, x.depth)),
        own=own,
        content=lambda: _said(x),
        state=carrier.state(x.trace),
        error=error,
        events=[(n, t) for n, t in (("sent", x.sent_at), ("taken", x.taken_at)) if t],
    )


def call_span(call: ToolCall, x: Exchange | None, opened: bool, dice: str) -> Span:
    """Give the span of a tool call. `dice` is 24 random bytes, in hexadecimal."""
    parent = context(call.parent)
    place = context(x.trace) if x is not None else None
    if opened and place is not None:
        at = Context(place.trace, _door_of(place.span), place.sampled)
    else:
        parent = parent or place
        at = Context(parent.trace if parent else dice[16:], dice[:16])
    given = call.given
    own: list[tuple[str, str]] = [("jsonrpc.request.id", call.rpc_id)]
    conversation = x.conv if x is not None else getattr(given, "conversation_id", None)
    if x is not None:
        own.append(("hermes_bridge.request_id", x.rid))
    outcome = getattr(given, "error", None) or getattr(given, "code", None)
    pair = (x.asker, x.target, x.status.value if x.ended else "") if x is not None else None
    return Span(
        name=f"tools/call {call.tool}",
        kind=SERVER,
        at=at,
        parent=parent.span if parent else None,
        begin=call.began,
        end=call.ended,
        conversation=conversation if isinstance(conversation, str) else "",
        facts=_of_call(
            (call.tool, call.agent, call.door, call.peer, call.version or ""),
            pair,
            outcome if isinstance(outcome, str) else "",
            call.error,
        ),
        own=own,
        content=lambda: _passed(call),
        state=carrier.state(call.parent or (x.trace if x is not None else None)),
        error=call.error,
        link=_other(call.link, parent),
    )


@lru_cache(maxsize=4096)
def _of_ask(
    asker: str, target: str, outcome: str, error: str, counts: tuple[int, int, int]
) -> Facts:
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
        ("hermes_bridge.attempts", counts[0]),
        ("hermes_bridge.heartbeats", counts[1]),
        ("hermes_bridge.depth", counts[2]),
    ]
    if error:
        facts += (("error.type", error), ("langfuse.observation.level", "ERROR"))
    return tuple(facts)


@lru_cache(maxsize=4096)
def _of_call(
    who: tuple[str, str, str, str, str], pair: tuple[str, str, str] | None, outcome: str, error: str
) -> Facts:
    """Give what calls of one kind have in common; `who` is tool, agent, door, peer, version."""
    tool, agent, door, peer, version = who
    facts: list[tuple[str, Fact]] = [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", tool),
        ("gen_ai.operation.name", "execute_tool"),
        ("network.transport", "tcp"),
        ("network.protocol.name", door),
        ("user.id", agent),
        ("langfuse.trace.name", _title(*pair[:2]) if pair else tool),
        ("langfuse.observation.type", "tool"),
    ]
    if pair and pair[2]:
        facts.append(("langfuse.trace.tags", (pair[2],)))
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
    return tuple(facts)


def _title(asker: str, target: str) -> str:
    return f"{asker} \N{RIGHTWARDS ARROW} {target}"


def _said(x: Exchange) -> list[tuple[str, str]]:
    """Give the texts of an exchange."""
    question = x.message[:_LONGEST]
    found = [
        ("gen_ai.input.messages", _messages("user", question)),
        ("langfuse.observation.input", question),
        ("langfuse.trace.input", question),
    ]
    answer = (x.answer if x.answer is not None else x.reason or "")[:_LONGEST]
    if answer:
        found += [
            ("gen_ai.output.messages", _messages("assistant", answer, finish_reason="stop")),
            ("langfuse.observation.output", answer),
            ("langfuse.trace.output", answer),
        ]
    return found


def _messages(role: str, text: str, **more: str) -> str:
    return _encode([{"role": role, "parts": [{"type": "text", "content": text}], **more}]).decode()


def _passed(call: ToolCall) -> list[tuple[str, str]]:
    """Give the texts of a call."""
    asked = call.arguments.decode("utf-8", "replace")[:_LONGEST]
    found = [("gen_ai.tool.call.arguments", asked), ("langfuse.observation.input", asked)]
    if call.given is not None:
        said = _encode(call.given).decode()[:_LONGEST]
        found += [("gen_ai.tool.call.result", said), ("langfuse.observation.output", said)]
    return found


def _request_id(call: ToolCall) -> str:
    if call.tool in ("reply", "wait_answer", "cancel_ask"):
        try:
            return _named(call.arguments).request_id
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return ""
    named = getattr(call.given, "request_id", "")
    return named if isinstance(named, str) else ""


def _other(link: str | None, parent: Context | None) -> Context | None:
    found = context(link)
    return found if found is not None and found != parent else None
