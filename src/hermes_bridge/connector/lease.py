"""Who may use a PostgreSQL store: one connector, wherever it runs; a SQLite file has a lock instead.

The lease is a row with the holder's name and the database's own time until which it holds; no
clock of ours is involved. It is renewed while the connector lives and given back when it stops,
so a successor waits for a killed one only. Who finds that somebody else holds it stops at once:
two connectors would answer every message twice. A database that does not answer takes nothing
from its holder, for it gives nothing to anybody else either.
"""

import asyncio
import logging
import os
import socket

from hermes_bridge.connector import sql
from hermes_bridge.db.base import Database, Statement
from hermes_bridge.errors import ConfigError, DatabaseDown
from hermes_bridge.ids import new_token
from hermes_bridge.log import event

HOLD_MS = 20_000
_RENEW_S = 5.0
_LOOK_S = 0.5
_logger = logging.getLogger("hermes_bridge.connector.lease")


class StoreTaken(ConfigError):
    """Another connector uses the store."""


class Lease:
    """A connector's hold on its store."""

    def __init__(self, database: Database, *, hold_ms: int = HOLD_MS) -> None:
        self._database, self._hold_ms = database, hold_ms
        self._owner = new_token()
        self._words = f"process {os.getpid()} on {socket.gethostname()}"
        self._needed = database.dialect != "sqlite"

    async def take(self) -> None:
        """Take the lease, after the end of one that is not renewed.

        Raises:
            StoreTaken: it is renewed by somebody else.
            DatabaseDown: nobody knows.
        """
        if not self._needed:
            return
        loop = asyncio.get_running_loop()
        patience = loop.time() + 1.5 * self._hold_ms / 1000
        waiting = False
        while (holder := await self._try()) is not None:
            if loop.time() > patience:
                raise StoreTaken(
                    f"another connector uses the store: {holder}",
                    hint="One connector serves an account. Stop the other one, or give this one "
                    "a database and accounts of its own.",
                )
            if not waiting:
                waiting = True
                event(_logger, "store.waiting", logging.WARNING, holder=holder,
                      until="it stops, or is silent", patience_s=round(patience - loop.time()))  # fmt: skip
            await asyncio.sleep(min(_LOOK_S, self._hold_ms / 1000))

    async def keep(self) -> None:
        """Renew the lease for ever. Raises `StoreTaken` when somebody else has it."""
        if not self._needed:
            return
        while True:
            await asyncio.sleep(min(_RENEW_S, self._hold_ms / 3000))
            try:
                holder = await self._try()
            except DatabaseDown:
                continue
            if holder is not None:
                raise StoreTaken(
                    f"another connector has taken the store over: {holder}",
                    hint="This one did not reach the database for a while. It stops, so that "
                    "nobody is answered twice.",
                )

    async def give_back(self) -> None:
        """Let a successor begin at once."""
        if self._needed:
            try:
                await self._database.write(Statement(sql.LEASE_DROP, (self._owner,)))
            except DatabaseDown:
                event(_logger, "store.lease_left", logging.WARNING, ends_in_ms=self._hold_ms)

    async def _try(self) -> str | None:
        """Take or renew; give the words of another holder, or None."""
        mine = (self._owner, self._words, self._hold_ms)
        while True:
            await self._database.write(Statement(sql.LEASE_TAKE, mine))
            for owner, words in await self._database.read(sql.LEASE_HOLDER):
                return None if owner == self._owner else str(words)
            # Its holder gave it back between the two.
