"""The official `mcp` clients, 1.26 and 2.x, in every mode, each in an environment of its own.

Starting one takes seconds, so the four of them are started once, and each test runs all modes at
the same time; a failure names its mode.
"""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.fixtures import peer
from tests.harness.relay import Make, RelayProcess, crowd
from tests.harness.waits import eventually
from tests.harness.wire import Json

pytestmark = [pytest.mark.anyio, pytest.mark.mcp_client]

SCRIPT = Path(__file__).with_name("official_client.py")
MODES = {"first": "mcp-1", "auto": "mcp-2", "legacy": "mcp-2", "2026-07-28": "mcp-2"}
READ_S = 5
"""The clients give up when they hear no byte for so long."""


class Official:
    """One client process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {0: asyncio.Future()}
        self.progress: dict[int, list[Json]] = {}
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while text := await self._process.stdout.readline():
            line = json.loads(text)
            if "progress" in line:
                self.progress.setdefault(line["id"], []).append(line)
            elif not self._waiting[line["id"]].done():
                self._waiting[line["id"]].set_result(line)

    def begin(self, **what: Any) -> int:
        number = next(self._ids)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, **what}).encode() + b"\n")
        return number

    async def outcome(self, number: int, timeout: float = 20) -> Json:
        async with asyncio.timeout(timeout):
            found: Json = await self._waiting[number]
        return found

    async def do(self, **what: Any) -> Any:
        line = await self.outcome(self.begin(**what))
        assert "error" not in line, line
        return line["result"]

    async def tool(self, tool: str, **args: Any) -> Any:
        result = await self.do(do="call", tool=tool, args=args)
        assert result["is_error"] is False
        return result["said"]

    async def end(self) -> None:
        self._reading.cancel()
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


async def official(relay: RelayProcess, agent: str, mode: str) -> Official:
    python, script = str(peer(MODES[mode]).python), str(SCRIPT)
    arguments = [relay.mcp_url, relay.token(agent), mode, str(READ_S)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        python, script, *arguments, stdin=pipe, stdout=pipe, stderr=sys.stderr
    )
    client = Official(process)
    await client.outcome(0, 60)
    return client


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=[*crowd(20), *MODES], chatty=True)


@pytest.fixture(scope="module")
async def officials(shared: RelayProcess) -> AsyncIterator[dict[str, Official]]:
    """A connected client a mode; its agent has the mode's name."""
    for name in MODES.values():
        peer(name)
    started = await asyncio.gather(*(official(shared, mode, mode) for mode in MODES))
    yield dict(zip(MODES, started, strict=True))
    for client in started:
        await client.end()


async def in_every_mode(
    officials: dict[str, Official], check: Callable[[str, Official], Awaitable[None]]
) -> None:
    async def one(mode: str, client: Official) -> None:
        try:
            await check(mode, client)
        except Exception as error:
            error.add_note(f"with the client {mode}")
            raise

    async with asyncio.TaskGroup() as group:
        for mode, client in officials.items():
            group.create_task(one(mode, client))


async def is_answered_at_once(client: Official, bot: Bot) -> None:
    asking = client.begin(do="call", tool="ask_agent", args={"to": bot.name, "message": "1+1"})
    await bot.reply((await bot.wake())["request_id"], "2")
    assert (await client.outcome(asking))["result"]["said"]["answer"] == "2"


async def is_held_with_progress(name: str, client: Official, bot: Bot) -> None:
    """For longer than the client waits for a byte."""
    asking = client.begin(do="call", tool="ask_agent", args={"to": bot.name, "message": "long"})
    wake = await bot.wake()
    await bot.beat(wake["request_id"], "thinking")
    if name in ("first", "legacy"):
        await client.do(do="ping")
    assert await client.tool("list_agents")  # not behind the ask
    await asyncio.sleep(READ_S + 1)  # the time is what is tested
    await bot.reply(wake["request_id"], "done")
    line = await client.outcome(asking)
    assert line["result"]["said"]["answer"] == "done"
    counts = [step["progress"] for step in client.progress[asking]]
    assert len(counts) >= 2
    assert counts == sorted(set(counts))
    assert client.progress[asking][-1]["message"] == "thinking"


async def waits_in_slices(client: Official, bot: Bot) -> None:
    first = await client.tool("ask_agent", to=bot.name, message="slices", wait_ms=100)
    assert first["error"] == "working"
    rid, wake = first["request_id"], await bot.wake()
    waiting = client.begin(do="call", tool="wait_answer", args={"request_id": rid})
    await bot.reply(wake["request_id"], "in the second")
    assert (await client.outcome(waiting))["result"]["said"]["answer"] == "in the second"


