"""`db`, `export` and `search`, as a person calls them."""

import asyncio
import csv
import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Cli

from hermes_bridge.clock import wall_ms
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.rows import agent_row, exchange_row

DAY = 86_400_000


def exchange(rid: str, at: int, **changes: Any) -> Exchange:
    base: dict[str, Any] = {
        "rid": rid,
        "conv": "c1",
        "asker": "daniel-bot",
        "target": "helpdesk-bot",
        "message": f"question {rid}",
        "at": at,
        "cap": at + 1,
        "window": 1,
        "status": Status.OK,
        "ended_at": at + 2_500,
        "answer": f"answer {rid}",
    }
    return Exchange(**{**base, **changes})


def fill(path: Path, *exchanges: Exchange) -> None:
    async def work() -> None:
        ledger = Ledger(SqliteDatabase(path))
        await ledger.open()
        await ledger.write([exchange_row(x) for x in exchanges], [agent_row("b", 5, linked=False)])
        await ledger.database.close()

    asyncio.run(work())


def configure(cli: Cli, **db: Any) -> Path:
    config = {
        "agents": [{"name": "daniel-bot", "token": "x" * 20}],
        "db": db or {"driver": "sqlite", "path": "store.db"},
    }
    (cli.folder / "config.yaml").write_text(yaml.safe_dump(config))
    return cli.folder / "store.db"


def test_history_is_exported_as_lines_of_json(cli: Cli) -> None:
    now = wall_ms()
    path = configure(cli)
    fill(
        path,
        exchange("old", now - 10 * DAY),
        exchange("r1", now - DAY, data=b'{"n":1}', answer="l'été \N{PILE OF POO}"),
        exchange("r2", now, asker="x", target="y", status=Status.SENT, ended_at=0, answer=None),
    )
    ran = cli("export", "--since", "2d")
    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in ran.out.splitlines()]
    assert [line["request_id"] for line in lines] == ["r1", "r2"]
    assert (lines[0]["data"], lines[0]["answer"]) == ({"n": 1}, "l'été \N{PILE OF POO}")
    assert (lines[0]["duration_ms"], lines[1]["ended_at"]) == (2_500, None)
    everything = cli("export").out.splitlines()
    assert len(everything) == 3
    assert len(cli("export", "--agent", "y").out.splitlines()) == 1
    assert len(cli("export", "--until", "5d").out.splitlines()) == 1
    assert cli("export", "--conversation", "no").out == ""


def test_a_table_holds_no_formula_and_a_text_cannot_leave_its_fence(cli: Cli) -> None:
    path = configure(cli)
    hostile = '=HYPERLINK("http://x")\n```\n# not a heading, "quoted", \'x\''
    fill(path, exchange("r1", wall_ms(), message=hostile))
    rows = list(csv.DictReader(io.StringIO(cli("export", "--format", "csv").out)))
    assert rows[0]["message"] == "'" + hostile
    ran = cli("export", "--format", "md", "-o", "out.md")
    assert (ran.code, ran.out) == (0, "")
    assert f"````text\n{hostile}\n````" in (cli.folder / "out.md").read_text()


def test_a_search_shows_who_said_it(cli: Cli) -> None:
    path = configure(cli)
    fill(path, exchange("r1", wall_ms(), message="x " * 100 + "the INVOICE\x1b[31m came"))
    ran = cli("search", "invoice")
    assert ran.code == 0
    assert "daniel-bot -> helpdesk-bot" in ran.out
    assert "INVOICE" in ran.out
    assert "\x1b" not in ran.out
    assert json.loads(cli("search", "invoice", "--json").out)["request_id"] == "r1"
    nothing = cli("search", "nothing at all")
    assert (nothing.code, nothing.out) == (1, "")


def test_the_state_of_the_store_is_told(cli: Cli) -> None:
    path = configure(cli)
    missing = cli("db", "status")
    assert missing.code == 2
    assert not path.exists()
    fill(path, exchange("r1", wall_ms()), exchange("r2", wall_ms(), status=Status.SENT, ended_at=0))
    found = json.loads(cli("db", "status", "--json").out)
    assert (found["exchanges"], found["open"], found["agents"]) == (2, 1, 1)
    assert cli("db", "migrate").code == 0
    assert "exchanges" in cli("db", "status").out


