"""Trouble with the store: a real relay, a real file, and somebody who spoils it (law 5).

An ask neither fails nor waits because of the store; one line tells of the trouble and one of its
end; what was missed is written afterwards.
"""

import asyncio
import contextlib
import json
import os
import sqlite3
import time

import anyio
import asyncpg
import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, RelayProcess
from tests.harness.waits import eventually
from tests.harness.wire import Json
from websockets.exceptions import WebSocketException

pytestmark = pytest.mark.anyio


async def works(relay: RelayProcess, count: int = 20) -> list[str]:
    """Ask and be answered `count` times, quickly; the request ids."""
    rids = []
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "ok"
        async with asyncio.timeout(15):  # generous: a store that is waited for costs more
            for number in range(count):
                said = await a.ask("b", str(number))
                assert said["ok"], said
                rids.append(said["request_id"])
            assert (await a.rpc("initialize", {"protocolVersion": "2025-11-25"})).status == 200
            assert len((await a.rpc("tools/list")).message["result"]["tools"]) == 5
    return rids


def stored(relay: RelayProcess) -> dict[str, str]:
    with sqlite3.connect(f"file:{relay.database}?mode=ro", uri=True, timeout=5) as rows:
        found = dict(rows.execute("SELECT request_id, status FROM hermes_bridge_exchanges"))
    rows.close()
    return found


async def up(relay: RelayProcess) -> Json:
    def is_up() -> Json | None:
        health = relay.health()
        return health if health["store"] == "up" and not health["store_waiting"] else None

    found: Json = await eventually(is_up, "the store up", 20)
    return found


async def test_a_locked_file_costs_no_ask_and_nothing_is_lost(relays: Make) -> None:
    """T5, T44."""
    relay = relays()
    before = await works(relay)
    await up(relay)
    thief = sqlite3.connect(relay.database, isolation_level=None)
    thief.execute("BEGIN EXCLUSIVE")
    during = await works(relay)
    await eventually(lambda: relay.health()["store"] == "down", "noticed", 15)
    assert relay.get("/ready")[0] == 200
    during += await works(relay)
    thief.execute("ROLLBACK")
    thief.close()
    await up(relay)
    rows = stored(relay)
    assert {rows.get(rid) for rid in before + during} == {"ok"}
    assert len(relay.events("store.down")) == 1
    assert len(relay.events("store.up")) == 1
    assert relay.health()["store_lost"] == 0


async def test_beyond_the_bound_it_is_counted_how_many_rows_are_lost(relays: Make) -> None:
    """A bound of 50 exchanges stands in for the real one of 50,000."""
    relay = relays(start=False)
    (relay.folder / "sitecustomize.py").write_text(
        "from hermes_bridge.relay.journal import Journal\n"
        "Journal.__init__.__kwdefaults__['bound'] = 50\n"
    )
    relay.env["PYTHONPATH"] = str(relay.folder)
    relay.start()
    rids = await works(relay)
    await up(relay)
    thief = sqlite3.connect(relay.database, isolation_level=None)
    thief.execute("BEGIN EXCLUSIVE")
    for _ in range(4):
        rids += await works(relay, 30)
    lost = int(relay.health()["store_lost"])
    assert 0 < lost < 120  # up to 50 wait, and what was being written
    assert f"hermes_bridge_audit_dropped_total {lost}" in relay.get("/metrics")[1].decode()
    assert json.loads(relay.get("/ui/api/state")[1])["store"]["lost"] == lost
    thief.execute("ROLLBACK")
    thief.close()
    assert (await up(relay))["store_lost"] == lost
    kept = stored(relay).keys() & set(rids)
    assert len(kept) == 140 - lost
    assert set(rids[:20] + rids[-20:]) <= kept  # the newest stay


async def test_a_locked_file_does_not_hold_up_the_end(relays: Make) -> None:
    relay = relays()
    await works(relay, 2)
    await up(relay)
    thief = sqlite3.connect(relay.database, isolation_level=None)
    thief.execute("BEGIN EXCLUSIVE")
    await works(relay, 2)
    assert await anyio.to_thread.run_sync(relay.stop) == 0
    assert len(relay.events("store.not_drained")) == 1
    thief.execute("ROLLBACK")
    thief.close()


