"""Tool calls that a bot makes over its link, and their results (bridge.md, part 4).

Made by `bridge.py`, which reads frames; here is what a `call` frame becomes.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from hermes_bridge.relay.core import carrier, frames, results
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.held import Held, Poke
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.verbs import Broken, Caller, Done, Given, Verbs, Waits, spell
from hermes_bridge.web.serving import MAX_FRAME

if TYPE_CHECKING:
    from hermes_bridge.relay.traces import ToolCall, Tracer

CALLS_AT_ONCE = 256


class Door(Protocol):
    """What calls need of the door that the link came through."""

    relay: Relay
    verbs: Verbs
    tracer: "Tracer | None"


class Calling(NamedTuple):
    """Who calls: the agent, and the address of its end of the link."""

    agent: str
    peer: str
    port: int


class LinkCalls:
    """The calls of one link."""

    def __init__(
        self,
        door: Door,
        calling: Calling,
        send: Callable[[bytes], None],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """`send` takes a frame for the bot; `run` works on as long as the link lives."""
        self._door, self._relay, self._calling = door, door.relay, calling
        self._send, self._run = send, run
        self._held: set[_LinkCall] = set()
        self._working = 0

    def take(self, frame: frames.Frame) -> None:
        """Do what a `call` frame says; its result goes out now or later."""
        if len(self._held) + self._working >= CALLS_AT_ONCE:
            busy = Broken("too_many_calls", f"{CALLS_AT_ONCE} calls of this link are unanswered")
            self._result(frame.id, busy)
            return
        trace = None
        if frame.tool != "reply" and (self._door.tracer is not None or bytes(frame.trace)):
            trace = self._context(frame, frame.request_id)
        caller = Caller(self._calling.agent, turn=frame.request_id, trace=trace)
        asked = _Asked(frame, self._relay.clock.now(), trace)
        self._answer(asked, self._door.verbs.call(frame.tool or "", caller, frame.args))

    def close(self) -> None:
        """The link is gone: hold nothing any more."""
        for call in list(self._held):
            self._relay.let_go(call)

    def finish(self, call: "_LinkCall") -> None:
        """Answer a held call as things stand."""
        self._held.discard(call)
        given = self._door.verbs.outcome(call.exchange)
        self._over(call.asked, given, call.exchange)
        self._result(call.asked.frame.id, given)

    def _answer(self, asked: "_Asked", given: Given) -> None:
        if isinstance(given, Awaitable):
            self._working += 1
            self._run(self._answer_later(asked, given))
        elif isinstance(given, Waits):
            call = _LinkCall(self, asked, given)
            self._held.add(call)
            self._relay.slices.add(call)
            self._relay.hold(call)
        else:
            self._over(asked, given, None)
            self._result(asked.frame.id, given)

    async def _answer_later(self, asked: "_Asked", given: Awaitable[Any]) -> None:
        try:
            found = await given
        finally:
            self._working -= 1
        self._answer(asked, found)

    def _result(self, call_id: frames.CallId, done: Done) -> None:
        frame = frames.result(call_id, spell(done))
        if len(frame) > MAX_FRAME:
            reason = "the result is larger than a frame may be"
            large = results.failure(Status.MESSAGE_TOO_LARGE, reason=reason)
            frame = frames.result(call_id, spell(large))
        self._send(frame)

    def _over(self, asked: "_Asked", given: Done, exchange: Exchange | None) -> None:
        """Tell the tracer of a call that is over."""
        tracer, frame = self._door.tracer, asked.frame
        if tracer is None:
            return
        parent = asked.trace
        if frame.tool == "reply":  # from whatever turn, it belongs to what it answers
            parent = self._context(frame, frames.named(frame.args))
        now = self._relay.clock.now()
        tracer.called(_traced, self._calling, asked, now, parent, given, exchange)

    def _context(self, frame: frames.Frame, rid: str | None) -> str | None:
        """Give the context of a call for an exchange: the stated one as far as it is the bot's."""
        said = carrier.read(bytes(frame.trace))
        exchange = self._relay.book.get(rid) if rid else None
        if exchange is None or exchange.target != self._calling.agent:
            return said
        return carrier.within(exchange.trace, said)


def _traced(
    make: "type[ToolCall]",
    calling: Calling,
    asked: "_Asked",
    ended: int,
    parent: str | None,
    given: Done,
    exchange: Exchange | None,
) -> "ToolCall":
    """Give a call that is over, for the tracer."""
    frame, broken = asked.frame, isinstance(given, Broken)
    return make(
        tool=frame.tool if frame.tool and not broken else "(unknown)",
        agent=calling.agent,
        began=asked.began,
        ended=ended,
        arguments=frame.args,
        parent=parent,
        rpc_id=str(frame.id),
        door="websocket",
        peer=calling.peer,
        port=calling.port,
        error="tool_error" if broken else "",
        given=given,
        exchange=exchange,
    )


class _Asked(NamedTuple):
    """A `call` frame, when it came (unix ms), and where in a trace it is made."""

    frame: frames.Frame
    began: int
    trace: str | None


class _LinkCall(Held):
    """A `call` frame that is held."""

    __slots__ = ("asked", "calls")

    def __init__(self, calls: LinkCalls, asked: _Asked, waits: Waits) -> None:
        super().__init__(waits.exchange, asked.began, waits.wait_ms)
        self.calls, self.asked = calls, asked

    def poke(self, why: Poke) -> None:
        """Answer it."""
        self.calls._relay.let_go(self)
        self.calls.finish(self)
