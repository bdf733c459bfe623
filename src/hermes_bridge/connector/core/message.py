"""One utterance on a platform, normalised: what every rule of the connector looks at."""

import msgspec

MESSAGE, TICK = "message", "loop_tick"
PHOTO, AUDIO, VIDEO, DOCUMENT = "photo", "audio", "video", "document"


class Attachment(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that came with a message. `ref` is what its platform fetches it by."""

    kind: str
    ref: str
    mime: str = ""
    size: int = 0
    name: str = ""


class Tick(msgspec.Struct, frozen=True, omit_defaults=True):
    """A scheduled prompt of an agent to itself, as the platform announces it (times in ms)."""

    loop_id: str
    prompt: str
    interval_ms: int
    next_tick_ms: int


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message. `at` is the platform's timestamp as received; an empty `id` means it has none."""

    platform: str
    channel: str
    id: str
    sender: str
    text: str
    at: str = ""
    sender_name: str = ""
    from_bot: bool = False
    direct: bool = False
    parent: str = ""
    mentioned: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    kind: str = MESSAGE
    tick: Tick | None = None
    owner: str | None = None  # a platform's own word on whose DM this is; "" is an invalid word
    channel_name: str = ""

    @property
    def author(self) -> str:
        """Who wrote it, for people."""
        return self.sender_name or self.sender