async def test_a_file_that_is_removed_is_made_again(relays: Make) -> None:
    relay = relays()
    await works(relay)
    await up(relay)
    for name in ("relay.db", "relay.db-wal", "relay.db-shm"):
        (relay.folder / name).unlink(missing_ok=True)
    rids = await works(relay)
    await eventually(lambda: relay.database.exists(), "a new file", 15)
    await up(relay)
    rows = await eventually(lambda: stored(relay), "rows", 15)
    assert {rows.get(rid) for rid in rids} == {"ok"}
    async with Mcp(relay, "a") as a:
        assert (await a.tool("wait_answer", {"request_id": rids[0]}))["answer"] == "ok"


async def test_a_file_of_garbage_does_not_keep_it_from_working(relays: Make) -> None:
    relay = relays(start=False)
    relay.database.write_bytes(os.urandom(8192))
    relay.start()
    await works(relay)
    health = relay.health()
    assert (health["status"], health["store"]) == ("ok", "down")
    assert len(relay.events("store.down")) <= 2
    assert "not a database" in relay.events("store.down")[0]["cause"]


async def test_a_folder_that_cannot_be_written_does_not_keep_it_from_working(relays: Make) -> None:
    relay = relays(start=False)
    blocked = relay.folder / "blocked"
    blocked.write_text("a file where a folder should be")
    relay.write({**relay.config, "db": {"driver": "sqlite", "path": str(blocked / "relay.db")}})
    relay.start()
    await works(relay)
    assert relay.health()["store"] == "down"
    blocked.unlink()  # the operator mends it
    await up(relay)
    assert (blocked / "relay.db").exists()
    assert len(relay.events("store.up")) <= 1


async def test_a_full_disk_costs_no_ask(relays: Make) -> None:
    """The file may not grow: the limit of the process on file sizes stands in for a full disk."""
    relay = relays(start=False, chatty=True)
    full = relay.folder / "full.py"
    full.write_text(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))\n"
    )
    (relay.folder / "sitecustomize.py").write_text(full.read_text())
    relay.env["PYTHONPATH"] = str(relay.folder)
    relay.start()
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "y" * 5000
        for _ in range(100):
            assert (await a.ask("b", "x" * 5000))["ok"]
    await eventually(lambda: relay.health()["store"] == "down", "noticed", 15)
    assert relay.events("store.down")
    assert (
        "full" in relay.events("store.down")[0]["cause"]
        or "I/O" in relay.events("store.down")[0]["cause"]
    )
    assert await anyio.to_thread.run_sync(relay.stop) == 0


async def test_a_store_that_comes_late_gives_its_open_asks_back(relays: Make) -> None:
    """Started while the file is locked: it works at once, and resumes when it can read."""
    relay = relays(chatty=True)
    async with Mcp(relay, "a") as a:
        queued = await a.ask("b", "left open", if_offline="queue", wait_ms=0)
        await up(relay)
        relay.kill()
        thief = sqlite3.connect(relay.database, isolation_level=None)
        thief.execute("PRAGMA locking_mode=EXCLUSIVE")
        thief.execute("BEGIN EXCLUSIVE")
        await anyio.to_thread.run_sync(relay.start)
        assert relay.health()["store"] == "down"
        assert (await a.ask("c", "?"))["error"] == "agent_offline"
        async with Bot(relay, "b", hello=True) as b:
            await b.no_wake()
            thief.execute("ROLLBACK")
            thief.close()
            wake = await b.wake(20)
            assert wake["request_id"] == queued["request_id"]
            await b.reply(wake["request_id"], "found again")
        said = await a.tool("wait_answer", {"request_id": queued["request_id"]})
        assert said["answer"] == "found again"


def seed_rows(now: int) -> list[tuple[object, ...]]:
    """Rows of the original; two of them were left pending by a crash."""
    return [
        ("r1", "c1", "a", "b", "old", "ok", "answer of old", None, now - 9000, now - 8000),
        ("r2", "c1", "a", "b", "open", "pending", None, None, now - 5000, None),
        ("r3", "c2", "a", "gone", "open", "pending", None, None, now - 5000, None),
    ]


SEED_TABLE = (
    "CREATE TABLE IF NOT EXISTS hermes_bridge_exchanges (request_id TEXT PRIMARY KEY, "
    "conversation_id TEXT NOT NULL, from_agent TEXT NOT NULL, to_agent TEXT NOT NULL, "
    "message TEXT NOT NULL, status TEXT NOT NULL, answer TEXT, error TEXT, "
    "started_at {instant} NOT NULL, ended_at {instant})"
)


