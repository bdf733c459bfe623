"""What the connector keeps: the inbox, what was seen, cursors, marks, policies.

Writes are gathered and committed together by one writer. A delivery is announced when it is
committed; the inbox row and the cursor that passes it are in the same transaction, so whatever
instant a crash or a power cut falls back to is one that a backfill continues from. A store that
does not answer never stops deliveries: they go out, the work is kept, and is written later.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from hermes_bridge.backoff import delays
from hermes_bridge.clock import Clock
from hermes_bridge.connector import sql
from hermes_bridge.connector.core.inbox import Entry
from hermes_bridge.connector.core.message import Message
from hermes_bridge.contract.frames import Policy
from hermes_bridge.db.base import Database, Row, Statement, Upsert
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.errors import ConfigError, DatabaseDown, RowRefused
from hermes_bridge.log import Quiet, event

_LINGER_S = 0.02
_KEEP_PENDING = 200_000
_logger = logging.getLogger("hermes_bridge.connector.store")
_messages = msgspec.json.Decoder(Message)
_encode = msgspec.json.encode


def database(address: str, path: str, *, durable: bool = False) -> Database:
    """Give the store: PostgreSQL at `address`, or the SQLite file at `path`."""
    if not address:
        return SqliteDatabase(path, durable=durable)
    if not address.startswith(("postgresql://", "postgres://")):
        raise ConfigError(
            "connector: database is not a PostgreSQL address",
            hint="It begins with postgresql://. Leave it out for a SQLite file.",
        )
    try:
        from hermes_bridge.db.postgres import PostgresDatabase
    except ImportError:
        raise ConfigError(
            "PostgreSQL needs a package that is not installed",
            hint="Install it: pip install 'hermes-bridge[postgres]'.",
        ) from None
    return PostgresDatabase(address)


class Account(NamedTuple):
    """What is remembered of an identity: when it was last served, and its gateway's signs."""

    alive: str
    finals: bool
    types: bool


class Kept(NamedTuple):
    """Everything that a start finds."""

    waiting: list[Entry]
    seen: list[tuple[str, str, str, int]]
    cursors: dict[str, dict[str, str]]
    accounts: dict[str, Account]
    policies: dict[tuple[str, str], Policy]


class Order(NamedTuple):
    """What an operator wants done with a row."""

    entry: Entry
    again: bool


