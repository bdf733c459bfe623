"""What every store promises (db/base.py)."""

import asyncio
from collections.abc import Callable

import pytest

from hermes_bridge.db.base import Database, Migration, Schema, Statement, Upsert
from hermes_bridge.errors import DatabaseDown, RowRefused

pytestmark = pytest.mark.anyio

ONE = Migration(
    1,
    sqlite=("CREATE TABLE things (name text PRIMARY KEY, at bigint, size integer NOT NULL)",),
    postgres=(
        "CREATE TABLE things (name text PRIMARY KEY, at timestamptz, size integer NOT NULL)",
    ),
)
TWO = Migration(
    2,
    sqlite=("ALTER TABLE things ADD COLUMN note text",),
    postgres=("ALTER TABLE things ADD COLUMN note text",),
)
OLD, NEW = Schema("t", (ONE,)), Schema("t", (ONE, TWO))
KEEP = "ON CONFLICT (name) DO NOTHING"
COLUMNS = ("name", "at", "size")
NOW = 1_796_065_547_875

Make = Callable[[], Database]


def things(*rows: tuple[object, ...], tail: str = KEEP) -> Upsert:
    return Upsert("things", COLUMNS, tail, rows)


async def test_rows_come_back_as_they_went_in_instants_included(new_database: Make) -> None:
    store = new_database()
    await store.open(OLD)
    await store.write(things(("a", NOW, 1), ("b", None, 2)))
    assert await store.read("SELECT name, at, size FROM things ORDER BY name") == [
        ("a", NOW, 1),
        ("b", None, 2),
    ]
    assert await store.scan("SELECT name FROM things WHERE at >= $1", NOW) == [("a",)]
    await store.close()


async def test_a_batch_of_any_size_is_written_whole(new_database: Make) -> None:
    store = new_database()
    await store.open(OLD)
    for count in (1, 63, 64, 65, 1_237):
        await store.write(Statement("DELETE FROM things"))
        await store.write(things(*((f"n{n}", NOW + n, n) for n in range(count))))
        assert await store.read("SELECT count(*), sum(size) FROM things") == [
            (count, count * (count - 1) // 2)
        ]
    await store.close()


async def test_long_texts_are_cut_into_several_statements(new_database: Make) -> None:
    store = new_database()
    await store.open(NEW)
    rows = [(f"n{n}", NOW, n, "x" * 1_000_000) for n in range(12)]
    await store.write(Upsert("things", (*COLUMNS, "note"), KEEP, rows))
    assert await store.read("SELECT count(*), min(length(note)) FROM things") == [(12, 1_000_000)]
    await store.close()


async def test_a_write_is_done_whole_or_not_at_all(new_database: Make) -> None:
    store = new_database()
    await store.open(OLD)
    with pytest.raises(RowRefused):
        await store.write(things(("a", NOW, 1)), things(("b", NOW, None)))
    assert await store.read("SELECT count(*) FROM things") == [(0,)]
    await store.write(things(("c", NOW, 1)))
    assert await store.read("SELECT name FROM things") == [("c",)]
    await store.close()


async def test_text_that_no_store_can_take_is_refused_as_data(new_database: Make) -> None:
    store = new_database()
    await store.open(OLD)
    with pytest.raises(RowRefused):
        await store.write(things(("\ud800", NOW, 1)))
    await store.close()


async def test_a_missing_table_is_a_store_that_is_down(new_database: Make) -> None:
    store = new_database()
    await store.open(OLD)
    with pytest.raises(DatabaseDown):
        await store.read("SELECT * FROM nowhere")
    await store.close()


async def test_a_schema_is_applied_once_and_brought_up_to_date_later(new_database: Make) -> None:
    store = new_database()
    await store.open(OLD)
    await store.write(things(("a", NOW, 1)))
    await store.open(OLD)
    await store.open(NEW)
    assert await store.read("SELECT name, note FROM things") == [("a", None)]
    await store.close()


async def test_several_processes_may_migrate_at_once(new_database: Make) -> None:
    stores = [new_database() for _ in range(4)]
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for store in stores:
            group.create_task(store.open(NEW))
    for store in stores:
        assert await store.read("SELECT count(*) FROM things") == [(0,)]
        await store.close()


async def test_readers_and_writers_work_at_the_same_time(new_database: Make) -> None:
    store = new_database()
    await store.open(OLD)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for n in range(40):
            group.create_task(store.write(things((f"n{n}", NOW, n))))
            group.create_task(store.read("SELECT count(*) FROM things"))
            group.create_task(store.scan("SELECT max(size) FROM things"))
    assert await store.read("SELECT count(*) FROM things") == [(40,)]
    await store.close()


async def test_a_closed_store_says_so(new_database: Make) -> None:
    store = new_database()
    await store.open(OLD)
    await store.close()
    await store.close()
    for call in (store.write(things(("a", 1, 1))), store.read("SELECT 1"), store.scan("SELECT 1")):
        with pytest.raises(DatabaseDown):
            await call
