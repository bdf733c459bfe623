"""Peers that take their time: how long the relay waits for each kind (bridge.md, mcp.md).

All of them try its patience at once, in a thread of their own while the module starts; each test
then looks at what became of one. Only the longest wait counts.
"""

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, RelayProcess, crowd
from tests.harness.waits import eventually
from tests.harness.wire import Wire
from websockets.frames import Frame, Opcode

pytestmark = pytest.mark.timeout(150)

LONGEST_S = 100
Story = Callable[[RelayProcess], Awaitable[Any]]
STORIES: dict[str, Story] = {}


def story(work: Story) -> Story:
    STORIES[work.__name__] = work
    return work


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=crowd(60), max_message_bytes=1_000_000, reconnect_grace_ms=90_000)


@pytest.fixture(scope="module")
def outcomes(shared: RelayProcess) -> Iterator[dict[str, "concurrent.futures.Future[Any]"]]:
    """What each story gives, as a future."""
    futures: dict[str, concurrent.futures.Future[Any]] = {
        name: concurrent.futures.Future() for name in STORIES
    }

    async def tell(name: str, work: Story) -> None:
        try:
            async with asyncio.timeout(LONGEST_S):
                futures[name].set_result(await work(shared))
        except BaseException as error:
            futures[name].set_exception(error)

    async def tell_all() -> None:
        async with asyncio.TaskGroup() as group:
            for name, work in STORIES.items():
                group.create_task(tell(name, work))

    thread = threading.Thread(target=lambda: asyncio.run(tell_all()), daemon=True)
    thread.start()
    yield futures
    thread.join(LONGEST_S)
    shared.no_traceback()
    shared.one_line_a_cause()


async def until_end(wire: Wire) -> tuple[bytes, float]:
    """What came until the relay ended the connection, and when that was."""
    began = time.monotonic()
    got = b""
    with contextlib.suppress(ConnectionError):
        while piece := await wire.reader.read(65536):
            got += piece
    await wire.close()
    return got, time.monotonic() - began


@story
async def half_a_head(relay: RelayProcess) -> tuple[bytes, float]:
    wire = await Wire.open(relay.port)
    await wire.send(b"POST /mcp HTTP/1.1\r\nHost: x\r\nAuthor")
    return await until_end(wire)


@story
async def a_head_letter_by_letter(relay: RelayProcess) -> tuple[bytes, float]:
    wire = await Wire.open(relay.port)
    await wire.send(b"GET /health HTTP/1.1\r\nX-Slow: ")
    ending = asyncio.create_task(until_end(wire))
    with contextlib.suppress(ConnectionError):
        while not ending.done():
            await wire.send(b"a")
            await asyncio.sleep(1)
    return await ending


@story
async def a_body_letter_by_letter(relay: RelayProcess) -> tuple[bytes, float]:
    wire = await Wire.open(relay.port)
    client = Mcp(relay, "n0")
    lines = "".join(f"{name}: {value}\r\n" for name, value in client.base.items())
    await wire.send(f"POST /mcp HTTP/1.1\r\n{lines}Content-Length: 1000\r\n\r\n".encode())
    ending = asyncio.create_task(until_end(wire))
    with contextlib.suppress(ConnectionError):
        while not ending.done():
            await wire.send(b" ")
            await asyncio.sleep(1)
    return await ending


@story
async def a_connection_that_says_nothing(relay: RelayProcess) -> str:
    """It may stay for a while; it costs nothing. Only its end must not be forgotten."""
    wire = await Wire.open(relay.port)
    try:
        async with asyncio.timeout(40):
            await until_end(wire)
    except TimeoutError:
        await wire.close()
        return "still open after 40 s"
    return "ended"


@story
async def a_connection_that_is_used_again_after_a_while(relay: RelayProcess) -> int:
    """An HTTP client keeps connections for a minute: the relay must not end them before."""
    wire = await Wire.open(relay.port)
    for pause in (0, 7, 35):
        await asyncio.sleep(pause)
        reply = await wire.request("GET", "/health", {"Host": "x"})
        assert reply.status == 200
    await wire.close()
    return 3


@story
async def a_frozen_bot(relay: RelayProcess) -> tuple[float, str]:
    """4.14: it answers no ping; its asks wait for the grace, not for its window."""
    bot = Bot(relay, "n1", hello=True, ping_interval=None)
    await bot.connect()
    bot.socket.transport.pause_reading()
    began = time.monotonic()
    async with Mcp(relay, "n2") as asker:

        async def offline() -> bool:
            agents = {line["name"]: line["online"] for line in await asker.tool("list_agents")}
            return not agents["n1"]

        assert not await offline()
        while not await offline():
            await asyncio.sleep(0.25)
        gone = time.monotonic() - began
        rid = (await asker.ask("n1", "are you there?", wait_ms=0))["request_id"]
        bot.vanish()
        async with Bot(relay, "n1", hello=True) as back:
            assert (await back.wake())["request_id"] == rid
            await back.reply(rid, "now I am")
        return gone, (await asker.tool("wait_answer", {"request_id": rid}))["answer"]


