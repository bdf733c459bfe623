"""The example of the guide runs, and the platforms that ship are found by name."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from hermes_bridge.connector import connector as shell
from hermes_bridge.connector.config import configure
from hermes_bridge.connector.core.identity import table_of
from hermes_bridge.connector.platforms import find
from hermes_bridge.connector.platforms.base import BarePlatform, PlatformError, Post, Settings, Sink
from hermes_bridge.connector.process import Process
from hermes_bridge.contract.descriptor import Capabilities
from hermes_bridge.errors import ConfigError

ROOT = Path(__file__).parents[2]


def test_the_example_of_the_guide_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/own_platform.py")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "the person reads: robo: good morning, ada" in done.stdout


def test_the_guide_shows_the_example_as_it_is() -> None:
    guide = (ROOT / "docs/guides/connector-own-platform.md").read_text("utf-8")
    example = (ROOT / "examples/own_platform.py").read_text("utf-8")
    shown = guide.partition("```python\n")[2].partition("```")[0]
    assert shown.strip() in example


def test_platforms_are_found_by_name_and_unknown_ones_say_which_there_are() -> None:
    assert find("echo", Settings()).capabilities.platform == "echo"
    assert find("agentschat", Settings("http://x", "ws://x")).capabilities.platform == "agentschat"
    with pytest.raises(ConfigError, match="no platform 'smoke'") as caught:
        find("smoke", Settings())
    assert "agentschat" in caught.value.hint


class Bare(BarePlatform):
    """The least that a platform can be."""

    capabilities = Capabilities("bare", "Bare")

    def start(self, identity: object, sink: Sink) -> None:
        """Nothing to do."""

    async def send(self, identity: object, post: Post) -> str:
        """Nobody hears it."""
        return ""


class Fragile(Bare):
    """A platform whose background work fails once."""

    def __init__(self) -> None:
        self.runs = 0
        self.again = asyncio.Event()

    async def run(self) -> None:
        """Fail, then work."""
        self.runs += 1
        if self.runs == 1:
            raise ValueError("a fault of somebody else's")
        self.again.set()
        await super().run()


@pytest.mark.anyio
async def test_a_platform_that_fails_is_run_again_and_takes_nothing_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell, "_PLATFORM_AGAIN_S", 0.05)
    row = {"botId": "a", "token": "t", "gatewayId": "g", "secret": "s", "platform": "bare"}
    config = configure({"identities": [row], "port": 0, "state_dir": str(tmp_path)}, {})
    fragile = Fragile()
    process = Process(config, platforms={"bare": fragile})
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(process.run(signals=False))
        await fragile.again.wait()
        await process.serving.wait()
        process.stop()
    assert fragile.runs == 2


@pytest.mark.anyio
async def test_what_a_bare_platform_does_not_offer_fails_clearly() -> None:
    bare = Bare()
    row = {"botId": "a", "token": "t", "gatewayId": "g", "secret": "s"}
    identity = table_of([row], source="test").rows[0]
    with pytest.raises(PlatformError, match="no edit"):
        await bare.edit(identity, "c", "m", "x")
    assert await bare.history(identity, "c") == []
    assert (await bare.login(identity)).state == "online"
    assert await bare.chat_info(identity, "c") == ("c", "group")
