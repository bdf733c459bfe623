"""The store: together or not at all, and nothing forgotten when it is interrupted."""

import asyncio
from pathlib import Path

import pytest
from tests.harness.waits import eventually

from hermes_bridge.clock import SystemClock
from hermes_bridge.connector.core.inbox import Entry
from hermes_bridge.connector.core.message import Message
from hermes_bridge.connector.store import Account, Store
from hermes_bridge.contract.frames import Policy
from hermes_bridge.db.base import Statement, Upsert
from hermes_bridge.db.sqlite import SqliteDatabase

pytestmark = pytest.mark.anyio


class Slow(SqliteDatabase):
    """A database whose writes wait at a gate, if there is one."""

    gate: asyncio.Event | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waiting = asyncio.Event()

    async def write(self, *work: Statement | Upsert) -> None:
        if self.gate is not None:
            self.waiting.set()
            await self.gate.wait()
        await super().write(*work)


def entry(store: Store, number: int) -> Entry:
    message = Message("p", "room", f"m{number}", "ada", f"text {number}")
    return Entry(store.new_id(), "a", "room", f"m{number}", message, store._clock.now())


@pytest.mark.clause("relay.inbox.1")
async def test_a_write_that_a_stop_interrupts_is_written_by_the_last_flush(tmp_path: Path) -> None:
    database = Slow(tmp_path / "s.db")
    store = Store(database, SystemClock())
    await store.load()
    told: list[int] = []
    writer = asyncio.create_task(store.run(lambda entries: told.extend(e.id for e in entries)))
    kept, done = entry(store, 1), entry(store, 2)
    store.add(kept)
    store.add(done)
    await eventually(lambda: len(told) == 2, "told")
    database.gate = asyncio.Event()
    store.over(done)
    store.cursors("a", {"room": "2026-01-01T00:00:00Z"})
    async with asyncio.timeout(30):
        await database.waiting.wait()
    writer.cancel()
    await asyncio.wait([writer])
    database.gate = None
    assert await store.flush()
    await database.close()

    again = SqliteDatabase(tmp_path / "s.db")
    found = await Store(again, SystemClock()).load()
    assert [each.message_id for each in found.waiting] == ["m1"]
    assert {each[2] for each in found.seen} == {"m1", "m2"}
    assert found.cursors == {"a": {"room": "2026-01-01T00:00:00Z"}}
    await again.close()


async def test_what_is_kept_comes_back_and_ids_go_on_growing(tmp_path: Path) -> None:
    store = Store(SqliteDatabase(tmp_path / "s.db"), SystemClock())
    await store.load()
    first = entry(store, 1)
    store.add(first)
    store.account("a", Account("2026-01-01T00:00:00Z", finals=True, types=False))
    store.policy("gw", Policy("agentschat", False, ("room",), False))
    await store.flush()
    again = Store(SqliteDatabase(tmp_path / "s.db"), SystemClock())
    found = await again.load()
    assert again.new_id() > first.id
    assert found.waiting[0].message == first.message
    assert found.accounts == {"a": Account("2026-01-01T00:00:00Z", finals=True, types=False)}
    assert found.policies == {("gw", "agentschat"): Policy("agentschat", False, ("room",), False)}


async def test_the_oldest_ended_rows_are_forgotten_and_waiting_ones_never(tmp_path: Path) -> None:
    store = Store(SqliteDatabase(tmp_path / "s.db"), SystemClock(), keep_seen=3)
    await store.load()
    waiting = entry(store, 0)
    store.add(waiting)
    for number in range(1, 8):
        store.over(entry(store, number))
    await store.flush()
    await store.prune(store._clock.now(), age_ms=60_000)
    again = Store(SqliteDatabase(tmp_path / "s.db"), SystemClock())
    found = await again.load()
    assert [each.message_id for each in found.waiting] == ["m0"]
    assert [each[2] for each in found.seen] == ["m0", "m5", "m6", "m7"]
