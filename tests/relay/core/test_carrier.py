"""Trace contexts as text: what is one, and what an agent may say of another's."""

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.relay.core import carrier

TRACE, OTHER = "0af7651916cd43dd8448eb211c80319c", "1" * 32
SPAN, BELOW = "b7ad6b7169203331", "00f067aa0ba902b7"
OWN = f"00-{TRACE}-{SPAN}-01"
SAID = f"00-{TRACE}-{BELOW}-01"


@pytest.mark.parametrize(
    "parent",
    [
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        OWN.upper(),
        OWN + "-x",
        OWN + "\n",
        "",
        7,
        None,
    ],
)
def test_what_the_standard_forbids_is_no_parent(parent: Any) -> None:
    assert carrier.taken(parent, "a=1") is None


@pytest.mark.clause("bridge.trace.2")
@pytest.mark.parametrize(
    ("own", "said", "counts"),
    [
        (OWN, None, OWN),
        (None, SAID, SAID),
        (None, None, None),
        (OWN, SAID, SAID),
        (OWN + "\na=1\nb=2", SAID, SAID + "\na=1\nb=2"),
        (OWN + "\na=1\nb=2", SAID + "\nc=3\nd=4", SAID + "\nc=3\nd=4"),
        (OWN + "\n\nb=2", SAID + "\nc=3", SAID + "\nc=3\nb=2"),
        (OWN, f"00-{OTHER}-{BELOW}-01\nx=1\ny=1", OWN),
        (OWN, f"00-{TRACE}-{BELOW}-00", OWN),
        (OWN[:-1] + "0", SAID, OWN[:-1] + "0"),
        (OWN[:-1] + "3", SAID, SAID),
        (OWN, "\n\nb=2", OWN),
        ("\n\nb=2", SAID, SAID + "\n\nb=2"),
    ],
)
def test_an_agent_says_where_in_a_trace_it_is_and_never_leads_out_of_it(
    own: str | None, said: str | None, counts: str | None
) -> None:
    assert carrier.within(own, said) == counts


def test_the_fields_of_a_frame_are_the_text_again() -> None:
    text = SAID + '\nv=a"b\nteam=hr'
    assert carrier.read(json.dumps(carrier.fields(text)).encode()) == text
    longest = {"traceparent": OWN, "tracestate": '"' * 512, "baggage": "b" * 8_192}
    assert carrier.read(json.dumps(longest).encode()) is not None


@pytest.mark.clause("bridge.trace.4")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"7",
        b'"00"',
        b"[]",
        b"{}",
        b'{"traceparent": {"a": 1}}',
        b'{"traceparent": "' + b"0" * 55 + b'"}',
        b'{"traceparent": "' + OWN.encode() + b'", "x": "' + b"x" * 16_384 + b'"}',
        b"[" * 8_000 + b"]" * 8_000,
        b'{"baggage": "a=\\ud800"}',
    ],
    ids=lambda raw: str(raw[:30]),
)
def test_what_is_no_context_is_nothing(raw: bytes) -> None:
    assert carrier.read(raw) is None


LINES = st.text(st.characters(codec="utf-8"), max_size=40)


@given(st.dictionaries(st.sampled_from(["traceparent", "tracestate", "baggage"]), LINES))
def test_whatever_is_said_an_asks_own_trace_stays(said: dict[str, str]) -> None:
    counts = carrier.within(OWN, carrier.read(json.dumps(said).encode()))
    assert counts is not None
    assert counts.startswith(OWN[:35])
    assert len(counts.split("\n")) <= 3
