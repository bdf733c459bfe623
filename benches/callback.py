"""The callback plugin beside a bare POST, in one run: latency, throughput, fairness, start.

    python benches/callback.py [latency] [throughput] [fairness] [start]

Figures are printed as a table; benches/README.md keeps them with date and machine.
"""

import asyncio
import contextlib
import json
import logging
import os
import resource
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from hermes_bridge.plugins.http_callback.intake import Call
from hermes_bridge.plugins.http_callback.outbox import Draft
from hermes_bridge.plugins.http_callback.service import Service

HERE = Path(__file__).parent
TEXT = "x" * 2000
ROWS = int(os.environ.get("ROWS", "6000"))


@contextlib.contextmanager
def receiver(delay_ms: float = 0) -> Iterator[str]:
    command = [sys.executable, str(HERE / "callback_receiver.py"), str(delay_ms)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def stats(base: str) -> dict[str, Any]:
    with urllib.request.urlopen(base + "/stats", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@contextlib.contextmanager
def service(**extra: Any) -> Iterator[Service]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        settings = {"allow": ["127.0.0.1"], "signing_secret": "s3cret", **extra}
        config = {"platforms": {"http_callback": {"extra": settings}}}
        (home / "config.yaml").write_text(json.dumps(config), "utf-8")
        made = Service(home)
        try:
            yield made
        finally:
            made.stop()
            made.desk.close()


def spread(values: list[float]) -> str:
    cuts = statistics.quantiles(values, n=100)
    return f"p50 {cuts[49]:7.2f}  p95 {cuts[94]:7.2f}  p99 {cuts[98]:7.2f} ms"


async def latency(count: int = 1000) -> None:
    """One answer at a time, 2 KB: `send()`, and from its call to the receiver."""
    with receiver() as base:
        bare: list[float] = []
        async with aiohttp.ClientSession() as session:
            for _ in range(count):
                began = time.monotonic()
                body = json.dumps({"content": f"{began} {TEXT}"}).encode()
                async with session.post(base + "/bare", data=body) as answer:
                    await answer.read()
                bare.append((time.monotonic() - began) * 1000)
        arrival = stats(base)["ages"]
        with service() as running:
            running.start()
            sends: list[float] = []
            stored: dict[str, float] = {}
            for n in range(count):
                began = time.monotonic()
                await running.accept(Call(f"{base}/cb?c={n % 100}", f"{began} {n:x} {TEXT}"))
                stored[f"{n:x}"] = time.monotonic()
                sends.append((stored[f"{n:x}"] - began) * 1000)
                await asyncio.sleep(0.004)
            await until_idle(running)
            found = stats(base)
            ages = found["ages"]
            after = [(found["arrivals"][key] - at) * 1000 for key, at in stored.items()]
    print(f"bare SQLite insert, full sync    {spread(bare_inserts(count))}")
    print(f"bare POST, call to answer        {spread(bare)}")
    print(f"bare POST, call to arrival       {spread(arrival)}")
    print(f"send(), full sync                {spread(sends)}")
    print(f"send() call to arrival           {spread(ages)}")
    print(f"stored to arrival                {spread(after)}")
    added = statistics.median(ages) - statistics.median(arrival)
    print(f"added to arrival at the median   {added:11.2f} ms")


def bare_inserts(count: int) -> list[float]:
    """Give the price of the promise itself: one row of 2 KB, synced to the disk."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        db = sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE t(n INTEGER PRIMARY KEY, body BLOB)")
        for n in range(count):
            began = time.monotonic()
            db.execute("INSERT INTO t VALUES (?, ?)", (n, TEXT))
            found.append((time.monotonic() - began) * 1000)
            time.sleep(0.004)
        db.close()
    return found


async def until_idle(running: Service) -> None:
    def owed(outbox: Any, custody: Any) -> int:
        question = "SELECT EXISTS (SELECT 1 FROM deliveries WHERE finished IS NULL)"
        return int(outbox.db.execute(question).fetchone()[0])

    while await asyncio.wrap_future(running.desk.submit(owed)):
        await asyncio.sleep(0.05)


def fill(running: Service, url: str, rows: int, lanes: int, endpoint: str = "") -> None:
    """Put rows into the outbox in bulk, as if they had been stored before the worker started."""
    key = endpoint or url.partition("?")[0].replace("http://", "http://")
    body = json.dumps({"content": f"0 {TEXT}"}).encode()

    def work(start: int) -> Any:
        def put(outbox: Any, custody: Any) -> None:
            for n in range(start, min(start + 5000, rows)):
                lane = f"{key} {n % lanes}"
                draft = Draft(
                    f"msg_{key}{n}", "final", key, url, lane, lambda seq: body, 86_400_000
                )
                outbox.enqueue(draft, int(time.time() * 1000))

        return put

    for start in range(0, rows, 5000):
        running.desk.submit(work(start)).result(120)


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def throughput() -> None:
    """Rows in 100 conversations, drained by fixed numbers of workers and by the default settings."""
    for delay, counts in ((0, (1, 8, 0)), (50, (8, 0))):
        for workers in counts:
            rows = 60 * (workers or 50) if delay else ROWS // 3 if workers == 1 else ROWS
            fixed = {"concurrency": workers, "concurrency_total": workers} if workers else {}
            with receiver(delay) as base, service(**fixed) as running:
                fill(running, base + "/cb", rows, 100)
                began, used = time.monotonic(), cpu()
                running.start()
                await until_idle(running)
                times = stats(base)["paths"]["/cb"]
                spent = max(times) - began
                each = (cpu() - used) / rows * 1e6
                print(
                    f"receiver {delay:2d} ms, {workers or 'default':>7} workers: {rows / spent:7.0f}/s"
                    f"   {each:5.0f} us CPU a delivery"
                )


async def bare_throughput(count: int = 5000, workers: int = 8) -> None:
    with receiver() as base:
        body = json.dumps({"content": f"0 {TEXT}"}).encode()
        async with aiohttp.ClientSession() as session:

            async def run(share: int) -> None:
                for _ in range(share):
                    async with session.post(base + "/cb", data=body) as answer:
                        await answer.read()

            began, used = time.monotonic(), cpu()
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(run(count // workers))
            spent = time.monotonic() - began
            each = (cpu() - used) / count * 1e6
    print(
        f"bare POST,       {workers:7d} at a time: {count / spent:7.0f}/s   {each:5.0f} us CPU each"
    )


async def phase(base: str, running: Service, dead: str, seconds: float) -> list[float]:
    """Send to nine healthy endpoints (and a dead one); give the times from stored to arrived, ms."""
    end, n, stored = time.monotonic() + seconds, 0, {}
    while time.monotonic() < end:
        await running.accept(Call(f"{base}/cb{n % 9}?c={n % 90}", f"0 {n:x} {TEXT}"))
        stored[f"{n:x}"] = time.monotonic()
        if dead and n % 9 == 0:
            await running.accept(Call(f"{dead}?c={n}", f"0 dead {TEXT}"))
        n += 1
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)
    arrived = stats(base)["arrivals"]
    return [(arrived[key] - at) * 1000 for key, at in stored.items() if key in arrived]


async def fairness(seconds: float = 3.0, rounds: int = 3) -> None:
    """Nine healthy endpoints alone and beside a dead one (connections are refused), in turns."""
    alone: list[float] = []
    beside: list[float] = []
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{probe.getsockname()[1]}/cb"
    for _ in range(rounds):
        for dead, found in (("", alone), (gone, beside)):
            with receiver(5) as base, service() as running:
                running.start()
                await phase(base, running, dead, 1.0)
                found += await phase(base, running, dead, seconds)
    print(f"nine healthy endpoints alone              {spread(alone)}  ({len(alone)} delivered)")
    print(f"nine healthy endpoints beside a dead one  {spread(beside)}  ({len(beside)} delivered)")
    ratio = statistics.median(beside) / statistics.median(alone)
    tails = [statistics.quantiles(values, n=20)[18] for values in (alone, beside)]
    print(f"ratio beside/alone: median {ratio:.2f}, p95 {tails[1] / tails[0]:.2f}")


async def start(rows: int = 100_000) -> None:
    """100,000 rows wait in 1,000 conversations: from start() to the first delivery."""
    with receiver() as base, service() as running:
        fill(running, base + "/cb", rows, 1000)
        began = time.monotonic()
        running.start()
        while not (paths := stats(base)["paths"]):
            await asyncio.sleep(0.01)
        print(f"{rows} rows waiting: first delivery after {min(paths['/cb']) - began:.3f} s")


ALL = {"latency": latency, "throughput": throughput, "fairness": fairness, "start": start}


async def main(chosen: list[str]) -> None:
    logging.disable(logging.ERROR)
    for name in chosen or ALL:
        print(f"\n== {name}")
        if name == "throughput":
            await bare_throughput()
        await ALL[name]()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
