"""Whatever the database does, asks are answered as quickly as ever; rows arrive later or are counted."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import asyncpg
import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.postgres import PostgresServer
from tests.harness.relay import Make, RelayProcess
from tests.harness.waits import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]

ASKS, PER_SECOND = 200, 20
TABLE = "hermes_bridge_exchanges"
SHORTEST_WAIT_S = 0.9
"""Less than anything of the relay's would wait for its store (a second, for a look-up). A busy machine
makes an ask late by less than that; a quiet one is asked for the ratio."""


class Took(NamedTuple):
    """One ask: when it began, and how long its answer took, in seconds."""

    began: float
    took: float


def with_postgres(relays: Make, url: str, **options: Any) -> RelayProcess:
    return relays(db={"driver": "postgres", "connection_string": url}, **options)


async def rows(url: str) -> dict[str, str]:
    """The messages that are stored, with their status."""
    connection = await asyncpg.connect(url)
    try:
        return {r[0]: r[1] for r in await connection.fetch(f"SELECT message, status FROM {TABLE}")}
    finally:
        await connection.close()


async def ask_steadily(
    relay: RelayProcess, tag: str, count: int = ASKS, *, answered: list[Took] | None = None
) -> list[Took]:
    """So many asks at 20 a second, each answered rightly (`benches/store_trouble.py` has figures)."""
    answered = answered if answered is not None else []

    async def one(a: Mcp, n: int) -> None:
        began = time.monotonic()
        answer = await a.ask("b", f"{tag} {n}")
        assert answer["answer"] == f"{tag} {n}".upper(), answer
        answered.append(Took(began, time.monotonic() - began))

    async with (
        Bot(relay, "b", hello=True) as b,
        Mcp(relay, "a") as a,
        asyncio.timeout(100),
        asyncio.TaskGroup() as group,
    ):
        b.on_wake = lambda wake: wake["message"].upper()
        for n in range(count):
            group.create_task(one(a, n))
            await asyncio.sleep(1 / PER_SECOND)
    assert len(answered) == count
    return answered


def p99(asks: list[Took]) -> float:
    return sorted(ask.took for ask in asks)[max(0, int(len(asks) * 0.99) - 1)]


def as_quick(troubled: list[Took], healthy: list[Took]) -> None:
    """The trouble cost no ask its time: p99 under twice the healthy one."""
    assert len(troubled) >= 20
    assert len(healthy) >= 20
    limit = max(2 * p99(healthy), SHORTEST_WAIT_S)
    assert p99(troubled) < limit, (p99(troubled), p99(healthy))


def waiting(relay: RelayProcess) -> int:
    return int(relay.health()["store_waiting"])


async def all_rows_arrive(relay: RelayProcess, url: str, wanted: set[str]) -> None:
    await eventually(lambda: waiting(relay) == 0, "drained", 20)
    assert relay.health()["store_lost"] == 0
    stored = await rows(url)
    assert wanted <= stored.keys()
    assert {stored[message] for message in wanted} == {"ok"}


def messages(tag: str, count: int = ASKS) -> set[str]:
    return {f"{tag} {n}" for n in range(count)}


async def test_it_starts_without_a_database_and_finds_it_later(
    relays: Make, postgres_server: PostgresServer
) -> None:
    url = postgres_server.create()
    await anyio.to_thread.run_sync(postgres_server.stop)
    relay = with_postgres(relays, url)
    status, body = relay.get("/ready")
    said = json.loads(body)
    assert (status, said["status"], said["store"]) == (200, "degraded", "down")
    early = await ask_steadily(relay, "early", 20)
    await anyio.to_thread.run_sync(postgres_server.start)
    await eventually(lambda: relay.health()["store"] == "up", "up", 20)
    assert json.loads(relay.get("/ready")[1])["status"] == "ok"
    as_quick(early, await ask_steadily(relay, "later", 20))
    await all_rows_arrive(relay, url, messages("early", 20) | messages("later", 20))
    assert relay.stop() == 0


@asynccontextmanager
async def during(work: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        group.create_task(_run(work))
        yield


async def _run(work: Callable[[], Awaitable[None]]) -> None:
    await work()


@pytest.mark.parametrize("trouble", ["stopped", "frozen"])
async def test_a_database_that_goes_away_during_asks_costs_none(
    relays: Make, postgres_server: PostgresServer, trouble: str
) -> None:
    url = postgres_server.create()
    relay = with_postgres(relays, url, chatty=True)

    answered: list[Took] = []
    outage: list[float] = []
    down = postgres_server.stop if trouble == "stopped" else postgres_server.freeze
    up = postgres_server.start if trouble == "stopped" else postgres_server.thaw

    async def break_and_mend() -> None:
        await eventually(lambda: len(answered) >= 40, "asks that were answered before", 60)
        await anyio.to_thread.run_sync(down)
        outage.append(time.monotonic())
        before = len(answered)  # an ask that waited for the store would end this test, no outage
        await eventually(lambda: len(answered) >= min(ASKS, before + 80), "answers without it", 60)
        outage.append(time.monotonic())
        await anyio.to_thread.run_sync(up)

    async with during(break_and_mend):
        await ask_steadily(relay, "x", answered=answered)
    troubled = [ask for ask in answered if outage[0] <= ask.began < outage[1]]
    as_quick(troubled, [ask for ask in answered if ask not in troubled])
    await all_rows_arrive(relay, url, messages("x"))
    await anyio.to_thread.run_sync(down)
    await ask_steadily(relay, "last", 2)
    assert await anyio.to_thread.run_sync(relay.stop) == 0  # a dead store holds up no end either
    assert relay.events("store.not_drained")[0]["rows"] == 2


async def test_a_statement_that_hangs_for_half_a_minute_costs_no_ask(
    relays: Make, postgres_url: str
) -> None:
    relay = with_postgres(relays, postgres_url, chatty=True)
    healthy = await ask_steadily(relay, "healthy", 20)
    await all_rows_arrive(relay, postgres_url, messages("healthy", 20))
    locked = asyncio.Event()

    async def lock() -> None:
        other = await asyncpg.connect(postgres_url)
        async with other.transaction():
            await other.execute(f"LOCK TABLE {TABLE} IN ACCESS EXCLUSIVE MODE")
            locked.set()
            await asyncio.sleep(30)
        await other.close()

    async with during(lock):
        await locked.wait()
        as_quick(await ask_steadily(relay, "x"), healthy)
        assert waiting(relay) == ASKS  # all of them were answered while nothing could be written
    await all_rows_arrive(relay, postgres_url, messages("x"))
    assert relay.stop() == 0


async def test_a_full_disk_costs_no_ask(relays: Make, postgres_url: str) -> None:
    relay = with_postgres(relays, postgres_url, chatty=True)
    healthy = await ask_steadily(relay, "healthy", 20)
    await all_rows_arrive(relay, postgres_url, messages("healthy", 20))
    other = await asyncpg.connect(postgres_url)
    await other.execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE='53100'; END $$; "
        f"CREATE TRIGGER full_disk BEFORE INSERT ON {TABLE} EXECUTE FUNCTION full_disk()"
    )
    as_quick(await ask_steadily(relay, "x", 40), healthy)
    assert relay.health()["store"] == "down"
    shown = json.loads(relay.get("/ui/api/exchanges?q=healthy&limit=50", timeout=30)[1])
    assert len(shown["exchanges"]) == 20  # a full disk can still be read
    await other.execute(f"DROP TRIGGER full_disk ON {TABLE}")
    await other.close()
    await all_rows_arrive(relay, postgres_url, messages("x", 40))
    assert relay.stop() == 0


async def test_open_asks_outlive_the_relay_on_postgres(relays: Make, postgres_url: str) -> None:
    relay = with_postgres(relays, postgres_url)
    async with Mcp(relay, "a") as a:
        given = await a.tool(
            "ask_agent", {"to": "b", "message": "later", "if_offline": "queue", "wait_ms": 0}
        )
        await eventually(lambda: waiting(relay) == 0, "written")
    relay.restart()
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: wake["message"].upper()
        got = await a.tool("wait_answer", {"request_id": given["request_id"]})
        assert got["answer"] == "LATER"
    assert relay.stop() == 0
