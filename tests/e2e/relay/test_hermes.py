"""Real Hermes gateways against a real relay: MCP tools and the seed's adapter protocol.

A gateway takes seconds to start, so one test a version holds the whole story.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.gateway import Gateway
from tests.harness.llm import Call, Say, ScriptedModel
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, RelayProcess
from tests.harness.waits import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.hermes, pytest.mark.timeout(600)]

SEED = Path(__file__).with_name("seed_adapter")
WINDOW_S = 6
WAKE = r"request_id=(?P<rid>[\w-]+).*"


@dataclass
class Story:
    """A bot with a real Hermes, who asks it, and an agent that it asks."""

    relay: RelayProcess
    llm: ScriptedModel
    asker: Mcp

    async def ask(self, message: str, *turn: Say | Call) -> str:
        """Have the bot do `turn` about a message and be done; what it answered."""
        self.llm.when(WAKE + message, *turn, Say("done"))
        said = await self.asker.ask("bot", message, timeout=100)
        assert said["ok"], said
        return str(said["answer"])

    async def warm_up(self) -> None:
        """The first turn of a process loads half of Hermes, and its loop stands still meanwhile."""
        self.llm.when(WAKE + "warm up", reply("warm"), Say("done"))
        for _ in range(5):
            if (await self.asker.ask("bot", "warm up", timeout=100))["ok"]:
                break

    async def the_four_fields_of_a_seed_wake_start_a_turn(self) -> None:
        assert await self.ask("hello", reply("hello yourself")) == "hello yourself"

    async def beats_of_the_adapter_carry_a_slow_turn_over_the_window(self) -> None:
        assert await self.ask("slowly", reply("took my time", delay=WINDOW_S + 2)) == "took my time"

    async def the_bot_asks_through_its_mcp_client(self, second: Bot) -> None:
        second.on_wake = lambda wake: "Lima" if "Peru" in wake["message"] else "?"
        question = Call("ask_agent", {"to": "second", "message": "capital of Peru?"})
        assert "Lima" in await self.ask("find out", question, reply("second says {result}"))

    async def a_long_ask_of_the_bot_is_held_and_comes_back_whole(self, second: Bot) -> None:
        async def slow(wake: dict[str, str]) -> str:
            for _ in range(WINDOW_S + 2):
                await second.beat(wake["request_id"])
                await asyncio.sleep(1)
            return "at last"

        second.on_wake = slow
        question = Call("ask_agent", {"to": "second", "message": "long"})
        assert "at last" in await self.ask("long way", question, reply("{result}"))

    async def expected_failures_do_not_open_the_clients_breaker(self) -> None:
        failing = [Call("ask_agent", {"to": "absent", "message": f"m{i}"}) for i in range(5)]
        failing += [Call("ask_agent", {"to": "nobody", "message": f"n{i}"}) for i in range(3)]
        assert await self.ask("breaker", *failing, Call("list_agents"), reply("whole")) == "whole"
        heard = await anyio.to_thread.run_sync(
            lambda: self.llm.wait_for("breaker", where=lambda asked: len(asked.results) == 10)
        )
        codes = ["agent_offline"] * 5 + ["unknown_agent"] * 3
        for result, code in zip(heard.results, codes, strict=False):
            assert code in result
            assert "unreachable" not in result and "rejected" not in result
        assert "absent" in heard.results[8]

    async def a_restart_of_the_relay_goes_unnoticed(self) -> None:
        await anyio.to_thread.run_sync(self.relay.restart)
        await self.bot_is_online()
        async with Bot(self.relay, "second", hello=True) as back:
            back.on_wake = lambda wake: "still Lima"
            question = Call("ask_agent", {"to": "second", "message": "capital of Peru?"})
            assert "still Lima" in await self.ask("again", question, reply("{result}"))

    async def bot_is_online(self) -> None:
        await eventually(lambda: self.relay.health()["agents_online"] == 1, "the bot online")


def reply(answer: str, delay: float = 0) -> Call:
    return Call("reply", {"request_id": "{rid}", "answer": answer}, delay=delay)


@pytest.mark.clause("bridge.link.5", "bridge.life.2", "mcp.rpc.3", "mcp.http.1")
async def test_a_gateway_with_the_seeds_adapter_asks_and_answers_through_the_relay(
    relays: Make, llm: ScriptedModel, gateways: Callable[..., Gateway]
) -> None:
    """Real MCP client code and real turns; O2, T12, S7, 4.6, 4.20, T1, T2, T6."""
    relay = relays(
        agents=["asker", "bot", "second", "absent"], ask_timeout_ms=WINDOW_S * 1000, max_run=1000
    )
    headers = {"Authorization": f"Bearer {relay.token('bot')}"}
    server = {"url": relay.mcp_url, "headers": headers, "timeout": 60}
    bot = gateways(
        "bot",
        start=False,
        plugins={"seed-adapter": SEED},
        config={"plugins": {"enabled": ["seed-adapter"]}, "mcp_servers": {"hermes-bridge": server}},
        env={"SEED_URL": relay.bridge_url, "SEED_TOKEN": relay.token("bot")},
    )
    await anyio.to_thread.run_sync(bot.start, 120)
    async with Mcp(relay, "asker") as asker:
        story = Story(relay, llm, asker)
        await story.bot_is_online()
        await story.warm_up()
        await story.the_four_fields_of_a_seed_wake_start_a_turn()
        await story.beats_of_the_adapter_carry_a_slow_turn_over_the_window()
        async with Bot(relay, "second", hello=True) as second:
            await story.the_bot_asks_through_its_mcp_client(second)
            await story.a_long_ask_of_the_bot_is_held_and_comes_back_whole(second)
        await story.expected_failures_do_not_open_the_clients_breaker()
        await story.a_restart_of_the_relay_goes_unnoticed()
