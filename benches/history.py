"""A long history: filling the index, searching, deleting; on SQLite and on PostgreSQL.

python -m benches.history [--rows 200000] [--store sqlite|postgres]
"""

import argparse
import asyncio
import json
import random
import time

from benches import sample

from hermes_bridge.db.base import Database
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.ids import new_id
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.rows import exchange_row

BEGAN = 1_790_000_000_000
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in ("an", "er", "is", "ol") for c in "aeiou"]


def exchange(n: int, dice: random.Random) -> Exchange:
    at = BEGAN + n * 1_000
    said = " ".join(dice.choices(WORDS, k=24))
    return Exchange(
        rid=new_id(at),
        conv=new_id(at),
        asker=f"agent{n % 50}",
        target=f"agent{n % 49}",
        message=said + (" needle" if n % 50_000 == 7 else ""),
        at=at,
        cap=at,
        window=1,
        status=Status.OK,
        ended_at=at + 900,
        answer=said[::-1],
    )


async def run(store: Database, rows: int) -> dict[str, float]:
    ledger, dice = Ledger(store), random.Random(7)
    await ledger.open()
    began = time.perf_counter()
    for begin in range(0, rows, 500):
        batch = [exchange_row(exchange(n, dice)) for n in range(begin, min(rows, begin + 500))]
        await ledger.write(batch, [])
    out = {"rows": rows, "written_s": round(time.perf_counter() - began, 1)}
    began, cpu = time.perf_counter(), time.process_time()
    while await ledger.read_words(500):
        pass
    out["indexed_s"] = round(time.perf_counter() - began, 1)
    out["index_cpu_us_per_row"] = round((time.process_time() - cpu) / rows * 1e6, 1)
    for name, text in (
        ("rare", "needle"),
        ("common", "bana"),
        ("two", "bana kero"),
        ("none", "zz"),
    ):
        took = []
        for _ in range(5):
            began = time.perf_counter()
            found = await ledger.search(text, 50)
            took.append((time.perf_counter() - began) * 1000)
        out[f"search_{name}_ms"] = round(min(took), 1)
        out[f"found_{name}"] = len(found)
    took = []
    for _ in range(20):
        began = time.perf_counter()
        assert await ledger.forget(BEGAN + rows * 1_000, 500) == 500
        took.append((time.perf_counter() - began) * 1000)
    out["delete_500_ms"] = round(sorted(took)[10], 1)
    out["delete_500_longest_ms"] = round(max(took), 1)
    await store.close()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    given = parser.parse_args()
    with sample.folder() as folder:
        if given.store == "sqlite":
            store = SqliteDatabase(folder / "history.db")
            print("sqlite", json.dumps(asyncio.run(run(store, given.rows))))
            print("file MB", round((folder / "history.db").stat().st_size / 1e6))
            return
        with sample.postgres(folder) as server:
            store_pg = PostgresDatabase(server.create())
            print("postgres", json.dumps(asyncio.run(run(store_pg, given.rows))))


if __name__ == "__main__":
    main()
