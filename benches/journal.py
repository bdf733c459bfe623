"""What a stored ask costs: CPU of this process per exchange, on SQLite and on PostgreSQL.

    python -m benches.journal [--rate 1000] [--burst]      # a PostgreSQL of its own, from the wheel

`paced` notes exchanges at a steady rate, each when it opens and when it ends, as the relay does;
`burst` gives 5,000 a second for 10 s and says how long after it the last row was stored.
"""

import argparse
import asyncio
import json
import time

from benches import sample
from benches.sample import end, exchange

from hermes_bridge.clock import SystemClock
from hermes_bridge.db.base import Database
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.db.sqlite import SqliteDatabase
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.journal import Journal
from hermes_bridge.relay.ledger import Ledger


async def drive(store: Database, rate: int, seconds: float, ask_s: float) -> dict[str, float]:
    """Note `rate` exchanges a second; each ends `ask_s` later."""
    ledger, clock = Ledger(store), SystemClock()
    await ledger.open()
    journal = Journal(ledger, clock, bound=200_000)
    late = 0.0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(journal.run())
        count, fly = 0, []
        began, cpu = time.perf_counter(), time.process_time()
        while (passed := time.perf_counter() - began) < seconds:
            due = int(passed * rate)
            now = clock.now()
            while count < due:
                x = exchange(now)
                journal.note(x)
                fly.append((passed + ask_s, x))
                count += 1
            while fly and fly[0][0] <= passed:
                _, x = fly.pop(0)
                end(x, now)
                journal.note(x)
            tick = time.perf_counter()
            await asyncio.sleep(0.005)
            late = max(late, time.perf_counter() - tick - 0.005)
        for _, x in fly:
            end(x, clock.now())
            journal.note(x)
        stopped = time.perf_counter()
        assert await journal.drain(120)
        spent, lag = time.process_time() - cpu, time.perf_counter() - stopped
        task.cancel()
    stored = (await store.scan("SELECT count(*) FROM hermes_bridge_exchanges"))[0][0]
    await store.close()
    return {
        "exchanges": count,
        "stored": stored,
        "lost": journal.lost,
        "cpu_us_per_exchange": round(spent / count * 1e6, 1),
        "last_row_after_s": round(lag, 2),
        "longest_stall_ms": round(late * 1000, 1),
    }


async def idle(rate: int, seconds: float, ask_s: float) -> float:
    """The driver's own CPU per exchange, in us: to be taken off the figures."""
    clock, cpu, began, count = SystemClock(), time.process_time(), time.perf_counter(), 0
    fly: list[tuple[float, Exchange]] = []
    while (passed := time.perf_counter() - began) < seconds:
        now = clock.now()
        while count < int(passed * rate):
            fly.append((passed + ask_s, exchange(now)))
            count += 1
        while fly and fly[0][0] <= passed:
            end(fly.pop(0)[1], now)
        await asyncio.sleep(0.005)
    return (time.process_time() - cpu) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--burst", action="store_true")
    given = parser.parse_args()
    import uvloop

    rate, seconds = (5_000, 10.0) if given.burst else (given.rate, 4.0)
    with (
        sample.folder() as folder,
        sample.postgres(folder) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        best: dict[str, float] = {}
        for turn in range(given.runs):
            own = runner.run(idle(rate, 2.0, 0.05))
            stores: list[tuple[str, Database]] = [
                ("sqlite", SqliteDatabase(folder / f"bench{turn}.db")),
                ("postgres", PostgresDatabase(server.create())),
            ]
            for kind, store in stores:
                found = runner.run(drive(store, rate, seconds, 0.05))
                net = round(found["cpu_us_per_exchange"] - own, 1)
                best[kind] = min(best.get(kind, net), net)
                print(kind, json.dumps({**found, "net_us": net}))
        print("best net CPU us per exchange", json.dumps(best))


if __name__ == "__main__":
    main()
