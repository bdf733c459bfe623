"""Tool calls that come over a link: where in a trace they are made, and how they are held.

Made by `bridge.py`, which decides.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from hermes_bridge.relay.core import carrier, frames
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.held import Held, Poke
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.verbs import Broken, Done, Waits

if TYPE_CHECKING:
    from hermes_bridge.relay.traces import Tracer


class _Named(msgspec.Struct, gc=False):
    request_id: str = ""


_named = msgspec.json.Decoder(_Named).decode


class Asked(NamedTuple):
    """A `call` frame of an agent, when it came (unix ms), and where in a trace it is made."""

    frame: frames.Frame
    agent: str
    began: int
    trace: str | None

    @classmethod
    def of(cls, frame: frames.Frame, agent: str, relay: Relay, *, traced: bool) -> "Asked":
        """Take a frame. Without spans only what an ask states is needed."""
        trace = None
        if frame.tool != "reply" and (traced or bytes(frame.trace)):
            trace = _context(frame, agent, relay, frame.request_id)
        return cls(frame, agent, relay.clock.now(), trace)

    def tell(self, tracer: "Tracer", relay: Relay, given: Done, exchange: Exchange | None) -> None:
        """Tell the tracer that it is over."""
        frame, broken = self.frame, isinstance(given, Broken)
        trace = self.trace
        if frame.tool == "reply":  # from whatever turn, it belongs to what it answers
            answered = None if broken else _named(frame.args).request_id
            trace = _context(frame, self.agent, relay, answered)
        tracer.called(
            tracer.Call(
                tool=frame.tool if frame.tool and not broken else "(unknown)",
                agent=self.agent,
                began=self.began,
                ended=relay.clock.now(),
                arguments=bytes(frame.args),
                parent=trace,
                rpc_id=str(frame.id),
                door="websocket",
                error="tool_error" if broken else "",
                given=given,
                exchange=exchange,
            )
        )


def _context(frame: frames.Frame, agent: str, relay: Relay, rid: str | None) -> str | None:
    """Give the context of a call for an exchange: the stated one as far as it is the agent's."""
    said = carrier.read(bytes(frame.trace))
    exchange = relay.book.get(rid) if rid else None
    if exchange is None or exchange.target != agent:
        return said
    return carrier.within(exchange.trace, said)


class Holder(Protocol):
    """What a held call needs of its link."""

    def finish(self, call: "LinkCall") -> None:
        """Answer it as things stand, and hold it no longer."""


class LinkCall(Held):
    """A `call` frame that is held."""

    __slots__ = ("asked", "link")

    def __init__(self, link: Holder, asked: Asked, waits: Waits, now: int) -> None:
        super().__init__(waits.exchange, now, waits.wait_ms)
        self.link, self.asked = link, asked

    def poke(self, why: Poke) -> None:
        """Answer it."""
        self.link.finish(self)
