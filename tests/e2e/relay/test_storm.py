"""Links that drop at any moment: every ask still ends, once, with its own answer."""

import asyncio
import random

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, crowd
from tests.harness.wire import Json

pytestmark = pytest.mark.anyio


@pytest.mark.clause("bridge.life.1")
async def test_in_a_storm_of_lost_links_every_ask_ends_once(relays: Make) -> None:
    """S3: bots drop at any moment, also between the ask and its wake."""
    relay = relays(
        agents=crowd(14), ask_timeout_ms=600, ask_max_ms=3000, reconnect_grace_ms=300, hold_ms=2000
    )
    dice = random.Random(7)
    names = [relay.agent() for _ in range(6)]
    stopping = asyncio.Event()
    answered: dict[str, int] = {}

    async def unreliable(name: str) -> None:
        while not stopping.is_set():
            async with Bot(relay, name, hello=dice.random() < 0.5) as bot:

                def answer(wake: Json) -> str | None:
                    if dice.random() < 0.3:
                        return None
                    answered[wake["request_id"]] = answered.get(wake["request_id"], 0) + 1
                    return "answer to " + wake["message"]

                bot.on_wake = answer
                await asyncio.sleep(dice.uniform(0.01, 0.25))
                if dice.random() < 0.7:
                    bot.vanish()
                await asyncio.sleep(0)

    async def asks(number: int) -> list[tuple[str, Json]]:
        said = []
        async with Mcp(relay, relay.agent()) as client:
            for turn in range(6):
                message = f"{number}.{turn}"
                first = await client.ask(dice.choice(names), message, wait_ms=1500)
                said.append((message, await client.outcome(first)))
        return said

    async def bots() -> None:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(unreliable(name))

    storm = asyncio.create_task(bots())
    try:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            tasks = [group.create_task(asks(number)) for number in range(8)]
    finally:
        stopping.set()
        storm.cancel()
        await asyncio.gather(storm, return_exceptions=True)
    results = [result for task in tasks for result in task.result()]
    assert len(results) == 8 * 6
    for message, result in results:
        if result["ok"]:
            assert result["answer"] == "answer to " + message
        else:
            assert result["error"] in (
                "timeout",
                "agent_disconnected",
                "agent_offline",
                "deadline_exceeded",
            )
    assert any(result["ok"] for _, result in results)
