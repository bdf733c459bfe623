"""SQLite when its file is locked, removed, damaged, or the disk is full."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes_bridge.db.base import Migration, Schema, Upsert
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.errors import DatabaseDown

pytestmark = pytest.mark.anyio

SCHEMA = Schema(
    "t", (Migration(1, sqlite=("CREATE TABLE things (name text PRIMARY KEY)",), postgres=()),)
)


def thing(name: str) -> Upsert:
    return Upsert("things", ("name",), "ON CONFLICT DO NOTHING", [(name,)])


async def names(store: SqliteDatabase) -> set[str]:
    return {row[0] for row in await store.read("SELECT name FROM things")}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    store = SqliteDatabase(tmp_path / "deep" / "store.db", busy_ms=200)
    await store.open(SCHEMA)
    await store.write(thing("first"))
    yield store
    await store.close()


async def test_a_locked_file_is_down_for_writers_only_and_not_for_long(
    store: SqliteDatabase,
) -> None:
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    began = time.monotonic()
    with pytest.raises(DatabaseDown, match="locked"):
        await store.write(thing("second"))
    assert time.monotonic() - began < 20  # and not for ever
    assert await names(store) == {"first"}
    other.execute("COMMIT")
    await store.write(thing("second"))
    assert await names(store) == {"first", "second"}
    other.close()


async def test_a_locked_file_with_all_tables_can_be_opened_and_read(store: SqliteDatabase) -> None:
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    second = SqliteDatabase(store.path, busy_ms=50)
    await second.open(SCHEMA)
    assert await names(second) == {"first"}
    await second.close()
    other.execute("COMMIT")
    other.close()


async def test_a_removed_file_is_made_again(store: SqliteDatabase) -> None:
    shutil.rmtree(Path(store.path).parent)
    await store.write(thing("second"))
    assert await names(store) == {"second"}
    assert sqlite3.connect(store.path).execute("SELECT name FROM things").fetchall() == [
        ("second",)
    ]


async def test_a_file_put_in_place_of_the_old_one_is_the_store(
    store: SqliteDatabase, tmp_path: Path
) -> None:
    other = SqliteDatabase(tmp_path / "other.db")
    await other.open(SCHEMA)
    await other.write(thing("restored"))
    await other.close()
    for leftover in Path(store.path).parent.glob("store.db-*"):
        leftover.unlink()
    (tmp_path / "other.db").replace(store.path)
    await store.write(thing("second"))
    assert await names(store) == {"restored", "second"}


async def test_a_damaged_file_is_down_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"this is no database, but somebody may need it" * 100)
    before = path.read_bytes()
    store = SqliteDatabase(path)
    with pytest.raises(DatabaseDown, match="not a database"):
        await store.open(SCHEMA)
    with pytest.raises(DatabaseDown):
        await store.read("SELECT 1 FROM things")
    await store.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("path", ["/proc/no/store.db", "/dev/null/store.db"])
async def test_a_place_that_cannot_hold_a_file_is_down(path: str) -> None:
    store = SqliteDatabase(path)
    with pytest.raises(DatabaseDown):
        await store.open(SCHEMA)
    await store.close()


async def test_a_slow_scan_does_not_hold_up_a_read_or_a_write(store: SqliteDatabase) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT count(*) FROM n"
    scan = asyncio.get_running_loop().create_task(store.scan(endless))
    await asyncio.sleep(0.01)
    await store.read("SELECT 1")
    await store.write(thing("second"))
    assert not scan.done()
    await store.close()
    with pytest.raises(DatabaseDown, match="interrupted"):
        await scan


_FULL = """
import asyncio, resource, signal, sys
from hermes_bridge.db.base import Migration, Schema, Upsert
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.errors import DatabaseDown

SCHEMA = Schema("t", (Migration(1, sqlite=("CREATE TABLE things (name text)",), postgres=()),))

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = SqliteDatabase(sys.argv[1])
    await store.open(SCHEMA)
    big = Upsert("things", ("name",), "", [("x" * 100_000,)])
    await store.write(big)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
    failed = 0
    for _ in range(10):
        try:
            await store.write(big)
        except DatabaseDown:
            failed += 1
    assert failed >= 5, failed
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await store.write(big)
    rows = (await store.read("SELECT count(*) FROM things"))[0][0]
    assert rows == 12 - failed, (rows, failed)
    await store.close()

asyncio.run(main())
"""


def test_a_full_disk_is_down_until_there_is_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FULL, str(tmp_path / "store.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
