"""AgentsChat's frames and rows, read strictly and turned into our `Message`; what we send.

Everything comes from a server on the network: fields may be missing or of another type. What
cannot be read is no message; it never raises out of here.
"""

import re
from typing import Any

import msgspec

from hermes_bridge.connector.core.cursor import moment
from hermes_bridge.connector.core.message import (
    AUDIO,
    DOCUMENT,
    MESSAGE,
    PHOTO,
    TICK,
    VIDEO,
    Attachment,
    Message,
    Tick,
)

PLATFORM = "agentschat"
DM_PREFIX = "dm-"
_KINDS = {"image": PHOTO, "audio": AUDIO, "video": VIDEO}
_LOOP_ID = re.compile(r"loop_[A-Za-z0-9_-]+")
_MAX_ATTACHMENTS = 20
_REMEMBERED = 64 * 1024
_REMEMBERED_FRAMES = 8


class Frame(msgspec.Struct):
    """A frame of the hub, or a row of a channel's history; only what a connector looks at."""

    type: Any = None
    id: Any = None
    channel_id: Any = None
    sender_id: Any = None
    sender_name: Any = None
    sender_type: Any = None
    content: Any = None
    content_type: Any = None
    timestamp: Any = None
    parent_id: Any = None
    reply_to: Any = None
    mentioned_ids: Any = None
    dm_owner: Any = msgspec.UNSET
    meta: Any = None
    attachments: Any = None
    message_id: Any = None
    new_content: Any = None
    code: Any = None
    message: Any = None


class Pushes:
    """Reads the hub's frames. A room's message comes once a member; it is read once."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Frame, Message | None]] = {}

    def read(self, data: str) -> tuple[Frame, Message | None] | None:
        """Give a frame, and the message that it is if it is one; None for what cannot be read."""
        known = self._last.get(data)
        if known is not None:
            return known
        try:
            frame = frames.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        if frame.type not in ("message", "thread_reply"):
            return frame, None
        found = frame, message_of(frame)
        if len(data) <= _REMEMBERED:
            self._last[data] = found
            if len(self._last) > _REMEMBERED_FRAMES:
                del self._last[next(iter(self._last))]
        return found


class _Page(msgspec.Struct):
    messages: list[Frame] = []


class Channel(msgspec.Struct):
    """A row of the membership list; some servers say `channel_id`."""

    id: Any = None
    channel_id: Any = None
    name: Any = None
    type: Any = None

    @property
    def key(self) -> str:
        """The channel's id, whichever field holds it."""
        return text(self.id) or text(self.channel_id)


class _Channels(msgspec.Struct):
    channels: list[Channel] = []


class Loop(msgspec.Struct):
    """A row of the agent's own loops."""

    loop_id: Any = None
    channel_id: Any = None
    prompt: Any = None
    interval_ms: Any = None
    next_tick_ms: Any = None
    last_tick_at: Any = None
    expires_at: Any = None
    status: Any = None
    mode: Any = None


class _Loops(msgspec.Struct):
    loops: list[Loop] = []


class Created(msgspec.Struct):
    """The answer to a post."""

    id: Any = None


class Uploaded(msgspec.Struct):
    """The answer to an upload."""

    url: Any = None
    type: Any = None
    size: Any = None


frames = msgspec.json.Decoder(Frame)
pages = msgspec.json.Decoder(_Page)
memberships = msgspec.json.Decoder(_Channels | list[Channel])
channels = msgspec.json.Decoder(Channel)
loops = msgspec.json.Decoder(_Loops)
created = msgspec.json.Decoder(Created)
uploads = msgspec.json.Decoder(Uploaded)


def text(value: Any) -> str:
    """Give a text field, or an empty text for anything else."""
    return value if isinstance(value, str) else ""


def message_of(frame: Frame, channel: str = "") -> Message | None:
    """Turn a frame or a history row into a message; None when it is none."""
    place = text(frame.channel_id) or channel
    content = text(frame.content)
    if not place and not content:
        return None
    meta = frame.meta if isinstance(frame.meta, dict) else {}
    kind = text(meta.get("kind")) or MESSAGE
    mentioned = frame.mentioned_ids if isinstance(frame.mentioned_ids, list) else ()
    return Message(
        platform=PLATFORM,
        channel=place,
        id=text(frame.id),
        sender=text(frame.sender_id),
        text=content,
        at=text(frame.timestamp),
        sender_name=text(frame.sender_name),
        from_bot=frame.sender_type == "agent",
        direct=place.startswith(DM_PREFIX),
        parent=text(frame.parent_id) or text(frame.reply_to),
        mentioned=tuple(each for each in mentioned if isinstance(each, str)),
        attachments=_attachments(frame.attachments),
        kind=kind,
        tick=_tick(frame, meta) if kind == TICK else None,
        owner=None if frame.dm_owner is msgspec.UNSET else text(frame.dm_owner),
    )


