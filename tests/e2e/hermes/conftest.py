"""A world of real parts: one relay, two bots with real Hermes gateways, one scripted model.

Made once a version for all modules, since a gateway takes seconds of CPU to start (`dealing.py` keeps
them in one worker). A test that ends a part leaves it to the next one to start it again
(`everything_is_up`), or uses parts of its own.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.hermes.asked_relay import Relay
from tests.harness.gateway import Gateway, merged
from tests.harness.llm import Say, ScriptedModel
from tests.harness.relay import free_port, token_of
from tests.harness.venvs import Venv

import hermes_bridge.plugins.bridge as plugin
from hermes_bridge.cli.install import mcp_entries

PLUGIN = Path(plugin.__file__).parent
SPY = Path(__file__).parent / "spy"
NAME = "hermes-bridge"
OTHERS = ("carl", "asker")
STEERS = {"display": {"busy_input_mode": "steer"}}
"""Bot b is steered by a message into a turn that is on; bot a is interrupted (Hermes' default)."""


@dataclass
class World:
    """The parts. Bots `a` and `b` use the models `model-a` and `model-b`."""

    relay: Relay
    llm: ScriptedModel
    a: Gateway
    b: Gateway
    webhook: int
    """Port of bot a's webhook platform; its route `talk` starts a turn with the posted message."""

    def ask(self, to: str, message: str, **args: Any) -> Any:
        return self.relay.ask("asker", to, message, **args)


def bot(
    venv: Venv, home: Path, relay: Relay, llm: ScriptedModel, name: str, **more: Any
) -> Gateway:
    """Make the gateway of a bot with the plugin installed as the installer would."""
    base = {
        "plugins": {"enabled": [NAME, "spy"]},
        "agent": {"gateway_notify_interval": 1},  # a "Working" notice every second
    }
    config = merged(base, more.pop("config", {}))
    token = more.pop("token", None) or token_of(name)
    env = {"HERMES_BRIDGE_TOKEN": token, "HERMES_BRIDGE_RELAY_URL": relay.bridge_url}
    return Gateway(
        venv,
        home,
        llm_url=llm.url,
        model=f"model-{name}",
        config=config,
        env=env | more.pop("env", {}),
        plugins={NAME: PLUGIN, "spy": SPY},
        **more,
    )


def mcp_servers(relay: Relay) -> dict[str, Any]:
    """What `install --with-mcp` writes."""
    entries = mcp_entries(relay.bridge_url)
    return {"mcp_servers": {key.partition(".")[2]: entry for key, entry in entries.items()}}


@pytest.fixture(scope="session")
def world(
    request: pytest.FixtureRequest, hermes: Venv, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("world")
    relay = Relay(folder / "relay", ("a", "b", *OTHERS))
    port = free_port()
    failed_before = request.session.testsfailed
    route = {"secret": "s", "prompt": "{message}", "deliver": "log"}
    extra = {"host": "127.0.0.1", "port": port, "routes": {"talk": route}}
    mcp = mcp_servers(relay)
    webhook = {"platforms": {"webhook": {"enabled": True, "extra": extra}}}
    with ScriptedModel() as llm:
        llm.when("warm up", Say("warm"))
        bots = [
            bot(hermes, folder / "a", relay, llm, "a", config=merged(webhook, mcp)),
            bot(hermes, folder / "b", relay, llm, "b", config=merged(STEERS, mcp)),
        ]
        try:
            relay.start()
            for one in bots:
                one.launch()
            for one in bots:
                one.wait_ready(240)
            relay.wait_online("a", "b")
            for name in ("a", "b"):
                warm_up(relay, name)
            yield World(relay, llm, *bots, webhook=port)
        finally:
            for one in bots:
                one.stop(10)
            relay.close()
            if request.session.testsfailed > failed_before:
                print(f"--- relay\n{relay.log()[-20_000:]}", file=sys.stderr)
                for one in bots:
                    print(one.logs(), file=sys.stderr)


@pytest.fixture
def everything_is_up(world: World) -> None:
    """Whatever the test before has ended is up again."""
    if not world.relay.running:
        world.relay.start()
    if not world.b.running:
        world.b.start()
    world.relay.wait_online("a", "b")
    world.llm.when("warm up", Say("warm"))  # the newest rule wins
    warm_up(world.relay, "b")


def said(gateway: Gateway) -> list[dict[str, Any]]:
    """What Hermes gave the bridge's adapter to send, from the first turn on (see `spy`)."""
    return [json.loads(line) for line in gateway.log("said.jsonl").splitlines()]


def warm_up(relay: Relay, name: str) -> None:
    """Have the first turn of a process over: it imports half of Hermes and holds its loop."""
    for _ in range(3):
        done = relay.ask("asker", name, "warm up")
        if done.get("answer") == "warm":
            return
    raise AssertionError(done)
