"""PostgreSQL through asyncpg: a small pool, batches as one statement, trouble that never lasts.

Instants (`timestamptz`) go in and come out as unix milliseconds, as in SQLite, so that no caller
knows the dialect. A batch is one `INSERT ... SELECT FROM unnest(...)`: its text does not depend on
the number of rows, so it is planned once.

A server that is gone, hangs, is full or read-only is a `DatabaseDown`, within a bounded time; while
it is known to be down, calls fail at once, and now and then one tries again. Reads and writes are
known apart: a full disk or a lock that stops writers does not stop readers, and only a server that
cannot be reached stops both. What the server calls bad data is a `RowRefused`: another try would
not help.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import asyncpg

from hermes_bridge import backoff
from hermes_bridge.db import migrate
from hermes_bridge.db.base import Row, Schema, Statement, Upsert
from hermes_bridge.errors import DatabaseDown, RowRefused

_T = TypeVar("_T")
_EPOCH_MS = 946_684_800_000
"""2000-01-01, where PostgreSQL begins to count microseconds."""
_CHUNK_ROWS = 500
_CHUNK_BYTES = 4_194_304
_MIGRATION_LOCK = 4_772_650_221
_REFUSES_ROW = ("22", "23")
"""SQLSTATE classes that speak of the data and not of the server."""
_LOST_SCHEMA = ("42P01", "42703", "3F000")
_NO_SERVER = ("08", "57P")
"""What SQLSTATEs begin with that speak of the server as a whole: no connection, shut down, starting."""


class PostgresDatabase:
    """A PostgreSQL database, named by its connection string."""

    dialect = "postgres"

    def __init__(
        self,
        dsn: str,
        *,
        connections: int = 6,
        connect_s: float = 5.0,
        read_s: float = 2.0,
        write_s: float = 10.0,
        scan_s: float = 30.0,
    ) -> None:
        """The `_s` values are the longest a call may take, in seconds."""
        self._dsn = dsn.replace("+asyncpg://", "://", 1)
        self.where = _where(dsn)
        self._connections, self._connect_s = connections, connect_s
        self._read_s, self._write_s, self._scan_s = read_s, write_s, scan_s
        self._schemas: tuple[Schema, ...] = ()
        self._current = False
        self._columns: dict[str, dict[str, str]] = {}
        self._pool: asyncpg.Pool | None = None
        self._migrating = asyncio.Lock()
        self._server, self._reads, self._writes = _Breaker(), _Breaker(), _Breaker()
        self._closed = False

    async def open(self, *schemas: Schema) -> None:
        """Connect and bring the schemas up to date."""
        self._schemas = schemas or self._schemas
        self._current = False
        await self._call(self._nothing, self._write_s, self._writes)

    async def write(self, *work: Statement | Upsert) -> None:
        """Do all of `work` in one transaction."""

        async def do(connection: Any) -> None:
            steps = [step for item in work for step in await self._steps(connection, item)]
            if len(steps) == 1:  # a statement is a transaction by itself: one round trip, not three
                await connection.execute(steps[0].sql, *steps[0].args)
                return
            async with connection.transaction():
                for step in steps:
                    await connection.execute(step.sql, *step.args)

        if work:
            self._writes.pass_or_raise()
            await self._call(do, self._write_s, self._writes)

    async def read(self, sql: str, *args: Any) -> list[Row]:
        """Give the rows of a query that is quick."""
        self._reads.pass_or_raise()
        return await self._call(lambda c: _rows(c, sql, args), self._read_s, self._reads)

    async def scan(self, sql: str, *args: Any) -> list[Row]:
        """Give the rows of a query that may take long. It does not try what quick ones just failed at."""
        self._reads.pass_or_raise()
        return await self._call(lambda c: _rows(c, sql, args), self._scan_s, None)

    async def close(self) -> None:
        """Close all connections; running statements are abandoned."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    async def _call(
        self, work: Callable[[Any], Awaitable[_T]], seconds: float, breaker: "_Breaker | None"
    ) -> _T:
        """Run `work` on a connection within `seconds`; what fails trips `breaker`, or the server's."""
        if self._closed:
            raise DatabaseDown("the database is closed")
        self._server.pass_or_raise()
        at_fault: _Breaker | None = self._server
        try:
            async with asyncio.timeout(seconds), self._connection() as connection:
                at_fault = breaker
                await self._bring_up_to_date(connection)
                done = await work(connection)
        except TimeoutError:
            # Also when none is lent: those that have one may just be slow.
            raise self._down(f"no answer within {seconds:g} s", breaker) from None
        except asyncpg.PostgresError as error:
            raise self._fault(error, at_fault) from None
        except ValueError as error:  # nothing of it is shown: the address holds a password
            cause = f"the connection string cannot be used ({type(error).__name__})"
            raise self._down(cause, self._server) from None
        except Exception as error:  # noqa: BLE001 - see below
            # The driver names losses in many ways: also a backend's last words, met before its end,
            # or a table that another process changed. Rows wait, whatever it is.
            raise self._down(f"{type(error).__name__}: {error}"[:300], self._server) from None
        self._server.well()
        if breaker is not None:
            breaker.well()
        return done

    def _down(self, cause: str, breaker: "_Breaker | None") -> DatabaseDown:
        if breaker is not None:
            breaker.trip(cause)
        return DatabaseDown(cause)

    def _fault(self, error: asyncpg.PostgresError, breaker: "_Breaker | None") -> Exception:
        state = error.sqlstate or ""
        if state[:2] in _REFUSES_ROW:
            return RowRefused(f"PostgreSQL refuses the data ({state})")
        if state in _LOST_SCHEMA:
            self._current = False
        if state.startswith(_NO_SERVER):
            breaker = self._server
        return self._down(f"{type(error).__name__}: {error}"[:300], breaker)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """Lend a connection. After any trouble it is thrown away: its state is not known."""
        if self._pool is None:
            self._pool = self._new_pool()
            await self._pool
        pool = self._pool
        connection = await pool.acquire()
        try:
            yield connection
        except BaseException as error:
            if not _harmless(error):
                connection.terminate()
            raise
        finally:
            await pool.release(connection)

    def _new_pool(self) -> asyncpg.Pool:
        return asyncpg.create_pool(
            self._dsn,
            min_size=0,
            max_size=self._connections,
            timeout=self._connect_s,
            init=_speak_milliseconds,
            connection_class=_Connection,
            server_settings={
                "application_name": "hermes-bridge",
                "statement_timeout": str(int(self._scan_s * 1000)),
                "idle_in_transaction_session_timeout": "60000",
            },
        )

    async def _nothing(self, connection: Any) -> None:
        """Only connect and migrate."""

    async def _bring_up_to_date(self, connection: Any) -> None:
        if self._current or not self._schemas:
            return
        async with self._migrating:
            if not await self._is_current(connection):
                await self._migrate(connection)
        self._columns.clear()
        self._current = True

    async def _is_current(self, connection: Any) -> bool:
        if not await connection.fetchval("SELECT to_regclass($1) IS NOT NULL", migrate.TABLE):
            return False
        return migrate.is_current(self._schemas, await connection.fetch(migrate.APPLIED))

    async def _migrate(self, connection: Any) -> None:
        async with connection.transaction():
            # Several processes may start at once; one of them migrates.
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
            for schema in self._schemas:
                await migrate.apply_async(schema, connection.execute, connection.fetch)

    async def _steps(self, connection: Any, item: Statement | Upsert) -> list[Statement]:
        """Give the statements of one piece of work: a batch may be cut into several."""
        if isinstance(item, Statement):
            return [item]
        types = self._columns.get(item.table)
        if types is None:
            types = self._columns[item.table] = dict(await connection.fetch(_TYPES, item.table))
        arrays = ", ".join(f"${n}::{types[c]}[]" for n, c in enumerate(item.columns, start=1))
        sql = (
            f"INSERT INTO {item.table}({', '.join(item.columns)}) "  # noqa: S608
            f"SELECT * FROM unnest({arrays}) {item.tail}"
        )
        return [
            Statement(sql, tuple(map(list, zip(*rows, strict=True)))) for rows in _chunks(item.rows)
        ]


