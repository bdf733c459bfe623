"""What the page reads: the ledger's rows with what is live in memory laid over them."""

import asyncio
from collections.abc import Iterable

from hermes_bridge import __version__
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.doors import ui_rows
from hermes_bridge.relay.doors.ui_rows import Json
from hermes_bridge.relay.relay import Relay

STATE_ROWS = 200
OPEN_ROWS = 100
_PATIENCE_S = 3.0
"""How long a look waits for the store before it shows what memory holds."""


class Reads:
    """Answers every question of the page. Raises nothing because of a store in trouble."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    async def state(self, cut: int = 0) -> Json:
        """Give agents, the newest exchanges (oldest first) and the riskiest open ones."""
        relay = self._relay
        now = relay.clock.now()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                stored, whole = await relay.ledger.recent(STATE_ROWS), True
        except (DatabaseDown, TimeoutError):
            stored, whole = relay.book.ended_lately(), False
        rows = self.overlaid(stored)[-STATE_ROWS:]
        open_now = sorted(relay.book.open_exchanges(), key=lambda x: (x.deadline, x.at))
        shown = {x.rid for x in rows}
        return {
            "now": now,
            "version": __version__,
            "agents": ui_rows.agents(relay, now),
            "exchanges": [ui_rows.exchange(x, cut) for x in rows],
            "open": len(open_now),
            "open_exchanges": [
                ui_rows.exchange(x, cut or 400) for x in open_now[:OPEN_ROWS] if x.rid not in shown
            ],
            "store": self.store(whole),
            "limits": self.limits(),
        }

    async def exchange(self, rid: str) -> Json | None:
        """Give one exchange with its whole texts."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                found = await self._relay.find(rid)
        except TimeoutError:
            found = None
        return None if found is None else ui_rows.exchange(found)

    def overlaid(self, stored: Iterable[Exchange]) -> list[Exchange]:
        """Give stored exchanges with the live ones in their places and added, oldest first."""
        relay = self._relay
        found = {x.rid: x for x in stored}
        for x in relay.journal.waiting():
            found[x.rid] = x
        for x in relay.book.open_exchanges():
            found[x.rid] = x
        return sorted(found.values(), key=lambda x: (x.at, x.order, x.rid))

    def store(self, whole: bool) -> Json:
        """Say how the store is; `since` is when it was last known to answer."""
        journal = self._relay.journal
        down = journal.down_since is not None or not self._relay.loaded or not whole
        return {
            "up": not down,
            "down_since": journal.down_since,
            "waiting": len(journal),
            "lost": journal.lost,
        }

    def limits(self) -> Json:
        """Give the limits in force that the page names."""
        limits = self._relay.book.limits
        return {
            "ask_timeout_ms": limits.ask_timeout_ms,
            "ask_max_ms": limits.ask_max_ms,
            "reconnect_grace_ms": limits.reconnect_grace_ms,
            "max_turns": limits.max_turns,
            "max_message_bytes": limits.max_message_bytes,
            "rate_per_minute": limits.rate_per_minute,
            "max_pending": limits.max_pending,
        }
