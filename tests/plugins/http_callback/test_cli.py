"""The operator's commands: words for people, JSON for programs, exit codes."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.http_callback.conftest import Plugin
from tests.plugins.http_callback.receiver import Receiver, Reply

from hermes_bridge.plugins.http_callback import cli, signing
from hermes_bridge.plugins.http_callback.intake import Call

Plugins = Callable[..., Plugin]
ROOT = Path(__file__).parents[3]


class Shell:
    """Runs commands in a home, in this process, and gives what they print."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home, self._capsys = home, capsys

    def __call__(self, *args: str, code: int = 0) -> str:
        self._capsys.readouterr()
        assert cli.main([*args, "--home", str(self.home)]) == code
        printed = self._capsys.readouterr()
        return printed.out + printed.err

    def json(self, *args: str) -> Any:
        return json.loads(self(*args, "--json"))


@pytest.fixture
def plugin(plugins: Plugins) -> Plugin:
    return plugins(start=False)


@pytest.fixture
def shell(plugin: Plugin, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(plugin.home, capsys)


def store(plugin: Plugin, url: str, *texts: str) -> list[str]:
    return [asyncio.run(plugin.service.accept(Call(url, text))).id for text in texts]


def test_an_empty_home_is_said_to_be_empty(shell: Shell) -> None:
    assert "no callback was stored" in shell("status", code=1)
    assert "no callback was stored yet" in shell("doctor")


def test_status_and_list_show_what_waits(shell: Shell, plugin: Plugin) -> None:
    [id, _] = store(plugin, "https://b.example/cb?token=hush", "one", "two")
    assert "pending 1  waiting 1" in shell("status")
    listed = shell("list")
    assert id in listed
    assert "hush" not in listed
    assert [row["state"] for row in shell.json("list")] == ["waiting", "pending"]
    assert shell.json("status")["states"]["pending"] == 1
    assert len(shell.json("list", "--state", "waiting", "--since", "1h")) == 1
    assert shell.json("list", "--since", "2999-01-01") == []
    assert "there is no state" in shell("list", "--state", "lost", code=1)
    assert "neither an age" in shell("list", "--since", "soon", code=1)


def test_show_tells_the_attempts_and_the_body_only_when_asked(
    shell: Shell, plugin: Plugin, receiver: Receiver
) -> None:
    receiver.script = lambda got, n: Reply(500) if n == 1 else None
    plugin.start()
    [id] = store(plugin, receiver.url, "the text")
    plugin.wait_state(id, "delivered")
    shown = shell("show", id[:12])
    assert "HTTP 500" in shown
    assert "delivered" in shown
    assert "the text" not in shown
    assert "the text" in shell("show", id, "--body")
    assert "the text" in shell.json("show", id)["body"]
    assert "no single callback" in shell("show", "msg_nothing", code=1)


def test_drop_replay_pause_and_resume(shell: Shell, plugin: Plugin) -> None:
    [first, second] = store(plugin, "https://b.example/cb", "one", "two")
    assert "is dropped" in shell("drop", first)
    assert "is sent again" in shell("replay", first)
    assert "either an id or --all" in shell("replay", code=1)
    key = "https://b.example:443/cb"
    assert "2 callbacks are parked" in shell("pause", key)
    assert [row["state"] for row in shell.json("list")] == ["parked", "parked"]
    assert key in shell("endpoints")
    assert "2 parked callbacks are sent" in shell("resume", key)
    assert "no endpoint is called" in shell("resume", "@nobody", code=1)
    new = shell("replay", second, "--new-id").split()[0]
    assert new not in (first, second)


def test_allow_changes_the_list(shell: Shell) -> None:
    assert "nothing is allowed" in shell("allow")
    assert "is allowed" in shell("allow", "http://172.17.0.1:3000")
    assert shell.json("allow") == ["http://172.17.0.1:3000"]
    assert "no longer" in shell("allow", "http://172.17.0.1:3000", "--remove")
    assert "not on the list" in shell("allow", "http://172.17.0.1:3000", "--remove", code=1)
    assert "error:" in shell("allow", "not a host", code=1)


def test_the_test_command_shows_each_step(shell: Shell, plugin: Plugin, receiver: Receiver) -> None:
    plugin.write({"allow": ["127.0.0.1"], "signing_secret": "s3cret"})
    steps = shell.json("test", receiver.url)
    assert (steps["status"], steps["signed"]) == (200, True)
    [got] = receiver.wait(1)
    secret = signing.read_secret("s3cret")
    assert got.headers["x-hermes-callback-signature"] == signing.legacy_signature(secret, got.body)
    assert got.json["hermes"]["kind"] == "test"
    receiver.script = lambda got, n: Reply(401, b"who are you")
    assert "who are you" in shell("test", receiver.url, code=1)
    assert "hermes callback allow" in shell("test", "http://10.0.0.1/", code=1)
    assert "status" not in shell("test", receiver.url, "--dry-run").split()


def test_verify_checks_a_caught_request(shell: Shell, plugin: Plugin, tmp_path: Path) -> None:
    body = b'{"content": "x"}'
    ring = signing.Keyring(signing.read_secret("s3cret"))
    sent = signing.headers("default", ring, signing.Letter("m", body, 1_700_000_000, 1), "t")
    (tmp_path / "headers").write_text("\n".join(f"{k}: {v}" for k, v in sent.items()), "utf-8")
    (tmp_path / "body").write_bytes(body)
    files = ["--body", str(tmp_path / "body"), "--headers", str(tmp_path / "headers")]
    assert shell("verify", "--secret", "s3cret", *files).count("good") == 2
    assert "WRONG" in shell("verify", "--secret", "other", *files, code=1)
    assert "base64" in shell("verify", "--secret", "whsec_!!", *files, code=1)


def test_rotate_says_how_to_change_a_secret(shell: Shell) -> None:
    printed = shell("rotate")
    secret = next(word for word in printed.split() if word.startswith("whsec_"))
    assert len(signing.read_secret(secret).key) == 32
    assert "previous_secret_env" in printed
    assert "no endpoint" in shell("rotate", "@nobody", code=1)


def test_export_prints_one_json_object_a_line(shell: Shell, plugin: Plugin) -> None:
    store(plugin, "https://b.example/cb", "one", "two")
    rows = [json.loads(line) for line in shell("export").splitlines()]
    assert [json.loads(row["body"])["content"] for row in rows] == ["one", "two"]


def test_drain_delivers_when_no_gateway_does(
    shell: Shell, plugin: Plugin, receiver: Receiver
) -> None:
    store(plugin, receiver.url, "one")
    assert "nothing waits" in shell("drain", "--timeout", "10")
    assert receiver.wait(1)[0].content == "one"


@pytest.mark.clause("callback.doctor.1")
def test_the_doctor_names_what_is_wrong_and_what_to_do(shell: Shell, plugin: Plugin) -> None:
    store(plugin, "https://b.example/cb", "one")
    asyncio.run(plugin.service.accept(Call("http://10.0.0.1/", "two")))
    findings = shell("doctor", code=1)
    for words in ("no gateway delivers", "not signed", "callbacks are rejected", "->"):
        assert words in findings
    plugin.write({"profile": "captian"})
    assert "captain" in shell("doctor", code=1)


@pytest.mark.parametrize("how", ["module", "folder"])
def test_the_commands_run_without_hermes(plugin: Plugin, how: str) -> None:
    folder = ROOT / "src/hermes_bridge/plugins/http_callback"
    program = ["-m", "hermes_bridge.plugins.http_callback"] if how == "module" else [str(folder)]
    store(plugin, "https://b.example/cb", "one")
    done = subprocess.run(
        [sys.executable, *program, "status", "--json", "--home", str(plugin.home)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=plugin.home,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["states"]["pending"] == 1


def test_a_command_without_a_verb_says_how_to_get_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "hermes callback --help" in capsys.readouterr().err
