"""Connector, hub and gateways as processes of their own, killed at random: 500 messages."""

import asyncio
import functools
import itertools
import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.connector.hub import Hub
from tests.connector.players import hub_with, lines_of, rows_of
from tests.connector.probe import Gateway
from tests.harness.relay import free_port
from tests.harness.waits import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
MESSAGES = 500
ROUNDS = 3
CALL = "are you there"
WINDOW_S = 3.0
"""How long before a kill an ack may be forgotten (a commit of acks; generous for a busy machine)."""


Kill = Callable[[], Coroutine[None, None, None]]


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


class Cast:
    """A hub, a connector and the gateways of two bots, each a process, with their journals."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.dice, self.said = dice, folder / "said"
        self.got = {name: folder / f"got-{name}" for name in ("a", "b")}
        port = free_port()
        self.child = Child(folder, port, rows_of(*self.got))
        self.hub = Player(folder, "hub", str(port), str(self.said), *self.got)
        self.bots = {
            name: Player(folder, "gateway", self.child.url, name, str(journal))
            for name, journal in self.got.items()
        }
        self.players = [self.hub, *self.bots.values()]
        self.kills: list[float] = []
        """When the connector was killed."""

    async def start(self) -> None:
        await self.hub.start()
        await self.child.start()
        for bot in self.bots.values():
            await bot.start()
        await self.all_hear(90)  # a new account has no past: it must be there first

    async def end(self) -> None:
        for player in self.players:
            await player.kill()
        await self.child.end(signal.SIGTERM)

    async def all_hear(self, seconds: float) -> None:
        """Call until a call of now has reached every bot: what was on its way came before it."""
        old = {row["id"] for row in lines_of(self.said)}

        def heard() -> bool:
            return all(any(n["id"] not in old for n in lines_of(j)) for j in self.got.values())

        async with asyncio.timeout(seconds):
            while not heard():
                self.hub.tell({"room": "room", "text": f"@a @b {CALL}"})
                await asyncio.sleep(0.3)

    def plan(self) -> list[Kill]:
        """Every process a few times, in any order."""
        victims: list[Kill] = [self.kill_connector]
        victims += [functools.partial(self.kill_player, each) for each in self.players]
        plan = [victim for victim in victims for _ in range(ROUNDS)]
        self.dice.shuffle(plan)
        return plan

    async def kill_connector(self) -> None:
        await self.child.end(signal.SIGKILL)
        self.kills.append(time.monotonic())
        await self.child.start()

    async def kill_player(self, player: Player) -> None:
        await player.kill()
        await player.start()

    async def talk(self, group: asyncio.TaskGroup) -> None:
        """Say everything; what a dead hub did not hear is said again. Nobody waits for a kill."""
        plan, count = self.plan(), 0
        moments = sorted(self.dice.sample(range(MESSAGES), len(plan)))
        killing: asyncio.Task[None] | None = None
        while count < MESSAGES or plan:
            kind = self.dice.randrange(3)
            room, text = [("dm-a", "hi"), ("dm-b", "hi"), ("room", "@a @b hi")][kind]
            if count < MESSAGES:
                self.hub.tell({"room": room, "text": f"{text} {count}"})
            await asyncio.sleep(self.dice.random() * 0.03)
            count = sum(CALL not in row["content"] for row in lines_of(self.said))
            if killing is not None and not killing.done():
                continue
            for player in self.players:
                player.check_alive()
            if plan and moments[0] <= count:
                killing = group.create_task(plan.pop(0)())
                del moments[0]

    def story(self, name: str) -> Story:
        return Story(name, self.said, self.got[name])

    def all_told(self) -> bool:
        return all(self.story(name).whole for name in self.got)


@pytest.mark.clause("relay.inbox.1", "relay.inbox.3", "relay.cursor.1", "relay.cursor.3")
async def test_500_messages_survive_kills_of_connector_hub_and_gateways(tmp_path: Path) -> None:
    """kill -9 of each of four processes, three times, at random moments of 500 messages."""
    cast = Cast(tmp_path, random.Random(5))
    try:
        await cast.start()
        async with asyncio.TaskGroup() as group:
            await cast.talk(group)
        await eventually(cast.all_told, "all told", 150)
        await cast.all_hear(30)
    finally:
        await cast.end()
    for name, bot in cast.bots.items():
        story = cast.story(name)
        assert len(story.wanted) > MESSAGES / 3
        assert set(story.got) == set(story.wanted), "somebody else's message"
        story.check_order()
        story.explain_repeats(cast.kills + bot.deaths)
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
        await eventually(lambda: "reload.failed" in child.log(), "refused")
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
