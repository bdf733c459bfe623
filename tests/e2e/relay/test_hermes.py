"""Real Hermes gateways against a real relay: MCP tools and the seed's adapter protocol.

A gateway takes seconds to start, so one test a version holds the whole story.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.gateway import Gateway
from tests.harness.llm import Call, Say, ScriptedModel
from tests.harness.mcp import Mcp
from tests.harness.relay import Make
from tests.harness.waits import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.hermes, pytest.mark.timeout(600)]

SEED = Path(__file__).with_name("seed_adapter")
WAKE = r"request_id=(?P<rid>[\w-]+).*"


@pytest.mark.clause("bridge.link.5", "bridge.life.2", "mcp.rpc.3", "mcp.http.1")
async def test_a_gateway_with_the_seeds_adapter_asks_and_answers_through_the_relay(
    relays: Make, llm: ScriptedModel, gateways: Callable[..., Gateway]
) -> None:
    """Real MCP client code and real turns; O2, T12, S7, 4.6, 4.20, T1, T2, T6."""
    relay = relays(agents=["asker", "bot", "second", "absent"], ask_timeout_ms=6000, max_run=1000)
    server = {
        "url": relay.mcp_url,
        "headers": {"Authorization": f"Bearer {relay.token('bot')}"},
        "timeout": 60,
    }
    bot = gateways(
        "bot",
        start=False,
        plugins={"seed-adapter": SEED},
        config={"plugins": {"enabled": ["seed-adapter"]}, "mcp_servers": {"hermes-bridge": server}},
        env={"SEED_URL": relay.bridge_url, "SEED_TOKEN": relay.token("bot")},
    )
    await anyio.to_thread.run_sync(bot.start, 120)
    await eventually(lambda: relay.health()["agents_online"] == 1, "the bot online", 30)

    def reply(answer: str, delay: float = 0) -> Call:
        return Call("reply", {"request_id": "{rid}", "answer": answer}, delay=delay)

    async with Bot(relay, "second", hello=True) as second, Mcp(relay, "asker") as asker:

        async def ask(message: str, **more: object) -> str:
            said = await asker.ask("bot", message, timeout=100, **more)
            assert said["ok"], said
            return str(said["answer"])

        # The first turn of a process loads half of Hermes, and its loop stands still meanwhile.
        llm.when(WAKE + "warm up", reply("warm"), Say("done"))
        for _ in range(5):
            if (await asker.ask("bot", "warm up", timeout=100))["ok"]:
                break

        # The four-field wake of the seed starts a turn, and its answer comes back.
        llm.when(WAKE + "hello", reply("hello yourself"), Say("done"))
        assert await ask("hello") == "hello yourself"

        # Heartbeats of the adapter carry a slow turn over the window of 6 s.
        llm.when(WAKE + "slowly", reply("took my time", delay=8), Say("done"))
        began = time.monotonic()
        assert await ask("slowly") == "took my time"
        assert time.monotonic() - began > 7

        # The gateway asks a second agent through its MCP client and shows the answer.
        second.on_wake = lambda wake: "Lima" if "Peru" in wake["message"] else "?"
        question = Call("ask_agent", {"to": "second", "message": "capital of Peru?"})
        llm.when(WAKE + "find out", question, reply("second says {result}"), Say("done"))
        assert "Lima" in await ask("find out")

        # A long ask is held as a stream and comes back whole.
        async def slow(wake: dict[str, str]) -> str:
            for _ in range(8):
                await second.beat(wake["request_id"])
                await asyncio.sleep(1)
            return "at last"

        second.on_wake = slow
        question = Call("ask_agent", {"to": "second", "message": "long"})
        llm.when(WAKE + "long way", question, reply("{result}"), Say("done"))
        assert "at last" in await ask("long way")

        # O2: eight expected failures in a row do not open the client's breaker.
        failing = [Call("ask_agent", {"to": "absent", "message": f"m{i}"}) for i in range(5)]
        failing += [Call("ask_agent", {"to": "nobody", "message": f"n{i}"}) for i in range(3)]
        llm.when(WAKE + "breaker", *failing, Call("list_agents"), reply("unbroken"), Say("done"))
        assert await ask("breaker") == "unbroken"
        heard = await anyio.to_thread.run_sync(
            lambda: llm.wait_for("breaker", where=lambda asked: len(asked.results) == 10)
        )
        codes = ["agent_offline"] * 5 + ["unknown_agent"] * 3
        for result, code in zip(heard.results, codes, strict=False):
            assert code in result
            assert "unreachable" not in result and "rejected" not in result
        assert "absent" in heard.results[8]

        # A restart of the relay goes unnoticed by the client and the adapter.
        await second.close()
        await anyio.to_thread.run_sync(relay.restart)
        await eventually(lambda: relay.health()["agents_online"] >= 1, "the bot back", 30)
        async with Bot(relay, "second", hello=True) as back:
            back.on_wake = lambda wake: "still Lima"
            assert "still Lima" in await ask("find out again")
