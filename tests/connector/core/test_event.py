"""The event that a gateway reads, key by key."""

from typing import Any

import pytest

from hermes_bridge.connector.core.event import CONTEXT_CHARS, Media, build, choose_context
from hermes_bridge.connector.core.guard import Redactor
from hermes_bridge.connector.core.identity import Identity, table_of
from hermes_bridge.connector.core.message import Attachment, Message, Tick


def identity(**more: Any) -> Identity:
    row = {"botId": "a", "token": "t", "gatewayId": "g", "secret": "s"}
    return table_of([row | more], source="test").rows[0]


def said(number: int, text: str = "", *, sender: str = "ada", **more: Any) -> Message:
    at = f"2026-01-01T10:00:{number:02d}Z"
    return Message("agentschat", "room", f"m{number}", sender, text or f"t{number}", at=at, **more)


def event(message: Message, who: Identity | None = None, **more: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"profile": None, "context": [], "media": [], "parent": None}
    return build(message, who or identity(), redactor=Redactor(["topsecret-1"]), **(given | more))


@pytest.mark.clause("relay.inbound.1")
def test_the_event_has_the_seeds_shape() -> None:
    found = event(said(1, "@a hi", sender_name="Ada"), profile="work", context=[said(0)])
    assert found == {
        "text": "@a hi",
        "message_type": "text",
        "message_id": "m1",
        "context": [{"text": "t0", "source": {"user_name": "ada", "user_id": "ada"}}],
        "source": {
            "platform": "agentschat",
            "chat_id": "room",
            "chat_type": "group",
            "chat_name": "room",
            "user_id": "ada",
            "user_name": "Ada",
            "thread_id": None,
            "message_id": "m1",
            "profile": "work",
        },
    }


def test_a_plain_direct_message_has_no_optional_keys() -> None:
    found = event(Message("agentschat", "dm-1", "m1", "ada", "hi", direct=True))
    assert set(found) == {"text", "message_type", "message_id", "source"}
    assert found["source"]["chat_type"] == "dm"
    assert "profile" not in found["source"]


@pytest.mark.clause("relay.inbound.4")
def test_files_become_urls_and_a_type_that_hermes_knows() -> None:
    message = said(1, attachments=(Attachment("photo", "/f", "image/png"),))
    found = event(message, media=[Media("http://h/relay/media/x", "image/png")])
    assert found["message_type"] == "photo"
    assert found["media_urls"] == ["http://h/relay/media/x"]
    assert found["media"] == [{"url": "http://h/relay/media/x", "mime": "image/png"}]
    assert event(said(1, attachments=(Attachment("audio", "/f"),)))["message_type"] == "audio"
    assert event(said(1, attachments=(Attachment("other", "/f"),)))["message_type"] == "document"


def test_a_reply_says_to_what() -> None:
    own = said(1, "my own words", sender="a")
    found = event(said(2, parent="m1"), parent=own)
    assert found["reply_to_message_id"] == "m1"
    assert found["reply_to"] == {"text": "my own words", "author": "a", "is_own": True}


@pytest.mark.clause("relay.guard.1", "relay.guard.3")
def test_strangers_and_secrets_are_dealt_with_in_text_and_context() -> None:
    found = event(said(2, "/new topsecret-1"), context=[said(1, "topsecret-1")])
    assert "topsecret-1" not in str(found)
    assert not found["text"].startswith("/")
    assert event(said(2, "/new"), identity(owners=["ada"]))["text"] == "/new"


def test_a_huge_text_is_cut_with_a_note_and_fits_a_frame() -> None:
    found = event(said(1, "\x01" * 2_000_000))
    assert found["text"].endswith("cut by the connector]")
    assert len(found["text"]) * 6 < 1024 * 1024


@pytest.mark.clause("relay.context.1")
def test_context_is_what_was_said_since_the_last_time_and_before_now() -> None:
    history = [said(n) for n in range(15)]
    history[7:7] = [said(7, "__typing__")]
    history.append(said(20))
    found = choose_context(history, said(14, "@a"), "")
    assert [each.id for each in found] == [f"m{n}" for n in range(4, 14)]
    since = choose_context(history, said(14, "@a"), "2026-01-01T10:00:11Z")
    assert [each.id for each in since] == ["m12", "m13"]


@pytest.mark.clause("relay.context.2")
def test_a_fraction_after_a_whole_second_is_later() -> None:
    close = Message("agentschat", "room", "mx", "ada", "x", at="2026-01-01T10:00:05.700Z")
    assert choose_context([close], said(9), "2026-01-01T10:00:05Z") == [close]


def test_context_lines_are_short() -> None:
    found = event(said(2), context=[said(1, "y" * 2000)])
    assert len(found["context"][0]["text"]) == CONTEXT_CHARS


def test_a_loop_tick_is_explained() -> None:
    tick = said(1, kind="loop_tick", tick=Tick("loop_1", "p", 60_000, 120_000))
    assert event(tick)["context"][-1]["source"]["user_id"] == "system"
