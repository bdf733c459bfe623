"""What the store knows and memory does not: exchanges that ended long ago, keys, conversations.

Memory is asked first, then what waits to be written, then the ledger, and that one only for a
moment: a store that is dead or hangs never fails an ask.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from hermes_bridge import ids
from hermes_bridge.clock import Clock
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.log import Quiet
from hermes_bridge.relay.core.book import ExchangeBook
from hermes_bridge.relay.core.conversation import Conversations
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.core.policy import KEY_LIFE
from hermes_bridge.relay.journal import Journal
from hermes_bridge.relay.ledger import AgentRow

_T = TypeVar("_T")
_READ_S = 1.0
"""How long a call may wait for the store to say what memory does not hold."""


class Recall:
    """Look-ups behind the cores. Puts what it finds where the cores look."""

    def __init__(
        self,
        book: ExchangeBook,
        conversations: Conversations,
        journal: Journal,
        clock: Clock,
        quiet: Quiet,
    ) -> None:
        self._book, self._conversations, self._journal = book, conversations, journal
        self._clock, self._quiet = clock, quiet

    async def everything(self) -> tuple[list[AgentRow], list[Exchange]] | None:
        """Give the agents and the open exchanges of an earlier process; None while the store is dead."""
        ledger = self._journal.ledger
        try:
            await ledger.open()
            found = await ledger.agents(), await ledger.open_exchanges()
        except DatabaseDown as error:
            self._journal.went_down(error)
            return None
        self._journal.came_back()
        return found

    async def find(self, rid: str) -> Exchange | None:
        """Give an exchange, however old. Raises `DatabaseDown` if only the store could tell."""
        found = self._book.get(rid) or self._journal.find(rid)
        if found is None:
            found = await self._soon(self._journal.ledger.find(rid))
            again = self._book.get(rid)
            if again is not None:
                return again
            if found is not None:
                self._book.remember(found)
        return found

    async def find_keyed(self, asker: str, key: str) -> tuple[Exchange | None, int]:
        """Give the exchange an idempotency key leads to, and the generation for a new one.

        With a dead store only what memory holds is known: an ask is never failed for it.
        """
        generation = 0
        while True:
            try:
                found = await self.find(ids.keyed_id(asker, key, generation))
            except DatabaseDown:
                return None, generation
            if found is None or self._clock.now() - found.at < KEY_LIFE:
                return found, generation
            generation += 1

    async def know(self, conversation: str, asker: str, target: str) -> None:
        """Have a conversation's participants at hand before an ask in it is checked.

        With a dead store one that is not in memory is taken on trust: its id is known to its two
        participants only, and an ask is never failed for the store.
        """
        if self._conversations.get(conversation) is not None:
            return
        found: tuple[str, str, tuple[int, ...]] | None
        try:
            found = await self._soon(
                self._journal.ledger.participants(conversation, self._clock.now())
            )
        except DatabaseDown:
            self._quiet.event("conversation.on_trust", "the store does not answer", asker=asker)
            found = (asker, target, ())
        if found is not None:
            self._conversations.load(conversation, *found)

    async def _soon(self, reading: Awaitable[_T]) -> _T:
        """Read from the store, but do not keep a caller waiting for one that hangs."""
        try:
            async with asyncio.timeout(_READ_S):
                return await reading
        except TimeoutError:
            raise DatabaseDown("the store does not answer in time") from None