def sqlite_of_the_seed(relay: RelayProcess) -> None:
    with sqlite3.connect(relay.database) as rows:
        rows.execute(SEED_TABLE.format(instant="INTEGER"))
        rows.executemany(
            "INSERT INTO hermes_bridge_exchanges VALUES (?,?,?,?,?,?,?,?,?,?)",
            seed_rows(int(time.time() * 1000)),
        )
    rows.close()


async def postgres_of_the_seed(relay: RelayProcess, url: str) -> None:
    """Named by DATABASE_URL alone, as the seed's README recommends."""
    server = await asyncpg.connect(url)
    await server.execute(SEED_TABLE.format(instant="TIMESTAMPTZ"))
    await server.executemany(
        "INSERT INTO hermes_bridge_exchanges VALUES ($1,$2,$3,$4,$5,$6,$7,$8,"
        "to_timestamp($9::bigint / 1000.0),to_timestamp($10::bigint / 1000.0))",
        seed_rows(int(time.time() * 1000)),
    )
    await server.close()
    relay.write({key: value for key, value in relay.config.items() if key != "db"})
    relay.env["DATABASE_URL"] = url


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_a_database_of_the_seed_opens_and_shows(
    relays: Make, store: str, request: pytest.FixtureRequest
) -> None:
    relay = relays(start=False)
    if store == "postgres":
        await postgres_of_the_seed(relay, request.getfixturevalue("postgres_url"))
    else:
        sqlite_of_the_seed(relay)
    await anyio.to_thread.run_sync(relay.start)
    shown = json.loads(relay.get("/ui/api/state", timeout=30)[1])["exchanges"]
    assert {x["request_id"] for x in shown} == {"r1", "r2", "r3"}
    assert next(x["answer"] for x in shown if x["request_id"] == "r1") == "answer of old"
    async with Mcp(relay, "a") as a, Bot(relay, "b") as b:
        assert (await a.tool("wait_answer", {"request_id": "r1"}))["answer"] == "answer of old"
        wake = await b.wake()
        assert (wake["request_id"], wake["message"]) == ("r2", "open")
        await b.reply("r2", "late but right")
        assert (await a.tool("wait_answer", {"request_id": "r2"}))["answer"] == "late but right"
        said = await a.tool("wait_answer", {"request_id": "r3"})
        assert (said["ok"], said["error"]) == (False, "agent_offline")
        b.on_wake = lambda wake: "we go on"
        assert (await a.ask("b", "on", conversation_id="c1"))["answer"] == "we go on"


async def answers_whenever_it_can(relay: RelayProcess) -> None:
    """A bot that dials again after every end of its link (to be cancelled)."""
    while True:
        with contextlib.suppress(OSError, EOFError, WebSocketException):
            async with Bot(relay, "b", hello=True) as b:
                b.on_wake = lambda wake: "to " + wake["message"]
                await b.socket.wait_closed()
        await asyncio.sleep(0.05)


async def ask_until_answered(relay: RelayProcess, keys: list[str]) -> dict[str, str]:
    """Ask with each key, again after every failure: the relay was killed."""
    answers: dict[str, str] = {}
    async with Mcp(relay, "a") as a:
        for key in keys:
            while key not in answers:
                with contextlib.suppress(OSError, EOFError, TimeoutError):
                    said = await a.ask("b", key, idempotency_key=key, timeout=3)
                    if said["ok"]:
                        answers[key] = said["answer"]
                await asyncio.sleep(0.02)
    return answers


@pytest.mark.timeout(200)
async def test_a_relay_that_is_killed_again_and_again_under_load_loses_no_answer(
    relays: Make,
) -> None:
    """T58: every ask with a key is answered, through five kills.

    History may lack what was younger than a batch of the journal: at most one ask an asker and kill.
    """
    relay = relays(max_pending=5000)
    keys = [[f"{n}.{turn}" for turn in range(10)] for n in range(6)]
    answering = asyncio.create_task(answers_whenever_it_can(relay))
    async with asyncio.timeout(150), asyncio.TaskGroup() as group:
        asking = [group.create_task(ask_until_answered(relay, some)) for some in keys]
        for _ in range(5):
            await asyncio.sleep(0.25)  # the asks under way at a kill are the point of this test
            relay.kill()
            await anyio.to_thread.run_sync(relay.start)
    answering.cancel()
    await asyncio.gather(answering, return_exceptions=True)
    for some, task in zip(keys, asking, strict=True):
        assert task.result() == {key: f"to {key}" for key in some}
    await up(relay)
    assert list(stored(relay).values()).count("ok") >= 6 * 10 - 5 * 6
