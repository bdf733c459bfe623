"""History older than `retention_days` goes, a few hundred rows at a time; the rest stays."""

import sqlite3
import time
from pathlib import Path

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make
from tests.harness.waits import eventually

pytestmark = pytest.mark.anyio
DAY = 86_400_000


def fill(path: Path, *, old: int, fresh: int) -> None:
    file = sqlite3.connect(path)
    file.execute(
        "CREATE TABLE hermes_bridge_exchanges (request_id text PRIMARY KEY, "
        "conversation_id text NOT NULL, from_agent text NOT NULL, to_agent text NOT NULL, "
        "message text NOT NULL, status text NOT NULL, answer text, error text, "
        "started_at bigint NOT NULL, ended_at bigint)"
    )
    now = int(time.time() * 1000)
    rows = [(f"old{n}", now - 8 * DAY + n) for n in range(old)]
    rows += [(f"new{n}", now - 6 * DAY + n) for n in range(fresh)]
    file.executemany(
        "INSERT INTO hermes_bridge_exchanges VALUES (?, 'c', 'a', 'b', 'm', 'ok', 'x', NULL, ?, ?)",
        [(rid, at, at + 1) for rid, at in rows],
    )
    file.commit()
    file.close()


async def test_what_is_too_old_is_deleted_while_asks_go_on(relays: Make) -> None:
    relay = relays(start=False, retention_days=7)
    fill(relay.database, old=2_300, fresh=40)
    relay.start()

    def kept() -> set[str]:
        file = sqlite3.connect(f"file:{relay.database}?mode=ro", uri=True)
        found = {r[0] for r in file.execute("SELECT request_id FROM hermes_bridge_exchanges")}
        file.close()
        return found

    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "yes"
        asked = {(await a.ask("b", "x"))["request_id"] for _ in range(20)}
        await eventually(lambda: len(kept()) == 60, "the old ones are gone", 20)
    assert kept() == asked | {f"new{n}" for n in range(40)}
    assert relay.stop() == 0
