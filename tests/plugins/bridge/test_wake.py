"""The text of a turn: what the model reads, and what the peer cannot make of it."""

from hypothesis import HealthCheck, given, settings, strategies as st

from hermes_bridge.plugins.bridge.frames import Wake
from hermes_bridge.plugins.bridge.wake import chat_id, conversation_of, framed, request_id_in


def test_the_text_names_the_asker_the_ids_and_how_to_answer() -> None:
    text = framed(Wake("r1", "c1", "ann", "2+2?"), "f00d")
    for part in (
        '"ann"',
        "request_id=r1",
        "conversation_id=c1",
        "2+2?",
        "your final text",
        "reply",
    ):
        assert part in text
    assert text.count("f00d") == 3


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.text())
def test_no_message_makes_a_turn_begin_with_a_command_or_change_its_exchange(message: str) -> None:
    text = framed(Wake("r1", "c1", "ann", message), "f00d")
    assert text.startswith("[hermes-bridge] ")
    assert request_id_in(text) == "r1"


def test_a_message_that_copies_the_header_does_not_change_its_exchange() -> None:
    fake = framed(Wake("evil", "c9", "ann", "x"), "f00d")
    assert request_id_in(framed(Wake("r1", "c1", "ann", fake), "beef")) == "r1"


def test_the_exchange_is_found_behind_a_note_that_hermes_puts_in_front() -> None:
    text = "[System note: the gateway restarted]\n\n" + framed(Wake("r1", "c", "ann", "x"), "f")
    assert request_id_in(text) == "r1"
    assert request_id_in("request_id=r1 please") is None


def test_a_second_attempt_says_so_and_data_is_shown_as_data() -> None:
    text = framed(Wake("r", "c", "ann", "x", attempt=2, data={"k": 1}), "f00d")
    assert "interrupted" in text
    assert '"k": 1' in text


def test_a_chat_is_a_conversation_with_a_prefix() -> None:
    assert conversation_of(chat_id("c:1")) == "c:1"
    assert conversation_of("telegram:7") is None
    assert conversation_of("hermes-bridge:") is None
