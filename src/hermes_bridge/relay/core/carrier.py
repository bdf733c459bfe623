"""A caller's trace context (W3C Trace Context and Baggage), as one text that goes with its ask.

The text is the `traceparent`; where the caller said more, lines follow: its `tracestate`, its
`baggage`. It is checked where it comes in, and passed on as it is: what is no header is dropped
without a word, as the two standards ask.
"""

import re
from typing import Any

import msgspec

_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_BAGGAGE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,8192}")
"""Without quotes and backslashes, which baggage has to encode."""
_LONGEST = 16_384
"""Bytes of a `trace` field: all three at their longest, escaped."""


class _Fields(msgspec.Struct, gc=False):
    traceparent: Any = None
    tracestate: Any = None
    baggage: Any = None


_read = msgspec.json.Decoder(_Fields).decode


def taken(parent: object, state: object = None, baggage: object = None) -> str | None:
    """Give the text for what a caller stated, or nothing if none of it is a context.

    A `tracestate` without its `traceparent` means nothing; `baggage` stands for itself.
    """
    first = parent if isinstance(parent, str) and _PARENT.fullmatch(parent) else ""
    if state is None and baggage is None:
        return first or None
    second = state if first and isinstance(state, str) and _STATE.fullmatch(state) else ""
    third = baggage if isinstance(baggage, str) and _BAGGAGE.fullmatch(baggage) else ""
    return f"{first}\n{second}\n{third}".rstrip("\n") or None


def read(raw: bytes) -> str | None:
    """Give the text for the `trace` field of a frame, or nothing if it is no context."""
    if not raw or len(raw) > _LONGEST:
        return None
    try:
        said = _read(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return taken(said.traceparent, said.tracestate, said.baggage)


def within(own: str | None, said: str | None) -> str | None:
    """Give what counts of the context that an agent states for its work on an ask with `own`.

    It may say where in this trace it is, and what it adds. To lead out of the trace, or to decide
    anew whether it is recorded, is not its business: then the ask's own context counts.
    """
    if own is None or said is None or own == said:
        return own or said
    ours, theirs = _three(own), _three(said)
    if ours[0] and (theirs[0][3:35] != ours[0][3:35] or _sampled(theirs[0]) != _sampled(ours[0])):
        return own
    return "\n".join([b or a for a, b in zip(ours, theirs, strict=True)]).rstrip("\n")


def _three(text: str) -> list[str]:
    return [*text.split("\n"), "", ""][:3]


def _sampled(parent: str) -> bool:
    return int(parent[-2:], 16) % 2 == 1


def parent(text: str | None) -> str | None:
    """Give the `traceparent` of a text."""
    return text.partition("\n")[0] or None if text is not None else None


def state(text: str | None) -> str:
    """Give the `tracestate` of a text, or nothing."""
    return text.split("\n")[1] if text is not None and "\n" in text else ""


def under(text: str | None, parent: str) -> str:
    """Give the text with another `traceparent`: the rest belongs to the whole trace."""
    return parent + text[text.index("\n") :] if text is not None and "\n" in text else parent


def fields(text: str) -> dict[str, str]:
    """Give the text as the fields of a frame."""
    if "\n" not in text:
        return {"traceparent": text}
    names = ("traceparent", "tracestate", "baggage")
    return {name: line for name, line in zip(names, text.split("\n"), strict=False) if line}
