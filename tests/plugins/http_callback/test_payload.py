"""The body: byte for byte what it was, cleaned text, metadata from the inbound payload."""

import json

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.plugins.http_callback import payload
from hermes_bridge.plugins.http_callback.payload import Answer


def answer(**changes: object) -> Answer:
    base: dict[str, object] = {
        "id": "msg_1",
        "kind": "final",
        "content": "olá 😊",
        "timestamp": 1_700_000_000,
    }
    return Answer(**(base | changes))  # type: ignore[arg-type]


@pytest.mark.clause("callback.body.1")
def test_the_four_keys_have_the_original_order_and_spacing() -> None:
    body = payload.body(answer(), 1, with_hermes=False)
    wanted = '{"content": "olá 😊", "reply_to": null, "metadata": {}, "timestamp": 1700000000}'
    assert body == wanted.encode()


@pytest.mark.clause("callback.body.2")
def test_all_that_is_ours_lies_under_one_key() -> None:
    facts = {"route": "r", "delivery_id": "d1", "conversation": "55", "job_id": None}
    data = json.loads(payload.body(answer(facts=facts), 9))
    assert list(data) == ["content", "reply_to", "metadata", "timestamp", "hermes"]
    assert data["hermes"] == {
        "v": 1,
        "id": "msg_1",
        "kind": "final",
        "seq": 9,
        "route": "r",
        "delivery_id": "d1",
        "conversation": "55",
    }


@pytest.mark.clause("callback.body.3")
def test_the_standard_form_is_an_event_with_a_type_and_a_time() -> None:
    data = json.loads(payload.body(answer(reply_to="d1"), 9, form="standard"))
    assert data["type"] == "agent.reply"
    assert data["timestamp"] == "2023-11-14T22:13:20Z"
    assert data["data"]["content"] == "olá 😊"
    assert data["data"]["hermes"]["id"] == "msg_1"


@pytest.mark.clause("callback.body.4")
@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("ok \ud83d", "ok \ufffd"),
        ("\ud83d\ude0a", "😊"),
        ("a\x00b", "ab"),
        ("line\u2028end", "line\u2028end"),
        ("\ude0a\ud83d", "\ufffd\ufffd"),
    ],
)
def test_text_is_cleaned_so_that_any_receiver_can_store_it(text: str, cleaned: str) -> None:
    assert payload.clean(text) == cleaned


@given(st.text(st.characters(exclude_categories=()), max_size=80))
def test_any_text_becomes_valid_json_in_utf8(text: str) -> None:
    data = json.loads(payload.body(answer(content=text), 1).decode("utf-8"))
    assert data["content"] == payload.clean(text)
    assert "\x00" not in data["content"]


INBOUND = {
    "conversation": {"id": 55, "tags": ["vip"]},
    "conversation_id": "1&inbox_id=2",
    "blank": None,
}


@pytest.mark.clause("callback.metadata.1")
@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ("{conversation.id}", 55),
        ("c-{conversation.id}", "c-55"),
        ("{conversation.tags.0}", "vip"),
        ("{conversation_id}", "1&inbox_id=2"),
        ("fixed", "fixed"),
    ],
)
def test_metadata_comes_from_the_inbound_payload_with_its_type(rule: str, value: object) -> None:
    assert payload.metadata_from({"key": rule}, INBOUND) == {"key": value}


@pytest.mark.clause("callback.metadata.2")
@pytest.mark.parametrize(
    "rule", ["{nowhere}", "x {nowhere}", "{conversation}", "{blank}", "{conversation.tags.9}"]
)
def test_what_the_payload_lacks_is_left_out(rule: str) -> None:
    assert payload.metadata_from({"key": rule}, INBOUND) == {}


@pytest.mark.parametrize("inbound", [None, [], "text", 5, [{"conversation": 1}]])
def test_a_payload_of_any_shape_hurts_nobody(inbound: object) -> None:
    assert payload.metadata_from({"key": "{conversation.id}"}, inbound) == {}


def test_hermes_own_marks_do_not_leave_the_house() -> None:
    given_metadata = {"thread_id": "55", "notify": True, "_interim_send": True, "n": float("nan")}
    assert payload.public_metadata(given_metadata) == {"thread_id": "55", "n": None}
