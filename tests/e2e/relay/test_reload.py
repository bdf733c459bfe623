"""SIGHUP: a changed file is taken while agents are connected and asks are held; a bad one is not."""

import os
import signal

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, token_of
from websockets.exceptions import InvalidStatus

pytestmark = pytest.mark.anyio


@pytest.mark.clause("bridge.link.9")
async def test_sighup_takes_agents_tokens_and_limits_and_drops_no_link(relays: Make) -> None:
    relay = relays(max_turns=40)
    a_new, b_new = "a-new-token-0123456789", "b-new-token-0123456789"
    async with (
        Bot(relay, "b", hello=True) as b,
        Bot(relay, "c", hello=True) as c,
        Mcp(relay, "a") as a,
    ):
        held = await a.start("ask_agent", {"to": "b", "message": "during"})
        wake = await b.wake()
        await anyio.to_thread.run_sync(
            lambda: relay.reload(
                agents=[
                    {"name": "a", "tokens": [a_new, token_of("a")]},  # while rotating
                    {"name": "b", "token": token_of("b")},
                    {"name": "c", "token": token_of("c"), "description": "new words"},
                    {"name": "d", "may_ask": ["c"]},
                ],
                max_message_bytes=1000,
                hold_ms=300,
            )
        )
        await b.reply(wake["request_id"], "not dropped")
        assert (await held.result())["answer"] == "not dropped"
        assert (await a.ask("b", "x" * 1001))["error"] == "message_too_large"
        assert (await a.ask("b", "slow"))["error"] == "working"
        async with Mcp(relay, "a", token=a_new) as fresh, Mcp(relay, "d") as d:
            names = [line["name"] for line in await fresh.tool("list_agents")]
            assert names == ["a", "b", "c", "d"]
            assert (await d.ask("b", "?"))["error"] == "not_allowed"
        assert not relay.events("reload.refused")
        await anyio.to_thread.run_sync(
            lambda: relay.reload(
                agents=[
                    {"name": "a", "token": a_new},
                    {"name": "b", "token": b_new},
                    {"name": "d", "may_ask": ["b"]},
                ]
            )
        )
        code, reason = await b.closed()
        assert (code, "revoked" in reason) == (4401, True)
        assert (await c.closed())[0] == 4401
        assert (await a.rpc("ping")).status == 401
        for name, token in (("b", token_of("b")), ("c", token_of("c"))):
            with pytest.raises(InvalidStatus) as refused:
                await Bot(relay, name, token=token).connect()
            assert refused.value.response.status_code == 401
        async with (
            Bot(relay, "b", token=b_new, hello=True) as again,
            Mcp(relay, "a", token=a_new) as a2,
        ):
            assert again.welcome["max_message_bytes"] == 1000
            assert (await a2.ask("c", "?"))["error"] == "unknown_agent"


async def test_a_bad_file_keeps_the_old_configuration(relays: Make) -> None:
    relay = relays(chatty=True)
    bad = [
        "agents: [",
        "agents: {}",
        "nonsense: 1",
        "",
        "\x00",
        "agents: [{name: a, token: ${NO}}]",
    ]
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "!"
        for number, text in enumerate(bad):
            relay.write(text)
            await anyio.to_thread.run_sync(relay.reload)
            refused = relay.events("reload.refused")
            assert len(refused) == number + 1
            assert str(relay.config_file) in refused[number]["reason"]
            assert (await a.ask("b", "?"))["answer"] == "!"
        relay.config_file.unlink()
        await anyio.to_thread.run_sync(relay.reload)
        assert (await a.ask("b", "?"))["answer"] == "!"


@pytest.mark.clause("bridge.life.5")
async def test_an_agent_that_is_removed_ends_what_was_asked_of_it(relays: Make) -> None:
    relay = relays()
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        held = await a.start("ask_agent", {"to": "b", "message": "?"})
        await b.wake()
        await anyio.to_thread.run_sync(lambda: relay.reload(agents=["a", "c"]))
        assert (await b.closed())[0] == 4401
        assert (await held.result())["error"] == "agent_offline"
        await anyio.to_thread.run_sync(lambda: relay.reload(agents=["a", "b", "c"]))
        async with Bot(relay, "b", hello=True) as back:
            await back.no_wake()
            back.on_wake = lambda wake: "back"
            assert (await a.ask("b", "?"))["answer"] == "back"


async def test_many_reloads_and_a_stop_in_between_leave_nothing_behind(relays: Make) -> None:
    relay = relays()
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "!"
        for _ in range(20):
            os.kill(relay.pid, signal.SIGHUP)
            assert (await a.ask("b", "?"))["answer"] == "!"
        os.kill(relay.pid, signal.SIGHUP)
        assert await anyio.to_thread.run_sync(relay.stop) == 0
