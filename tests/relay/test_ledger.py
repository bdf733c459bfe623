"""The ledger over every store: what goes in comes out, rows only move forward."""

import sqlite3
from pathlib import Path

import asyncpg
import pytest
from tests.relay.stored import NOW, Make, exchange, opened, put

from hermes_bridge.db.base import Database
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.relay.core.exchange import Status
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.rows import agent_row

pytestmark = pytest.mark.anyio


async def test_an_exchange_comes_back_as_it_was(new_database: Make) -> None:
    ledger = await opened(new_database)
    whole = exchange(
        "r1",
        message="wie geht's? 日本語 \N{PILE OF POO} <script>",
        data=b'{"a":1}',
        answer_data=b"[1]",
        reason="why",
        attempt=3,
        sent_at=NOW + 1,
        taken_at=NOW + 2,
        heard_at=NOW + 3,
        beats=7,
        queue_until=NOW + 9,
        depth=2,
        chain=("x", "y"),
        keyed=True,
        trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        order=(NOW, 42),
        status=Status.TIMEOUT,
        answer=None,
        late_answer="late",
        late_data=b'"x"',
        late_at=NOW + 10,
        fetched_at=NOW + 11,
    )
    await put(ledger, whole)
    assert await ledger.find("r1") == whole
    assert await ledger.find("r2") is None
    await ledger.database.close()


async def test_a_row_never_moves_backwards(new_database: Make) -> None:
    ledger = await opened(new_database)
    begun = exchange("r1", status=Status.SENT, ended_at=0, answer=None)
    ended = exchange("r1")
    late = exchange("r1", status=Status.TIMEOUT, answer=None, late_answer="x", late_at=NOW + 9)
    await put(ledger, ended)
    await put(ledger, begun)
    assert await ledger.find("r1") == ended
    await put(ledger, late)
    await put(ledger, ended)
    assert await ledger.find("r1") == late
    await ledger.database.close()


async def test_what_has_no_end_is_given_back_in_order(new_database: Make) -> None:
    ledger = await opened(new_database)
    unended = {"status": Status.TAKEN, "ended_at": 0, "answer": None}
    await put(
        ledger,
        exchange("r3", order=(2, 1), **unended),
        exchange("r1", order=(1, 9), **unended),
        exchange("r2"),
    )
    assert [x.rid for x in await ledger.open_exchanges()] == ["r1", "r3"]
    await ledger.database.close()


async def test_agents_are_remembered(new_database: Make) -> None:
    ledger = await opened(new_database)
    await ledger.write([], [agent_row("a", NOW, linked=True), agent_row("b", NOW, linked=False)])
    await ledger.write([], [agent_row("a", NOW + 1, linked=False)])
    assert sorted(await ledger.agents()) == [("a", NOW + 1, False), ("b", NOW, False)]
    await ledger.database.close()


async def test_a_conversation_knows_its_participants_and_its_last_hour(new_database: Make) -> None:
    ledger = await opened(new_database)
    refused = {"status": Status.NOT_ALLOWED, "asker": "thief", "answer": None}
    await put(
        ledger,
        exchange("r0", at=NOW - 4_000_000, **refused),
        exchange("r1", at=NOW - 3_700_000),
        exchange("r2", at=NOW - 60_000, asker="b", target="a"),
        exchange("r3", at=NOW),
    )
    assert await ledger.participants("c1", NOW + 1) == ("a", "b", (NOW - 60_000, NOW))
    assert await ledger.participants("c2", NOW) is None
    assert [x.rid for x in await ledger.conversation("c1")] == ["r0", "r1", "r2", "r3"]
    assert [x.rid for x in await ledger.conversation("c1", limit=2)] == ["r2", "r3"]
    assert [x.rid for x in await ledger.recent(3)] == ["r1", "r2", "r3"]
    await ledger.database.close()


