"""AgentsChat as a `Platform`: accounts over one REST pool and one socket each."""

import asyncio

import aiohttp

from hermes_bridge.clock import wall_ms
from hermes_bridge.connector.core.cursor import in_order, stamp
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import Attachment, Message
from hermes_bridge.connector.platforms.agentschat import wire
from hermes_bridge.connector.platforms.agentschat.api import Api
from hermes_bridge.connector.platforms.agentschat.feed import REFUSED, Feed
from hermes_bridge.connector.platforms.agentschat.rings import Rings
from hermes_bridge.connector.platforms.base import (
    ONLINE,
    Account,
    File,
    PlatformError,
    Post,
    Settings,
    Sink,
)
from hermes_bridge.contract.descriptor import OPS, Capabilities

_LOGIN_S = 15.0
_HINT = (
    "You are on AgentsChat, a chat for agents and people. In rooms you are called by @id; answer "
    "in the chat the message came from. Markdown works. Do not mention another agent unless you "
    "want it to act."
)


class AgentsChat:
    """All AgentsChat accounts of a connector."""

    capabilities = Capabilities(platform=wire.PLATFORM, label="AgentsChat", ops=OPS, hint=_HINT)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = Api(settings)
        self._session: aiohttp.ClientSession | None = None
        self._feeds: dict[str, Feed] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._rings = Rings()
        self._pushes = wire.Pushes()
        self._reading: set[str] = set()

    async def run(self) -> None:
        """Keep every account logged in until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for bot_id, feed in self._feeds.items():
                self._tasks[bot_id] = group.create_task(feed.run())
            clock = asyncio.get_running_loop().time
            while True:
                await asyncio.sleep(min(1.0, self._settings.ping_ms / 1000))
                for feed in list(self._feeds.values()):
                    feed.tick(clock())

    def start(self, identity: Identity, sink: Sink) -> None:
        """Log an account in and keep it so."""
        feed = Feed(
            identity, sink, self._sockets(), self._api, self._rings, self._pushes, self._settings
        )
        self._feeds[identity.bot_id] = feed
        if self._group is not None:
            self._tasks[identity.bot_id] = self._group.create_task(feed.run())

    async def stop(self, bot_id: str) -> None:
        """Log an account out."""
        self._feeds.pop(bot_id, None)
        task = self._tasks.pop(bot_id, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=5)

    def account(self, bot_id: str) -> Account:
        """How an account is doing."""
        feed = self._feeds.get(bot_id)
        return feed.account if feed else Account("stopped")

    def listens(self, bot_id: str, channel: str) -> bool:
        """Whether the account joined a channel."""
        feed = self._feeds.get(bot_id)
        return feed is not None and channel in feed.channels

    async def send(self, identity: Identity, post: Post) -> str:
        """Say something."""
        return await self._api.post(identity, post)

    async def edit(self, identity: Identity, channel: str, message_id: str, text: str) -> None:
        """Change an own message; done when the hub tells everybody."""
        frame = wire.edit(channel, identity.agent_id, message_id, text, stamp(wall_ms()))
        await self._feed(identity).prove(frame, "message_edited", message_id)

    async def delete(self, identity: Identity, channel: str, message_id: str) -> None:
        """Delete an own message; done when the hub tells everybody."""
        frame = wire.delete(channel, identity.agent_id, message_id)
        await self._feed(identity).prove(frame, "message_deleted", message_id)

    async def react(
        self, identity: Identity, channel: str, message_id: str, emoji: str, *, remove: bool
    ) -> None:
        """Add or remove a reaction; done when the hub tells everybody."""
        at = stamp(wall_ms())
        frame = wire.reaction(channel, identity.agent_id, message_id, emoji, at, remove=remove)
        await self._feed(identity).prove(frame, "reaction_update", message_id)

    def typing(self, identity: Identity, channel: str) -> None:
        """Show that the agent is at work, if its socket is there."""
        feed = self._feeds.get(identity.bot_id)
        if feed is not None:
            feed.typing(channel)

    async def chat_info(self, identity: Identity, channel: str) -> tuple[str, str]:
        """Give a channel's name and type."""
        return await self._api.chat_info(identity, channel)

    def recent(self, identity: Identity, channel: str) -> list[Message] | None:
        """Give what was heard since the last reading, if nothing can have been missed."""
        if channel in self._reading:
            return None
        return self._rings.read(identity.bot_id, channel)

    async def history(
        self, identity: Identity, channel: str, *, after: str = "", limit: int = 50
    ) -> list[Message]:
        """Give messages of a channel, and begin to keep those of one that is listened to."""
        if after or limit == 1:
            return await self._api.history(identity, channel, after=after, limit=limit)
        collecting = self._rings.begin(identity.bot_id, channel)
        if collecting:
            self._reading.add(channel)
        rows = None
        try:
            rows = await self._api.history(identity, channel, after="", limit=limit)
            return rows
        finally:
            if collecting:
                self._reading.discard(channel)
                self._rings.fill(channel, None if rows is None else in_order(rows))

    async def upload(self, identity: Identity, kind: str, file: File) -> Attachment:
        """Store a picture or a sound."""
        return await self._api.upload(identity, kind, file)

    async def fetch(self, identity: Identity, attachment: Attachment) -> File:
        """Get a file of the platform."""
        return await self._api.fetch(identity, attachment)

    async def genuine(self, identity: Identity, message: Message) -> bool:
        """Whether a loop tick is one of the agent's own, active loops."""
        tick = message.tick
        if tick is None:
            return False
        rows = [row for row in await self._api.loops(identity) if row.loop_id == tick.loop_id]
        return len(rows) == 1 and wire.is_loop_of(rows[0], tick, message.channel)

    async def login(self, identity: Identity) -> Account:
        """Try the account once."""
        feed = Feed(
            identity, _Deaf(), self._sockets(), self._api, self._rings, self._pushes, self._settings
        )
        try:
            async with asyncio.timeout(_LOGIN_S):
                reason = await feed.try_login()
                if reason:
                    return Account(REFUSED, reason)
                channels = await self._api.channels(identity)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return Account("offline", "the hub does not answer")
        except PlatformError as error:
            return Account("offline", str(error))
        return Account(ONLINE, "", len(channels))

    async def close(self) -> None:
        """Let go of everything."""
        self._api.close()
        if self._session is not None:
            await self._session.close()

    def _feed(self, identity: Identity) -> Feed:
        return self._feeds.get(identity.bot_id) or Feed(
            identity, _Deaf(), self._sockets(), self._api, self._rings, self._pushes, self._settings
        )

    def _sockets(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Sockets stay for days: a limit meant for requests would make the 101st wait for ever.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


class _Deaf:
    """A sink for a login that is only tried."""

    def received(self, bot_id: str, message: Message) -> None: ...

    def joining(self, bot_id: str, channels: object) -> None: ...

    def joined(self, bot_id: str, channels: object) -> None: ...
