"""The tables as records: exchanges and agents, in and out. The only reader and writer of SQL text.

Reads may raise `DatabaseDown`. Nothing here decides anything.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from hermes_bridge.db import migrate
from hermes_bridge.db.base import Database, Row, Statement, Upsert
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.relay.core.conversation import HOUR
from hermes_bridge.relay.core.exchange import ENDS, REFUSALS, Exchange
from hermes_bridge.relay.sql import reads, words
from hermes_bridge.relay.sql.reads import Cursor, Query, Wanted
from hermes_bridge.relay.sql.rows import COLUMNS, exchange
from hermes_bridge.relay.sql.schema import AGENTS, EXCHANGES, SCHEMA

_ONCE = frozenset(
    {"request_id", "conversation_id", "from_agent", "to_agent", "message", "started_at", "data"}
)
_FORWARD = (
    "ON CONFLICT (request_id) DO UPDATE SET "
    + ", ".join(f"{c}=excluded.{c}" for c in COLUMNS if c not in _ONCE)
    + f" WHERE excluded.stage >= {EXCHANGES}.stage"
)
_SELECT = f"SELECT {', '.join(COLUMNS)} FROM {EXCHANGES}"  # noqa: S608
_AGENT_TAIL = (
    "ON CONFLICT (name) DO UPDATE SET last_seen=excluded.last_seen, linked=excluded.linked"
)
_AT_ONCE = 500
_NEWEST = 2_000
_MOST_MATCHES = 2_000
_MOST_HITS, _MOST_UNREAD = 500, 200
_SCHEMAS = (SCHEMA, words.SEARCH)
_HAS_FTS5 = "SELECT 1 FROM pragma_compile_options WHERE compile_options='ENABLE_FTS5'"


class AgentRow(NamedTuple):
    """What is remembered of an agent across restarts."""

    name: str
    last_seen: int
    linked: bool


class Ledger:
    """History and open exchanges in a database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.searchable = False

    async def open(self) -> None:
        """Connect and bring the tables up to date. Not every SQLite can have the index of words."""
        await self.database.open(SCHEMA)
        if await self._can_search():
            await self.database.open(SCHEMA, words.SEARCH)
            self.searchable = True

    async def _can_search(self) -> bool:
        return self.database.dialect != "sqlite" or bool(await self.database.read(_HAS_FTS5))

    async def steps_missing(self) -> int:
        """Give how many steps the tables are behind. Changes nothing; `open` would."""
        await self.database.open()
        try:
            applied = await self.database.scan(migrate.APPLIED)
        except DatabaseDown:  # it was opened: so there is no such table yet
            applied = []
        done = {schema: [v for part, v in applied if part == schema.part] for schema in _SCHEMAS}
        self.searchable = bool(done[words.SEARCH]) and await self._can_search()
        wanted = _SCHEMAS if await self._can_search() else _SCHEMAS[:1]
        return sum(len(migrate.pending(schema, done[schema])) for schema in wanted)

    async def write(self, exchanges: Sequence[Row], agents: Sequence[Row]) -> None:
        """Store rows made by `exchange_row` and `agent_row`; a row never moves backwards."""
        work = []
        if exchanges:
            work.append(Upsert(EXCHANGES, COLUMNS, _FORWARD, exchanges))
        if agents:
            work.append(Upsert(AGENTS, ("name", "last_seen", "linked"), _AGENT_TAIL, agents))
        await self.database.write(*work)

    async def open_exchanges(self) -> list[Exchange]:
        """Give every exchange that has no end, a crashed seed relay's `pending` rows included."""
        rows = await self.database.scan(f"{_SELECT} WHERE ended_at IS NULL ORDER BY epoch, counter")
        return [exchange(row) for row in rows]

    async def agents(self) -> list[AgentRow]:
        """Give what is remembered of the agents."""
        rows = await self.database.read(f"SELECT name, last_seen, linked FROM {AGENTS}")  # noqa: S608
        return [AgentRow(name, seen, bool(linked)) for name, seen, linked in rows]

    async def find(self, rid: str) -> Exchange | None:
        """Give one exchange."""
        rows = await self.database.read(f"{_SELECT} WHERE request_id=$1", rid)
        return exchange(rows[0]) if rows else None

    async def recent(self, limit: int) -> list[Exchange]:
        """Give the newest exchanges, oldest first."""
        rows = await self.database.read(f"{_SELECT} ORDER BY started_at DESC LIMIT $1", limit)
        return [exchange(row) for row in reversed(rows)]

    async def conversation(
        self, conversation: str, limit: int = 500, before: Cursor | None = None
    ) -> list[Exchange]:
        """Give the last exchanges of one conversation before a place, oldest first, refusals included."""
        query = Query(self.database.dialect)
        query.of_conversation(conversation)
        query.before(before)
        order = f"ORDER BY started_at DESC, request_id DESC LIMIT {int(limit)}"
        rows = await self.database.read(f"{_SELECT}{query.where} {order}", *query.args)
        return [exchange(row) for row in reversed(rows)]

    async def turn(self, x: Exchange) -> int:
        """Give which exchange of its conversation this is, refusals not counted; 1 is the first."""
        refusals = ", ".join(f"'{status.value}'" for status in sorted(REFUSALS - ENDS))
        sql = (
            f"SELECT count(*) FROM {EXCHANGES} WHERE conversation_id=$1 "  # noqa: S608
            f"AND started_at <= $2 AND request_id <> $3 AND status NOT IN ({refusals})"
        )
        rows = await self.database.read(sql, x.conv, x.at, x.rid)
        return int(rows[0][0]) + 1

    async def participants(
        self, conversation: str, now: int
    ) -> tuple[str, str, tuple[int, ...]] | None:
        """Give who takes part in a conversation, and when its exchanges of the last hour began."""
        refusals = ", ".join(f"'{status.value}'" for status in sorted(REFUSALS - ENDS))
        sql = (
            f"SELECT from_agent, to_agent, started_at FROM {EXCHANGES} "  # noqa: S608
            f"WHERE conversation_id=$1 AND status NOT IN ({refusals}) ORDER BY started_at"
        )
        rows = await self.database.read(sql, conversation)
        if not rows:
            return None
        starts = tuple(row[2] for row in rows if now - row[2] < HOUR)
        return rows[0][0], rows[0][1], starts

    async def search(self, text: str, limit: int = 50) -> list[Exchange]:
        """Give the newest exchanges whose texts or names hold `text`, newest first.

        The newest ones of all, and what waits for the index, are looked through for the text as it
        is, older ones for words that begin with its words; a text with signs in it must also be
        there as it is.
        """
        newest = f"SELECT request_id FROM {EXCHANGES} ORDER BY started_at DESC LIMIT {_NEWEST}"  # noqa: S608
        found = {x.rid: x for x in await self._look_through(newest, text, limit)}
        wanted = words.words_of(text)
        if self.searchable and wanted and len(found) < limit:
            rare = await self._rare(wanted)
            sql, match = words.matching(self.database.dialect, rare or wanted, newest=not rare)
            rids = [row[0] for row in await self.database.scan(sql, match, _MOST_MATCHES)]
            for begin in range(0, len(rids), _AT_ONCE):
                if len(found) >= limit:
                    break
                for x in await self._these(rids[begin : begin + _AT_ONCE]):
                    if x.rid not in found and _holds(x, text, wanted):
                        found[x.rid] = x
        if self.searchable and len(found) < limit:
            unread = f"SELECT request_id FROM {words.UNREAD}"  # noqa: S608
            found |= {x.rid: x for x in await self._look_through(unread, text, limit)}
        return sorted(found.values(), key=lambda x: (x.at, x.rid), reverse=True)[:limit]

    async def _look_through(self, ids: str, text: str, limit: int) -> list[Exchange]:
        """Give the newest that hold a text among some; among all, where there is no index."""
        query = Query(self.database.dialect)
        query.wanted(Wanted(words=(text,)))
        within = f" AND request_id IN ({ids})" if self.searchable else ""
        order = f"ORDER BY started_at DESC LIMIT {int(limit)}"
        rows = await self.database.scan(f"{_SELECT}{query.where}{within} {order}", *query.args)
        return [exchange(row) for row in rows]

    async def _these(self, rids: Sequence[str]) -> list[Exchange]:
        names = ", ".join(f"${n}" for n in range(1, len(rids) + 1))
        rows = await self.database.scan(f"{_SELECT} WHERE request_id IN ({names})", *rids)
        return [exchange(row) for row in rows]

    async def read_words(self, limit: int) -> int:
        """Take up to `limit` ended exchanges into the index of words; give how many."""
        rows = await self.database.scan(words.NEXT_UNREAD, limit)
        dialect = self.database.dialect

        def work() -> list[Statement]:
            return words.read(dialect, rows)

        if rows:
            await self.database.write(*await asyncio.to_thread(work))
        return len(rows)

    async def floor(self, cursor: Cursor | None, until: int | None, rows: int) -> Cursor | None:
        """Give the place that lies `rows` rows back from the cursor, or None if history ends before."""
        query = Query(self.database.dialect)
        query.before(cursor)
        query.between(None, until)
        sql = (
            f"SELECT started_at, request_id FROM {EXCHANGES}{query.where} "  # noqa: S608
            f"ORDER BY started_at DESC, request_id DESC LIMIT 1 OFFSET {int(rows)}"
        )
        found = await self.database.scan(sql, *query.args)
        return Cursor(*found[0]) if found else None

    async def page(
        self,
        wanted: Wanted,
        cursor: Cursor | None,
        floor: Cursor | None,
        limit: int,
        among: Sequence[str] | None = None,
    ) -> list[Exchange]:
        """Give the newest wanted exchanges before the cursor, no older than the floor, newest first.

        `among`: only these ids, which are known to hold the words.
        """
        query = Query(self.database.dialect)
        query.before(cursor)
        query.not_before(floor)
        query.between(wanted.since, wanted.until)
        if among is not None:
            query.among(among)
            wanted = wanted._replace(words=())
        query.wanted(wanted)
        order = f"ORDER BY started_at DESC, request_id DESC LIMIT {int(limit)}"
        rows = await self.database.scan(f"{_SELECT}{query.where} {order}", *query.args)
        return [exchange(row) for row in rows]

    async def holding(self, texts: Sequence[str]) -> list[str] | None:
        """Give the ids of all exchanges that may hold these words; None if that cannot be told.

        It can when one of the words is rare and (nearly) everything that has ended has been read
        into the index; what waits for it, and what is open, is always among them. Common words are
        not looked up: that takes the longer the more exchanges hold them.
        """
        wanted = words.words_of(*texts)
        if not self.searchable or not wanted or not (wanted := await self._rare(wanted)):
            return None
        sql = f"SELECT request_id FROM {words.UNREAD} LIMIT {_MOST_UNREAD + 1}"  # noqa: S608
        unread = await self.database.scan(sql)
        if len(unread) > _MOST_UNREAD:
            return None
        sql, match = words.matching(self.database.dialect, wanted, newest=False)
        known = await self.database.scan(sql, match, _MOST_HITS + 1)
        if len(known) > _MOST_HITS:
            return None
        sql = f"SELECT request_id FROM {EXCHANGES} WHERE ended_at IS NULL LIMIT {_MOST_UNREAD}"  # noqa: S608
        still_open = await self.database.scan(sql)
        return list({row[0] for rows in (known, unread, still_open) for row in rows})

    async def _rare(self, wanted: Sequence[str]) -> list[str]:
        """Give those of some words that few exchanges hold, as far as a sample tells."""
        wanted = wanted[: words.MOST_QUERY_WORDS]
        dialect = self.database.dialect
        first, last = (await self.database.scan(words.extent(dialect)))[0]
        sample = words.sample(dialect, first or 0, last or 0, wanted)
        if sample is None:
            return list(wanted)
        sql, args = sample
        return words.rare(wanted, (await self.database.scan(sql, *args))[0])

    async def tally(self, since: int, until: int, step: int) -> list[Row]:
        """Count the exchanges that began within a time (see `sql.reads.tally` for the rows)."""
        return await self.database.scan(reads.tally(self.database.dialect, step), since, until)

    async def overview(self) -> dict[str, object]:
        """Say what the store holds: counts, the first and the last instant, what waits for the index."""
        sql = (
            f"SELECT count(*), count(*) - count(ended_at), min(started_at), max(started_at) "  # noqa: S608
            f"FROM {EXCHANGES}"
        )
        whole, unended, oldest, newest = (await self.database.scan(sql))[0]
        unread = [(None,)]
        if self.searchable:
            unread = await self.database.scan(f"SELECT count(*) FROM {words.UNREAD}")  # noqa: S608
        return {
            "exchanges": whole,
            "open": unended,
            "oldest": oldest,
            "newest": newest,
            "agents": len(await self.agents()),
            "not_yet_indexed": unread[0][0],
        }

    async def count(self) -> int:
        """Give how many exchanges there are."""
        rows = await self.database.scan(f"SELECT count(*) FROM {EXCHANGES}")  # noqa: S608
        return int(rows[0][0])

    async def since(
        self,
        instant: int,
        after: str,
        limit: int,
        wanted: Wanted | None = None,
        conversation: str | None = None,
    ) -> list[Exchange]:
        """Give a page of history for an export: started at or after `instant`, id above `after`."""
        query = Query(self.database.dialect)
        query.after(instant, after)
        if wanted is not None:
            query.between(None, wanted.until)
            query.wanted(wanted)
        if conversation is not None:
            query.of_conversation(conversation)
        order = f"ORDER BY started_at, request_id LIMIT {int(limit)}"
        rows = await self.database.scan(f"{_SELECT}{query.where} {order}", *query.args)
        return [exchange(row) for row in rows]

    async def rows_since(self, instant: int, after: str, limit: int) -> list[Row]:
        """Give a page of all history as rows, as `write` takes them: for a copy that changes nothing."""
        sql = (
            f"{_SELECT} WHERE (started_at, request_id) > ($1, $2) "
            "ORDER BY started_at, request_id LIMIT $3"
        )
        return await self.database.scan(sql, instant, after, limit)

    async def forget(self, before: int, limit: int) -> int:
        """Delete up to `limit` ended exchanges that began before `before`; give how many."""
        sql = (
            f"SELECT request_id FROM {EXCHANGES} "  # noqa: S608
            "WHERE started_at < $1 AND ended_at IS NOT NULL ORDER BY started_at LIMIT $2"
        )
        rids = [row[0] for row in await self.database.scan(sql, before, limit)]
        await self._delete(rids)
        return len(rids)

    async def keep_newest(self, count: int) -> int:
        """Delete ended exchanges beyond the newest `count`, a thousand at most; give how many."""
        sql = (
            f"SELECT request_id FROM {EXCHANGES} WHERE ended_at IS NOT NULL "  # noqa: S608
            "ORDER BY started_at DESC LIMIT 1000 OFFSET $1"
        )
        rids = [row[0] for row in await self.database.scan(sql, count)]
        await self._delete(rids)
        return len(rids)

    async def _delete(self, rids: Sequence[str]) -> None:
        for begin in range(0, len(rids), _AT_ONCE):
            some = tuple(rids[begin : begin + _AT_ONCE])
            names = ", ".join(f"${n}" for n in range(1, len(some) + 1))
            sql = f"DELETE FROM {EXCHANGES} WHERE request_id IN ({names})"  # noqa: S608
            index = words.forget(self.database.dialect, some) if self.searchable else []
            await self.database.write(Statement(sql, some), *index)


def _holds(x: Exchange, text: str, wanted: Sequence[str]) -> bool:
    """Whether every word begins one, and a text with signs in it is there as it is."""
    texts = reads.texts_of(x)
    there = words.words_of(*texts)
    if not all(any(said.startswith(word) for said in there) for word in wanted):
        return False
    if " ".join(wanted) == words.folded(" ".join(text.split())):
        return True
    sought = words.folded(text)
    return any(sought in words.folded(text) for text in texts)
