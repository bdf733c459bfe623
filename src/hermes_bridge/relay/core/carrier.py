"""A caller's trace context (W3C Trace Context and Baggage), as one text that goes with its ask.

The text is the `traceparent`; where the caller said more, lines follow: its `tracestate`, its
`baggage`. It is checked where it comes in, and passed on as it is: what is no header is dropped
without a word, as the two standards ask.
"""

import re

_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(r"[\x20-\x7e]{1,512}")
_BAGGAGE = re.compile(r"[\x20\x21\x23-\x5b\x5d-\x7e]{1,8192}")
"""Without quotes and backslashes, which baggage has to encode."""


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
    names = ("traceparent", "tracestate", "baggage")
    return {name: line for name, line in zip(names, text.split("\n"), strict=False) if line}
