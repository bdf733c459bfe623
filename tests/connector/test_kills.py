"""A connector in a process of its own, killed; a hub and gateways that are cut: 500 messages."""

import asyncio
import itertools
import json
import os
import random
import signal
import socket
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.connector.hub import Hub
from tests.connector.probe import Gateway

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
MESSAGES = 500
WINDOW_S = 3.0
"""How long before a kill an ack may be forgotten (a commit of acks; generous for a busy machine)."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Child:
    """The command `hermes-bridge connector`, as an operator starts it."""

    def __init__(self, directory: Path, hub: Hub, rows: list[dict[str, Any]]) -> None:
        self.directory, self.port = directory, free_port()
        self.file = directory / "identities.json"
        self.file.write_text(json.dumps(rows))
        self.env = {
            "PATH": os.environ["PATH"],
            "RELAY_IDENTITIES_FILE": str(self.file),
            "RELAY_PORT": str(self.port),
            "AGENTCHAT_API_URL": f"http://127.0.0.1:{hub.port}",
            "AGENTCHAT_CURSOR_DIR": str(directory),
            "AGENTSCHAT_MCP_CURSOR_FLUSH_MS": "500",
        }
        self.process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/relay"

    async def start(self) -> None:
        with (self.directory / "connector.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "hermes_bridge", "connector", env=self.env, stderr=log,
                stdout=log, stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
        async with asyncio.timeout(40):
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.close()
                    return
                except OSError:
                    assert self.process.returncode is None, self.log()
                    await asyncio.sleep(0.05)

    async def end(self, how: int) -> int:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(how)
        async with asyncio.timeout(20):
            return await self.process.wait()

    def log(self) -> str:
        return (self.directory / "connector.log").read_text()[-4000:]


class Bot:
    """A gateway that dials again whenever it loses its connection, and writes down what it got."""

    def __init__(self, child: Child, name: str) -> None:
        self.child, self.name = child, name
        self.got: dict[str, list[float]] = defaultdict(list)
        self.order: list[str] = []
        self.cuts: list[float] = []
        self.link: Gateway | None = None

    async def run(self) -> None:
        while True:
            link = Gateway(self.child.url, f"gw-{self.name}", f"secret-of-{self.name}")
            try:
                async with asyncio.timeout(10):
                    await link.join(self.name)
                self.link = link
                seen = 0
                while not link.closed.is_set():
                    seen = self.note(link, seen)
                    await asyncio.sleep(0.01)
                self.note(link, seen)
            except (OSError, TimeoutError, AssertionError, Exception):
                await asyncio.sleep(0.2)
            self.link = None
            self.cuts.append(time.monotonic())

    def note(self, link: Gateway, seen: int) -> int:
        for event in link.events[seen:]:
            self.got[event["message_id"]].append(time.monotonic())
            self.order.append(event["message_id"])
        return len(link.events)

    def cut(self) -> None:
        if self.link is not None:
            self.link.cut()


def rows_of(*bots: str) -> list[dict[str, Any]]:
    return [
        {"botId": bot, "token": f"tok-{bot}-0123456789", "gatewayId": f"gw-{bot}",
         "secret": f"secret-of-{bot}"}
        for bot in bots
    ]  # fmt: skip


def hub_with(*bots: str) -> Hub:
    hub = Hub()
    for row in rows_of(*bots):
        hub.account(row["botId"], row["token"])
        hub.room(f"dm-{row['botId']}", "ada", row["botId"])
    hub.room("room", "ada", *bots)
    return hub


@pytest.mark.clause("relay.inbox.1", "relay.inbox.3", "relay.cursor.1", "relay.cursor.3")
async def test_500_messages_survive_kills_of_everything(tmp_path: Path) -> None:
    dice = random.Random(5)
    hub = hub_with("a", "b")
    wanted: dict[str, set[str]] = {"a": set(), "b": set()}
    async with hub.serve():
        child = Child(tmp_path, hub, rows_of("a", "b"))
        await child.start()
        await hub.until(lambda: hub.listens("a", "room") and hub.listens("b", "room"), 30)
        bots = [Bot(child, name) for name in ("a", "b")]
        kills: list[float] = []
        done = asyncio.Event()

        async def talk() -> None:
            for n in range(MESSAGES):
                kind = dice.randrange(3)
                where, text = [("dm-a", "hi"), ("dm-b", "hi"), ("room", "@a @b hi")][kind]
                row = await hub.say(where, "ada", f"{text} {n}")
                for bot in [["a"], ["b"], ["a", "b"]][kind]:
                    wanted[bot].add(row["id"])
                await asyncio.sleep(dice.random() * 0.03)
            done.set()

        async def break_things() -> None:
            while not done.is_set():
                await asyncio.sleep(0.3 + dice.random())
                what = dice.randrange(4)
                if what == 0:
                    kills.append(time.monotonic())
                    await child.end(signal.SIGKILL)
                    await child.start()
                elif what == 1:
                    for each in list(hub.sockets):
                        transport = each.ws._req.transport  # type: ignore[union-attr]
                        if transport is not None:
                            transport.abort()
                else:
                    bots[what - 2].cut()

        async with asyncio.TaskGroup() as group:
            running = [group.create_task(bot.run()) for bot in bots]
            talking = group.create_task(talk())
            breaking = group.create_task(break_things())
            await talking
            await breaking
            async with asyncio.timeout(90):
                while not all(wanted[bot.name] <= set(bot.got) for bot in bots):
                    await asyncio.sleep(0.1)
            await asyncio.sleep(0.5)
            for task in running:
                task.cancel()
        await child.end(signal.SIGTERM)
        assert kills, "nothing was killed: the test proves nothing"
        for bot in bots:
            assert set(bot.got) == wanted[bot.name], "somebody else's message, or one was lost"
            explain_repeats(bot, kills)
            seen_by_hermes_022(bot)


def explain_repeats(bot: Bot, kills: list[float]) -> None:
    """A second delivery needs a kill or a cut close behind the first: the guarantees table."""
    for message, times in bot.got.items():
        for first, second in itertools.pairwise(times):
            reasons = [at for at in (*kills, *bot.cuts) if first - 0.1 <= at <= second + 0.1]
            assert reasons, f"{message} came twice without a reason"
            assert min(reasons) - first < WINDOW_S, f"{message} was acked long before the kill"


def seen_by_hermes_022(bot: Bot) -> None:
    """Hermes 0.22 drops a message id that is among its last 512: no repeat may get past that."""
    last: list[str] = []
    for message in bot.order:
        if message in bot.order[: bot.order.index(message)]:
            assert message in last[-512:]
        last.append(message)


async def test_a_clean_stop_exits_0_and_says_goodbye(tmp_path: Path) -> None:
    hub = hub_with("a")
    async with hub.serve():
        child = Child(tmp_path, hub, rows_of("a"))
        await child.start()
        gateway = await Gateway(child.url, "gw-a", "secret-of-a").join("a")
        assert await child.end(signal.SIGTERM) == 0, child.log()
        assert await gateway.ended() == (1001, "connector shutdown")
        assert "listening on 127.0.0.1" in child.log()


async def test_sighup_reads_the_table_again(tmp_path: Path) -> None:
    hub = hub_with("a", "b")
    async with hub.serve():
        child = Child(tmp_path, hub, rows_of("a"))
        await child.start()
        await hub.until(lambda: hub.listens("a", "room"), 30)
        child.file.write_text(json.dumps(rows_of("a", "b")))
        assert child.process is not None
        child.process.send_signal(signal.SIGHUP)
        await hub.until(lambda: hub.listens("b", "room"), 30)
        await Gateway(child.url, "gw-b", "secret-of-b").join("b")
        child.file.write_text("nonsense")
        child.process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(10):
            while "reload.failed" not in child.log():
                await asyncio.sleep(0.05)
        assert await child.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"RELAY_IDENTITIES_FILE": "/nowhere/x.json"}, "cannot be read"),
        ({"RELAY_IDENTITIES_FILE": "", "RELAY_IDENTITIES": "[]"}, "not a non-empty array"),
        ({"RELAY_IDENTITIES_FILE": ""}, "AGENTCHAT_AGENT_ID is required"),
        ({"RELAY_PORT": "many"}, "RELAY_PORT must be a whole number"),
    ],
)
async def test_a_start_that_cannot_work_says_why_and_exits(
    tmp_path: Path, env: dict[str, str], words: str
) -> None:
    hub = Hub()
    hub.port = 9
    child = Child(tmp_path, hub, rows_of("a"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "hermes_bridge", "connector", env=child.env | env,
        stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(30):
        _, err = await process.communicate()
    assert process.returncode == 2
    assert words in err.decode()
    assert "Traceback" not in err.decode()
    assert "secret-of-a" not in err.decode()
