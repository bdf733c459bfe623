"""Frames in, records out, and nothing a relay sends that could raise past the reader."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from hermes_bridge.plugins.bridge import frames
from hermes_bridge.plugins.bridge.frames import BadFrame, Cancel, Result, Wake, Welcome

WAKE = {"request_id": "r", "conversation_id": "c", "from": "ann", "message": "hi"}
ANY = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_wake_of_version_2_is_read_whole() -> None:
    more = {"type": "wake", "attempt": 2, "deadline_ms": 900.5, "depth": 1, "data": {"k": [1]}}
    assert frames.decode(json.dumps(WAKE | more)) == Wake(
        "r", "c", "ann", "hi", attempt=2, deadline_ms=900, depth=1, data={"k": [1]}
    )


def test_a_wake_without_a_type_is_one_of_the_first_protocol() -> None:
    assert frames.decode(json.dumps(WAKE)) == Wake("r", "c", "ann", "hi")


def test_a_wake_survives_its_copy_in_the_journal() -> None:
    trace = {"traceparent": "00-a-b-01", "baggage": "x=1"}
    wake = Wake("r", "c", "ann", "hi", attempt=3, deadline_ms=5, depth=2, data=[1], trace=trace)
    assert frames.wake_from(frames.wake_to(wake)) == wake


def test_the_other_frames_are_read() -> None:
    welcome = {"type": "welcome", "agent": "bot", "heartbeat_ms": 100, "window_ms": 9}
    assert frames.decode(json.dumps(welcome)) == Welcome("bot", 100, 9, 262_144)
    assert frames.decode('{"type":"result","id":"1","result":[1]}') == Result("1", [1])
    assert frames.decode('{"type":"cancel","request_id":"r"}') == Cancel("r", "")


def test_a_type_of_a_later_version_is_nothing() -> None:
    assert frames.decode('{"type":"goodbye"}') is None


NONSENSE = [
    "",
    "[]",
    "nope",
    '"x"',
    "{}",
    "[" * 100_000,
    '{"type":"result"}',
    *(
        json.dumps(WAKE | wrong)
        for wrong in ({"message": ""}, {"attempt": True}, {"attempt": float("nan")}, {"from": 7})
    ),
]


@pytest.mark.parametrize("text", NONSENSE)
def test_a_frame_that_makes_no_sense_is_a_bad_frame(text: str) -> None:
    with pytest.raises(BadFrame):
        frames.decode(text)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from([*WAKE, "type", "attempt", "id", "agent", "trace"]), ANY))
def test_whatever_an_object_holds_it_is_read_or_refused(raw: dict[str, Any]) -> None:
    try:
        frames.decode(json.dumps(raw))
    except BadFrame as refused:
        assert str(refused)


def test_a_lone_surrogate_and_nul_never_leave_this_process() -> None:
    wake = frames.decode(json.dumps(WAKE | {"message": "a\ud800b\0c"}))
    assert isinstance(wake, Wake)
    assert wake.message == "a\ufffdb\ufffdc"
    frames.call("1", "reply", {"answer": frames.fitted("\udfff\0", 1_000)}).encode()


def test_an_answer_that_fits_is_left_alone() -> None:
    assert frames.fitted("ä" * 500, 1_000) == "ä" * 500


def test_an_answer_over_the_limit_is_cut_with_a_note_and_never_in_a_character() -> None:
    cut = frames.fitted("ä" * 501, 1_000)
    assert cut.endswith("[cut by hermes-bridge: the answer was 1002 bytes long]")
    assert len(cut.encode()) <= 1_000
    assert cut.startswith("ää")


def test_an_answer_that_grows_when_escaped_still_fits_a_frame() -> None:
    answer = frames.fitted("\x01" * 900_000, 1_000_000)
    assert len(frames.call("1", "reply", {"answer": answer}).encode()) < frames.MAX_FRAME_BYTES


def test_the_frames_of_the_bot_are_what_the_protocol_says() -> None:
    assert json.loads(frames.ack("r")) == {"type": "ack", "request_id": "r"}
    assert json.loads(frames.heartbeat("r")) == {"type": "heartbeat", "request_id": "r"}
    assert json.loads(frames.heartbeat("r", "queued"))["note"] == "queued"
    call = {"type": "call", "id": "1", "tool": "reply", "args": {"a": 1}}
    assert json.loads(frames.call("1", "reply", {"a": 1})) == call
    assert json.loads(frames.call("1", "reply", {"a": 1}, "r")) == call | {"request_id": "r"}
    trace = {"traceparent": "t"}
    assert json.loads(frames.call("1", "reply", {"a": 1}, None, trace)) == call | {"trace": trace}
    hello = json.loads(frames.hello("does things", ("hr",)))
    assert (hello["protocol"], hello["description"], hello["skills"]) == (2, "does things", ["hr"])
