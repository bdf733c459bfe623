"""From what Hermes calls a chat id to a receiver: a URL, or `@name` with an optional query.

Pure.
"""

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from .config import Endpoint, Settings
from .urlguard import BadUrl, Place, read_url

CONVERSATION_KEYS = ("conversation_internal_id", "conversation_id", "conversation")


class BadTarget(ValueError):
    """The target names no receiver that may be called; the text says why and what to do."""


@dataclass(frozen=True)
class Target:
    """A receiver with its settings. `key` names the endpoint, `order` is the fragment's key."""

    key: str
    place: Place
    endpoint: Endpoint
    order: str = ""


def resolve(chat_id: str, settings: Settings, thread_id: str = "") -> Target:
    """Find the receiver that a chat id names.

    Raises:
        BadTarget: there is none, or it may not be called.
    """
    chat_id = (chat_id or settings.home_url).strip()
    if chat_id in ("http", "https") and thread_id.startswith("//"):
        # Hermes' own target syntax is platform:chat:thread, which cuts a URL after its scheme.
        chat_id = f"{chat_id}:{thread_id}"
    if not chat_id:
        raise BadTarget("no callback URL: give --deliver-chat-id URL or set HTTP_CALLBACK_HOME_URL")
    named = chat_id.startswith("@")
    url, endpoint = _named(chat_id, settings) if named else (chat_id, settings.default)
    try:
        place = read_url(url)
    except BadUrl as error:
        raise BadTarget(f"{error} (target {safe(chat_id)})") from None
    if refusal := settings.guard.refuses_place(place, named=named):
        raise BadTarget(refusal)
    order = "".join(parse_qs(place.fragment).get("key", [])[:1])
    return Target(endpoint.name or place.key, place, endpoint, order)


def _named(chat_id: str, settings: Settings) -> tuple[str, Endpoint]:
    head, hash_mark, fragment = chat_id.partition("#")
    name, question, query = head.partition("?")
    endpoint = settings.named(name)
    if endpoint is None:
        known = ", ".join(sorted(settings.endpoints)) or "none yet"
        raise BadTarget(
            f"no endpoint is called {name}; known: {known}. Add it under "
            "platforms.http_callback.extra.endpoints in config.yaml"
        )
    url = endpoint.url
    if question:
        url += ("&" if "?" in url else "?") + query
    return url + hash_mark + fragment, endpoint


def safe(chat_id: str) -> str:
    """Give a target for logs: without the query and the fragment, which often hold tokens."""
    return chat_id.partition("#")[0].partition("?")[0][:200]


def conversation(target: Target, metadata: dict[str, object]) -> str:
    """Name the conversation an answer belongs to, as well as it is known; "" when it is not."""
    named = [metadata.get("thread_id"), target.order, *map(metadata.get, CONVERSATION_KEYS)]
    return next((str(value) for value in named if value not in (None, "")), "")


def lane(target: Target, conversation: str, chat: str, id: str) -> str:
    """Name the queue of a callback: order is kept inside it.

    The conversation, else the URL when its query tells one caller from another, else the webhook
    session, else the endpoint as a whole.
    """
    if target.endpoint.ordering == "none":
        return id
    query = target.place.url.partition("?")[2]
    return f"{target.key} {conversation or (query and '?' + query) or chat}"


def typing_url(target: Target) -> str:
    """Give the URL of the typing signal, with the callback's query; "" when there is none."""
    typing = target.endpoint.typing
    if typing is None:
        return ""
    head, _, query = target.place.url.partition("?")
    url = typing.url or head.rstrip("/") + "/" + typing.path_suffix.lstrip("/")
    return url + ("&" if "?" in url else "?") + query if query else url


def file_rules(chat_id: str, settings: Settings) -> dict[str, Any]:
    """Say how a target wants its files (the options of `media.of_file`)."""
    try:
        endpoint = resolve(chat_id, settings).endpoint
    except BadTarget:
        return {"mode": "omit"}
    return {"mode": endpoint.media, "most_kib": endpoint.media_kib}
