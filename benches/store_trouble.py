"""What asks notice of a database in trouble: 200 asks at 20 a second, healthy and not.

    python -m benches.store_trouble

A relay and a PostgreSQL of its own (from the wheel); one relay for all phases. `stopped`: the server
is stopped 2 s into the asks and started 4 s later; `frozen`: it hangs for as long; `locked`: one
statement hangs for the whole time. Shown: milliseconds from ask to answer, rows that were lost.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable

import asyncpg
from benches import sample
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.postgres import PostgresServer
from tests.harness.relay import RelayProcess

ASKS, PER_SECOND = 200, 20


async def asks(relay: RelayProcess, tag: str) -> list[float]:
    took: list[float] = []

    async def one(a: Mcp, n: int) -> None:
        began = time.perf_counter()
        answer = await a.ask("b", f"{tag} {n}")
        took.append((time.perf_counter() - began) * 1000)
        assert answer["answer"] == "yes", answer

    async with (
        Bot(relay, "b", hello=True) as b,
        Mcp(relay, "a") as a,
        asyncio.TaskGroup() as group,
    ):
        b.on_wake = lambda wake: "yes"
        for n in range(ASKS):
            group.create_task(one(a, n))
            await asyncio.sleep(1 / PER_SECOND)
    return sorted(took)


async def run(relay: RelayProcess, server: PostgresServer, url: str) -> None:
    async def nothing() -> None:
        pass

    async def away(down: Callable[[], None], up: Callable[[], object]) -> None:
        await asyncio.sleep(2)
        await asyncio.to_thread(down)
        await asyncio.sleep(4)
        await asyncio.to_thread(up)

    async def lock() -> None:
        other = await asyncpg.connect(url)
        async with other.transaction():
            await other.execute("LOCK TABLE hermes_bridge_exchanges IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(ASKS / PER_SECOND)
        await other.close()

    phases: list[tuple[str, Callable[[], Awaitable[None]]]] = [
        ("warm", nothing),
        ("healthy", nothing),
        ("stopped", lambda: away(server.stop, server.start)),
        ("healthy", nothing),
        ("frozen", lambda: away(server.freeze, server.thaw)),
        ("locked", lock),
        ("healthy", nothing),
    ]
    for name, trouble in phases:
        cpu = relay.cpu_s()
        async with asyncio.TaskGroup() as group:
            group.create_task(_await(trouble))
            found = group.create_task(asks(relay, name))
        took = found.result()
        spent = (relay.cpu_s() - cpu) / ASKS * 1000
        while relay.health()["store_waiting"]:
            await asyncio.sleep(0.2)
        print(
            json.dumps(
                {
                    "phase": name,
                    "p50_ms": round(took[len(took) // 2], 1),
                    "p99_ms": round(took[int(len(took) * 0.99) - 1], 1),
                    "max_ms": round(took[-1], 1),
                    "cpu_ms_per_ask": round(spent, 2),
                    "lost": relay.health()["store_lost"],
                }
            )
        )


async def _await(trouble: Callable[[], Awaitable[None]]) -> None:
    await trouble()


def main() -> None:
    with sample.folder() as folder, sample.postgres(folder) as server:
        url = server.create()
        db = {"driver": "postgres", "connection_string": url}
        relay = RelayProcess(folder / "relay", {"db": db}).start()
        try:
            asyncio.run(run(relay, server, url))
        finally:
            relay.stop()


if __name__ == "__main__":
    main()