async def test_history_is_paged_without_gaps(new_database: Make) -> None:
    ledger = await opened(new_database)
    await put(ledger, *(exchange(f"r{n:03d}", at=NOW + n // 3) for n in range(50)))
    seen: list[str] = []
    at, after = NOW, ""
    while page := await ledger.since(at, after, 7):
        seen += [x.rid for x in page]
        at, after = page[-1].at, page[-1].rid
    assert seen == [f"r{n:03d}" for n in range(50)]
    await ledger.database.close()


async def test_how_far_the_tables_are_behind_is_told_and_nothing_is_changed(
    new_database: Make,
) -> None:
    ledger = Ledger(new_database())
    missing = await ledger.steps_missing()
    assert missing == await ledger.steps_missing() > 5
    await ledger.open()
    assert await ledger.steps_missing() == 0
    assert ledger.searchable
    assert (await ledger.overview())["not_yet_indexed"] == 0
    await ledger.database.close()


async def test_what_is_old_and_ended_is_forgotten_in_batches(new_database: Make) -> None:
    ledger = await opened(new_database)
    await put(ledger, *(exchange(f"r{n:04d}", at=NOW + n) for n in range(1_200)))
    await put(ledger, exchange("open", at=NOW, status=Status.SENT, ended_at=0, answer=None))
    assert await ledger.forget(NOW + 1_000, 700) == 700
    assert await ledger.forget(NOW + 1_000, 700) == 300
    assert await ledger.forget(NOW + 1_000, 700) == 0
    left = await ledger.recent(1_000)
    assert len(left) == 201
    assert left[0].rid == "open"
    await ledger.keep_newest(50)
    assert len(await ledger.recent(1_000)) == 51
    await ledger.database.close()


_SEED_ROWS = (
    ("s1", "c9", "daniel-bot", "helpdesk-bot", "hello", "ok", "hi", None, NOW, NOW + 1_500),
    ("s2", "c9", "daniel-bot", "helpdesk-bot", "still?", "pending", None, None, NOW + 2_000, None),
    ("s3", "c9", "daniel-bot", "gone", "x", "agent_disconnected", None, "lost", NOW, NOW + 9),
)


async def _seed_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        """CREATE TABLE IF NOT EXISTS hermes_bridge_exchanges (
             request_id TEXT PRIMARY KEY, conversation_id TEXT NOT NULL, from_agent TEXT NOT NULL,
             to_agent TEXT NOT NULL, message TEXT NOT NULL, status TEXT NOT NULL, answer TEXT,
             error TEXT, started_at TIMESTAMPTZ NOT NULL, ended_at TIMESTAMPTZ);
           CREATE INDEX hermes_bridge_exchanges_started_at_idx
             ON hermes_bridge_exchanges (started_at DESC)"""
    )
    sql = (
        "INSERT INTO hermes_bridge_exchanges VALUES ($1,$2,$3,$4,$5,$6,$7,$8,"
        "to_timestamp($9::bigint / 1000.0),to_timestamp($10::bigint / 1000.0))"
    )
    await connection.executemany(sql, _SEED_ROWS)
    await connection.close()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_a_table_written_by_the_seed_opens_and_shows(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    database: Database
    if store == "postgres":
        url = request.getfixturevalue("postgres_url")
        await _seed_postgres(url)
        database = PostgresDatabase(url)
    else:
        file = sqlite3.connect(tmp_path / "seed.db")
        file.execute(
            "CREATE TABLE hermes_bridge_exchanges (request_id text PRIMARY KEY, "
            "conversation_id text NOT NULL, from_agent text NOT NULL, to_agent text NOT NULL, "
            "message text NOT NULL, status text NOT NULL, answer text, error text, "
            "started_at bigint NOT NULL, ended_at bigint)"
        )
        file.executemany(
            "INSERT INTO hermes_bridge_exchanges VALUES (?,?,?,?,?,?,?,?,?,?)", _SEED_ROWS
        )
        file.commit()
        file.close()
        database = SqliteDatabase(tmp_path / "seed.db")
    ledger = Ledger(database)
    await ledger.open()
    shown = {x.rid: x for x in await ledger.recent(10)}
    assert shown.keys() == {"s1", "s2", "s3"}
    assert (shown["s1"].status, shown["s1"].answer) == (Status.OK, "hi")
    assert (shown["s1"].at, shown["s1"].ended_at) == (NOW, NOW + 1_500)
    assert (shown["s3"].status, shown["s3"].reason) == (Status.AGENT_DISCONNECTED, "lost")
    assert [x.rid for x in await ledger.open_exchanges()] == ["s2"]
    assert await ledger.participants("c9", NOW + 3_000) is not None
    closed = shown["s2"]
    closed.status, closed.ended_at = Status.AGENT_OFFLINE, NOW + 60_000
    await put(ledger, closed)
    assert await ledger.open_exchanges() == []
    await ledger.database.close()
