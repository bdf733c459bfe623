"""A platform in memory: for tests, demos, and as the shortest complete example of the protocol.

`say` is a person speaking; what agents say is kept in `posts` and heard by the other accounts.
"""

import asyncio
from collections import defaultdict
from itertools import count

from hermes_bridge.connector.core.cursor import later, padded, stamp
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import Attachment, Message
from hermes_bridge.connector.platforms.base import (
    HTTP_STATUS,
    Account,
    File,
    PlatformError,
    Post,
    Settings,
    Sink,
)
from hermes_bridge.contract.descriptor import OPS, Capabilities

_FIRST_MS = 1_600_000_000_000


class EchoPlatform:
    """Channels that live as long as the process. Every account is in every channel but DMs."""

    capabilities = Capabilities(platform="echo", label="Echo", ops=OPS, threads=True)

    def __init__(self, settings: Settings | None = None) -> None:
        self.posts: list[tuple[str, Post]] = []
        self.typed: list[tuple[str, str]] = []
        self.reactions: dict[str, set[tuple[str, str]]] = defaultdict(set)
        self.spoke = asyncio.Event()
        self._accounts: dict[str, tuple[Identity, Sink]] = {}
        self._channels: dict[str, list[Message]] = defaultdict(list)
        self._files: dict[str, File] = {}
        self._numbers = count(1)

    def say(self, channel: str, sender: str, text: str, *, bot: bool = False) -> Message:
        """Somebody says something; every account that is there hears it."""
        number = next(self._numbers)
        message = Message(
            "echo", channel, f"m{number}", sender, text,
            at=stamp(_FIRST_MS + number), from_bot=bot, direct=channel.startswith("dm-"),
        )  # fmt: skip
        self._channels[channel].append(message)
        for identity, sink in list(self._accounts.values()):
            if self.listens(identity.bot_id, channel):
                sink.received(identity.bot_id, message)
        return message

    async def run(self) -> None:
        """Nothing happens behind the scenes."""
        await asyncio.Event().wait()

    def start(self, identity: Identity, sink: Sink) -> None:
        """An account is there at once."""
        self._accounts[identity.bot_id] = (identity, sink)
        channels = [each for each in self._channels if self.listens(identity.bot_id, each)]
        sink.joining(identity.bot_id, channels)
        sink.joined(identity.bot_id, channels)

    async def stop(self, bot_id: str) -> None:
        """Forget an account."""
        self._accounts.pop(bot_id, None)

    def account(self, bot_id: str) -> Account:
        """An account is there or not."""
        return Account("online" if bot_id in self._accounts else "stopped")

    def listens(self, bot_id: str, channel: str) -> bool:
        """A DM channel is named `dm-<person>-<bot id>`."""
        return not channel.startswith("dm-") or channel.endswith(f"-{bot_id}")

    async def send(self, identity: Identity, post: Post) -> str:
        """Say it in the channel."""
        self.posts.append((identity.bot_id, post))
        self.spoke.set()
        return self.say(post.channel, identity.agent_id, post.text, bot=True).id

    async def edit(self, identity: Identity, channel: str, message_id: str, text: str) -> None:
        """Change an own message."""
        place = self._own(identity, channel, message_id)
        old = self._channels[channel][place]
        self._channels[channel][place] = Message(
            "echo", channel, old.id, old.sender, text, at=old.at, from_bot=True, direct=old.direct
        )

    async def delete(self, identity: Identity, channel: str, message_id: str) -> None:
        """Delete an own message."""
        del self._channels[channel][self._own(identity, channel, message_id)]

    async def react(
        self, identity: Identity, channel: str, message_id: str, emoji: str, *, remove: bool
    ) -> None:
        """Add or remove a reaction."""
        who = (identity.agent_id, emoji)
        (self.reactions[message_id].discard if remove else self.reactions[message_id].add)(who)

    def typing(self, identity: Identity, channel: str) -> None:
        """Note it."""
        self.typed.append((identity.bot_id, channel))

    async def chat_info(self, identity: Identity, channel: str) -> tuple[str, str]:
        """A channel's name is its id."""
        return channel, "dm" if channel.startswith("dm-") else "group"

    def recent(self, identity: Identity, channel: str) -> list[Message] | None:
        """Everything is known."""
        return self._channels[channel][-50:]

    async def history(
        self, identity: Identity, channel: str, *, after: str = "", limit: int = 50
    ) -> list[Message]:
        """Give what was said."""
        rows = sorted(self._channels[channel], key=lambda each: padded(each.at))
        return [each for each in rows if later(each.at, after)][:limit] if after else rows[-limit:]

    async def upload(self, identity: Identity, kind: str, file: File) -> Attachment:
        """Keep a file."""
        name = f"f{next(self._numbers)}"
        self._files[name] = file
        return Attachment(kind, name, file.mime, len(file.body), file.name)

    async def fetch(self, identity: Identity, attachment: Attachment) -> File:
        """Give a kept file."""
        if attachment.ref not in self._files:
            raise PlatformError("no such file", code=HTTP_STATUS, status=404, ambiguous=False)
        return self._files[attachment.ref]

    async def genuine(self, identity: Identity, message: Message) -> bool:
        """There are no scheduled prompts here."""
        return False

    async def login(self, identity: Identity) -> Account:
        """Everybody may come in."""
        return Account("online")

    async def close(self) -> None:
        """Nothing is held."""

    def _own(self, identity: Identity, channel: str, message_id: str) -> int:
        for place, message in enumerate(self._channels[channel]):
            if message.id == message_id and message.sender == identity.agent_id:
                return place
        raise PlatformError("no such message", code=HTTP_STATUS, status=404, ambiguous=False)