class _Connection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that is lent again as it is: nothing here changes a session."""

    def get_reset_query(self) -> str:
        """Spare a round trip at every return."""
        return ""


class _Breaker:
    """Remembers that something is down, so that callers need not find out one by one."""

    def __init__(self) -> None:
        self._cause: str | None = None
        self._until = 0.0
        self._waits: Iterator[float] | None = None

    def pass_or_raise(self) -> None:
        """Raise `DatabaseDown` while nobody should try; once the wait is over, let callers try."""
        if self._cause is not None and asyncio.get_running_loop().time() < self._until:
            raise DatabaseDown(self._cause)

    def trip(self, cause: str) -> None:
        """Something failed."""
        if self._waits is None:
            self._waits = backoff.delays(first=0.1, cap=3.0)
        self._cause = cause
        self._until = asyncio.get_running_loop().time() + next(self._waits)

    def well(self) -> None:
        """Something worked."""
        self._cause = self._waits = None


_TYPES = (
    "SELECT attname::text, format_type(atttypid, -1) FROM pg_attribute "
    "WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped"
)


async def _speak_milliseconds(connection: Any) -> None:
    await connection.set_type_codec(
        "timestamptz",
        schema="pg_catalog",
        format="tuple",
        encoder=lambda instant: ((instant - _EPOCH_MS) * 1000,),
        decoder=lambda value: value[0] // 1000 + _EPOCH_MS,
    )


async def _rows(connection: Any, sql: str, args: Row) -> list[Row]:
    return [tuple(row) for row in await connection.fetch(sql, *args)]


def _where(dsn: str) -> str:
    """Give `host:port/name` for people, without user and password; nothing if it cannot be told."""
    try:
        parts = urlsplit(dsn)
        host, port = parts.hostname, parts.port
    except ValueError:
        return ""
    if not host:
        return ""
    return f"{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


def _harmless(error: BaseException) -> bool:
    """Whether the connection is as good as before: the server answered, and named the fault."""
    return isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "")[:2] in _REFUSES_ROW


def _chunks(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Cut a batch so that no statement carries too many rows or bytes."""
    begin = size = 0
    for end, row in enumerate(rows):
        weight = sum(len(value) for value in row if isinstance(value, str))
        if end > begin and (end - begin >= _CHUNK_ROWS or size + weight > _CHUNK_BYTES):
            yield rows[begin:end]
            begin, size = end, 0
        size += weight
    if begin < len(rows):
        yield rows[begin:]
