"""Why is this bot offline? One finding a cause, each with what to do."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.install.test_installer import CONFIG, install, run

from hermes_bridge.install.doctor import Finding, access, look


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HERMES_HOME", "HERMES_BRIDGE_TOKEN", "HERMES_BRIDGE_RELAY_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config.yaml").write_text(CONFIG)
    install(tmp_path)
    gateway(tmp_path, {"state": "connected"})
    return tmp_path


def gateway(home: Path, platform: dict[str, Any], pid: int | None = None) -> None:
    state = {"pid": pid or os.getpid(), "platforms": {"hermes-bridge": platform}}
    (home / "gateway_state.json").write_text(json.dumps(state))


def wrong(home: Path, env: dict[str, str] | None = None) -> list[Finding]:
    findings = [finding for finding in look(home, env or {}) if not finding.ok]
    assert all(finding.hint for finding in findings)
    return findings


def test_a_bot_where_all_is_well_has_no_findings(home: Path) -> None:
    assert wrong(home) == []


def edit(old: str, new: str) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        text = (home / "config.yaml").read_text()
        assert old in text
        (home / "config.yaml").write_text(text.replace(old, new))

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda h: (h / "plugins/hermes-bridge/plugin.yaml").unlink(), "there is none"),
        (lambda h: (h / "plugins/hermes-bridge/link.py").write_text("x"), "another version"),
        (edit("    - hermes-bridge\n", ""), "does not list it"),
        (edit("disabled: []", "disabled: [hermes-bridge]"), "switches it off"),
        (edit("{telegram: {", "{hermes-bridge: {enabled: false}, telegram: {"), "switched off"),
        (lambda h: (h / ".env").write_text("A=1\n"), "is set neither in .env"),
        (lambda h: (h / ".hermes/plugins/hermes-bridge").mkdir(parents=True), "installer of old"),
        (lambda h: (h / "gateway_state.json").unlink(), "never run"),
        (lambda h: gateway(h, {}), "has not loaded the plugin"),
        (lambda h: gateway(h, {"state": "connected"}, pid=2**22 - 3), "does not run"),
        (lambda h: gateway(h, {"state": "retrying", "error_message": "token refused"}), "refused"),
        (lambda h: (h / "config.yaml").write_text("a: [\n"), "not valid YAML"),
    ],
)
def test_a_cause_is_found_and_said(home: Path, damage: Callable[[Path], Any], words: str) -> None:
    damage(home)
    found = wrong(home)
    assert len(found) == 1
    assert words in found[0].words


def test_an_env_file_that_overrides_the_environment_is_told(home: Path) -> None:
    found = access(home, {"HERMES_BRIDGE_TOKEN": "another"})
    assert found.token == "tok-abc123"
    assert "HERMES_BRIDGE_TOKEN of .env wins" in found.words


def test_a_token_in_the_config_that_wins_over_env_is_told(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (home / "config.yaml").read_text()
    mine = "{hermes-bridge: {extra: {token: mine, relay_url: '${HERMES_BRIDGE_RELAY_URL}'}}}"
    (home / "config.yaml").write_text(text.replace("{telegram: {enabled: true}}", mine))
    found = access(home, {})
    assert (found.token, found.url) == ("mine", "wss://relay.example.org/bridge/connect")
    assert found.words == (
        "platforms.hermes-bridge.extra.token of config.yaml wins over HERMES_BRIDGE_TOKEN"
    )
    install(home)
    assert "extra.token stands in config.yaml and wins" in capsys.readouterr().out


def test_the_command_looks_into_a_bot_and_asks_its_relay(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (home / ".env").read_text()
    (home / ".env").write_text(text.replace("wss://relay.example.org", "ws://127.0.0.1:9"))
    assert run("doctor", f"--hermes-home={home}") == 1
    out = capsys.readouterr().out
    assert "ok    plugin" in out
    assert "FAIL  relay" in out
    assert "tok-abc123" not in out
