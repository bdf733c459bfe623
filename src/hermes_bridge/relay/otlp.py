"""Spans as the bytes of an OTLP request (opentelemetry/proto/trace/v1, binary protobuf).

Written by hand, because it is little and it counts: three spans an ask, fifteen attributes each.
What repeats (names of agents, constants) is kept in its encoded form, so that an ask costs a
seventh of what OpenTelemetry's own records cost (`python -m benches.traces --official`): theirs
alone would be half of what an ask costs without traces. The tests decode it with them.
"""

import os
import socket
import struct
from collections.abc import Iterable
from functools import lru_cache

from hermes_bridge import __version__
from hermes_bridge.relay.traces import Fact, Facts, Span

_fixed64 = struct.Struct("<Q").pack
_SHORT = [bytes((n,)) for n in range(128)]
_hex = bytes.fromhex
_FLAGS = b"\x85\x01\x01\x00\x00\x00"
"""flags (16): sampled."""


def request(spans: Iterable[Span], *, content: bool) -> bytes:
    """Give the body of an `ExportTraceServiceRequest`; with `content` the message texts too."""
    return whole([piece(spans, content=content)])


def piece(spans: Iterable[Span], *, content: bool) -> bytes:
    """Give some spans of a body that `whole` puts together."""
    return b"".join([_field(2, _span(span, content)) for span in spans])


def whole(pieces: Iterable[bytes]) -> bytes:
    """Give the body with the spans of these pieces."""
    scope = _text(1, "hermes_bridge") + _text(2, __version__)
    inner = _field(1, scope) + b"".join(pieces)
    return _field(1, _field(1, _resource()) + _field(2, inner))


def refused(answer: bytes) -> int:
    """Give how many spans a target says it did not take (`partial_success.rejected_spans`)."""
    if len(answer) < 4 or answer[0] != 0x0A or answer[2] != 0x08:
        return 0
    number = shift = 0
    for byte in answer[3:13]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number
    return 0


def _span(span: Span, content: bool) -> bytes:
    at, begin, end = span.at, span.begin * 1_000_000, span.end * 1_000_000
    parts = [
        b"\x0a\x10%b\x12\x08%b" % (_hex(at.trace), _hex(at.span)),
        _text(3, span.state) if span.state else b"",
        b"\x22\x08" + _hex(span.parent) if span.parent else b"",
        _head(span.name, span.kind),
        b"\x39%b\x41%b" % (_fixed64(begin), _fixed64(end if end > begin else begin)),
        _block(span.facts),
        _conversation(span.conversation) if span.conversation else b"",
    ]
    parts += [_attribute(key, value) for key, value in span.own]
    if content:
        parts += [_attribute(key, text) for key, text in span.content()]
    for name, instant in span.events:
        size = len(name)
        happened = (size + 11, _fixed64(instant * 1_000_000), size, name.encode())
        parts.append(b"\x5a%c\x09%b\x12%c%b" % happened)
    if span.link is not None:
        ids = _hex(span.link.trace), _hex(span.link.span)
        parts.append(_field(13, b"\x0a\x10%b\x12\x08%b" % ids))
    if span.error:
        parts.append(_field(15, _text(2, span.error) + b"\x18\x02"))
    parts.append(_FLAGS)
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _head(name: str, kind: int) -> bytes:
    """Give `name` (5) and `kind` (6)."""
    return _text(5, name) + b"\x30" + _SHORT[kind]


@lru_cache(maxsize=4096)
def _block(facts: Facts) -> bytes:
    """Give attributes that many spans share."""
    return b"".join([_attribute(key, value) for key, value in facts])


def _attribute(key: str, value: Fact) -> bytes:
    """Give one entry of `attributes` (9) of a span."""
    if isinstance(value, str):
        name, text = _key(key), value.encode("utf-8", "replace")
        size = len(text)
        whole = len(name) + size + 4
        if whole < 128:  # every length is one byte
            return b"\x4a%c%b\x12%c\x0a%c%b" % (whole, name, size + 2, size, text)
    return _field(9, _pair(key, value))


@lru_cache(maxsize=1024)
def _conversation(conversation: str) -> bytes:
    """Give the two attributes that all spans of a conversation carry."""
    return _attribute("gen_ai.conversation.id", conversation) + _attribute(
        "session.id", conversation
    )


def _pair(key: str, value: Fact) -> bytes:
    if isinstance(value, str):
        spelt = _text(1, value)
    elif isinstance(value, int):
        spelt = b"\x18" + _varint(value)
    else:
        spelt = _field(5, b"".join([_field(1, _text(1, text)) for text in value]))
    return _key(key) + b"\x12" + _varint(len(spelt)) + spelt


@lru_cache(maxsize=256)
def _key(key: str) -> bytes:
    return _text(1, key)


@lru_cache(maxsize=1)
def _resource() -> bytes:
    pairs = (
        ("service.name", os.environ.get("OTEL_SERVICE_NAME") or "hermes-bridge"),
        ("service.version", __version__),
        ("service.instance.id", f"{socket.gethostname()}-{os.getpid()}"),
    )
    return b"".join([_field(1, _pair(key, value)) for key, value in pairs])


def _text(number: int, text: str) -> bytes:
    return _field(number, text.encode("utf-8", "replace"))


def _field(number: int, content: bytes) -> bytes:
    """Give a field that carries its length; all numbers here are below 16."""
    size = len(content)
    if size < 128:
        return _SHORT[number << 3 | 2] + _SHORT[size] + content
    return _SHORT[number << 3 | 2] + _varint(size) + content


def _varint(number: int) -> bytes:
    if 0 <= number < 128:
        return _SHORT[number]
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
