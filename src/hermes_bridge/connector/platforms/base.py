"""What a chat platform has to be able to do for the connector. Public: write your own.

A platform serves accounts. It tells its `Sink` what was said; the connector tells it what to
say. The connector does everything else: who is addressed, what was seen, what must be repeated,
who may speak. `docs/guides/connector-own-platform.md` walks through an example.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import Attachment, Message
from hermes_bridge.contract.descriptor import Capabilities
from hermes_bridge.errors import HermesBridgeError

UNREACHABLE = "platform_unreachable"
NETWORK = "platform_network_error"
HTTP_STATUS = "platform_http_error"
OPERATION = "platform_operation_failed"
TIMEOUT = "platform_timeout"
ONLINE = "online"


class PlatformError(HermesBridgeError):
    """A platform did not do what it was asked. `ambiguous`: it may have done it all the same."""

    def __init__(
        self, message: str, *, code: str, status: int | None = None, ambiguous: bool
    ) -> None:
        super().__init__(message)
        self.code, self.status, self.ambiguous = code, status, ambiguous


class Sink(Protocol):
    """The connector, as a platform sees it. Every call returns at once."""

    def received(self, bot_id: str, message: Message) -> None:
        """A message came in on the account of `bot_id`."""
        ...

    def joining(self, bot_id: str, channels: Sequence[str]) -> None:
        """The account is about to listen to these channels; said before it does."""
        ...

    def joined(self, bot_id: str, channels: Sequence[str]) -> None:
        """It listens now: whatever was missed before can be read from `history`."""
        ...


class Post(NamedTuple):
    """A message to be said. `parent` is the message or thread that it answers."""

    channel: str
    text: str
    parent: str = ""
    attachments: tuple[Attachment, ...] = ()


class File(NamedTuple):
    """A file's bytes."""

    body: bytes
    mime: str
    name: str


class Account(NamedTuple):
    """How an account is doing, for `/health` and `connector check`. Words, no secrets."""

    state: str
    reason: str = ""
    channels: int = 0


class Platform(Protocol):
    """A chat platform. Every method that acts raises `PlatformError` and nothing else.

    Operations that `capabilities` does not list are never called.
    """

    @property
    def capabilities(self) -> Capabilities:
        """What it can do: this becomes the descriptor that gateways see."""
        ...

    async def run(self) -> None:
        """Do the background work of all accounts until cancelled."""
        ...

    def start(self, identity: Identity, sink: Sink) -> None:
        """Log an account in and keep it logged in, in the background."""
        ...

    async def stop(self, bot_id: str) -> None:
        """Log an account out and forget it."""
        ...

    def account(self, bot_id: str) -> Account:
        """Tell how an account is doing."""
        ...

    def listens(self, bot_id: str, channel: str) -> bool:
        """Whether an account is a member of a channel, as far as is known."""
        ...

    async def send(self, identity: Identity, post: Post) -> str:
        """Say something; give the new message's id, or an empty text."""
        ...

    async def edit(self, identity: Identity, channel: str, message_id: str, text: str) -> None:
        """Change an own message."""
        ...

    async def delete(self, identity: Identity, channel: str, message_id: str) -> None:
        """Delete an own message."""
        ...

    async def react(
        self, identity: Identity, channel: str, message_id: str, emoji: str, *, remove: bool
    ) -> None:
        """Add or remove a reaction."""
        ...

    def typing(self, identity: Identity, channel: str) -> None:
        """Show that the agent is at work, if that is possible now."""
        ...

    async def chat_info(self, identity: Identity, channel: str) -> tuple[str, str]:
        """Give a channel's name and its type, `dm` or `group`."""
        ...

    def recent(self, identity: Identity, channel: str) -> list[Message] | None:
        """Give the newest messages, oldest first, if they are known for certain without asking."""
        ...

    async def history(
        self, identity: Identity, channel: str, *, after: str = "", limit: int = 50
    ) -> list[Message]:
        """Give messages strictly after a timestamp, or without one the newest; any order."""
        ...

    async def upload(self, identity: Identity, kind: str, file: File) -> Attachment:
        """Give a file to the platform; the attachment goes into a `Post`."""
        ...

    async def fetch(self, identity: Identity, attachment: Attachment) -> File:
        """Get the bytes of an attachment."""
        ...

    async def genuine(self, identity: Identity, message: Message) -> bool:
        """Whether a scheduled prompt (`kind` `loop_tick`) is one that the agent really set up."""
        ...

    async def login(self, identity: Identity) -> Account:
        """Try an account once, for `connector check`; nothing stays connected."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...


Factory = Callable[["Settings"], Platform]
"""What an entry point of the group `hermes_bridge.platforms` names."""


class Settings(NamedTuple):
    """What a platform is built from: where its servers are, and its periods in milliseconds."""

    api_url: str = ""
    ws_url: str = ""
    ping_ms: int = 15_000
    pong_timeout_ms: int = 45_000
    connect_timeout_ms: int = 30_000
    operation_timeout_ms: int = 20_000


class BarePlatform:
    """What a platform does when it says nothing else: derive from it and write what yours can.

    A derived class needs `capabilities`, `start` and `send`.
    """

    capabilities: Capabilities

    async def run(self) -> None:
        """Nothing happens in the background."""
        await asyncio.Event().wait()

    async def stop(self, bot_id: str) -> None:
        """There is nothing to log out of."""

    def account(self, bot_id: str) -> Account:
        """Every account is there."""
        return Account(ONLINE)

    def listens(self, bot_id: str, channel: str) -> bool:
        """Every account is everywhere."""
        return True

    async def edit(self, identity: Identity, channel: str, message_id: str, text: str) -> None:
        """Not offered."""
        raise _not_offered("edit")

    async def delete(self, identity: Identity, channel: str, message_id: str) -> None:
        """Not offered."""
        raise _not_offered("delete")

    async def react(
        self, identity: Identity, channel: str, message_id: str, emoji: str, *, remove: bool
    ) -> None:
        """Not offered."""
        raise _not_offered("react")

    def typing(self, identity: Identity, channel: str) -> None:
        """Nobody is shown."""

    async def chat_info(self, identity: Identity, channel: str) -> tuple[str, str]:
        """A channel is a group and its name is its id."""
        return channel, "group"

    def recent(self, identity: Identity, channel: str) -> list[Message] | None:
        """Ask `history`."""
        return None

    async def history(
        self, identity: Identity, channel: str, *, after: str = "", limit: int = 50
    ) -> list[Message]:
        """Nothing is remembered: what is said while an account is away is not heard."""
        return []

    async def upload(self, identity: Identity, kind: str, file: File) -> Attachment:
        """Not offered."""
        raise _not_offered("upload")

    async def fetch(self, identity: Identity, attachment: Attachment) -> File:
        """Not offered."""
        raise _not_offered("fetch")

    async def genuine(self, identity: Identity, message: Message) -> bool:
        """There are no scheduled prompts."""
        return False

    async def login(self, identity: Identity) -> Account:
        """Everybody may come in."""
        return Account(ONLINE)

    async def close(self) -> None:
        """Nothing is held."""


def _not_offered(what: str) -> PlatformError:
    return PlatformError(f"this platform has no {what}", code=OPERATION, ambiguous=False)
