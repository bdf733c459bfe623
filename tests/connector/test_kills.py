"""Connector, hub and gateways as processes of their own, killed at random: 500 messages."""

import asyncio
import functools
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
from tests.connector.players import hub_with, lines_of, rows_of
from tests.connector.probe import Gateway

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
MESSAGES = 500
ROUNDS = 3
CALL = "are you there"
WINDOW_S = 3.0
"""How long before a kill an ack may be forgotten (a commit of acks; generous for a busy machine)."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Child:
    """The command `hermes-bridge connector`, as an operator starts it."""

    def __init__(self, directory: Path, hub: Hub | int, rows: list[dict[str, Any]]) -> None:
        hub_port = hub if isinstance(hub, int) else hub.port
        self.directory, self.port = directory, free_port()
        self.file = directory / "identities.json"
        self.file.write_text(json.dumps(rows))
        self.env = {
            "PATH": os.environ["PATH"],
            "RELAY_IDENTITIES_FILE": str(self.file),
            "RELAY_PORT": str(self.port),
            "AGENTCHAT_API_URL": f"http://127.0.0.1:{hub_port}",
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


class Player:
    """A hub or a gateway in a process of its own (`players.py`)."""

    def __init__(self, directory: Path, role: str, *args: str) -> None:
        self.log, self.args = directory / f"{role}.log", (role, *args)
        self.deaths: list[float] = []
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.connector.players", *self.args,
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, cwd=ROOT,
            )  # fmt: skip

    async def kill(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self.deaths.append(time.monotonic())

    def check_alive(self) -> None:
        assert self.process is not None
        assert self.process.returncode is None, self.log.read_text()[-2000:]

    def tell(self, line: dict[str, str]) -> None:
        """Say something to it, if it is there; what it did not hear was never said."""
        assert self.process is not None
        assert self.process.stdin is not None
        if self.process.returncode is None and not self.process.stdin.is_closing():
            self.process.stdin.write((json.dumps(line) + "\n").encode())


class Story:
    """What was said, and what one bot's gateway got, by the journals that the kills left."""

    def __init__(self, bot: str, hub: Path, gateway: Path) -> None:
        rows = lines_of(hub)
        self.said = [row for row in rows if self._is_for(bot, row) and CALL not in row["content"]]
        calls = {row["id"] for row in rows if CALL in row["content"]}
        self.wanted = [row["id"] for row in self.said]
        self.got: dict[str, list[float]] = defaultdict(list)
        self.order: list[str] = []
        for note in lines_of(gateway):
            if note["id"] in calls:
                continue
            self.got[note["id"]].append(note["at"])
            self.order.append(note["id"])

    @staticmethod
    def _is_for(bot: str, row: dict[str, Any]) -> bool:
        return row["channel_id"] == f"dm-{bot}" or f"@{bot}" in row["content"]

    @property
    def whole(self) -> bool:
        return set(self.wanted) <= set(self.got)

    def check_order(self) -> None:
        """In each chat, everything came first in the order in which it was said."""
        firsts = list(dict.fromkeys(self.order))
        for chat in {row["channel_id"] for row in self.said}:
            said = [row["id"] for row in self.said if row["channel_id"] == chat]
            assert [each for each in firsts if each in set(said)] == said

    def explain_repeats(self, deaths: list[float]) -> None:
        """A second delivery needs a kill close behind the first: the guarantees table."""
        for message, times in self.got.items():
            for first, second in itertools.pairwise(times):
                reasons = [at for at in deaths if first - 0.5 <= at <= second + 0.5]
                assert reasons, f"{message} came twice without a reason"
                assert min(reasons) - first < WINDOW_S, f"{message} was acked long before the kill"

    def seen_by_hermes_022(self) -> None:
        """Hermes 0.22 drops a message id that is among its last 512: no repeat gets past that."""
        places: dict[str, int] = {}
        for place, message in enumerate(self.order):
            assert place - places.get(message, place) <= 512
            places[message] = place


@pytest.mark.clause("relay.inbox.1", "relay.inbox.3", "relay.cursor.1", "relay.cursor.3")
async def test_500_messages_survive_kills_of_connector_hub_and_gateways(tmp_path: Path) -> None:
    """kill -9 of each of four processes, three times, at random moments of 500 messages."""
    dice = random.Random(5)
    names, said = ("a", "b"), tmp_path / "said"
    got = {name: tmp_path / f"got-{name}" for name in names}
    port = free_port()
    child = Child(tmp_path, port, rows_of(*names))
    hub = Player(tmp_path, "hub", str(port), str(said), *names)
    bots = [Player(tmp_path, "gateway", child.url, name, str(got[name])) for name in names]
    kills: list[float] = []

    async def kill_connector() -> None:
        await child.end(signal.SIGKILL)
        kills.append(time.monotonic())
        await child.start()

    async def kill_player(player: Player) -> None:
        await player.kill()
        await player.start()

    victims = [kill_connector, *(functools.partial(kill_player, each) for each in (hub, *bots))]
    plan = [victim for victim in victims for _ in range(ROUNDS)]
    dice.shuffle(plan)
    moments = sorted(dice.sample(range(MESSAGES), len(plan)))

    async def talk(group: asyncio.TaskGroup) -> None:
        """Say everything; what a dead hub did not hear is said again. Nobody waits for a kill."""
        count = killed = 0
        killing: asyncio.Task[None] | None = None
        while count < MESSAGES or killed < len(plan):
            kind = dice.randrange(3)
            room, text = [("dm-a", "hi"), ("dm-b", "hi"), ("room", "@a @b hi")][kind]
            if count < MESSAGES:
                hub.tell({"room": room, "text": f"{text} {count}"})
            await asyncio.sleep(dice.random() * 0.03)
            count = sum(CALL not in row["content"] for row in lines_of(said))
            if killing is None or killing.done():
                for player in (hub, *bots):
                    player.check_alive()
            due = killed < len(plan) and moments[killed] <= count
            if due and (killing is None or killing.done()):
                killing = group.create_task(plan[killed]())
                killed += 1

    try:
        await hub.start()
        await child.start()
        for bot in bots:
            await bot.start()
        async with asyncio.timeout(90):  # a new account has no past: it must be there first
            while not all(lines_of(each) for each in got.values()):
                hub.tell({"room": "room", "text": f"@a @b {CALL}"})
                await asyncio.sleep(0.3)
        async with asyncio.TaskGroup() as group:
            await talk(group)
        async with asyncio.timeout(150):
            while not all(Story(name, said, got[name]).whole for name in names):
                await asyncio.sleep(0.2)
        await asyncio.sleep(0.5)
    finally:
        for player in (hub, *bots):
            await player.kill()
        await child.end(signal.SIGTERM)
    for name, bot in zip(names, bots, strict=True):
        story = Story(name, said, got[name])
        assert len(story.wanted) > MESSAGES / 3
        assert set(story.got) == set(story.wanted), "somebody else's message"
        story.check_order()
        story.explain_repeats(kills + bot.deaths)
        story.seen_by_hermes_022()


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
