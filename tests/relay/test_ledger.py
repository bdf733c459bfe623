"""The ledger over every store: what goes in comes out, rows only move forward."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.harness.waits import eventually

from hermes_bridge.db.base import Database, Row
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.index import SearchIndex
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql import words
from hermes_bridge.relay.sql.rows import agent_row, exchange_row

pytestmark = pytest.mark.anyio

Make = Callable[[], Database]
NOW = 1_796_065_547_875


def exchange(rid: str, at: int = NOW, **changes: Any) -> Exchange:
    base: dict[str, Any] = {
        "rid": rid,
        "conv": "c1",
        "asker": "a",
        "target": "b",
        "message": f"question {rid}",
        "at": at,
        "cap": at + 3_600_000,
        "window": 120_000,
        "status": Status.OK,
        "ended_at": at + 5,
        "answer": f"answer {rid}",
        "order": (1, 1),
    }
    return Exchange(**{**base, **changes})


async def opened(make: Make) -> Ledger:
    ledger = Ledger(make())
    await ledger.open()
    return ledger


async def put(ledger: Ledger, *exchanges: Exchange) -> None:
    await ledger.write([exchange_row(x) for x in exchanges], [])


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


async def test_a_search_finds_words_in_every_text(new_database: Make) -> None:
    ledger = await opened(new_database)
    await put(
        ledger,
        exchange("r1", at=NOW, message="The Invoice is late"),
        exchange("r2", at=NOW + 1, answer="invoice 4711 was sent"),
        exchange("r3", at=NOW + 2, status=Status.FAILED, answer=None, reason="no invoice here"),
        exchange("r4", at=NOW + 3, message="100% of_it"),
        exchange("r5", at=NOW + 4, target="invoice-bot"),
    )
    assert [x.rid for x in await ledger.search("INVOICE")] == ["r5", "r3", "r2", "r1"]
    assert [x.rid for x in await ledger.search("invoice", limit=2)] == ["r5", "r3"]
    assert [x.rid for x in await ledger.search("100% of_")] == ["r4"]
    assert await ledger.search("100_") == []
    await ledger.database.close()


async def indexed(ledger: Ledger, step: int = 3) -> None:
    while await ledger.read_words(step):
        pass


def old(n: int, **changes: Any) -> Exchange:
    """One that lies behind the newest ones, which a search reads through anyway."""
    return exchange(f"old{n}", at=NOW - 1_000_000 + n, **changes)


async def with_history(make: Make, *exchanges: Exchange) -> Ledger:
    ledger = await opened(make)
    await put(ledger, *exchanges)
    await put(ledger, *(exchange(f"new{n}", at=NOW + n, message="other") for n in range(2_000)))
    await indexed(ledger, 500)
    return ledger


async def test_a_search_finds_what_is_old_by_the_beginnings_of_its_words(
    new_database: Make,
) -> None:
    ledger = await with_history(
        new_database,
        old(1, message="Rechnung für MÜLLER über 4711 €"),
        old(2, answer="The invoice of Muller GmbH is file/under-4711"),
        old(3, message="' OR 1=1 -- \" * : & | ! ( ) <->", answer="x_y"),
        old(4, status=Status.TIMEOUT, answer=None, late_answer="very late words", late_at=NOW),
        old(5, message="日本語のテスト"),
    )
    found = {
        text: {x.rid for x in await ledger.search(text) if x.rid.startswith("old")}
        for text in ("muller 47", "MÜLL", "invoice mull", "late wor", "日本", "ünder", "nothing")
    }
    assert found == {
        "muller 47": {"old1", "old2"},
        "MÜLL": {"old1", "old2"},
        "invoice mull": {"old2"},
        "late wor": {"old4"},
        "日本": {"old5"},
        "ünder": {"old2"},
        "nothing": set(),
    }
    assert {x.rid for x in await ledger.search("file/under")} == {"old2"}
    assert {x.rid for x in await ledger.search("file-under")} == set()
    for hostile in ("' OR 1", '"', "*", "a' | b", "' & '", "NEAR(", "\\", ":*", " ", "x_y"):
        await ledger.search(hostile)
    await ledger.database.close()


async def test_a_search_finds_what_waits_for_the_index(new_database: Make) -> None:
    ledger = await opened(new_database)
    await put(ledger, old(1, message="the Unicorn of last year"))
    await put(ledger, *(exchange(f"new{n}", at=NOW + n, message="other") for n in range(2_001)))
    assert [x.rid for x in await ledger.search("unicorn")] == ["old1"]
    await indexed(ledger, 500)
    assert [x.rid for x in await ledger.search("unicorn")] == ["old1"]
    await ledger.database.close()


async def test_of_several_words_only_those_are_looked_up_that_few_exchanges_hold(
    new_database: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "SMALL", 0)  # take a sample of a small index too
    ledger = await with_history(new_database, old(1, message="the Unicorn and other words"))
    asked: list[str] = []
    scan = ledger.database.scan

    async def noted(sql: str, *args: Any) -> list[Row]:
        asked.extend(str(arg) for arg in args if "MATCH" in sql or "known" in sql)
        return await scan(sql, *args)

    monkeypatch.setattr(ledger.database, "scan", noted)
    assert await ledger.holding(["othe"]) is None
    assert not asked  # that would take the longer the more hold it
    assert await ledger.holding(["othe", "unic"]) == ["old1"]
    assert asked
    assert "othe" not in asked[0]
    assert await ledger.holding(["nowhere", "othe"]) == []
    assert [x.rid for x in await ledger.search("other unicorn")] == ["old1"]
    assert await ledger.search("another unicorn") == []
    assert len(await ledger.search("other", 50)) == 50
    await ledger.database.close()


async def test_a_late_answer_is_indexed_again_and_what_is_forgotten_is_not_found(
    new_database: Make,
) -> None:
    ledger = await with_history(new_database, old(1, status=Status.TIMEOUT, answer=None))
    assert await ledger.search("afterwards") == []
    await put(
        ledger,
        old(1, status=Status.TIMEOUT, answer=None, late_answer="told afterwards", late_at=NOW),
    )
    await indexed(ledger)
    assert [x.rid for x in await ledger.search("afterwards")] == ["old1"]
    assert await ledger.forget(NOW, 10) == 1
    assert await ledger.search("afterwards") == []
    await indexed(ledger)
    tables = ["hermes_bridge_unread", "hermes_bridge_words"]
    left = [(await ledger.database.scan(f"SELECT count(*) FROM {t}"))[0][0] for t in tables]
    assert left == [0, 2_000]
    await ledger.database.close()


async def test_what_changes_while_it_is_indexed_is_indexed_again(new_database: Make) -> None:
    ledger = await with_history(new_database)
    store = ledger.database
    await put(ledger, old(1, status=Status.TIMEOUT, answer=None))
    rows = await store.scan(words.NEXT_UNREAD, 10)
    late = old(1, status=Status.TIMEOUT, answer=None, late_answer="in between", late_at=NOW)
    await put(ledger, late)
    await store.write(*words.read(store.dialect, rows))
    await indexed(ledger)
    assert [x.rid for x in await ledger.search("between")] == ["old1"]
    await store.close()


async def test_what_is_deleted_while_it_is_indexed_leaves_no_word(new_database: Make) -> None:
    ledger = await with_history(new_database)
    store = ledger.database
    await put(ledger, old(1, message="gone"), old(2, message="soon gone"))
    rows = await store.scan(words.NEXT_UNREAD, 10)
    assert await ledger.forget(old(2).at, 10) == 1
    await store.write(*words.read(store.dialect, rows))
    assert [row[0] for row in await store.scan(*words.matching(store.dialect, ["gone"]), 10)] == [
        "old2"
    ]
    assert await ledger.forget(NOW, 10) == 1
    tables = [words.WORDS, words.UNREAD] + [words.IDS] * (store.dialect == "sqlite")
    left = [(await store.scan(f"SELECT count(*) FROM {t}"))[0][0] for t in tables]
    assert left == [2_000, 0, 2_000][: len(left)]
    await store.close()


@pytest.mark.postgres
async def test_a_deletion_waits_for_the_indexing_of_the_same_exchange(postgres_url: str) -> None:
    """Two transactions of PostgreSQL beside each other, whichever was first."""
    ledger = Ledger(PostgresDatabase(postgres_url))
    await ledger.open()
    await put(ledger, old(1), old(2))
    put_words, _ = words.read("postgres", await ledger.database.scan(words.NEXT_UNREAD, 10))
    other = await asyncpg.connect(postgres_url)
    async with other.transaction():
        await other.execute(put_words.sql, *put_words.args)
        deleting = asyncio.get_running_loop().create_task(ledger.forget(NOW, 10))
        looker = await asyncpg.connect(postgres_url)
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        await eventually(lambda: looker.fetchval(waiting), "waiting for a lock")
        await looker.close()
        assert not deleting.done()
    assert await deleting == 2
    assert await ledger.database.scan(f"SELECT 1 FROM {words.WORDS}") == []
    await other.close()
    await ledger.database.close()


async def test_a_store_from_before_the_index_is_read_into_it(tmp_path: Path) -> None:
    from hermes_bridge.relay.sql.schema import SCHEMA

    store = SqliteDatabase(tmp_path / "store.db")
    await store.open(SCHEMA)
    plain = Ledger(store)
    await put(plain, *(exchange(f"r{n}", message=f"word{n}") for n in range(5)))
    await store.close()
    ledger = Ledger(SqliteDatabase(tmp_path / "store.db"))
    await ledger.open()
    assert ledger.searchable
    assert await ledger.read_words(100) == 5
    assert await ledger.read_words(100) == 0
    await ledger.database.close()


async def test_very_long_texts_can_be_indexed(new_database: Make) -> None:
    ledger = await opened(new_database)
    many = " ".join(f"w{n:x}" for n in range(60_000))
    await put(ledger, exchange("r1", message=many), exchange("r2", message="x" * 250_000))
    await indexed(ledger)
    assert [x.rid for x in await ledger.search("w1f")] == ["r1"]
    await ledger.database.close()


class WithoutFts5(SqliteDatabase):
    """A SQLite that was built without full-text search, as some systems have it."""

    async def read(self, sql: str, *args: Any) -> list[Row]:
        return [] if "ENABLE_FTS5" in sql else await super().read(sql, *args)


async def test_without_full_text_search_history_is_searched_slowly_and_all_else_works(
    tmp_path: Path,
) -> None:
    ledger = Ledger(WithoutFts5(tmp_path / "store.db"))
    await ledger.open()
    assert not ledger.searchable
    await put(ledger, *(exchange(f"new{n}", at=NOW + n, message="other") for n in range(2_000)))
    await put(ledger, old(1, message="Rechnung 4711"), old(2, answer="to rechnung"))
    assert {x.rid for x in await ledger.search("rechnung")} == {"old1", "old2"}
    assert await ledger.search("nowhere") == []
    assert (await ledger.overview())["not_yet_indexed"] is None
    indexing = asyncio.get_running_loop().create_task(SearchIndex(ledger).run())
    assert await ledger.forget(NOW, 10) == 2
    assert await ledger.search("rechnung") == []
    assert not indexing.done()
    indexing.cancel()
    made = await ledger.database.scan("SELECT name FROM sqlite_master WHERE name LIKE '%words%'")
    assert made == []
    await ledger.database.close()
    able = Ledger(SqliteDatabase(tmp_path / "store.db"))  # the same file under another SQLite
    await able.open()
    assert able.searchable
    await indexed(able, 500)
    assert len(await able.search("oth", 3_000)) == 2_000
    await able.database.close()
