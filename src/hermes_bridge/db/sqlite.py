"""SQLite: one thread writes, one reads, one scans; the event loop never waits for a disk.

A batch is written with multi-row statements, so that the writer thread holds the interpreter
for a few calls a batch and not for three a row: that halves what a stored ask costs. The file
may vanish, be locked, or sit on a full disk: each is a `DatabaseDown`, and the next call tries
to open it again.
"""

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from hermes_bridge.db import migrate
from hermes_bridge.db.base import Row, Schema, Statement, Upsert
from hermes_bridge.errors import DatabaseDown, RowRefused

_T = TypeVar("_T")
_ARGUMENT = re.compile(r"\$(\d+)")
_CHUNKS = (64, 16, 4, 1)
_REFUSALS = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    UnicodeError,
    OverflowError,
)
"""What speaks of the data and not of the file."""
MEMORY = ":memory:"


@lru_cache(maxsize=256)
def _qmarks(sql: str) -> str:
    return _ARGUMENT.sub(r"?\1", sql)


@lru_cache(maxsize=64)
def _insert(table: str, columns: tuple[str, ...], tail: str, count: int) -> str:
    row = "(" + ",".join("?" * len(columns)) + ")"
    rows = ",".join([row] * count)
    # SQLite reads `... VALUES ... ON CONFLICT` without help only when no SELECT precedes it.
    return f"INSERT INTO {table}({','.join(columns)}) VALUES {rows} {tail}"  # noqa: S608


class SqliteDatabase:
    """A SQLite file, or `:memory:` for a store that ends with the process."""

    dialect = "sqlite"

    def __init__(self, path: str | Path, *, busy_ms: int = 2000, durable: bool = False) -> None:
        """`durable` syncs every commit; without it a power cut may lose the last ones."""
        self.path = str(path)
        self._busy_ms, self._durable = busy_ms, durable
        self._schemas: tuple[Schema, ...] = ()
        self._writer = _Connection(self._connect_writer, "hb-db-write")
        memory = self.path == MEMORY
        self._reader = self._scanner = self._writer
        if not memory:
            self._reader = _Connection(self._connect_reader, "hb-db-read")
            self._scanner = _Connection(self._connect_reader, "hb-db-scan")

    async def open(self, *schemas: Schema) -> None:
        """Create the file if it is missing and bring the schemas up to date."""
        self._schemas = schemas or self._schemas
        await self._writer.run(self._migrate)

    async def write(self, *work: Statement | Upsert) -> None:
        """Do all of `work` in one transaction."""
        if work:
            await self._writer.run(lambda connection: _write(connection, work))

    async def read(self, sql: str, *args: Any) -> list[Row]:
        """Give the rows of a query."""
        text = _qmarks(sql)
        return await self._reader.run(lambda connection: connection.execute(text, args).fetchall())

    async def scan(self, sql: str, *args: Any) -> list[Row]:
        """Give the rows of a query that may take long."""
        text = _qmarks(sql)
        return await self._scanner.run(lambda connection: connection.execute(text, args).fetchall())

    async def close(self) -> None:
        """Close the connections; a running statement is interrupted."""
        for connection in {self._scanner, self._reader, self._writer}:
            await connection.close()

    def _connect_writer(self) -> sqlite3.Connection:
        memory = self.path == MEMORY
        if not memory:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        connection = self._plain()
        connection.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
        if not memory:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA journal_size_limit=67108864")
        try:
            self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _migrate(self, connection: sqlite3.Connection) -> None:
        if not self._schemas or self._is_current(connection):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            for schema in self._schemas:
                migrate.apply_sync(schema, connection.execute)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        named = "SELECT 1 FROM sqlite_master WHERE name=?"
        if not connection.execute(named, (migrate.TABLE,)).fetchone():
            return False
        return migrate.is_current(self._schemas, connection.execute(migrate.APPLIED))

    def _connect_reader(self) -> sqlite3.Connection:
        if not Path(self.path).exists():
            raise sqlite3.OperationalError("the database file does not exist")
        connection = self._plain()
        connection.execute("PRAGMA query_only=1")
        return connection

    def _plain(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        connection.execute(f"PRAGMA busy_timeout={self._busy_ms}")
        return connection


class _Connection:
    """One connection and the one thread that uses it; opened at need, and again after trouble."""

    def __init__(self, connect: Callable[[], sqlite3.Connection], name: str) -> None:
        self._connect = connect
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._closed = self._busy = False

    async def run(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        if self._closed:
            raise DatabaseDown("the database is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._call, work)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._connection is not None and self._busy:
            # Only then: an idle connection would skip its checkpoint and leave rows in the WAL.
            self._connection.interrupt()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._drop)
        self._thread.shutdown(wait=False)

    def _call(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        self._busy = True
        try:
            connection = self._live()
            return work(connection)
        except _REFUSALS as error:
            raise RowRefused(f"SQLite refuses the data: {type(error).__name__}") from None
        except (sqlite3.Error, OSError) as error:
            self._drop()
            raise DatabaseDown(f"{type(error).__name__}: {error}") from None
        finally:
            self._busy = False

    def _live(self) -> sqlite3.Connection:
        """Give the open connection, or a new one when the file under it was removed or replaced."""
        if self._connection is not None and self._inode is not None:
            path = self._connection.execute("PRAGMA database_list").fetchone()[2]
            if _inode(path) != self._inode:
                self._drop()
        if self._connection is None:
            self._connection = self._connect()
            path = self._connection.execute("PRAGMA database_list").fetchone()[2]
            self._inode = _inode(path) if path else None
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _write(connection: sqlite3.Connection, work: Sequence[Statement | Upsert]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        for item in work:
            if isinstance(item, Statement):
                connection.execute(_qmarks(item.sql), item.args)
            else:
                _upsert(connection, item)
        connection.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _upsert(connection: sqlite3.Connection, batch: Upsert) -> None:
    done, total = 0, len(batch.rows)
    for size in _CHUNKS:
        while total - done >= size:
            sql = _insert(batch.table, batch.columns, batch.tail, size)
            values = [value for row in batch.rows[done : done + size] for value in row]
            connection.execute(sql, values)
            done += size