def test_to_ask_for_the_state_of_an_older_store_changes_nothing(cli: Cli) -> None:
    path = configure(cli)
    file = sqlite3.connect(path)
    file.execute(
        "CREATE TABLE hermes_bridge_exchanges (request_id text PRIMARY KEY, conversation_id text, "
        "from_agent text, to_agent text, message text, status text, answer text, error text, "
        "started_at bigint, ended_at bigint)"
    )
    told = cli("db", "status")
    assert told.code == 0, told.err
    assert "steps behind" in told.out
    columns = "SELECT count(*) FROM pragma_table_info('hermes_bridge_exchanges')"
    assert file.execute(columns).fetchone() == (10,)
    assert cli("db", "migrate").code == 0
    found = json.loads(cli("db", "status", "--json").out)
    assert (found["tables"], found["exchanges"]) == ("up to date", 0)
    assert file.execute(columns).fetchone() > (10,)
    file.close()


@pytest.mark.parametrize(
    ("args", "db"),
    [
        (("export", "--since", "yesterday-ish"), {}),
        (("export", "--until", "9999-12-31T23:59:59-23:59"), {}),
        (("export",), {"driver": "memory"}),
        (("db", "copy", "no-such-file.db", "other.db"), {}),
        (("db", "copy", "a.db", "a.db"), {}),
        (("db", "copy", "mysql://x/y", "other.db"), {}),
    ],
)
def test_a_mistake_is_explained(cli: Cli, args: tuple[str, ...], db: dict[str, str]) -> None:
    configure(cli, **db)
    ran = cli(*args)
    assert ran.code == 2
    assert ran.err.startswith("hermes-bridge: ")
    assert not (cli.folder / "other.db").exists()


def test_an_export_from_a_store_that_does_not_answer_empties_no_file(cli: Cli) -> None:
    configure(cli, driver="postgres", connection_string="postgresql://h:p@127.0.0.1:1/x")
    (cli.folder / "week.jsonl").write_text("of last week")
    assert cli("export", "-o", "week.jsonl").code == 1
    assert (cli.folder / "week.jsonl").read_text() == "of last week"


def test_an_export_to_where_nobody_may_write_is_explained(cli: Cli) -> None:
    configure(cli)
    cli("db", "migrate")
    ran = cli("export", "-o", "nowhere/week.jsonl")
    assert ran.code == 2
    assert "nowhere/week.jsonl cannot be written" in ran.err and "--output" in ran.err


def test_a_database_that_does_not_answer_is_named_without_its_password(cli: Cli) -> None:
    url = "postgresql://hermes:very-secret@127.0.0.1:1/x"
    configure(cli, driver="postgres", connection_string=url)
    ran = cli("db", "status")
    assert ran.code == 1
    assert "The store (PostgreSQL at 127.0.0.1:1/x) does not answer" in ran.err
    assert "very-secret" not in ran.err


@pytest.mark.postgres
def test_the_file_that_init_wrote_takes_postgres_from_the_environment(
    cli: Cli, postgres_url: str
) -> None:
    assert cli("init").code == 0
    told = cli("db", "status", DATABASE_URL=postgres_url)
    assert told.out.startswith(
        f"store                  PostgreSQL at {postgres_url.partition('@')[2]}"
    )


def everything(ledger: Ledger) -> Any:
    async def work() -> Any:
        await ledger.open()
        rows = await ledger.rows_since(0, "", 10_000)
        agents = await ledger.agents()
        await ledger.database.close()
        return rows, agents

    return asyncio.run(work())


@pytest.mark.postgres
def test_a_store_is_copied_to_postgres_and_back_unchanged(cli: Cli, postgres_url: str) -> None:
    now = wall_ms()
    path = configure(cli)
    special = {"status": Status.TIMEOUT, "answer": None, "late_answer": "x", "late_at": now}
    fill(
        path,
        *(exchange(f"r{n:04d}", now + n // 7) for n in range(1_203)),
        exchange("late", now, data=b"[1]", chain=("a", "b"), keyed=True, **special),
        exchange("open", now, status=Status.SENT, ended_at=0, answer=None),
    )
    for source, target in (("store.db", postgres_url), (postgres_url, "back.db")):
        for _ in range(2):
            ran = cli("db", "copy", source, target)
            assert (ran.code, ran.err) == (0, ""), ran.err
    whole = everything(Ledger(SqliteDatabase(path)))
    assert len(whole[0]) == 1_205
    assert everything(Ledger(PostgresDatabase(postgres_url))) == whole
    assert everything(Ledger(SqliteDatabase(cli.folder / "back.db"))) == whole
