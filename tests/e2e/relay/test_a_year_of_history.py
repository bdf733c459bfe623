"""What did daniel-bot tell helpdesk-bot on that Tuesday, a year ago: by the page and by the command."""

import asyncio
import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import quote

import pytest
from tests.harness.relay import Make, RelayProcess

from hermes_bridge.clock import wall_ms
from hermes_bridge.relay.config import DbSection
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.rows import exchange_row
from hermes_bridge.serve import database

DAY = 86_400_000
BOTS = ("daniel-bot", "helpdesk-bot", "payroll-bot")
PAIRS = (
    ("helpdesk-bot", "daniel-bot"),
    ("daniel-bot", "helpdesk-bot"),
    ("helpdesk-bot", "payroll-bot"),
    ("payroll-bot", "daniel-bot"),
)


def tuesday_a_year_ago() -> datetime:
    day = datetime.fromtimestamp(wall_ms() / 1000, UTC) - timedelta(days=365)
    day -= timedelta(days=(day.weekday() - 1) % 7)
    return day.replace(hour=0, minute=0, second=0, microsecond=0)


def a_year(first: int) -> Iterator[Exchange]:
    """Twelve exchanges a day from an instant on until today, three of each pair."""
    for n in range((wall_ms() - first) // DAY * 12):
        day, of_day = divmod(n, 12)
        asker, target = PAIRS[of_day % 4]
        at = first + day * DAY + of_day * 7_000_000
        yield Exchange(
            rid=f"r{day:03}-{of_day:02}",
            conv=f"c{day:03}-{of_day % 4}",
            asker=asker,
            target=target,
            message=f"What is open on day {day}?",
            at=at,
            cap=at + 1,
            window=1,
            status=Status.OK,
            ended_at=at + 4_000,
            answer=f"Ticket {day}-{of_day}, zebra" if day == 9 else f"Ticket {day}-{of_day}",
        )


class Year(NamedTuple):
    relay: RelayProcess
    tuesday: datetime
    """Day 9 of the history."""

    def get(self, path: str) -> dict[str, list[dict[str, str]]]:
        status, body = self.relay.get(f"/ui/api/{path}", timeout=30)
        assert status == 200, body
        found: dict[str, list[dict[str, str]]] = json.loads(body)
        return found

    def run(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hermes_bridge", *args, "--config", self.relay.config_file],
            env={**self.relay.env, "TZ": "UTC"},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]
)
def year(
    request: pytest.FixtureRequest, module_relays: Make, tmp_path_factory: pytest.TempPathFactory
) -> Year:
    tuesday = tuesday_a_year_ago()
    if request.param == "postgres":
        server = request.getfixturevalue("shared_postgres")
        db = {"driver": "postgres", "connection_string": server.create()}
    else:
        db = {"driver": "sqlite", "path": str(tmp_path_factory.mktemp("year") / "year.db")}
    ledger = Ledger(database(DbSection(**db)))

    async def fill() -> None:
        await ledger.open()
        rows = [exchange_row(x) for x in a_year(int(tuesday.timestamp() * 1000) - 9 * DAY)]
        for begin in range(0, len(rows), 500):
            await ledger.write(rows[begin : begin + 500], [])
        while await ledger.read_words(500):
            pass
        await ledger.database.close()

    asyncio.run(fill())
    relay = module_relays(agents=BOTS, db=db, retention_days=400)
    return Year(relay, tuesday)


TOLD = ["Ticket 9-0, zebra", "Ticket 9-4, zebra", "Ticket 9-8, zebra"]
"""What daniel-bot told helpdesk-bot on that day, in the order of time."""


def test_the_page_tells_what_one_bot_told_another_on_a_day(year: Year) -> None:
    since = int(year.tuesday.timestamp() * 1000)
    of_day = f"since={since}&until={since + DAY}"
    found = year.get(f"exchanges?agent=helpdesk-bot&role=asker&with=daniel-bot&{of_day}")
    assert [x["answer"] for x in found["exchanges"]] == TOLD[::-1]
    assert found["next"] is None
    both = year.get(f"exchanges?agent=helpdesk-bot&with=daniel-bot&{of_day}")
    assert len(both["exchanges"]) == 6
    conversation = year.get(f"conversations/{quote(found['exchanges'][0]['conversation_id'])}")
    assert [x["answer"] for x in conversation["exchanges"]] == TOLD
    assert year.get(f"exchanges/{found['exchanges'][0]['request_id']}")["answer"] == TOLD[2]


def test_the_page_pages_back_to_what_was_said_first(year: Year) -> None:
    seen: list[str] = []
    before = ""
    while True:
        page = year.get(f"exchanges?agent=helpdesk-bot&role=asker&with=daniel-bot{before}")
        seen += [x["request_id"] for x in page["exchanges"]]
        if not page["next"]:
            break
        before = f"&before={page['next']}"
    assert len(seen) == len(set(seen)) >= 3 * 370
    assert seen[-1] == "r000-00"


def test_the_command_tells_what_two_bots_said_on_a_day(year: Year) -> None:
    next_day = year.tuesday + timedelta(days=1)
    args = ["--since", f"{year.tuesday:%Y-%m-%d}", "--until", f"{next_day:%Y-%m-%d}"]
    args += ["--agent", "daniel-bot", "--agent", "helpdesk-bot"]
    lines = [json.loads(line) for line in year.run("export", *args).splitlines()]
    assert len(lines) == 6
    assert [x["answer"] for x in lines if x["from"] == "helpdesk-bot"] == TOLD
    rows = list(csv.DictReader(io.StringIO(year.run("export", *args, "--format", "csv"))))
    assert [row["request_id"] for row in rows] == [line["request_id"] for line in lines]
    assert (
        f"## {year.tuesday:%Y-%m-%d} 00:00:00: helpdesk-bot to daniel-bot (ok, 4.0 s)"
        in year.run("export", *args, "--format", "md")
    )


def test_a_word_said_a_year_ago_is_found_by_page_and_command(year: Year) -> None:
    wanted = [f"r009-{n:02}" for n in range(12)][::-1]
    found = year.get("exchanges?q=zebra&limit=50")["exchanges"]
    assert [x["request_id"] for x in found] == wanted
    told = year.run("search", "zebra", "--json").splitlines()
    assert [json.loads(line)["request_id"] for line in told] == wanted
