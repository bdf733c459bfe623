"""Catch up: read what was said while an account was not listening, in order, to the end."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from hermes_bridge.backoff import delays
from hermes_bridge.clock import wall_ms
from hermes_bridge.connector.core.cursor import (
    PAGE,
    Cursors,
    a_second_before,
    in_order,
    later,
    newest,
    next_page,
    stamp,
)
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import Message
from hermes_bridge.connector.platforms.base import HTTP_STATUS, PlatformError
from hermes_bridge.connector.state import State, logger
from hermes_bridge.log import event

ALIVE_MARGIN_MS = 120_000
"""The platform's clock may be behind ours; dedup makes reading a little twice harmless."""
_AT_ONCE = 8
_MAX_HELD = 2000
_MAX_PAGES = 10_000
_GONE = (401, 403, 404)

Take = Callable[[str, Message, bool], None]


class Backfill:
    """Reads history per identity and channel. Live messages of a channel wait until it is done."""

    def __init__(self, state: State, take: Take) -> None:
        self._state, self._take = state, take
        self._held: dict[tuple[str, str], list[Message]] = {}
        self._again: set[tuple[str, str]] = set()
        self._running: set[tuple[str, str]] = set()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def joining(self, bot_id: str, channels: Sequence[str]) -> None:
        """An account is about to listen: from now on live messages of these channels are held."""
        cursors = self._cursors(bot_id)
        for channel in channels:
            if not cursors.filling(channel):
                cursors.begin(channel)
                self._held[bot_id, channel] = []

    def joined(self, bot_id: str, channels: Sequence[str]) -> None:
        """An account listens: read what was missed."""
        for channel in channels:
            key = (bot_id, channel)
            if key in self._running:
                self._again.add(key)
            else:
                self._running.add(key)
                self._state.spawn(self._run(bot_id, channel))

    def hold(self, bot_id: str, message: Message) -> bool:
        """A live message came. True: it is kept until the channel has caught up."""
        held = self._held.get((bot_id, message.channel))
        if held is None or len(held) >= _MAX_HELD:
            return False
        held.append(message)
        return True

    async def _run(self, bot_id: str, channel: str) -> None:
        key = (bot_id, channel)
        try:
            if await self._until_done(bot_id, channel):
                self._cursors(bot_id).complete(channel)
        finally:
            self._running.discard(key)
            if not any(bot == bot_id for bot, _ in self._running):
                self._state.alive.setdefault(bot_id, stamp(wall_ms() - ALIVE_MARGIN_MS))
        self._release(key)

    async def _until_done(self, bot_id: str, channel: str) -> bool:
        """Try until the channel has caught up; False when its account is gone meanwhile."""
        key = (bot_id, channel)
        pause = delays(first=1.0, cap=60.0)
        while True:
            identity = self._state.table.get(bot_id)
            if identity is None:
                return False
            self._again.discard(key)
            try:
                async with self._slots:
                    await self._catch_up(identity, channel)
            except PlatformError as error:
                if error.code == HTTP_STATUS and error.status in _GONE:
                    event(logger, "backfill.no_access", bot=bot_id, status=error.status)
                    return True
                self._state.quiet.event("backfill.failed", str(error), bot=bot_id)
                self._state.trouble(bot_id, f"history cannot be read: {error}")
                # Nobody waits for a platform's history to come back: live messages go on,
                # and the cursor stays where it is until the gap is read.
                self._release(key)
                await asyncio.sleep(next(pause))
                continue
            if key not in self._again:
                return True

    async def _catch_up(self, identity: Identity, channel: str) -> None:
        cursors = self._cursors(identity.bot_id)
        start = cursors.get(channel) or self._state.alive.get(identity.bot_id, "")
        history = self._state.platform_of(identity).history
        if not start:
            rows = await history(identity, channel, limit=1)
            # An empty channel has no past, so all that comes is new.
            cursors.filled(channel, newest(row.at for row in rows) or stamp(0))
            return
        # The platform may compare timestamps as plain text: ask from a little earlier.
        after, count, known = a_second_before(start), 0, set[str]()
        for _ in range(_MAX_PAGES):
            rows = await history(identity, channel, after=after, limit=PAGE)
            fresh = [row for row in rows if later(row.at, start) and row.id not in known]
            for row in in_order(fresh):
                self._take(identity.bot_id, row, False)
                cursors.filled(channel, row.at)
            count += len(fresh)
            known = {row.id for row in rows}
            after = next_page(after, [row.at for row in rows]) if len(rows) >= PAGE else ""
            if not after:
                break
        if count:
            event(logger, "backfill.done", logging.INFO, bot=identity.bot_id, messages=count)

    def _release(self, key: tuple[str, str]) -> None:
        for message in self._held.pop(key, []):
            self._take(key[0], message, True)

    def _cursors(self, bot_id: str) -> Cursors:
        return self._state.cursors.setdefault(bot_id, Cursors())
