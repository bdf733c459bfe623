"""`deploy/` with Prometheus itself: `promtool` reads the rules and tries them, and a real server
scrapes a relay at work and answers every question of the dashboard and the alerts."""

import asyncio
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import missing
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.process import Child, plain_env, text_of
from tests.harness.relay import Make, RelayProcess, free_port
from tests.harness.waits import eventually

pytestmark = pytest.mark.anyio

DEPLOY = Path(__file__).parents[1] / "deploy"
PASSWORD = "correct-horse-battery"
NO_COLLECTOR = "http://127.0.0.1:9"
"""The discard port: nobody listens."""


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing(f"{name} (Debian's package `prometheus`)")
    return str(found)


def promtool(*words: str, given: bytes | None = None) -> str:
    """Run it; give what it said. Fails when it found a fault."""
    command = [program("promtool"), *words]
    done = subprocess.run(command, input=given, capture_output=True, timeout=60, check=False)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said


def rules() -> list[dict[str, Any]]:
    found: list[dict[str, Any]]
    found = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"][0]["rules"]
    return found


def configured(folder: Path, target: str) -> Path:
    """Copy Prometheus' configuration: this relay, its password in a file here, and more often."""
    text = (DEPLOY / "prometheus/prometheus.yml").read_text()
    secret = folder / "password"
    secret.write_text(PASSWORD)
    for what, instead in (
        ("/run/hermes-bridge-password", str(secret)),
        ("relay:8787", target),
        ("15s", "1s"),
    ):
        assert what in text
        text = text.replace(what, instead)
    (folder / "prometheus.yml").write_text(text)
    shutil.copy(DEPLOY / "prometheus/alerts.yml", folder)
    return folder / "prometheus.yml"


def test_promtool_takes_the_configuration_and_the_rules(tmp_path: Path) -> None:
    said = promtool("check", "config", str(configured(tmp_path, "relay:8787")))
    assert f"{len(rules())} rules found" in said


def test_each_alert_fires_when_it_should_and_is_silent_else() -> None:
    file = DEPLOY / "prometheus/alerts.test.yml"
    fires: dict[str, set[bool]] = {}
    for case in yaml.safe_load(file.read_text())["tests"]:
        for check in case["alert_rule_test"]:
            fires.setdefault(check["alertname"], set()).add(bool(check["exp_alerts"]))
    assert fires == {rule["alert"]: {True, False} for rule in rules()}
    assert "SUCCESS" in promtool("test", "rules", str(file))


# A server that scrapes a relay at work


