"""The frames of Hermes' relay contract, as records, both directions.

One JSON object and a newline a frame. A WebSocket message may hold several frames, or a part of
one: `Lines` puts them together. Wire names are translated here and nowhere else.
"""

from typing import Any

import msgspec

from hermes_bridge.errors import PeerError

MAX_FRAME = 1024 * 1024
_TRIES = 64


class Hello(msgspec.Struct, frozen=True):
    """A gateway declares an identity. Both fields are what it sent, as text."""

    platform: str
    bot_id: str


class Outbound(msgspec.Struct, frozen=True):
    """A gateway asks for an operation. `bot_id` UNSET: it named nobody; anything else: it tried."""

    request_id: Any
    action: msgspec.Raw
    platform: Any = msgspec.UNSET
    bot_id: Any = msgspec.UNSET


class InboundAck(msgspec.Struct, frozen=True):
    """A gateway took a delivery."""

    buffer_id: str


class GoingIdle(msgspec.Struct, frozen=True):
    """A gateway is about to stop or sleep: keep what comes."""


class Interrupt(msgspec.Struct, frozen=True):
    """A gateway asks whoever runs a session to stop its turn."""

    session_key: str
    reason: str | None = None


class Ignored(msgspec.Struct, frozen=True):
    """A frame of a type that this contract does not know, or not JSON at all."""

    type: str


GatewayFrame = Hello | Outbound | InboundAck | GoingIdle | Interrupt | Ignored


class _Wire(msgspec.Struct):
    type: Any = None
    platform: Any = msgspec.UNSET
    botId: Any = msgspec.UNSET  # noqa: N815  the wire's own name
    requestId: Any = msgspec.UNSET  # noqa: N815
    action: msgspec.Raw = msgspec.Raw(b"null")
    bufferId: Any = None  # noqa: N815
    session_key: Any = None
    reason: Any = None


class Action(msgspec.Struct, frozen=True):
    """What an `outbound` asks for; fields that an operation does not use are None."""

    op: str = ""
    chat_id: str = ""
    content: str | None = None
    reply_to: str | None = None
    message_id: str | None = None
    metadata: dict[str, Any] | None = None
    emoji: str | None = None
    remove: bool | None = None
    media_kind: str | None = None
    source_url: str | None = None
    filename: str | None = None

    def note(self, name: str) -> Any:
        """Give one metadata field, or None."""
        return self.metadata.get(name) if self.metadata else None


class Policy(msgspec.Struct, frozen=True, rename="camel"):
    """The body of `POST /relay/policy`: when a gateway wants to be woken in groups."""

    platform: str
    require_address: bool = True
    free_response_scopes: tuple[str, ...] = ()
    allow_other_bots: bool = True


_frames = msgspec.json.Decoder(_Wire)
_actions = msgspec.json.Decoder(Action)
_policies = msgspec.json.Decoder(Policy)
_encoder = msgspec.json.Encoder()


def decode(line: str | bytes) -> GatewayFrame:
    """Read one line from a gateway. What is no frame of the contract becomes `Ignored`."""
    try:
        wire = _frames.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return Ignored("(not a JSON object)")
    kind = wire.type
    if kind == "outbound":
        return Outbound(wire.requestId, wire.action, wire.platform, wire.botId)
    if kind == "inbound_ack":
        return InboundAck(_text(wire.bufferId))
    if kind == "hello":
        return Hello(_text(wire.platform), _text(wire.botId))
    if kind == "going_idle":
        return GoingIdle()
    if kind == "interrupt":
        return Interrupt(_text(wire.session_key), _text(wire.reason) or None)
    return Ignored(kind if isinstance(kind, str) else "(no type)")


def decode_action(raw: msgspec.Raw) -> Action:
    """Read an action. Raises `PeerError` that says which field is wrong."""
    try:
        return _actions.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PeerError(f"malformed action: {error}") from None


def decode_policy(body: bytes) -> Policy:
    """Read a declared policy. Raises `PeerError` that says which field is wrong."""
    try:
        return _policies.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PeerError(f"malformed policy: {error}") from None


def encode(frame: dict[str, Any]) -> str:
    """Give one frame as the line that goes on the wire, newline included."""
    return _encoder.encode(frame).decode() + "\n"


def descriptor(body: dict[str, Any]) -> str:
    """Answer an accepted hello."""
    return encode({"type": "descriptor", "descriptor": body})


def refusal(reason: str) -> str:
    """Answer a refused hello; the connection is closed after it."""
    return encode({"type": "error", "error": f"hello rejected: {reason}"})


def inbound(event: dict[str, Any], buffer_id: str | None) -> str:
    """Deliver a message; with a buffer id, the gateway acknowledges it."""
    frame: dict[str, Any] = {"type": "inbound", "event": event}
    if buffer_id is not None:
        frame["bufferId"] = buffer_id
    return encode(frame)


def outbound_result(request_id: Any, result: dict[str, Any]) -> str:
    """Answer an outbound; its request id goes back as it came, or not at all."""
    frame: dict[str, Any] = {"type": "outbound_result"}
    if request_id is not msgspec.UNSET:
        frame["requestId"] = request_id
    frame["result"] = result
    return encode(frame)


def going_idle_ack() -> str:
    """Tell a gateway that nothing more will be sent to it until its next hello."""
    return encode({"type": "going_idle_ack"})


def interrupt_inbound(session_key: str, chat_id: str) -> str:
    """Ask a gateway to stop the turn of one session."""
    return encode({"type": "interrupt_inbound", "session_key": session_key, "chat_id": chat_id})


class Lines:
    """Puts frames together from WebSocket messages that may split or join them."""

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._carry = ""
        self._tries = 0

    def feed(self, message: str) -> list[str]:
        """Give the lines that `message` completes. Raises `PeerError` 1009 beyond the limit.

        A last line without its newline counts when it is already a whole JSON value: some peers
        forget the newline, and no part of an object is an object.
        """
        if not self._carry and message.endswith("\n") and message.count("\n") == 1:
            return [] if message.isspace() else [message]
        *lines, rest = (self._carry + message).split("\n")
        if len(rest) > self._limit:
            raise PeerError("a frame is larger than 1 MiB", close_code=1009)
        if rest.rstrip().endswith("}") and self._tries < _TRIES:
            self._tries += 1
            if _whole(rest):
                lines.append(rest)
                rest = ""
        self._carry = rest
        if not rest:
            self._tries = 0
        return [line for line in lines if line.strip()]


def _whole(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None or value is msgspec.UNSET:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else ""