class Store:
    """The one writer of the connector's tables."""

    def __init__(self, database: Database, clock: Clock, *, keep_seen: int = 50_000) -> None:
        self._database, self._clock, self._keep_seen = database, clock, keep_seen
        self._quiet = Quiet(_logger, clock.now)
        self._rows: dict[int, Row] = {}
        self._announce: list[Entry] = []
        self._cursors: dict[tuple[str, str], str] = {}
        self._accounts: dict[str, Account] = {}
        self._policies: dict[tuple[str, str], str] = {}
        self._wake = asyncio.Event()
        self._lingering = False
        self._last_id = 0
        self._stored: Callable[[list[Entry]], None] = lambda entries: None
        self.down_since = 0

    async def open(self) -> None:
        """Make the tables. Raises `DatabaseDown`."""
        await self._database.open(sql.SCHEMA)

    async def load(self) -> Kept:
        """Open the tables and give what is in them. Raises `DatabaseDown`."""
        await self.open()
        read = self._database.read
        newest = (await read(sql.LAST_ID))[0][0] or 0
        self._last_id = max(int(newest), self._clock.now() * 1000)
        waiting = [_entry(row) for row in await read(sql.OPEN_ROWS) if row[6] == sql.WAITING]
        seen = [
            (row[0], row[1], row[2], row[3])
            for row in reversed(await read(sql.NEWEST_KEYS, self._keep_seen))
        ]
        cursors: dict[str, dict[str, str]] = {}
        for bot_id, channel, at in await read(sql.ALL_CURSORS):
            cursors.setdefault(bot_id, {})[channel] = at
        accounts = {
            row[0]: Account(row[1], bool(row[2]), bool(row[3]))
            for row in await read(sql.ALL_ACCOUNTS)
        }
        policies = {}
        for gateway_id, platform, body in await read(sql.ALL_POLICIES):
            policies[gateway_id, platform] = msgspec.json.decode(body, type=Policy)
        return Kept([each for each in waiting if each], seen, cursors, accounts, policies)

    def new_id(self) -> int:
        """Give the next buffer id: unique in this store, growing."""
        self._last_id += 1
        return self._last_id

    # -- what is to be kept ------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Keep a delivery; it is announced to `run`'s callback when it is committed."""
        self._rows[entry.id] = _row(entry, _encode(entry.message), sql.WAITING)
        self._announce.append(entry)
        self._wake.set()

    def over(self, entry: Entry) -> None:
        """A delivery is over: keep its key, let its body go."""
        self._rows[entry.id] = _row(entry, None, sql.OVER)
        self._soon()

    def park(self, entry: Entry) -> None:
        """A delivery waits for an operator."""
        self._rows[entry.id] = _row(entry, _encode(entry.message), sql.PARKED)
        self._soon()

    def revive(self, entry: Entry) -> None:
        """An operator sent a delivery on its way again."""
        self._rows[entry.id] = _row(entry, _encode(entry.message), sql.WAITING)
        self._soon()

    def cursors(self, bot_id: str, moved: Mapping[str, str]) -> None:
        """Cursors of an identity moved."""
        self._cursors |= {(bot_id, channel): at for channel, at in moved.items()}
        self._soon()

    def account(self, bot_id: str, account: Account) -> None:
        """Remember an identity's marks."""
        self._accounts[bot_id] = account
        self._soon()

    def policy(self, gateway_id: str, policy: Policy) -> None:
        """Remember what a gateway declared."""
        self._policies[gateway_id, policy.platform] = _encode(policy).decode()
        self._soon()

    def _soon(self) -> None:
        # What only tidies up may wait a moment for company: a commit costs the same for many.
        if not self._lingering and not self._wake.is_set():
            self._lingering = True
            asyncio.get_running_loop().call_later(_LINGER_S, self._lingered)

    def _lingered(self) -> None:
        self._lingering = False
        self._wake.set()

    # -- the writer --------------------------------------------------------------------

    async def run(self, stored: Callable[[list[Entry]], None]) -> None:
        """Write what is gathered, for ever; `stored` is told of every committed delivery."""
        self._stored = stored
        retry = delays(first=0.5, cap=15.0)
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self.down_since:
                self._give_out()  # the store is known to be down: nobody waits for it
            elif await self.flush():
                retry = delays(first=0.5, cap=15.0)
                continue
            asyncio.get_running_loop().call_later(next(retry), self._try_again)

    def _try_again(self) -> None:
        self.down_since = 0
        self._wake.set()

    async def flush(self) -> bool:
        """Commit everything that is gathered now; False when the store does not answer."""
        taken = (self._rows, self._cursors, self._accounts, self._policies, self._announce)
        self._rows, self._cursors, self._accounts, self._policies = {}, {}, {}, {}
        self._announce = []
        rows, cursors, accounts, policies, announce = taken
        work = _work(rows, cursors, accounts, policies)
        try:
            if work:
                await self._commit(work)
        except DatabaseDown as error:
            self.down_since = self._clock.now()
            self._quiet.event("store.down", str(error), logging.ERROR, kept=len(rows))
            self._put_back(*taken)
            self._give_out()
            return False
        except BaseException:
            # Cancelled by a stop: nobody knows whether it was written, and twice does no harm.
            self._put_back(*taken)
            raise
        if announce:
            self._stored(announce)
        return True

    async def _commit(self, work: list[Upsert]) -> None:
        """Write all at once; if the store will never take some of it, all the rest."""
        try:
            await self._database.write(*work)
        except RowRefused:
            for batch in work:
                for row in batch.rows:
                    await self._commit_one(batch._replace(rows=[row]))

    async def _commit_one(self, batch: Upsert) -> None:
        try:
            await self._database.write(batch)
        except RowRefused as error:
            # What it holds is delivered all the same; only a restart would forget it.
            self._quiet.event("store.row_refused", str(error), logging.ERROR, table=batch.table)

    def _put_back(
        self,
        rows: dict[int, Row],
        cursors: dict[tuple[str, str], str],
        accounts: dict[str, Account],
        policies: dict[tuple[str, str], str],
        announce: list[Entry],
    ) -> None:
        self._rows = dict(list((rows | self._rows).items())[-_KEEP_PENDING:])
        self._cursors = cursors | self._cursors
        self._accounts = accounts | self._accounts
        self._policies = policies | self._policies
        self._announce = announce + self._announce

    def _give_out(self) -> None:
        announce, self._announce = self._announce, []
        if announce:
            self._stored(announce)

    async def prune(self, now: int, *, age_ms: int) -> None:
        """Forget the oldest rows that are over."""
        try:
            await self._database.write(Statement(sql.PRUNE, (now - age_ms, self._keep_seen)))
        except DatabaseDown as error:
            self._quiet.event("store.down", str(error), logging.ERROR)

    # -- an operator's orders ---------------------------------------------------------------

    async def orders(self) -> list[Order]:
        """Give the rows that an operator marked with `connector inbox replay|drop`."""
        try:
            rows = await self._database.read(sql.ORDERED)
        except DatabaseDown:
            return []
        found = [(_entry(row), row[6] == sql.AGAIN) for row in rows]
        return [Order(entry, again) for entry, again in found if entry is not None]

    async def open_rows(self) -> list[tuple[Entry, int]]:
        """Give every row that is not over, with its state (for `connector inbox list`)."""
        rows = await self._database.read(sql.OPEN_ROWS)
        return [(entry, row[6]) for row in rows if (entry := _entry(row)) is not None]

    async def order(self, entry_id: int, *, again: bool) -> None:
        """Mark a row for the running connector, which looks every few seconds."""
        state = sql.AGAIN if again else sql.DROP
        await self._database.write(Statement(sql.ORDER_ROW, (state, entry_id)))


