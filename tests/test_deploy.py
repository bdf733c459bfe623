"""The files of `deploy/`: they parse, name what exists, and graph only metrics that exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes_bridge import config

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
NAMES = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
KINDS = ("_bucket", "_sum", "_count")


def documented() -> set[str]:
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    plain = set(re.findall(r"^\| `([a-z_]+)` \| (?:gauge|counter)", text, re.MULTILINE))
    histograms = set(re.findall(r"^\| `([a-z_]+)` \| histogram", text, re.MULTILINE))
    return plain | NAMES | {h + kind for h in histograms for kind in KINDS}


def metrics_in(expression: str) -> set[str]:
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|on) \([^)]*\)", "", bare)
    words = set(re.findall(r"[a-z_]{2,}(?![a-z_]*\()", bare))
    return words - {"and", "or", "unless", "by", "on", "sum", "rate", "increase"}


def balanced(expression: str) -> bool:
    bare = re.sub(r'"[^"]*"', "", expression)
    return all(bare.count(a) == bare.count(b) for a, b in ("()", "[]", "{}"))


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def board() -> Any:
    return json.loads((DEPLOY / "grafana/dashboards/hermes-bridge.json").read_text("utf-8"))


def test_alerts_speak_of_metrics_that_exist() -> None:
    rules = load("prometheus/alerts.yml")["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert metrics_in(rule["expr"]) <= documented(), rule["alert"]
        assert balanced(rule["expr"]), rule["alert"]
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
    assert load("prometheus/prometheus.yml")["rule_files"] == ["alerts.yml"]


def test_the_dashboard_graphs_metrics_that_exist() -> None:
    panels = board()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    drawn = [panel for panel in panels if panel["type"] != "row"]
    assert len(drawn) > 12
    for panel in drawn:
        for target in panel["targets"]:
            assert metrics_in(target["expr"]) <= documented(), panel["title"]
            assert balanced(target["expr"]), panel["title"]


def test_no_panel_lies_over_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


def test_compose_names_only_what_exists() -> None:
    compose = load("compose.yaml")
    volumes, services = set(compose["volumes"]), compose["services"]
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).exists(), f"{name}: {source}"
            else:
                assert source in volumes, f"{name}: {source}"
        assert set(service.get("depends_on", [])) <= services.keys()
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is open to the world"
    build = services["relay"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    asked = set(re.findall(r"\$\{([A-Z_]+):\?", text))
    example = (DEPLOY / "env.example").read_text("utf-8")
    assert asked == set(re.findall(r"^([A-Z_]+)=$", example, re.MULTILINE))


def test_the_configuration_of_compose_is_one() -> None:
    environment = load("compose.yaml")["services"]["relay"]["environment"]
    env = {key: f"value-of-{key}-0123456789" for key in environment}
    env["DATABASE_URL"] = "postgresql://hermes:x@postgres/hermes_bridge"
    loaded = config.load(DEPLOY / "config.yaml", env)
    assert loaded.db.driver == "postgres"
    assert [agent.name for agent in loaded.agents] == ["daniel-bot", "helpdesk-bot"]


def test_the_image_is_unprivileged_healthy_and_ends_on_a_signal() -> None:
    text = (DEPLOY / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    steps = [line.split(None, 1) for line in text.splitlines() if line and line[0] not in "# "]
    last = dict(steps)
    assert last["USER"] == "10001"
    assert last["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(last["ENTRYPOINT"]) == ["tini", "--", "hermes-bridge"]
    assert json.loads(last["CMD"]) == ["serve"]
    assert "/health" in last["HEALTHCHECK"]
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().split()
    for word, rest in steps:
        if word == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored


@pytest.mark.parametrize("broken", [False, True])
def test_the_whole_configuration_may_stand_in_the_environment(broken: bool) -> None:
    from hermes_bridge.errors import ConfigError

    text = "agents: [{name: a, token: '${TOKEN}'}]" + ("\nnonsense: 1" if broken else "")
    env = {"HERMES_BRIDGE_CONFIG_TEXT": text, "TOKEN": "x" * 20, "HERMES_BRIDGE_CONFIG": "/no"}
    if broken:
        with pytest.raises(ConfigError, match="HERMES_BRIDGE_CONFIG_TEXT, line 2"):
            config.load(None, env)
    else:
        assert config.load(None, env).agents[0].name == "a"
