"""The whole way of an operator: a bot that runs, our installer, a restart, and back again."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.hermes.asked_relay import Relay
from tests.e2e.hermes.conftest import warm_up
from tests.harness.gateway import Gateway
from tests.harness.llm import Say, ScriptedModel
from tests.harness.relay import token_of

import hermes_bridge

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(600)]


def test_an_installed_bot_is_in_list_agents_after_its_restart_and_gone_after_uninstall(
    gateways: Callable[..., Gateway], llm: ScriptedModel, tmp_path: Path
) -> None:
    llm.when("warm up", Say("warm"))
    relay = Relay(tmp_path / "relay", ("n", "asker")).start()
    port = str(relay.port)
    extra = {"host": "127.0.0.1", "port": 0, "routes": {}}
    webhook = {"webhook": {"enabled": True, "extra": extra}}  # a gateway wants one platform
    gateway = gateways(config={"platforms": webhook})
    try:
        home = f"--hermes-home={gateway.home}"
        url = f"--relay-url=http://127.0.0.1:{port}"
        said = cli("install", "bridge", f"--token={token_of('n')}", url, home)
        assert "accepts the token" in said.stdout
        assert relay.online() == set()
        gateway.restart()
        relay.wait_online("n")
        warm_up(relay, "n")
        healthy = cli("doctor", home)
        assert healthy.returncode == 0, healthy.stdout
        assert "it runs and is connected" in healthy.stdout
        again = cli("install", "bridge", f"--token={token_of('n')}", url, home)
        assert "Nothing to do" in again.stdout
        assert cli("uninstall", "bridge", home).returncode == 0
        gateway.restart()
        assert gateway.platform("hermes-bridge")["state"] == "disconnected"  # of the last run
        assert relay.online() == set()
        assert not (gateway.home / ".env").exists()  # there was none before
    finally:
        relay.close()


def cli(*args: str) -> "subprocess.CompletedProcess[str]":
    """Run our command as an operator does, in a process of its own."""
    source = str(Path(hermes_bridge.__file__).parents[1])
    clean: dict[str, Any] = {k: v for k, v in os.environ.items() if "HERMES" not in k}
    return subprocess.run(
        [sys.executable, "-m", "hermes_bridge", *args],
        env={**clean, "PYTHONPATH": source},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
