"""The operator's page over a million exchanges: how long each question takes.

    python -m benches.page [--rows 1000000] [--store sqlite|postgres]

Fills a SQLite file under benches/out (once), or a PostgreSQL of its own (each time), starts a relay
on it, and asks every endpoint of the page again and again. Prints the median, the 99th percentile
and the slowest, in milliseconds.
"""

import argparse
import asyncio
import contextlib
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

import asyncpg
from benches import sample

from hermes_bridge.db.migrate import apply_sync
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.relay.sql.schema import EXCHANGES, SCHEMA
from hermes_bridge.relay.sql.words import IDS, SEARCH, UNREAD, WORDS as INDEX, words_of

OUT = Path(__file__).parent / "out"
AGENTS = [f"agent-{n:02}" for n in range(40)]
WEEK = 7 * 86_400_000
ROUNDS = 60
COLUMNS = (
    "request_id", "conversation_id", "from_agent", "to_agent", "message", "status", "answer",
    "started_at", "ended_at", "attempt", "sent_at", "stage",
)  # fmt: skip
WORDS = ("badge", "printer", "invoice", "ledger", "dock", "release", "site", "form", "pallet")


def rows(count: int, now: int) -> Iterator[tuple[object, ...]]:
    dice = random.Random(7)
    pairs = [(a, b) for a in AGENTS for b in AGENTS if a != b]
    busy = dice.sample(pairs, 300)
    for n in range(count):
        at = now - WEEK + n * WEEK // count
        asker, target = dice.choice(busy)
        took = int(dice.lognormvariate(9, 1.2))
        bad = dice.random() < 0.03
        text = " ".join(dice.choices(WORDS, k=30))
        needle = " unicorn" if n % 100_003 == 5 else ""
        yield (
            f"r{n:08}",
            f"c{n // 4:08}",
            asker,
            target,
            text + needle,
            "timeout" if bad else "ok",
            None if bad else text,
            at,
            at + took,
            1,
            0,
            1,
        )


def fill(path: Path, count: int) -> None:
    print(f"filling {path} with {count:,} exchanges ...", flush=True)
    store = sqlite3.connect(path, isolation_level=None)
    store.execute("PRAGMA journal_mode=WAL")
    store.execute("PRAGMA synchronous=OFF")
    store.execute("BEGIN")
    apply_sync(SCHEMA, store.execute)
    store.executemany(
        f"INSERT INTO {EXCHANGES} ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})",
        rows(count, int(time.time() * 1000)),
    )
    apply_sync(SEARCH, store.execute)
    read(store)
    store.execute("COMMIT")
    store.close()


def read(store: sqlite3.Connection) -> None:
    """Take everything into the index of words, as a relay has that runs for a while."""
    numbered = f"SELECT row_number() OVER (ORDER BY started_at), request_id FROM {EXCHANGES}"
    store.execute(f"INSERT INTO {IDS}(id, request_id) {numbered}")
    texts = store.execute(
        f"SELECT message, answer, from_agent, to_agent FROM {EXCHANGES} ORDER BY started_at"
    ).fetchall()
    said = ((n, " ".join(words_of(*row))) for n, row in enumerate(texts, 1))
    store.executemany(f"INSERT INTO {INDEX}(rowid, words) VALUES (?, ?)", said)
    store.execute(f"DELETE FROM {UNREAD}")


async def fill_postgres(url: str, count: int) -> None:
    print(f"filling PostgreSQL with {count:,} exchanges ...", flush=True)
    store = PostgresDatabase(url, write_s=900)
    await store.open(SCHEMA)
    made = rows(count, int(time.time() * 1000))
    server = await asyncpg.connect(url)
    while batch := [row for row, _ in zip(made, range(20_000), strict=False)]:
        told = [(*r[:7], *map(_instant, r[7:9]), *r[9:]) for r in batch]
        await server.copy_records_to_table(EXCHANGES, records=told, columns=COLUMNS)
    await store.open(SCHEMA, SEARCH)
    await store.close()
    await server.execute(f"TRUNCATE {UNREAD}; DROP INDEX {INDEX}_idx")
    await server.execute("CREATE TEMP TABLE said (rid text, words text)")
    made = rows(count, 0)
    while batch := [row for row, _ in zip(made, range(20_000), strict=False)]:
        said = [(r[0], " ".join(words_of(r[4], r[6], r[2], r[3]))) for r in batch]
        await server.copy_records_to_table("said", records=said)
    put = "SELECT rid, array_to_tsvector(string_to_array(words, ' ')) FROM said ORDER BY rid"
    await server.execute(f"INSERT INTO {INDEX} {put}", timeout=900)
    await server.execute(f"CREATE INDEX {INDEX}_idx ON {INDEX} USING gin (words)", timeout=900)
    await server.execute("ANALYZE", timeout=900)
    await server.close()


