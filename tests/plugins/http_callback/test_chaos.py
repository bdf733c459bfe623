"""Processes killed at random while a receiver fails and hangs: nothing lost, nothing twice, in order."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest
from tests.harness.waits import until
from tests.plugins.http_callback.conftest import Plugin
from tests.plugins.http_callback.receiver import Got, Receiver, Reply

ROOT = Path(__file__).parents[3]
KILLS = int(os.environ.get("CHAOS_KILLS", "200"))


def flaky(dice: random.Random) -> object:
    def script(got: Got, n: int) -> Reply | None:
        roll = dice.random()
        return Reply(503) if roll < 0.20 else Reply(hang=1.0) if roll < 0.22 else None

    return script


class Nursery:
    """The forking process and its two children."""

    def __init__(self, home: Path, url: str, logs: Path) -> None:
        command = [sys.executable, "-m", "tests.plugins.http_callback.nursery"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(
            command, cwd=ROOT, text=True, stderr=subprocess.DEVNULL, **pipes
        )
        self.home, self.url, self.logs = home, url, logs
        self.pids: dict[str, int] = {}

    def start(self, kind: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        line = f"{kind} {self.home} {self.url} {self.logs / kind}.log\n"
        self.process.stdin.write(line)
        self.process.stdin.flush()
        self.pids[kind] = int(self.process.stdout.readline())

    def kill(self, kind: str) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pids.pop(kind), signal.SIGKILL)

    def close(self) -> None:
        for kind in list(self.pids):
            self.kill(kind)
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)
        assert self.process.stdout is not None
        self.process.stdout.close()


def acknowledged(logs: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for log in logs.glob("*.log"):
        for line in log.read_text("utf-8").splitlines():
            word, _, rest = line.partition(" ")
            if word == "ack":
                id, _, text = rest.partition(" ")
                found[id] = text
    return found


def owing(states: dict[str, int]) -> bool:
    return any(states.get(name) for name in ("pending", "waiting", "sending"))


@pytest.mark.timeout(600)
def test_random_kills_lose_nothing_double_nothing_and_keep_the_order(
    tmp_path: Path, receiver: Receiver
) -> None:
    dice = random.Random(20261130)
    receiver.script = flaky(dice)  # type: ignore[assignment]
    settings = {"ordering": "strict", "timeout_seconds": 0.5, "schedule": [0, *[0.05] * 60]}
    plugin = Plugin(tmp_path / "home", settings | {"disable_after_days": 0})
    nursery = Nursery(plugin.home, receiver.url, tmp_path)
    try:
        for kind in ("worker", "producer"):
            nursery.start(kind)
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.05, 0.6))  # the moment of the kill is the point of this test
            kind = dice.choice(["worker", "worker", "producer"])
            nursery.kill(kind)
            nursery.start(kind)
    finally:
        nursery.close()
    receiver.script = None
    owed = acknowledged(tmp_path)
    plugin.start()
    until(lambda: not owing(plugin.states()), "through", 120)
    states = plugin.states()
    plugin.stop()
    report(owed, receiver, states)
    assert set(states) == {"delivered"}
    assert set(owed) <= {got.id for got in receiver.accepted}
    check_no_text_has_two_ids(receiver)
    check_order(receiver)


def report(owed: dict[str, str], receiver: Receiver, states: dict[str, int]) -> None:
    print(
        f"{KILLS} kills: {len(owed)} acknowledged, {len(receiver.got)} requests, "
        f"{len({got.id for got in receiver.accepted})} distinct delivered, {states}"
    )


def check_no_text_has_two_ids(receiver: Receiver) -> None:
    ids: dict[str, set[str]] = defaultdict(set)
    for got in receiver.got:
        ids[got.content].add(got.id)
    assert [text for text, known in ids.items() if len(known) > 1] == []


def check_order(receiver: Receiver) -> None:
    lanes: dict[str, list[int]] = defaultdict(list)
    seen: set[str] = set()
    for got in receiver.accepted:
        if got.id not in seen:
            seen.add(got.id)
            lanes[got.path].append(json.loads(got.body)["hermes"]["seq"])
    assert len(lanes) == 10
    assert all(numbers == sorted(numbers) for numbers in lanes.values())


@pytest.mark.timeout(120)
def test_a_process_that_stood_still_goes_on_without_a_second_worker(
    tmp_path: Path, receiver: Receiver
) -> None:
    """SIGSTOP: the lock stays with the sleeper, and after it nothing was sent under two ids."""
    plugin = Plugin(tmp_path / "home", {"ordering": "strict"})
    nursery = Nursery(plugin.home, receiver.url, tmp_path)
    try:
        nursery.start("worker")
        receiver.wait(20)
        os.kill(nursery.pids["worker"], signal.SIGSTOP)
        before = len(receiver.got)
        plugin.start()
        with pytest.raises(AssertionError):
            receiver.wait(before + 2, seconds=4)
        os.kill(nursery.pids["worker"], signal.SIGCONT)
        receiver.wait(before + 20)
    finally:
        nursery.close()
        plugin.stop()
    check_no_text_has_two_ids(receiver)
