"""The outbox's file: opening it safely, transactions, and what to do when it is damaged.

Knows the tables only as text. Everything above it passes `now` in unix milliseconds.
"""

import logging
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .schema import OPEN_STATES, TABLES, VERSION

logger = logging.getLogger(__name__)

BUSY_MS = 5_000
SMALLEST_ROW = 128
_DAMAGED = ("malformed", "not a database", "disk image", "corrupt", "file is encrypted")


class OutboxUnavailable(Exception):
    """The outbox cannot store or read now (disk full, locked...). Nothing was promised."""


def is_damage(error: BaseException) -> bool:
    """Tell a damaged file from a passing trouble."""
    return isinstance(error, sqlite3.DatabaseError) and any(word in str(error) for word in _DAMAGED)


class Store:
    """One SQLite connection to the outbox file (WAL, mode 0600 in a directory of mode 0700)."""

    def __init__(self, path: Path, *, checkpoints: bool = False, busy_ms: int = BUSY_MS) -> None:
        """Open `path`, creating or setting aside what has to be.

        `checkpoints`: whether this connection moves the log into the file. One process only does
        (the one that delivers), so that two never do it at once.

        Raises:
            OutboxUnavailable: it cannot be opened.
        """
        self.path = path
        self._checkpoints = checkpoints
        self._busy_ms = busy_ms
        self._durable: bool | None = None
        try:
            self.db = self._open()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise OutboxUnavailable(f"the outbox {path} cannot be opened: {error}") from error
            self.db = self._set_aside(str(error))
        except OSError as error:
            raise OutboxUnavailable(f"the outbox {path} cannot be opened: {error}") from error

    def _open(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):
            self.path.parent.chmod(0o700)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        db = sqlite3.connect(
            self.path,
            timeout=self._busy_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            db.execute("PRAGMA journal_mode=WAL").fetchone()
            db.execute("PRAGMA foreign_keys=ON")
            db.execute("PRAGMA wal_autocheckpoint=0")
            self._migrate(db)
        except BaseException:
            db.close()
            raise
        return db

    def _migrate(self, db: sqlite3.Connection) -> None:
        found = db.execute("SELECT name FROM sqlite_master WHERE name='meta'").fetchone()
        row = db.execute("SELECT value FROM meta WHERE key='schema'").fetchone() if found else None
        version = int(row[0]) if row else 0
        if version > VERSION:
            raise OutboxUnavailable(
                f"the outbox {self.path} was written by a newer version of http_callback "
                f"(format {version}, this one reads {VERSION}); install that version again"
            )
        if version < VERSION:
            db.execute("BEGIN IMMEDIATE")
            for statement in TABLES.split(";\n"):
                db.execute(statement)
            db.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", (str(VERSION),))
            db.execute("COMMIT")

    def checkpoint(self) -> None:
        """Move the log into the file; for the one process that may, when it has nothing to do."""
        if self._checkpoints:
            with suppress(sqlite3.Error):
                self.db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def close(self) -> None:
        """Close the connection."""
        with suppress(sqlite3.Error):
            self.db.close()

    @contextmanager
    def transaction(self, *, durable: bool) -> Iterator[sqlite3.Connection]:
        """Run a write transaction; `durable` waits until the disk holds it.

        Raises:
            OutboxUnavailable: it could not be begun, written or committed. Nothing of it is kept.
        """
        try:
            if durable is not self._durable:
                self.db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                self._durable = durable
            self.db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise OutboxUnavailable(f"outbox unavailable: {error}") from error
        try:
            yield self.db
            self.db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise OutboxUnavailable(f"outbox unavailable: {error}") from error
        except BaseException:
            self._rollback()
            raise

    def _rollback(self) -> None:
        with suppress(sqlite3.Error):
            if self.db.in_transaction:
                self.db.execute("ROLLBACK")

    def mark(self, key: str, value: str) -> None:
        """Remember a fact about the file itself."""
        self.db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))

    def fact(self, key: str) -> str:
        """Give a remembered fact, or ""."""
        row = self.db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        return str(row[0]) if row else ""

    def set_aside(self, reason: str) -> int:
        """Replace a damaged file by a fresh one, saving what can be read; give the rows saved."""
        self.close()
        self._durable = None
        self.db = self._set_aside(reason)
        return int(self.fact("salvaged") or 0)

    def _set_aside(self, reason: str) -> sqlite3.Connection:
        aside = self.path.with_name(f"{self.path.name}.damaged-{time.time_ns()}")
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                self.path.with_name(self.path.name + suffix).rename(f"{aside}{suffix}")
        try:
            db = self._open()
        except sqlite3.Error as error:
            raise OutboxUnavailable(
                f"the outbox {self.path} cannot be made again: {error}"
            ) from error
        saved = _salvage(aside, db)
        db.execute(
            "INSERT OR REPLACE INTO meta VALUES ('damaged', ?)", (f"{aside.name}: {reason}",)
        )
        db.execute("INSERT OR REPLACE INTO meta VALUES ('salvaged', ?)", (str(saved),))
        logger.critical(
            "http_callback: the outbox was damaged (%s). It was set aside as %s and a new one "
            "made; %d callbacks were saved from it. Answers that were waiting may be missing: "
            "see `hermes callback doctor`.",
            reason,
            aside,
            saved,
        )
        return db