def _row(entry: Entry, body: bytes | None, state: int) -> Row:
    return (
        entry.id, entry.bot_id, entry.channel, entry.message_id, body, entry.received_at, state,
    )  # fmt: skip


def _entry(row: Row) -> Entry | None:
    try:
        message = _messages.decode(row[4] or b"")
    except msgspec.DecodeError as error:
        event(_logger, "inbox.row_unreadable", logging.ERROR, buffer_id=row[0], cause=str(error))
        return None
    return Entry(row[0], row[1], row[2], row[3], message, row[5])


def _work(
    rows: dict[int, Row],
    cursors: dict[tuple[str, str], str],
    accounts: dict[str, Account],
    policies: dict[tuple[str, str], str],
) -> list[Upsert]:
    work: list[Upsert] = []
    if rows:
        work.append(Upsert(sql.INBOX, sql.INBOX_COLUMNS, sql.INBOX_TAIL, list(rows.values())))
    if cursors:
        marks = [(bot, channel, at) for (bot, channel), at in cursors.items()]
        tail = "ON CONFLICT (bot_id, channel) DO UPDATE SET at=excluded.at"
        work.append(Upsert(sql.CURSORS, ("bot_id", "channel", "at"), tail, marks))
    if accounts:
        kept = [(bot, a.alive, int(a.finals), int(a.types)) for bot, a in accounts.items()]
        tail = (
            "ON CONFLICT (bot_id) DO UPDATE SET alive=excluded.alive,"
            " finals=excluded.finals, types=excluded.types"
        )
        work.append(Upsert(sql.ACCOUNTS, ("bot_id", "alive", "finals", "types"), tail, kept))
    if policies:
        declared = [(gateway, platform, body) for (gateway, platform), body in policies.items()]
        tail = "ON CONFLICT (gateway_id, platform) DO UPDATE SET body=excluded.body"
        work.append(Upsert(sql.POLICIES, ("gateway_id", "platform", "body"), tail, declared))
    return work
