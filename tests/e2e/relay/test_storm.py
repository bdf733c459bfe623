"""Links that drop at any moment: every ask still ends, once, with its own answer."""

import asyncio
import random

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, RelayProcess, crowd
from tests.harness.wire import Json

pytestmark = pytest.mark.anyio

Told = list[tuple[str, Json]]
"""Messages and what became of them."""


ENDS = ("timeout", "agent_disconnected", "agent_offline", "deadline_exceeded")


async def unreliable(relay: RelayProcess, name: str, dice: random.Random) -> None:
    """A bot that answers most wakes, and whose link drops again and again (to be cancelled)."""
    while True:
        async with Bot(relay, name, hello=dice.random() < 0.5) as bot:
            bot.on_wake = lambda wake: (
                None if dice.random() < 0.3 else "answer to " + wake["message"]
            )
            await asyncio.sleep(dice.uniform(0.01, 0.25))
            if dice.random() < 0.7:
                bot.vanish()


async def asks(relay: RelayProcess, number: int, whom: list[str], dice: random.Random) -> Told:
    """Ask six times, each to its end."""
    told = []
    async with Mcp(relay, relay.agent()) as client:
        for turn in range(6):
            message = f"{number}.{turn}"
            first = await client.ask(dice.choice(whom), message, wait_ms=1500)
            told.append((message, await client.outcome(first)))
    return told


@pytest.mark.clause("bridge.life.1")
async def test_in_a_storm_of_lost_links_every_ask_ends_once(relays: Make) -> None:
    """S3: bots drop at any moment, also between the ask and its wake."""
    relay = relays(
        agents=crowd(14), ask_timeout_ms=600, ask_max_ms=3000, reconnect_grace_ms=300, hold_ms=2000
    )
    dice = random.Random(7)
    names = [relay.agent() for _ in range(6)]
    storm = [asyncio.create_task(unreliable(relay, name, dice)) for name in names]
    try:
        async with asyncio.timeout(60):
            told = await asyncio.gather(*(asks(relay, n, names, dice) for n in range(8)))
    finally:
        for bot in storm:
            bot.cancel()
        await asyncio.gather(*storm, return_exceptions=True)
    results = [result for each in told for result in each]
    assert len({result["request_id"] for _, result in results}) == len(results) == 8 * 6
    for message, result in results:
        if result["ok"]:
            assert result["answer"] == "answer to " + message
        else:
            assert result["error"] in ENDS
    assert any(result["ok"] for _, result in results)