@story
async def a_bot_that_answers_pings_and_reads_nothing_else(relay: RelayProcess) -> float:
    """Bytes flow in one direction only: it sends pongs blindly and never reads (30 s)."""
    bot = Bot(relay, "n3", hello=True, ping_interval=None)
    await bot.connect()
    bot.socket.transport.pause_reading()
    async with Mcp(relay, "n4") as asker:
        began = time.monotonic()
        for number in range(60):
            await asker.ask("n3", f"{number:03}" + "x" * 400_000, wait_ms=0)
        pong = Frame(Opcode.PONG, b"").serialize(mask=True)

        def stuck() -> list[Any]:
            if not bot.socket.transport.is_closing():
                bot.socket.transport.write(pong)
            return [line for line in relay.events("link.stuck") if line["agent"] == "n3"]

        await eventually(stuck, "given up", 60)
        took = time.monotonic() - began
        bot.vanish()
    async with Bot(relay, "n3", hello=True) as back:
        wakes = [await back.wake(30) for _ in range(60)]
        assert sorted(wake["message"][:3] for wake in wakes) == [f"{n:03}" for n in range(60)]
    return took


@story
async def a_bot_that_reads_slowly(relay: RelayProcess) -> int:
    """40 MB at about 1 MB/s: it is not given up, and everything arrives."""
    bot = Bot(relay, "n5", hello=True)
    await bot.connect()
    transport = bot.socket.transport
    async with Mcp(relay, "n6") as asker:
        for number in range(90):
            await asker.ask("n5", f"{number:03}" + "x" * 400_000, wait_ms=0)
        while len(bot.frames) < 90:
            transport.pause_reading()
            await asyncio.sleep(0.35)
            with contextlib.suppress(RuntimeError):
                transport.resume_reading()
            await asyncio.sleep(0.005)
    await bot.close()
    assert not [line for line in relay.events("link.stuck") if line["agent"] == "n5"]
    return len(bot.frames)


@story
async def a_quiet_bot_that_lives(relay: RelayProcess) -> str:
    """4.14, T49: idle over two pings, and the link is as good as new."""
    async with Bot(relay, "n7", hello=True, ping_interval=None) as bot, Mcp(relay, "n8") as asker:
        await asyncio.sleep(45)
        bot.on_wake = lambda wake: "awake"
        return str((await asker.ask("n7", "asleep?"))["answer"])


@story
async def an_upgrade_that_never_says_hello(relay: RelayProcess) -> int:
    """Silence makes it a seed adapter; it is woken all the same."""
    async with Bot(relay, "n9") as bot, Mcp(relay, "n10") as asker:
        await asyncio.sleep(3)
        await asker.ask("n9", "?", wait_ms=0)
        return len(await bot.wake()) - 1  # without `at`


Outcomes = dict[str, "concurrent.futures.Future[Any]"]


@pytest.mark.clause("bridge.link.5")
def test_a_link_that_says_nothing_is_a_seed_adapter(outcomes: Outcomes) -> None:
    assert outcomes["an_upgrade_that_never_says_hello"].result(LONGEST_S) == 4


@pytest.mark.clause("mcp.http.5")
@pytest.mark.parametrize(
    "name", ["half_a_head", "a_head_letter_by_letter", "a_body_letter_by_letter"]
)
def test_a_request_that_does_not_arrive_in_time_gets_408(outcomes: Outcomes, name: str) -> None:
    got, took = outcomes[name].result(LONGEST_S)
    assert got.startswith(b"HTTP/1.1 408 ") or got == b""
    assert 19 < took < 60


@pytest.mark.clause("bridge.link.7")
def test_a_frozen_bot_is_gone_within_a_minute_and_may_come_back(outcomes: Outcomes) -> None:
    gone, answer = outcomes["a_frozen_bot"].result(LONGEST_S)
    assert 15 < gone < 90
    assert answer == "now I am"


@pytest.mark.clause("bridge.link.8")
def test_a_bot_that_never_reads_is_given_up_and_loses_nothing(outcomes: Outcomes) -> None:
    assert 25 < outcomes["a_bot_that_answers_pings_and_reads_nothing_else"].result(LONGEST_S) < 90


@pytest.mark.clause("bridge.link.8")
def test_a_bot_that_reads_slowly_is_waited_for(outcomes: Outcomes) -> None:
    assert outcomes["a_bot_that_reads_slowly"].result(LONGEST_S) == 90


@pytest.mark.clause("bridge.link.7")
def test_a_quiet_bot_keeps_its_link(outcomes: Outcomes) -> None:
    assert outcomes["a_quiet_bot_that_lives"].result(LONGEST_S) == "awake"


def test_idle_connections_live_as_long_as_clients_keep_them(outcomes: Outcomes) -> None:
    assert outcomes["a_connection_that_is_used_again_after_a_while"].result(LONGEST_S) == 3
    assert outcomes["a_connection_that_says_nothing"].result(LONGEST_S)