class Prometheus(Child):
    """A server on a free port, with its data in `folder`."""

    def __init__(self, folder: Path, relay: RelayProcess) -> None:
        config = configured(folder, f"127.0.0.1:{relay.port}")
        self.folder, self.port = folder, free_port()
        command = [program("prometheus"), f"--config.file={config}"]
        command += [f"--storage.tsdb.path={folder / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{self.port}"]
        self.spawn(command, folder=folder, env=plain_env(folder), out="prometheus.log")

    async def get(self, path: str, **query: str) -> Any:
        """Give the `data` of an answer of its API; what it refuses is an error."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"

        def read() -> Any:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)

        answer = await asyncio.to_thread(read)
        assert answer["status"] == "success", answer
        return answer["data"]

    async def values(self, expression: str) -> list[dict[str, Any]]:
        """What an expression is now: the series, with `metric` and `value`."""
        found: list[dict[str, Any]] = (await self.get("query", query=expression))["result"]
        return found

    async def has(self, expression: str, what: str) -> list[dict[str, Any]]:
        """Wait until an expression is something."""

        async def look() -> list[dict[str, Any]]:
            try:
                return await self.values(expression)
            except OSError:  # it does not listen yet
                assert self.running, text_of(self.folder / "prometheus.log")
                return []

        found: list[dict[str, Any]] = await eventually(look, what)
        return found


@pytest.fixture(scope="module")
def relay(module_relays: Make, tmp_path_factory: pytest.TempPathFactory) -> RelayProcess:
    folder = tmp_path_factory.mktemp("connector")
    identity = {"botId": "echo-a", "token": "an-account-token", "gatewayId": "gw-a"}
    identity |= {"secret": "the-secret-of-gateway-a", "platform": "echo"}
    return module_relays(
        agents=("a", "b", "c", "d"),
        ui={"password": PASSWORD},
        ask_timeout_ms=2500,
        reconnect_grace_ms=100,
        otlp=[{"endpoint": NO_COLLECTOR}],
        connector={"identities": [identity], "state_dir": str(folder)},
    )


@pytest.fixture(scope="module")
def server(relay: RelayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    made = Prometheus(tmp_path_factory.mktemp("prometheus"), relay)
    yield made
    made.kill()


@pytest.fixture(scope="module")
async def watched(relay: RelayProcess, server: Prometheus) -> Prometheus:
    """The server, once it has seen the relay at work and in trouble."""
    await server.has("hermes_bridge_build_info", "scraped")
    async with Mcp(relay, "a") as a, Bot(relay, "b", hello=True) as b:
        async with Bot(relay, "c", hello=True) as c:
            b.on_wake = lambda wake: "y"
            for n in range(3):
                assert (await a.ask("b", f"question {n}"))["answer"] == "y"
            assert (await a.ask("nobody", "x"))["error"] == "unknown_agent"
            slow = await a.ask("c", "x", wait_ms=0)
            await c.beat((await c.wake())["request_id"])
            assert (await a.ask("c", "and then?", wait_ms=20_000))["error"] == "timeout"
            assert slow["request_id"]
        async with Bot(relay, "c", hello=True) as c:
            lost = asyncio.create_task(a.ask("c", "are you there?", wait_ms=20_000))
            await c.wake()
            c.vanish()
            assert (await lost)["error"] == "agent_disconnected"
        assert (await a.ask("d", "x", if_offline="queue", wait_ms=0))["request_id"]
        await a.rpc("made/up", {})
        seen = 'hermes_bridge_asks_total{to="c",outcome="agent_disconnected"} == 1'
        await server.has(f"count_over_time(({seen})[1m:1s]) > 2", "scraped again")
    return server


BOARD = json.loads((DEPLOY / "grafana/dashboards/hermes-bridge.json").read_text())
[NAMES] = re.findall(r"label_values\((\w+), agent\)", BOARD["templating"]["list"][1]["query"])


def panels() -> Iterator[tuple[str, str]]:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$agent", ".*")
            yield panel["title"], expression


async def test_the_server_answers_the_dashboard_and_the_alerts(watched: Prometheus) -> None:
    for title, expression in panels():
        await watched.has(expression, f"drawn in {title}: {expression}")
    [unanswered] = [expression for title, expression in panels() if title == "Unanswered by agent"]
    seen = await watched.has(f"{unanswered} > 0", "the first ask that failed")
    assert [series["metric"] for series in seen] == [{"to": "c"}]
    assert await watched.get("label/agent/values", **{"match[]": NAMES}) == ["a", "b", "c", "d"]

    async def states() -> bool:
        [group] = (await watched.get("rules"))["groups"]
        assert not [rule for rule in group["rules"] if rule.get("lastError")]
        now = {rule["name"]: rule["state"] for rule in group["rules"]}
        assert now.keys() == {rule["alert"] for rule in rules()}
        raised = {name for name, state in now.items() if state != "inactive"}
        raised.discard("TracesLost")  # nobody takes the spans: given up sooner or later
        return raised == {"AsksUnanswered", "AgentAway"}

    await eventually(states, "what is wrong here, and nothing else")


async def test_promtool_finds_no_fault_in_what_a_relay_at_work_tells(
    relay: RelayProcess, watched: Prometheus
) -> None:
    request = urllib.request.Request(relay.url + "/metrics")
    request.add_header("Authorization", f"Bearer {PASSWORD}")

    def read() -> bytes:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bytes(answer.read())

    text = await asyncio.to_thread(read)
    assert b"hermes_bridge_wake_delivery_seconds_bucket" in text
    await asyncio.to_thread(promtool, "check", "metrics", given=text)


async def test_a_relay_that_ends_is_seen_as_down(relay: RelayProcess, server: Prometheus) -> None:
    await server.has("up == 1", "up")
    assert await asyncio.to_thread(relay.stop) == 0
    await server.has('ALERTS{alertname="RelayDown"}', "told of")
