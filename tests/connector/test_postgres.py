"""The same promises on PostgreSQL."""

import asyncio
from pathlib import Path

import pytest
from tests.connector.rig import rig

from hermes_bridge.connector import sql
from hermes_bridge.connector.lease import Lease, StoreTaken
from hermes_bridge.connector.store import database
from hermes_bridge.db.base import Statement
from hermes_bridge.errors import ConfigError

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


@pytest.mark.clause("relay.inbox.8")
async def test_a_store_has_one_connector_also_across_machines(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T56: a lease, by the database's clock. What holds it may stop, be killed, or be cut off."""
    stores = [database(postgres_url, "unused") for _ in range(3)]
    await stores[0].open(sql.SCHEMA)
    first, second, third = (Lease(store, hold_ms=3000) for store in stores)
    async with asyncio.timeout(60):
        await first.take()
        renewing = asyncio.create_task(first.keep())
        with pytest.raises(StoreTaken, match=r"another connector uses the store: process \d+ on"):
            await second.take()
        renewing.cancel()  # as if it was killed: the next one has it when the lease is over
        await second.take()
        with pytest.raises(StoreTaken, match="taken the store over"):
            await first.keep()
        tried = asyncio.Event()

        async def look() -> str | None:
            tried.set()
            return await Lease._try(third)

        monkeypatch.setattr(third, "_try", look)
        waiting = asyncio.create_task(third.take())
        for _ in range(2):  # when it tries again, it was refused before
            await tried.wait()
            tried.clear()
        assert not waiting.done()
        await second.give_back()  # as at a stop: the next one has it at once
        await waiting
        await third.give_back()
    for store in stores:
        await store.close()


@pytest.mark.clause("relay.inbox.8")
async def test_a_lease_that_is_given_back_while_another_one_looks_is_taken(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = (database(postgres_url, "unused") for _ in range(2))
    await one.open(sql.SCHEMA)
    first, second = Lease(one), Lease(other)
    await first.take()
    read = other.read

    async def late(query: str, *args: object) -> object:
        await first.give_back()  # between its try to take the lease and its look at who has it
        return await read(query, *args)

    monkeypatch.setattr(other, "read", late)
    async with asyncio.timeout(30):
        await second.take()
        with pytest.raises(StoreTaken):
            await first.keep()
    for store in (one, other):
        await store.close()


@pytest.mark.clause("relay.inbox.8")
async def test_a_connector_that_lost_its_store_stops_and_its_successor_goes_on(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_bridge.connector.lease._RENEW_S", 0.2)
    other = database(postgres_url, "unused")
    async with rig(tmp_path, "a", database=postgres_url) as r:
        await r.hub.say("dm-a", "ada", "kept for the successor")
        a = await r.joined("a", acks=False)
        await a.got(1)
        await other.write(Statement(f"UPDATE {sql.LEASES} SET owner='x', words='another one'"))
        assert r._running is not None
        with pytest.raises(StoreTaken, match="another one"):
            async with asyncio.timeout(30):
                await r._running
        assert (await a.ended())[0] == 1001
        r._running = r.process = None
        await other.write(Statement(f"DELETE FROM {sql.LEASES}"))
        await r.start()
        again = await r.joined("a")
        await again.got(1)
        assert again.texts() == ["kept for the successor"]
    await other.close()


@pytest.mark.clause("relay.inbox.1")
async def test_what_the_store_refuses_is_delivered_and_stops_nothing(
    tmp_path: Path, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """PostgreSQL takes no NUL in a text, and ids are the platform's."""
    async with rig(tmp_path, "a", database=postgres_url) as r:
        a = await r.joined("a")
        for number in ("m1", "m\x002", "m3"):
            await r.hub.push("dm-a", {
                "type": "message", "channel_id": "dm-a", "sender_id": "ada", "id": number,
                "content": f"text {number[-1]}", "timestamp": r.hub.at(),
            })  # fmt: skip
        await a.got(3, 30)
        assert a.texts() == ["text 1", "text 2", "text 3"]
        await r.settled()
        assert (await a.act("send", "room", content="alive"))["success"] is True
    assert "store.row_refused" in caplog.text
    assert "connector.bug" not in caplog.text


async def test_an_address_that_is_none_is_refused_with_words() -> None:
    with pytest.raises(ConfigError, match="not a PostgreSQL address"):
        database("mysql://x", "unused")
