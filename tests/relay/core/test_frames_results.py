import json

import msgspec
import pytest
from hypothesis import given, strategies as st
from tests.relay.core.world import World

from hermes_bridge.relay.core import frames, results
from hermes_bridge.relay.core.admission import Refusal
from hermes_bridge.relay.core.exchange import ENDS, REFUSALS, Exchange, Outcome, Status


def exchange() -> Exchange:
    world = World()
    world.link("b")
    return world.ask()


@pytest.mark.clause("bridge.link.5")
def test_a_seed_adapter_gets_exactly_four_fields() -> None:
    x = exchange()
    assert json.loads(frames.wake(x, protocol=1, now=x.at)) == {
        "request_id": x.rid,
        "conversation_id": x.conv,
        "from": "a",
        "message": x.message,
    }


def test_a_version_2_wake_says_more() -> None:
    x = exchange()
    x.data, x.trace = b'{"n":1}', "00-aa-bb-01"
    assert json.loads(frames.wake(x, protocol=2, now=x.at + 1_000)) == {
        "type": "wake",
        "request_id": x.rid,
        "conversation_id": x.conv,
        "from": "a",
        "message": x.message,
        "attempt": 1,
        "deadline_ms": 9_000,
        "depth": 0,
        "data": {"n": 1},
        "trace": {"traceparent": "00-aa-bb-01"},
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(-5, 5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_json_is_a_frame_or_an_error_of_one_kind(value: object) -> None:
    try:
        frame = frames.decode(json.dumps(value))
    except (msgspec.MsgspecError, UnicodeError):
        return
    assert isinstance(frame.type, str)


@pytest.mark.clause("bridge.link.4")
def test_unknown_fields_are_ignored() -> None:
    frame = frames.decode('{"type":"heartbeat","request_id":"r","mood":"good"}')
    assert (frame.type, frame.request_id) == ("heartbeat", "r")


@pytest.mark.clause("bridge.wait.3")
@pytest.mark.parametrize("status", sorted(ENDS - {Status.OK}))
def test_every_end_says_what_to_do_next(status: Status) -> None:
    world = World()
    world.link("b")
    x = world.ask()
    world.book.cancel(x.rid, Outcome(status))
    world.perform(world.book.committed(x.rid, Outcome(status, reason="why"), world.now + 5))
    said = json.loads(msgspec.json.encode(results.ended(x)))
    assert said.pop("hint").endswith(".")
    assert said == {
        "ok": False,
        "error": status.value,
        "reason": "why",
        "request_id": x.rid,
        "conversation_id": x.conv,
        "elapsed_ms": 5,
    }


@pytest.mark.clause("bridge.wait.3")
@pytest.mark.parametrize("status", sorted(REFUSALS))
def test_every_refusal_says_what_to_do_next(status: Status) -> None:
    said = results.refused(Refusal(status, "because", ("a", "b")), "r", None)
    assert said.ok is False and said.error == status.value
    assert isinstance(said.hint, str) and said.hint.rstrip(")").endswith((".", "?"))
    assert said.chain == ("a", "b")


def test_an_answer_carries_its_ids_its_data_and_its_time() -> None:
    x = exchange()
    x.status, x.answer, x.answer_data, x.ended_at = Status.OK, "yes", b"[1]", x.at + 7
    assert json.loads(msgspec.json.encode(results.ended(x))) == {
        "ok": True,
        "conversation_id": x.conv,
        "request_id": x.rid,
        "answer": "yes",
        "data": [1],
        "elapsed_ms": 7,
    }


@pytest.mark.clause("bridge.reply.3")
def test_a_late_answer_is_an_answer_that_says_so() -> None:
    x = exchange()
    x.status, x.ended_at, x.late_answer, x.late_at = Status.TIMEOUT, x.at + 7, "yes", x.at + 9
    said = json.loads(msgspec.json.encode(results.ended(x)))
    assert (said["ok"], said["late"], said["answer"], said["elapsed_ms"]) == (True, True, "yes", 9)
