"""The journal: never in an ask's way, no row lost within its bound, beyond it each is counted."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.harness.waits import eventually

from hermes_bridge.clock import SystemClock
from hermes_bridge.db.base import Database, Row, Schema, Statement, Upsert
from hermes_bridge.db.sqlite import MEMORY, SqliteDatabase
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.journal import Journal
from hermes_bridge.relay.ledger import Ledger

pytestmark = pytest.mark.anyio

Make = Callable[[], Database]
NOW = 1_796_065_547_875


def exchange(rid: str, **changes: Any) -> Exchange:
    base: dict[str, Any] = {
        "rid": rid,
        "conv": "c",
        "asker": "a",
        "target": "b",
        "message": "m",
        "at": NOW,
        "cap": NOW + 1_000,
        "window": 1_000,
    }
    ended: dict[str, Any] = {"status": Status.OK, "ended_at": NOW + 1, "answer": "yes"}
    return Exchange(**{**base, **ended, **changes})


class Wire:
    """A cable between the ledger and a real store that a test can cut. Not a store of its own."""

    def __init__(self, store: Database) -> None:
        self._store = store
        self.dialect = store.dialect
        self.cut = False
        self.hang: asyncio.Event | None = None
        self.batches: list[int] = []
        self.tries = 0

    async def open(self, *schemas: Schema) -> None:
        await self._store.open(*schemas)

    async def write(self, *work: Statement | Upsert) -> None:
        self.tries += 1
        if self.hang is not None:
            await self.hang.wait()
        if self.cut:
            raise DatabaseDown("the cable is cut")
        await self._store.write(*work)
        for item in work:
            if isinstance(item, Upsert) and item.table.endswith("exchanges"):
                self.batches.append(len(item.rows))

    async def read(self, sql: str, *args: Any) -> list[Row]:
        return await self._store.read(sql, *args)

    async def scan(self, sql: str, *args: Any) -> list[Row]:
        return await self._store.scan(sql, *args)

    async def close(self) -> None:
        await self._store.close()


@asynccontextmanager
async def running(store: Database, **options: Any) -> AsyncIterator[tuple[Journal, Wire, Ledger]]:
    wire = Wire(store)
    ledger = Ledger(wire)
    await ledger.open()
    journal = Journal(ledger, SystemClock(), **options)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(journal.run())
        yield journal, wire, ledger
        task.cancel()
    await store.close()


async def count(ledger: Ledger) -> int:
    rows = await ledger.database.scan("SELECT count(*) FROM hermes_bridge_exchanges")
    return int(rows[0][0])


async def test_what_is_noted_is_written_once_and_in_its_last_state(new_database: Make) -> None:
    async with running(new_database()) as (journal, wire, ledger):
        begun = exchange("r", status=Status.SENT, ended_at=0, answer=None)
        journal.note(begun)
        assert journal.find("r") is begun
        begun.status, begun.ended_at, begun.answer = Status.OK, NOW + 1, "yes"
        journal.note(begun)
        assert await journal.drain(5)
        assert wire.batches == [1]
        assert await ledger.find("r") == begun
        assert (journal.written, journal.lost, len(journal), journal.lag()) == (1, 0, 0, 0)


async def test_an_outage_loses_no_row_within_the_bound(new_database: Make) -> None:
    async with running(new_database()) as (journal, wire, ledger):
        wire.cut = True
        for n in range(3_000):
            journal.note(exchange(f"r{n}"))
        journal.note_agent("a", NOW, linked=True)
        await eventually(lambda: journal.down_since is not None, "down")
        assert journal.lag() > 0
        for n in range(3_000, 5_000):
            journal.note(exchange(f"r{n}"))
        assert journal.find("r4999") is not None
        wire.cut = False
        assert await journal.drain(20)
        assert await count(ledger) == 5_000
        assert await ledger.agents() == [("a", NOW, True)]
        assert (journal.lost, journal.down_since) == (0, None)


async def test_after_an_outage_the_first_batch_is_small(new_database: Make) -> None:
    async with running(new_database()) as (journal, wire, ledger):
        wire.cut = True
        journal.note(exchange("first"))
        await eventually(lambda: wire.tries, "tried")
        for n in range(2_000):
            journal.note(exchange(f"r{n}"))
        wire.cut = False
        assert await journal.drain(20)
        assert wire.batches[0] <= 100
        assert max(wire.batches) <= 500
        assert await count(ledger) == 2_001


async def test_beyond_the_bound_the_oldest_ended_are_lost_and_counted() -> None:
    async with running(SqliteDatabase(MEMORY), bound=100) as (journal, wire, ledger):
        wire.cut = True
        for n in range(5):
            journal.note(exchange(f"open{n}", status=Status.SENT, ended_at=0, answer=None))
        for n in range(1_000):
            journal.note(exchange(f"r{n}"))
        assert len(journal) <= 101
        assert journal.lost == 1_005 - len(journal)
        wire.cut = False
        assert await journal.drain(20)
        assert await count(ledger) == 1_005 - journal.lost
        assert len(await ledger.open_exchanges()) == 5
        assert await ledger.find("r999") is not None
        assert await ledger.find("r0") is None


async def test_what_is_being_written_is_not_counted_as_lost() -> None:
    async with running(SqliteDatabase(MEMORY), bound=100) as (journal, wire, ledger):
        wire.hang = asyncio.Event()
        first = exchange("first", status=Status.SENT, ended_at=0, answer=None)
        journal.note(first)
        await eventually(lambda: wire.tries, "tried")
        first.status, first.ended_at, first.answer = Status.OK, NOW + 1, "yes"
        journal.note(first)
        for n in range(300):
            journal.note(exchange(f"r{n}"))
        wire.hang.set()
        assert await journal.drain(20)
        assert await count(ledger) == 301 - journal.lost
        found = await ledger.find("first")
        assert found is not None
        assert found.answer == "yes"


async def test_large_texts_are_bounded_in_bytes() -> None:
    options = {"bound": 10_000, "bound_bytes": 20_000_000}
    async with running(SqliteDatabase(MEMORY), **options) as (journal, wire, ledger):
        wire.cut = True
        for n in range(4_000):
            journal.note(exchange(f"r{n}", message="x" * 20_000))
        held = sum(len(x.message) for x in journal.waiting())
        assert held < 4_000 * 20_000 * 0.8
        assert journal.lost == 4_000 - len(journal)
        wire.cut = False
        assert await journal.drain(20)
        assert max(wire.batches) <= 8_388_608 // 20_000 + 1
        assert await count(ledger) == 4_000 - journal.lost


async def test_a_store_that_hangs_is_no_reason_to_wait() -> None:
    async with running(SqliteDatabase(MEMORY)) as (journal, wire, ledger):
        wire.hang = asyncio.Event()
        journal.note(exchange("r1"))
        await eventually(lambda: wire.tries, "tried")
        journal.note(exchange("r2"))
        assert journal.find("r1") is not None
        assert journal.find("r2") is not None
        assert not await journal.drain(0.05)
        wire.hang.set()
        assert await journal.drain(5)
        assert await count(ledger) == 2


async def test_one_row_that_no_store_takes_holds_up_no_other(
    new_database: Make, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(new_database()) as (journal, _, ledger):
        for n in range(20):
            journal.note(exchange(f"r{n}"))
        journal.note(exchange("bad", message="\ud800"))
        journal.note_agent("a", NOW, linked=True)
        with caplog.at_level(logging.ERROR):
            assert await journal.drain(10)
        assert await count(ledger) == 20
        assert await ledger.agents() == [("a", NOW, True)]
        assert journal.lost == 1
        assert [r.message for r in caplog.records] == ["store.row_lost"]


async def test_an_outage_is_logged_once_a_cause(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(SqliteDatabase(MEMORY)) as (journal, wire, _):
        wire.cut = True
        journal.note(exchange("r1"))
        await eventually(lambda: wire.tries >= 3, "tried three times")
        wire.cut = False
        assert await journal.drain(5)
    assert [r.message for r in caplog.records] == ["store.down", "store.up"]