def _attachments(rows: Any) -> tuple[Attachment, ...]:
    if not isinstance(rows, list):
        return ()
    found = []
    for row in rows[:_MAX_ATTACHMENTS]:
        url = text(row.get("url")) if isinstance(row, dict) else ""
        if url:
            size = row.get("size")
            found.append(
                Attachment(
                    kind=_KINDS.get(text(row.get("type")), DOCUMENT),
                    ref=url,
                    mime=text(row.get("mime")),
                    size=size if isinstance(size, int) else 0,
                    name=url.rsplit("/", 1)[-1][:255],
                )
            )
    return tuple(found)


def _tick(frame: Frame, meta: dict[str, Any]) -> Tick | None:
    """Read a loop tick; its shape must be exact, because it is obeyed without a person."""
    loop_id, prompt = text(meta.get("loop_id")), text(meta.get("prompt"))
    interval, following = meta.get("interval_ms"), meta.get("next_tick_ms")
    if not (type(interval) is int and type(following) is int):
        return None
    exact = (
        all(map(text, (frame.id, frame.channel_id, frame.sender_id)))
        and frame.sender_type == "agent"
        and frame.content_type == "text"
        and moment(text(frame.timestamp)) is not None
        and _LOOP_ID.fullmatch(loop_id) is not None
        and 1 <= len(prompt) <= 4000
        and bool(prompt.strip())
        and 60_000 <= interval <= 86_400_000
        and following > interval
        and meta.get("expires_at") is None
        and frame.content == f"(loop tick — {prompt})"
    )
    return Tick(loop_id, prompt, interval, following) if exact else None


def is_loop_of(row: Loop, tick: Tick, channel: str) -> bool:
    """Whether a row of the agent's own loops is the one that ticked."""
    last = row.last_tick_at
    if isinstance(last, str):
        found = moment(last)
        last = int(found.timestamp() * 1000) if found else None
    return (
        row.status == "active"
        and row.channel_id == channel
        and row.prompt == tick.prompt
        and row.interval_ms == tick.interval_ms
        and row.next_tick_ms == tick.next_tick_ms
        and row.expires_at is None
        and row.mode in (None, "static")
        and isinstance(last, int | float)
        and last + tick.interval_ms == tick.next_tick_ms
    )


def auth(agent_id: str, token: str) -> str:
    """The first frame on a socket."""
    return _encode(type="auth", agent_id=agent_id, token=token, capabilities=["chat"])


def ping(at: str) -> str:
    """The hub's own heartbeat."""
    return _encode(type="ping", timestamp=at)


def join(channel: str, agent_id: str) -> str:
    """Listen to a channel."""
    return _encode(type="join_channel", channel_id=channel, agent_id=agent_id)


def typing(channel: str, agent_id: str) -> str:
    """Show that the agent is at work."""
    return _encode(type="typing", channel_id=channel, sender_id=agent_id)


def edit(channel: str, agent_id: str, message_id: str, content: str, at: str) -> str:
    """Change an own message."""
    return _encode(
        type="edit_message", message_id=message_id, channel_id=channel,
        sender_id=agent_id, new_content=content, timestamp=at,
    )  # fmt: skip


def delete(channel: str, agent_id: str, message_id: str) -> str:
    """Delete an own message."""
    return _encode(
        type="delete_message", message_id=message_id, channel_id=channel, sender_id=agent_id
    )


def reaction(
    channel: str, agent_id: str, message_id: str, emoji: str, at: str, *, remove: bool
) -> str:
    """Add or remove a reaction."""
    return _encode(
        type="reaction", message_id=message_id, channel_id=channel, sender_id=agent_id,
        emoji=emoji, action="remove" if remove else "add", timestamp=at,
    )  # fmt: skip


def post(agent_id: str, content: str, parent: str, attachments: tuple[Attachment, ...]) -> bytes:
    """The body of a new message."""
    body: dict[str, Any] = {
        "sender_id": agent_id,
        "sender_type": "agent",
        "content_type": "text",
        "content": content,
    }
    if parent:
        body["parent_id"] = parent
    if attachments:
        body["attachments"] = [_attachment(each) for each in attachments]
    return msgspec.json.encode(body)


def _attachment(file: Attachment) -> dict[str, Any]:
    row: dict[str, Any] = {"type": "image" if file.kind == PHOTO else file.kind, "url": file.ref}
    if file.mime:
        row["mime"] = file.mime
    if file.size:
        row["size"] = file.size
    return row


def _encode(**frame: Any) -> str:
    return msgspec.json.encode(frame).decode()
