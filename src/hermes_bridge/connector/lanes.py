"""Make deliveries: gather what belongs to a message, then write it to the gateway it is for."""

import asyncio
import logging

from hermes_bridge.connector.core.cursor import in_order
from hermes_bridge.connector.core.event import Media, build, choose_context
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.inbox import Entry
from hermes_bridge.connector.core.message import TICK, Message
from hermes_bridge.connector.link import Link
from hermes_bridge.connector.platforms.base import PlatformError
from hermes_bridge.connector.state import State, logger
from hermes_bridge.contract import frames
from hermes_bridge.log import event

HISTORY = 50
_TICK_TRIES = 3
_TICK_PAUSE_S = 2.0
TICK_UNVERIFIED = "tick_unverified"


class Lanes:
    """Turns the inbox's `Deliver` effects into frames on the wire."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._fetches: dict[tuple[str, str], asyncio.Future[list[Message]]] = {}

    def start(self, entry: Entry) -> None:
        """A delivery is the next of its lane. What needs nothing more is written at once."""
        message, state = entry.message, self._state
        if message.kind == TICK:
            state.spawn(self._prepare(entry))
            return
        if message.direct:
            self._write(entry, [], None)
            return
        identity = state.table.get(entry.bot_id)
        known = None
        if identity is not None:
            known = state.platform_of(identity).recent(identity, message.channel)
        if known is None:
            state.spawn(self._prepare(entry))
        else:
            self._write(entry, self._context(entry, known), _find(known, message.parent))

    async def _prepare(self, entry: Entry) -> None:
        state, message = self._state, entry.message
        identity = state.table.get(entry.bot_id)
        context: list[Message] = []
        parent = None
        if identity is not None:
            if message.kind == TICK and not await self._genuine(identity, message):
                event(logger, "inbound.dropped", bot=entry.bot_id, reason=TICK_UNVERIFIED)
                state.counts[f"skipped.{TICK_UNVERIFIED}"] += 1
                state.inbox.dropped(entry, TICK_UNVERIFIED, state.clock.now())
                state.settle()
                return
            if not message.direct:
                history = await self._history(identity, message)
                context = self._context(entry, history)
                parent = _find(history, message.parent)
        self._write(entry, context, parent)
        state.settle()

    def _context(self, entry: Entry, history: list[Message]) -> list[Message]:
        since = self._state.since.get((entry.bot_id, entry.message.channel)) or ""
        return choose_context(history, entry.message, since)

    def _write(self, entry: Entry, context: list[Message], parent: Message | None) -> None:
        state = self._state
        now = state.clock.now()
        identity = state.table.get(entry.bot_id)
        serving = state.links.get(state.inbox.serving(entry.bot_id) or 0)
        if serving is not None and serving.full:
            serving.when_read(lambda: self._go_on(entry, context, parent))
            return
        number = state.inbox.claim(entry, now)
        if number is None:
            return
        link = state.links.get(number)
        if identity is None or link is None or not link.session.may_use(entry.bot_id, state.table):
            # A reload took the identity away between two steps: it stays owed.
            state.inbox.link_down(entry.bot_id, number, now)
            return
        body = build(
            entry.message,
            identity,
            profile=link.session.profile_for(identity),
            context=context,
            media=self._media(link, identity, entry.message),
            parent=parent,
            redactor=state.redactor,
        )
        buffer_id = str(entry.id) if state.config.rules.acks else None
        link.write(frames.inbound(body, buffer_id))
        state.told(entry.bot_id, entry.message)
        state.counts["inbound.written"] += 1
        if entry.tries > 1:
            event(logger, "inbound.repeated", bot=entry.bot_id, buffer_id=entry.id,
                  tries=entry.tries)  # fmt: skip

    def _go_on(self, entry: Entry, context: list[Message], parent: Message | None) -> None:
        self._write(entry, context, parent)
        self._state.settle()

    def _media(self, link: Link, identity: Identity, message: Message) -> list[Media]:
        found = []
        for attachment in message.attachments:
            key = self._state.shelf.lend(identity.gateway_id, identity.bot_id, attachment)
            found.append(Media(f"{link.base}/relay/media/{key}", attachment.mime))
        return found

    async def _history(self, identity: Identity, message: Message) -> list[Message]:
        """Give the channel's last messages, fetched once for all targets of one message.

        Only members share a fetch: a bot that is not in the room must not read it through one
        that is.
        """
        state = self._state
        platform = state.platform_of(identity)
        member = platform.listens(identity.bot_id, message.channel)
        key = (message.channel, message.id if member else f"{message.id}\0{identity.bot_id}")
        fetch = self._fetches.get(key)
        if fetch is None:
            fetch = asyncio.get_running_loop().create_future()
            self._fetches[key] = fetch
            state.spawn(self._fetch(identity, message.channel, key, fetch))
        try:
            async with asyncio.timeout(state.config.section.context_timeout_ms / 1000):
                return await asyncio.shield(fetch)
        except TimeoutError:
            state.quiet.event("context.missing", "timeout", bot=identity.bot_id)
            return []

    async def _fetch(
        self,
        identity: Identity,
        channel: str,
        key: tuple[str, str],
        fetch: asyncio.Future[list[Message]],
    ) -> None:
        rows: list[Message] = []
        try:
            async with asyncio.timeout(self._state.config.section.context_timeout_ms / 1000):
                rows = in_order(
                    await self._state.platform_of(identity).history(
                        identity, channel, limit=HISTORY
                    )
                )
        except (PlatformError, TimeoutError) as error:
            cause = str(error) or "timeout"
            self._state.quiet.event("context.missing", cause, bot=identity.bot_id)
        finally:
            del self._fetches[key]
            if not fetch.done():
                fetch.set_result(rows)

    async def _genuine(self, identity: Identity, message: Message) -> bool:
        platform = self._state.platform_of(identity)
        for attempt in range(_TICK_TRIES):
            try:
                async with asyncio.timeout(5):
                    return await platform.genuine(identity, message)
            except (PlatformError, TimeoutError) as error:
                event(logger, "tick.unchecked", logging.WARNING, bot=identity.bot_id,
                      attempt=attempt + 1, cause=str(error) or "timeout")  # fmt: skip
            await asyncio.sleep(_TICK_PAUSE_S)
        return False


def _find(history: list[Message], message_id: str) -> Message | None:
    if not message_id:
        return None
    return next((each for each in history if each.id == message_id), None)
