"""PostgreSQL when it is gone, hangs, is full, is read-only, or was emptied."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import asyncpg
import pytest
from tests.harness.postgres import PostgresServer
from tests.harness.waits import eventually

from hermes_bridge.db.base import Migration, Schema, Statement, Upsert
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.errors import DatabaseDown, RowRefused

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

SCHEMA = Schema(
    "t", (Migration(1, sqlite=(), postgres=("CREATE TABLE things (name text PRIMARY KEY)",)),)
)


def thing(name: str) -> Upsert:
    return Upsert("things", ("name",), "ON CONFLICT DO NOTHING", [(name,)])


async def names(store: PostgresDatabase) -> set[str]:
    return {row[0] for row in await store.read("SELECT name FROM things")}


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresDatabase]:
    store = PostgresDatabase(postgres_url, connect_s=2, read_s=0.5, write_s=1, scan_s=2)
    await store.open(SCHEMA)
    yield store
    await store.close()


async def down(call: Any, within: float) -> str:
    """The call fails as `DatabaseDown` within so many seconds; give its words."""
    began = time.monotonic()
    with pytest.raises(DatabaseDown) as caught:
        await call
    assert time.monotonic() - began < within + 10  # a busy machine is not a store that hangs
    return str(caught.value)


async def test_a_stopped_server_is_down_and_comes_back(postgres_server: PostgresServer) -> None:
    store = PostgresDatabase(postgres_server.create(), connect_s=2, write_s=2)
    await store.open(SCHEMA)
    await store.write(thing("before"))
    for how in (signal.SIGINT, signal.SIGQUIT):
        await anyio.to_thread.run_sync(postgres_server.stop, how)
        await down(store.write(thing("lost")), 3)
        await down(store.read("SELECT 1"), 3)
        await anyio.to_thread.run_sync(postgres_server.start)

        async def works(how: int = how) -> bool:
            try:
                await store.write(thing(f"after {how:d}"))
            except DatabaseDown:
                return False
            return True

        await eventually(works, "written again")
    assert await names(store) == {"before", "after 2", "after 3"}
    await store.close()


async def test_while_it_is_known_to_be_down_nobody_waits_for_it(
    postgres_server: PostgresServer,
) -> None:
    store = PostgresDatabase(postgres_server.create(), connect_s=1, read_s=1, write_s=1)
    await store.open(SCHEMA)
    await anyio.to_thread.run_sync(postgres_server.freeze)
    began = time.monotonic()
    answers = 0
    while time.monotonic() - began < 3:
        with pytest.raises(DatabaseDown):
            await store.write(thing("x"))
        answers += 1
        await asyncio.sleep(0.005)
    assert answers > 20  # most of them at once, some after the whole timeout
    await anyio.to_thread.run_sync(postgres_server.thaw)
    await eventually(lambda: readable(store), "read again")
    await store.close()


async def readable(store: PostgresDatabase) -> bool:
    try:
        return bool(await store.read("SELECT 1"))
    except DatabaseDown:
        return False


async def test_a_statement_that_hangs_is_given_up_in_time(
    store: PostgresDatabase, postgres_url: str
) -> None:
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.execute("LOCK TABLE things IN ACCESS EXCLUSIVE MODE")
        assert "no answer within 0.5 s" in await down(store.read("SELECT * FROM things"), 1)
        assert "no answer within 1 s" in await down(store.write(thing("a")), 2)
    await asyncio.sleep(0.3)  # both breakers have let somebody try again
    await store.write(thing("a"))
    await asyncio.sleep(0.2)
    assert await names(store) == {"a"}
    left = await other.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name='hermes-bridge' "
        "AND state='active'"
    )
    assert left == 0
    await other.close()


async def test_a_write_that_hangs_keeps_no_reader_out(
    store: PostgresDatabase, postgres_url: str
) -> None:
    await store.write(thing("before"))
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.execute("LOCK TABLE things IN EXCLUSIVE MODE")  # writers wait, readers do not
        await down(store.write(thing("a")), 2)
        assert await names(store) == {"before"}
        assert await store.scan("SELECT name FROM things") == [("before",)]
        await down(store.write(thing("a")), 2)
    await other.close()


async def test_reads_that_hang_keep_no_writer_out(
    store: PostgresDatabase, postgres_url: str
) -> None:
    slow = "SELECT count(*) FROM things, pg_sleep(5)"
    await down(store.read(slow), 2)
    await down(store.read("SELECT 1"), 0)  # not tried
    await down(store.scan("SELECT 1"), 0)
    await store.write(thing("a"))
    await eventually(lambda: readable(store), "reads are tried again")
    assert await names(store) == {"a"}


async def test_a_slow_scan_does_not_hold_up_a_read(store: PostgresDatabase) -> None:
    scan = asyncio.get_running_loop().create_task(store.scan("SELECT pg_sleep(1)"))
    await asyncio.sleep(0)
    await store.read("SELECT 1")
    await store.write(thing("a"))
    assert not scan.done()
    assert await scan


async def test_a_full_disk_is_down_and_not_bad_data(
    store: PostgresDatabase, postgres_url: str
) -> None:
    other = await asyncpg.connect(postgres_url)
    await other.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE='53100'; END $$"
    )
    await other.execute(
        "CREATE TRIGGER full_disk BEFORE INSERT ON things EXECUTE FUNCTION full_disk()"
    )
    assert "DiskFull" in await down(store.write(thing("a")), 1)
    assert await names(store) == set()  # at once: what is there can be read
    await other.execute("DROP TRIGGER full_disk ON things")
    await asyncio.sleep(0.2)
    await store.write(thing("a"))
    await other.close()


async def test_a_read_only_server_is_down(store: PostgresDatabase, postgres_url: str) -> None:
    other = await asyncpg.connect(postgres_url)
    name = postgres_url.rpartition("/")[2]
    await other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    second = PostgresDatabase(postgres_url)
    assert "read-only" in await down(second.write(thing("a")), 2)
    await second.close()
    await other.close()


async def test_a_read_only_server_with_all_tables_can_be_read(
    store: PostgresDatabase, postgres_url: str
) -> None:
    """As a replica is: `export` and `search` need no right to write."""
    await store.write(thing("a"))
    other = await asyncpg.connect(postgres_url)
    name = postgres_url.rpartition("/")[2]
    await other.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    second = PostgresDatabase(postgres_url)
    await second.open(SCHEMA)
    assert "read-only" in await down(second.write(thing("b")), 2)
    assert await names(second) == {"a"}
    await second.close()
    await other.close()


async def test_a_database_that_was_emptied_gets_its_tables_again(
    store: PostgresDatabase, postgres_url: str
) -> None:
    other = await asyncpg.connect(postgres_url)
    await other.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await down(store.write(thing("a")), 1)
    await asyncio.sleep(0.2)
    await store.write(thing("b"))
    assert await names(store) == {"b"}
    await other.close()


async def test_too_many_connections_is_down_and_passes(
    store: PostgresDatabase, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    other = await asyncpg.connect(postgres_url)
    await other.execute("CREATE ROLE guest LOGIN")
    await other.execute(f"ALTER DATABASE {name} CONNECTION LIMIT 1")
    second = PostgresDatabase(postgres_url.replace("hermes@", "guest@"))
    assert "TooManyConnections" in await down(second.read("SELECT 1"), 2)
    await other.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")
    await asyncio.sleep(0.2)
    assert await second.read("SELECT 1") == [(1,)]
    await second.close()
    await other.execute("DROP ROLE guest")
    await other.close()


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://hermes@127.0.0.1:1/x",
        "postgresql://hermes:secret@no-such-host.invalid/x",
        "postgresql://hermes:secret@127.0.0.1:notaport/x",
    ],
)
async def test_a_server_that_cannot_be_reached_is_down_and_no_secret_is_told(dsn: str) -> None:
    store = PostgresDatabase(dsn, connect_s=1, write_s=2)
    assert "secret" not in await down(store.open(SCHEMA), 3)
    await store.close()


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.InternalClientError("cannot switch to state 11; another operation is in progress"),
        asyncpg.ProtocolError("unexpected message"),
        asyncpg.OutdatedSchemaCacheError("a type was changed"),
        KeyError("a column is gone"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_the_driver_raises_is_a_store_that_is_down(
    store: PostgresDatabase, error: Exception
) -> None:
    async def work(_: Any) -> None:
        raise error

    assert type(error).__name__ in await down(store._call(work, 1, None), 1)
    await asyncio.sleep(0.2)
    await store.write(thing("a"))


async def test_connections_that_are_ended_by_the_server_raise_nothing_else(
    store: PostgresDatabase, postgres_url: str
) -> None:
    other = await asyncpg.connect(postgres_url)
    give_up = time.monotonic() + 2
    ended = refused = 0

    async def use() -> None:
        nonlocal refused
        while time.monotonic() < give_up:
            try:
                await store.scan("SELECT 1")
            except DatabaseDown:
                refused += 1
                store._server.well()
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(use())
        while time.monotonic() < give_up:
            ended += await other.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name='hermes-bridge' AND datname=current_database()"
            )
            await asyncio.sleep(0.01)
    assert ended and refused
    store._server.well()
    await store.write(thing("a"))
    await other.close()


async def test_a_number_that_no_column_holds_is_bad_data(store: PostgresDatabase) -> None:
    with pytest.raises(RowRefused):
        await store.write(Statement("DELETE FROM things WHERE length(name) = $1", (2**70,)))
    await store.write(thing("a"))


async def test_a_cancelled_call_leaves_a_usable_store(store: PostgresDatabase) -> None:
    for _ in range(8):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await store.scan("SELECT pg_sleep(1)")
    await store.write(thing("a"), Statement("DELETE FROM things WHERE name=$1", ("b",)))
    assert await names(store) == {"a"}
