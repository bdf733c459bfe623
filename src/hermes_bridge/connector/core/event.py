"""The contract's event: a message as a gateway reads it."""

from collections.abc import Sequence
from typing import Any

import msgspec

from hermes_bridge.connector.core.cursor import later
from hermes_bridge.connector.core.guard import Redactor, harmless
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import AUDIO, PHOTO, TICK, VIDEO, Message
from hermes_bridge.connector.core.route import TYPING_TEXT
from hermes_bridge.connector.core.split import shorten

CONTEXT_ITEMS = 10
CONTEXT_CHARS = 500
TEXT_CHARS = 150_000
CUT_NOTE = "\n[... the message was longer; the rest was cut by the connector]"
TICK_NOTE = (
    "This message is a scheduled prompt that you set up yourself on this platform; no person wrote "
    "it now. Do what it says and answer in this chat."
)


class Media(msgspec.Struct, frozen=True):
    """A file that a gateway can fetch."""

    url: str
    mime: str


def choose_context(history: Sequence[Message], trigger: Message, since: str) -> list[Message]:
    """Give the last messages before the trigger that its target was not yet told.

    `history` and the answer are oldest first.
    """
    found: list[Message] = []
    for each in reversed(history):
        if since and not later(each.at, since):
            break
        if not each.text or each.text == TYPING_TEXT or each.id == trigger.id:
            continue
        if trigger.at and later(each.at, trigger.at):
            continue
        found.append(each)
        if len(found) == CONTEXT_ITEMS:
            break
    found.reverse()
    return found


def build(
    message: Message,
    identity: Identity,
    *,
    profile: str | None,
    context: Sequence[Message],
    media: Sequence[Media],
    parent: Message | None,
    redactor: Redactor,
) -> dict[str, Any]:
    """Give the event of one delivery."""
    owner = identity.owned_by(message.sender)
    text = harmless(
        message.text, author=message.author, owner=owner, has_owners=bool(identity.owners)
    )
    event: dict[str, Any] = {
        "text": shorten(redactor.clean(text), TEXT_CHARS, CUT_NOTE),
        "message_type": _kind(message),
        "message_id": message.id,
    }
    if message.parent:
        event["reply_to_message_id"] = message.parent
    if parent is not None:
        event["reply_to"] = {
            "text": redactor.clean(parent.text)[:CONTEXT_CHARS],
            "author": parent.author,
            "is_own": parent.sender == identity.agent_id,
        }
    items = [_context_item(each, redactor) for each in context]
    if message.kind == TICK:
        items.append({"text": TICK_NOTE, "source": {"user_name": "system", "user_id": "system"}})
    if items:
        event["context"] = items
    if media:
        event["media_urls"] = [each.url for each in media]
        event["media"] = [{"url": each.url, "mime": each.mime} for each in media]
    event["source"] = _source(message, profile)
    return event


def _source(message: Message, profile: str | None) -> dict[str, Any]:
    source: dict[str, Any] = {
        "platform": message.platform,
        "chat_id": message.channel,
        "chat_type": "dm" if message.direct else "group",
        "chat_name": message.channel_name or message.channel,
        "user_id": message.sender,
        "user_name": message.author,
        "thread_id": None,
        "message_id": message.id,
    }
    if profile is not None:
        source["profile"] = profile
    return source


def _context_item(message: Message, redactor: Redactor) -> dict[str, Any]:
    return {
        "text": redactor.clean(message.text)[:CONTEXT_CHARS],
        "source": {"user_name": message.author, "user_id": message.sender},
    }


def _kind(message: Message) -> str:
    kinds = {each.kind for each in message.attachments}
    for kind in (PHOTO, VIDEO, AUDIO):
        if kind in kinds:
            return kind
    return "document" if kinds else "text"
