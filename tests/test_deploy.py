"""The files of `deploy/`: they parse, name what exists, and graph only metrics that exist."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import compose
import promql_parser as promql
import pytest
import yaml

from hermes_bridge import config

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
TOOLS = Path(sys.executable).parent
OTHERS = {
    "up": {"job"},
    "process_cpu_seconds_total": {"job"},
    "process_resident_memory_bytes": {"job"},
}
KINDS = ("_bucket", "_sum", "_count")


def documented() -> dict[str, set[str]]:
    """Every metric that can be graphed, with its labels (test_metrics compares them with the code)."""
    text = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    found = dict(OTHERS)
    for name, kind, labels in re.findall(
        r"^\| `([a-z_]+)` \| (gauge|counter|histogram) \| (.*?) \|", text, re.MULTILINE
    ):
        has = set(re.findall(r"`([a-z_]+)`", labels))
        if kind == "histogram":
            found |= {name + end: has | {"le"} for end in KINDS}
        else:
            found[name] = has
    return found


def parsed(expression: str) -> tuple[dict[str, set[str]], set[str]]:
    """Read PromQL, types included: the metrics with the labels they are chosen by, and those grouped by."""
    for variable, value in (("$__rate_interval", "1m"), ("$agent", "a|b")):
        expression = expression.replace(variable, value)
    chosen: dict[str, set[str]] = {}
    grouped: set[str] = set()

    def visit(node: Any) -> None:
        if isinstance(node, promql.VectorSelector):
            names = {matcher.name for matcher in node.matchers.matchers}
            chosen.setdefault(node.name, set()).update(names)
        elif isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            grouped.update(node.modifier.labels)

    promql.walk(promql.parse(expression), visit)
    return chosen, grouped


def check(expression: str) -> None:
    """The expression is PromQL and speaks of metrics and labels that exist."""
    known = documented()
    chosen, grouped = parsed(expression)
    assert chosen
    for name, labels in chosen.items():
        assert name in known, name
        assert labels <= known[name], name
    assert grouped <= set[str]().union(*(known[name] for name in chosen))


def load(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text("utf-8"))


def board() -> Any:
    return json.loads((DEPLOY / "grafana/dashboards/hermes-bridge.json").read_text("utf-8"))


def test_alerts_speak_of_metrics_that_exist() -> None:
    rules = load("prometheus/alerts.yml")["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        check(rule["expr"])
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
            check(target["expr"])


UNITS = {"short", "percentunit", "reqps", "ops", "s", "bytes"}


def test_each_panel_says_in_words_what_it_shows_and_asks_the_chosen_source() -> None:
    """What Grafana's own types cannot tell (they were laid on the file once: `@grafana/schema` 12.1)."""
    whole = board()
    variables = {variable["name"] for variable in whole["templating"]["list"]}
    source = {"type": "prometheus", "uid": "${source}"}
    titles = []
    for panel in whole["panels"]:
        titles.append(panel["title"])
        if panel["type"] == "row":
            continue
        assert panel["type"] in ("stat", "timeseries", "state-timeline")
        assert re.fullmatch(r"[A-Z].{15,}[.]", panel["description"], re.S), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert panel["datasource"] == source
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert target["datasource"] == source
            asked = set(re.findall(r"\$\{?(\w+)", target["expr"])) - {"__rate_interval"}
            assert asked <= variables, target["expr"]
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            known = set[str]().union(*(documented()[name] for name in parsed(target["expr"])[0]))
            assert shown <= known | {"instance"}, target["legendFormat"]
    assert all(titles) and len(set(titles)) == len(titles)


@pytest.mark.parametrize(
    "wrong",
    [
        "sum(rate(hermes_bridge_asks_total))",
        "hermes_bridge_asks_totals",
        'hermes_bridge_asks_total{agent="a"}',
        "sum by (agent) (hermes_bridge_asks_total)",
        "sum(hermes_bridge_asks_total",
    ],
)
def test_a_wrong_expression_would_be_noticed(wrong: str) -> None:
    with pytest.raises((ValueError, AssertionError)):
        check(wrong)


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


def test_docker_compose_takes_the_file_and_says_what_is_missing() -> None:
    file = ("-f", str(DEPLOY / "compose.yaml"), "--profile", "watch", "config", "--format", "json")
    # The binary itself: the script beside it forgets the exit code.
    command = [Path(compose.__file__).with_name("docker-compose"), *file]
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    asked = re.findall(r"^([A-Z_]+)=$", (DEPLOY / "env.example").read_text("utf-8"), re.MULTILINE)

    def run(names: list[str]) -> subprocess.CompletedProcess[str]:
        given = {name: f"value-of-{name}" for name in names}
        return subprocess.run(command, env=env | given, capture_output=True, text=True, timeout=60)

    taken = run(asked)
    assert taken.returncode == 0, taken.stderr
    services = json.loads(taken.stdout)["services"]
    assert services.keys() == {"relay", "postgres", "prometheus", "grafana"}
    assert "value-of-POSTGRES_PASSWORD@postgres" in services["relay"]["environment"]["DATABASE_URL"]
    missing = run(asked[1:])
    assert missing.returncode
    assert f"{asked[0]} is missing a value: set it in .env" in missing.stderr


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    command = [TOOLS / "hadolint", "--no-color", str(DEPLOY / "Dockerfile")]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stdout) == (0, "")


def test_the_configuration_of_compose_is_one() -> None:
    environment = load("compose.yaml")["services"]["relay"]["environment"]
    env = {key: f"value-of-{key}-0123456789" for key in environment}
    env["DATABASE_URL"] = "postgresql://hermes:x@postgres/hermes_bridge"
    loaded = config.load(DEPLOY / "config.yaml", env)
    assert loaded.db.driver == "postgres"
    assert [agent.name for agent in loaded.agents] == ["daniel-bot", "helpdesk-bot"]


def test_the_image_is_checked_under_the_limits_of_compose() -> None:
    relay = load("compose.yaml")["services"]["relay"]
    limits = {"--read-only"} if relay["read_only"] else set()
    limits |= {f"--tmpfs {path}" for path in relay["tmpfs"]}
    limits |= {f"--cap-drop {name}" for name in relay["cap_drop"]}
    limits |= {f"--security-opt {name.split(':')[0]}" for name in relay["security_opt"]}
    [locked] = re.findall(r'^LOCKED = "(.*)"$', (DEPLOY / "check_image.py").read_text(), re.M)
    assert set(re.split(r" (?=--)", locked)) == limits


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
