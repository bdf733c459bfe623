"""Search over every store: words old and new, indexed or not, and what deletion leaves of them."""

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.harness.waits import eventually
from tests.relay.stored import NOW, Make, exchange, opened, put

from hermes_bridge.db.base import Row
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.index import SearchIndex
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql import words

pytestmark = pytest.mark.anyio


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