def _instant(ms: Any) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def start(config: Path, db: dict[str, str]) -> tuple[subprocess.Popen[str], str]:
    agents = [{"name": name, "token": f"token-of-{name}-0123456789"} for name in AGENTS]
    data = {"agents": agents, "listen": {"port": 0}, "db": db}
    config.write_text(json.dumps(data))
    code = f"from hermes_bridge.serve import run; run({str(config)!r}, {{}}, ready=print)"
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, urlsplit(process.stdout.readline().strip()).netloc


def warm(host: str) -> float:
    """Wait until the relay has counted the week by itself; give how long that took."""
    begun = time.perf_counter()
    link = HTTPConnection(host, timeout=30)
    while True:
        link.request("GET", "/ui/api/counts?range=7d")
        if json.loads(link.getresponse().read())["complete"]:
            return time.perf_counter() - begun
        time.sleep(0.25)


def measure(host: str, path: str) -> list[float]:
    times = []
    link = HTTPConnection(host, timeout=30)
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        link.request("GET", path)
        body = link.getresponse().read()
        times.append((time.perf_counter() - begun) * 1000)
        assert body
        time.sleep(0.01)
    return times


def cursors(host: str, path: str, most: int) -> list[float]:
    """Follow a question's pages, as the page does for a rare hit."""
    times, link, before = [], HTTPConnection(host, timeout=30), ""
    while len(times) < most:
        begun = time.perf_counter()
        link.request("GET", path + before)
        page = json.loads(link.getresponse().read())
        times.append((time.perf_counter() - begun) * 1000)
        if not page["next"]:
            break
        before = f"&before={page['next']}"
    return times


def line(name: str, times: list[float]) -> None:
    last = quantiles(times, n=100)[98] if len(times) > 1 else times[0]
    print(
        f"{name:58} {median(times):8.1f} {last:8.1f} {max(times):8.1f}   {len(times)}", flush=True
    )


QUESTIONS = (
    "state?cut=4000",
    "exchanges?cut=4000",
    "exchanges?cut=4000&agent=agent-07&role=target",
    "exchanges?cut=4000&status=timeout",
    "exchanges?cut=4000&status=failed",
    "exchanges?cut=4000&q=badge+invoice",
    "exchanges?cut=4000&q=unicorn",
    "exchanges?cut=4000&q=badge+unicorn",
    "exchanges?cut=4000&q=agen",  # all rows hold it
    "exchanges?cut=4000&q=agen&agent=agent-01&with=agent-02",
    "exchanges?cut=4000&q=badg&status=agent_offline",  # and none has it
    "conversations/c00100000",
    "exchanges/r00400000",
    "hour",
    "agents?range=1h",
    "agents?range=24h",
    "agents?range=7d",
    "counts?range=24h",
    "counts?range=7d",
    "agents/agent-07",
)


def ask(process: subprocess.Popen[str], host: str) -> None:
    try:
        line("the first second after the start", measure(host, "/ui/api/counts?range=7d"))
        print(f"the week is counted within {warm(host):.1f} s")
        print(f"{'':58} {'median':>8} {'p99':>8} {'max':>8}   n")
        for name in QUESTIONS:
            line(name, measure(host, f"/ui/api/{name}"))
        line("pages of a rare word", cursors(host, "/ui/api/exchanges?cut=4000&q=unicorn", 250))
        line(
            "pages of a rare status", cursors(host, "/ui/api/exchanges?cut=4000&status=failed", 60)
        )
        line(
            "pages of one pair", cursors(host, "/ui/api/exchanges?agent=agent-01&with=agent-02", 60)
        )
    finally:
        process.terminate()
        process.wait(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    given = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    config = OUT / f"page-{given.rows}.yaml"
    if given.store == "sqlite":
        path = OUT / f"page-{given.rows}.db"
        if not path.exists():
            fill(path, given.rows)
        ask(*start(config, {"path": str(path)}))
        return
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(sample.postgres(stack.enter_context(sample.folder())))
        url = server.create()
        asyncio.run(fill_postgres(url, given.rows))
        ask(*start(config, {"driver": "postgres", "connection_string": url}))


if __name__ == "__main__":
    main()