def _salvage(aside: Path, into: sqlite3.Connection) -> int:
    """Copy every row that can still be read; each alone, so that one bad page costs few rows."""
    scratch = _whole_copy(aside)
    saved = 0
    try:
        old = sqlite3.connect(scratch)
        old.row_factory = sqlite3.Row
        old.execute("PRAGMA schema_version").fetchone()  # of no database at all nothing is read
        for seq in _seqs(old, scratch.stat().st_size):
            try:
                row = old.execute("SELECT * FROM deliveries WHERE seq=?", (seq,)).fetchone()
                body = old.execute("SELECT body FROM bodies WHERE delivery=?", (seq,)).fetchone()
                saved += _copy(dict(row), body[0] if body else None, into) if row else 0
            except (sqlite3.Error, UnicodeDecodeError):
                continue
        with suppress(sqlite3.Error):
            for route in _readable(old.execute("SELECT * FROM routes")):
                into.execute("INSERT OR IGNORE INTO routes VALUES (?,?,?,?,?)", tuple(route))
        old.close()
    except sqlite3.Error:
        return saved
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{scratch}{suffix}").unlink(missing_ok=True)
    return saved


def _whole_copy(aside: Path) -> Path:
    """Copy the file; a torn one is filled up to its full size, or nothing could be read."""
    scratch = Path(f"{aside}.scratch")
    for suffix in ("", "-wal"):
        with suppress(OSError):
            shutil.copyfile(f"{aside}{suffix}", f"{scratch}{suffix}")
    with suppress(OSError), scratch.open("r+b") as file:
        head = file.read(100)
        pages = int.from_bytes(head[28:32], "big") * int.from_bytes(head[16:18], "big")
        size = scratch.stat().st_size
        if head[:15] == b"SQLite format 3" and size < pages <= size * 1000:
            file.truncate(pages)
    return scratch


def _seqs(old: sqlite3.Connection, size: int) -> Iterator[int]:
    """Give every number a row may have. Looking each up leaps over pages that cannot be read.

    When the last number cannot be read, as many are tried as rows would fit into the file's `size`.
    """
    try:
        row = old.execute("SELECT seq FROM sqlite_sequence WHERE name='deliveries'").fetchone()
        last = int(row[0]) if row else 0
    except sqlite3.Error:
        last = 0
    yield from range(1, 1 + (last or size // SMALLEST_ROW))


def _copy(row: dict[str, Any], body: object, into: sqlite3.Connection) -> int:
    columns = ", ".join(row)
    marks = ", ".join("?" * len(row))
    if row["state"] in OPEN_STATES and not isinstance(body, bytes):
        return 0
    done = into.execute(
        f"INSERT OR IGNORE INTO deliveries({columns}) VALUES ({marks})",  # noqa: S608
        tuple(row.values()),
    )
    if done.rowcount and isinstance(body, bytes):
        into.execute("INSERT OR IGNORE INTO bodies VALUES (?,?)", (row["seq"], body))
    return done.rowcount


def _readable(cursor: sqlite3.Cursor) -> Iterator[Any]:
    while True:
        try:
            row = cursor.fetchone()
        except sqlite3.Error:
            return
        if row is None:
            return
        yield row
