"""The frames of `/bridge/connect`: JSON to records and back (bridge.md, part 1).

A frame of the seed's adapters and one of version 2 differ only in which fields are there. Unknown
fields are ignored; unknown types are given back as they are and counted by the door.
"""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from hermes_bridge.relay.core import carrier, policy
from hermes_bridge.relay.core.exchange import Exchange

PROTOCOL = 2
CallId = str | int | None


class _Named(msgspec.Struct, gc=False):
    request_id: str = ""


_named = msgspec.json.Decoder(_Named).decode


def named(arguments: bytes | memoryview | msgspec.Raw) -> str:
    """Give the request id that a call's arguments name, or nothing."""
    try:
        return _named(arguments).request_id
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""


class Frame(msgspec.Struct, gc=False):
    """Whatever a bot may send; `type` says which fields count."""

    type: str
    request_id: str | None = None
    note: str | None = None
    id: str | int | None = None
    tool: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")
    trace: msgspec.Raw = msgspec.Raw(b"")
    protocol: int = 0
    client: str = ""
    features: list[str] = []
    description: str = ""
    skills: list[Any] = []


class _Wake(msgspec.Struct, gc=False):
    request_id: str
    conversation_id: str
    from_: str = msgspec.field(name="from")
    message: str


class _Wake2(msgspec.Struct, omit_defaults=True, gc=False):
    request_id: str
    conversation_id: str
    from_: str = msgspec.field(name="from")
    message: str
    type: str | UnsetType = UNSET
    attempt: int | UnsetType = UNSET
    deadline_ms: int | UnsetType = UNSET
    depth: int | UnsetType = UNSET
    data: msgspec.Raw | UnsetType = UNSET
    trace: dict[str, str] | UnsetType = UNSET


_decode = msgspec.json.Decoder(Frame).decode
_encode = msgspec.json.Encoder().encode


def decode(text: str) -> Frame:
    """Read one frame. Raises `msgspec.MsgspecError` when it is not one."""
    try:
        return _decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return _decode(policy.without_halves(text.encode()))


def wake(exchange: Exchange, *, protocol: int, now: int) -> bytes:
    """Give the wake for a link: four fields for the seed's adapters, more for version 2.

    `deadline_ms` is the time left until the absolute cap, in milliseconds.
    """
    if protocol < PROTOCOL:
        return _encode(_Wake(exchange.rid, exchange.conv, exchange.asker, exchange.message))
    frame = _Wake2(
        exchange.rid,
        exchange.conv,
        exchange.asker,
        exchange.message,
        type="wake",
        attempt=exchange.attempt,
        deadline_ms=max(0, exchange.cap - now),
        depth=exchange.depth,
        data=msgspec.Raw(exchange.data) if exchange.data is not None else UNSET,
        trace=carrier.fields(exchange.trace) if exchange.trace else UNSET,
    )
    return _encode(frame)


def welcome(agent: str, *, heartbeat_ms: int, window_ms: int, max_message_bytes: int) -> bytes:
    """Give the answer to a `hello`."""
    body = {
        "type": "welcome",
        "protocol": PROTOCOL,
        "agent": agent,
        "heartbeat_ms": heartbeat_ms,
        "window_ms": window_ms,
        "max_message_bytes": max_message_bytes,
    }
    return _encode(body)


def cancel(rid: str, reason: str) -> bytes:
    """Tell a bot that nobody waits for its work any more."""
    return _encode({"type": "cancel", "request_id": rid, "reason": reason})


def result(call_id: CallId, body: bytes) -> bytes:
    """Give the result of a `call`; `body` is the JSON of the verb's result."""
    return _encode({"type": "result", "id": call_id, "result": msgspec.Raw(body)})