async def fails_answers_and_cancels(client: Official, own: Bot, bot: Bot) -> None:
    """Expected failures are no errors; answers go out; an ask is taken back."""
    said = await client.tool("ask_agent", to="nobody", message="?")
    assert said["error"] == "unknown_agent"
    asked = asyncio.create_task(bot.call("ask_agent", {"to": own.name, "message": "and you?"}))
    rid = (await own.wake())["request_id"]
    assert await client.tool("reply", request_id=rid, answer="fine") == {"ok": True}
    assert (await asked)["answer"] == "fine"
    gone = await client.tool("ask_agent", to=bot.name, message="never mind", wait_ms=0)
    assert await client.tool("cancel_ask", request_id=gone["request_id"]) == {"ok": True}


@pytest.mark.clause("mcp.era.1", "mcp.era.2", "mcp.hold.1", "mcp.rpc.3")
async def test_an_official_client_lists_asks_waits_replies_and_sees_progress(
    relay: RelayProcess, officials: dict[str, Official]
) -> None:
    """O7, T1, T7, T10, T36, T41: a client that gives up after 5 s without a byte."""

    async def check(name: str, client: Official) -> None:
        async with Bot(relay, relay.agent(), hello=True) as bot, Bot(relay, name) as own:
            tools = await client.do(do="list")
            assert tools == ["ask_agent", "cancel_ask", "list_agents", "reply", "wait_answer"]
            agents = {line["name"]: line["online"] for line in await client.tool("list_agents")}
            assert agents[bot.name] is True
            await is_answered_at_once(client, bot)
            await is_held_with_progress(name, client, bot)
            await waits_in_slices(client, bot)
            await fails_answers_and_cancels(client, own, bot)

    await in_every_mode(officials, check)


@pytest.mark.clause("mcp.hold.2", "mcp.hold.3")
async def test_a_client_that_gives_up_leaves_its_ask_as_its_era_says(
    relay: RelayProcess, officials: dict[str, Official]
) -> None:
    """A modern client's ask is cancelled; what an old client does not cancel can be fetched."""

    async def check(name: str, client: Official) -> None:
        async with Bot(relay, relay.agent(), hello=True) as bot:
            ask = {"to": bot.name, "message": "?"}
            asking = client.begin(do="call", tool="ask_agent", args=ask, timeout=1)
            rid = (await bot.wake())["request_id"]
            assert "error" in await client.outcome(asking)
            if name == "first":  # 1.26 says nothing when it gives up; 2.x hangs up, or cancels
                assert await bot.reply(rid, "kept") == {"ok": True}
                assert (await client.tool("wait_answer", request_id=rid))["answer"] == "kept"
            else:
                assert (await bot.cancelled())["request_id"] == rid
                said = await client.tool("wait_answer", request_id=rid, wait_ms=0)
                assert said["error"] == "cancelled"

    await in_every_mode(officials, check)


@pytest.mark.clause("mcp.http.1", "bridge.life.10", "bridge.ask.8")
async def test_a_session_outlives_a_relay_that_is_killed(
    relay: RelayProcess, officials: dict[str, Official]
) -> None:
    """O6, T6, T33, T40: in the middle of an ask, the same client goes on in the same session.

    By then the asks are streams: a 2.x client ends itself when a connection is lost before its
    response began.
    """
    bots = {mode: Bot(relay, relay.agent(), hello=True, ack=False) for mode in officials}
    asks = {m: {"to": b.name, "message": "?", "idempotency_key": "once"} for m, b in bots.items()}
    rids: dict[str, str] = {}
    held: list[tuple[Official, int]] = []
    for mode, client in officials.items():
        await bots[mode].connect()
        asking = client.begin(do="call", tool="ask_agent", args=asks[mode], timeout=60)
        held.append((client, asking))
        rids[mode] = (await bots[mode].wake())["request_id"]
    await eventually(lambda: all(client.progress.get(n) for client, n in held), "streams")
    relay.kill()
    for bot in bots.values():
        await bot.closed()
    await anyio.to_thread.run_sync(relay.start)

    async def check(mode: str, client: Official) -> None:
        async with Bot(relay, bots[mode].name, hello=True) as again:
            wake = await again.wake()
            assert (wake["request_id"], wake["attempt"]) == (rids[mode], 2)
            await again.reply(rids[mode], "42")
            said = await client.tool("ask_agent", **asks[mode])
            assert (said["answer"], said["request_id"]) == ("42", rids[mode])
            await again.no_wake()
            again.on_wake = lambda wake: "still valid"
            conversation = said["conversation_id"]
            said = await client.tool(
                "ask_agent", to=again.name, message="next", conversation_id=conversation
            )
            assert said["answer"] == "still valid"

    await in_every_mode(officials, check)
