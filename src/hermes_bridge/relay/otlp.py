"""Spans as the bytes of an OTLP request (opentelemetry/proto/trace/v1, binary protobuf).

Written by hand, because it is little and it counts: three spans an ask, fifteen attributes each.
What repeats (names of agents, constants) is kept in its encoded form, so that an ask costs a
tenth of what OpenTelemetry's own records cost (`python -m benches.traces --official`): theirs
alone would be half of what an ask costs without traces. The tests decode it with them.
"""

import os
import socket
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from hermes_bridge import __version__

Fact = str | int | tuple[str, ...]
"""A value of an attribute."""

_root = struct.Struct("<H16sH8sBQBQ").pack
_child = struct.Struct("<H16sH8sBQBQH8s").pack
_event = struct.Struct("<BBBQBB").pack
_TRACE_ID, _SPAN_ID, _PARENT = 0x100A, 0x0812, 0x0822
_SINCE, _UNTIL = 0x39, 0x41
"""Tags of fields whose size is fixed, with that size where it is written."""
_SHORT = [bytes((n,)) for n in range(128)]
_FLAGS = b"\x85\x01\x01\x00\x00\x00"
"""flags (16): sampled."""


def span(
    trace: bytes, own: bytes, parent: bytes, begin: int, end: int, parts: Sequence[bytes]
) -> bytes:
    """Give a span as an element of a request: ids in bytes (`parent` may be empty), unix ms.

    The parts are what the other functions give: a `head`, `attributes`, and the like. A clock that
    was set back in between ends no span before it began.
    """
    since = begin * 1_000_000
    until = end * 1_000_000 if end > begin else since
    if parent:
        ids = _child(_TRACE_ID, trace, _SPAN_ID, own, _SINCE, since, _UNTIL, until, _PARENT, parent)
    else:
        ids = _root(_TRACE_ID, trace, _SPAN_ID, own, _SINCE, since, _UNTIL, until)
    rest = b"".join(parts)
    size = len(ids) + len(rest)
    if 127 < size < 16_384:
        return b"\x12%c%c%b%b" % (size & 0x7F | 0x80, size >> 7, ids, rest)
    return b"\x12%b%b%b" % (_varint(size), ids, rest)


def head(name: str, kind: int, facts: Iterable[tuple[str, Fact]], error: str = "") -> bytes:
    """Give what all spans of one sort have in common: name, kind, attributes, status, flags."""
    status = _field(15, _text(2, error) + b"\x18\x02") if error else b""
    return _text(5, name) + b"\x30" + _SHORT[kind] + attributes(facts) + status + _FLAGS


def attributes(facts: Iterable[tuple[str, Fact]]) -> bytes:
    """Give `attributes` (9)."""
    return b"".join([attribute(key, value) for key, value in facts])


def attribute(key: str, value: Fact) -> bytes:
    """Give one of the `attributes` (9)."""
    if isinstance(value, str):
        name, text = _key(key), value.encode("utf-8", "replace")
        size = len(text)
        whole = len(name) + size + 4
        if whole < 128:  # every length is one byte
            return b"\x4a%c%b\x12%c\x0a%c%b" % (whole, name, size + 2, size, text)
    return _field(9, _pair(key, value))


def state(text: str) -> bytes:
    """Give `trace_state` (3), or nothing for an empty one."""
    return _text(3, text) if text else b""


def happened(name: bytes, instant: int) -> bytes:
    """Give one of the `events` (11): a short name, an instant in unix milliseconds."""
    size = len(name)
    return _event(0x5A, size + 11, 0x09, instant * 1_000_000, 0x12, size) + name


def link(trace: bytes, own: bytes) -> bytes:
    """Give one of the `links` (13)."""
    return _field(13, b"\x0a\x10%b\x12\x08%b" % (trace, own))


def request(spans: Sequence[bytes]) -> bytes:
    """Give the body of an `ExportTraceServiceRequest` with these spans."""
    scope = _field(1, _text(1, "hermes_bridge") + _text(2, __version__))
    resource = _field(1, _resource())
    inner = len(scope) + sum(map(len, spans))
    before = resource + b"\x12" + _varint(inner)
    return b"".join((b"\x0a", _varint(len(before) + inner), before, scope, *spans))


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
    if 0 < number < 16_384:
        return bytes((number & 0x7F | 0x80, number >> 7))
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
