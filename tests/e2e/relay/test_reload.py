"""SIGHUP: a changed file is taken while agents are connected and asks are held; a bad one is not."""

import os
import signal

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, RelayProcess, token_of
from tests.harness.wire import Json
from websockets.exceptions import InvalidStatus

pytestmark = pytest.mark.anyio


A_NEW, B_NEW = "a-new-token-0123456789", "b-new-token-0123456789"
ROTATING: list[Json] = [
    {"name": "a", "tokens": [A_NEW, token_of("a")]},
    {"name": "b", "token": token_of("b")},
    {"name": "c", "token": token_of("c"), "description": "new words"},
    {"name": "d", "may_ask": ["c"]},
]
ROTATED: list[Json] = [
    {"name": "a", "token": A_NEW},
    {"name": "b", "token": B_NEW},
    {"name": "d", "may_ask": ["b"]},
]


async def reload(relay: RelayProcess, **changes: object) -> None:
    await anyio.to_thread.run_sync(lambda: relay.reload(**changes))


async def new_agents_and_limits_hold(relay: RelayProcess, a: Mcp) -> None:
    assert (await a.ask("b", "x" * 1001))["error"] == "message_too_large"
    assert (await a.ask("b", "slow"))["error"] == "working"
    async with Mcp(relay, "a", token=A_NEW) as fresh, Mcp(relay, "d") as d:
        names = [line["name"] for line in await fresh.tool("list_agents")]
        assert names == ["a", "b", "c", "d"]
        assert (await d.ask("b", "?"))["error"] == "not_allowed"


async def old_tokens_are_no_good(relay: RelayProcess, a: Mcp) -> None:
    assert (await a.rpc("ping")).status == 401
    for name in ("b", "c"):
        with pytest.raises(InvalidStatus) as refused:
            await Bot(relay, name, token=token_of(name)).connect()
        assert refused.value.response.status_code == 401
    async with (
        Bot(relay, "b", token=B_NEW, hello=True) as again,
        Mcp(relay, "a", token=A_NEW) as fresh,
    ):
        assert again.welcome["max_message_bytes"] == 1000
        assert (await fresh.ask("c", "?"))["error"] == "unknown_agent"


@pytest.mark.clause("bridge.link.9")
async def test_sighup_takes_agents_tokens_and_limits_and_drops_no_link(relays: Make) -> None:
    relay = relays(max_turns=40)
    async with (
        Bot(relay, "b", hello=True) as b,
        Bot(relay, "c", hello=True) as c,
        Mcp(relay, "a") as a,
    ):
        held = await a.start("ask_agent", {"to": "b", "message": "during"})
        wake = await b.wake()
        await reload(relay, agents=ROTATING, max_message_bytes=1000, hold_ms=300)
        await b.reply(wake["request_id"], "not dropped")
        assert (await held.result())["answer"] == "not dropped"
        await new_agents_and_limits_hold(relay, a)
        assert not relay.events("reload.refused")
        await reload(relay, agents=ROTATED)
        code, reason = await b.closed()
        assert (code, "revoked" in reason) == (4401, True)
        assert (await c.closed())[0] == 4401
        await old_tokens_are_no_good(relay, a)


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
            await reload(relay)
            refused = relay.events("reload.refused")
            assert len(refused) == number + 1
            assert str(relay.config_file) in refused[number]["reason"]
            assert (await a.ask("b", "?"))["answer"] == "!"
        relay.config_file.unlink()
        await reload(relay)
        assert (await a.ask("b", "?"))["answer"] == "!"


@pytest.mark.clause("bridge.life.5")
async def test_an_agent_that_is_removed_ends_what_was_asked_of_it(relays: Make) -> None:
    relay = relays()
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        held = await a.start("ask_agent", {"to": "b", "message": "?"})
        await b.wake()
        await reload(relay, agents=["a", "c"])
        assert (await b.closed())[0] == 4401
        assert (await held.result())["error"] == "agent_offline"
        await reload(relay, agents=["a", "b", "c"])
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
