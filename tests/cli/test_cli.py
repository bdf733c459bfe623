import asyncio
import json
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.conftest import ENV, Cli
from tests.harness.relay import free_port

from hermes_bridge import config
from hermes_bridge.cli.main import _VERBS
from hermes_bridge.testing import FakeAgent, Wake


@contextmanager
def agent(base: str, token: str) -> Iterator[None]:
    """A real agent on a thread that answers everything in capitals, and fails on "fail"."""
    ready, stop = threading.Event(), threading.Event()

    async def turn(_: FakeAgent, wake: Wake) -> str:
        if wake.message == "fail":
            raise ValueError("no idea")
        return wake.message.upper()

    async def live() -> None:
        async with FakeAgent(base.replace("http", "ws") + "/bridge/connect", token, turn):
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=asyncio.run, args=(live(),))
    thread.start()
    try:
        assert ready.wait(10)
        yield
    finally:
        stop.set()
        thread.join(10)


def init(cli: Cli, *names: str) -> dict[str, str]:
    ran = cli("init", *names, "--port", str(free_port()), "--json")
    assert ran.code == 0, ran.err
    tokens: dict[str, str] = json.loads(ran.out)["tokens"]
    return tokens


def test_init_writes_a_configuration_that_only_its_owner_reads(cli: Cli) -> None:
    ran = cli("init", "daniel-bot", "it's: odd")
    assert ran.code == 0
    file = cli.folder / "config.yaml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    loaded = config.load(file)
    assert [a.name for a in loaded.agents] == ["daniel-bot", "it's: odd", "operator"]
    assert f"HERMES_BRIDGE_TOKEN={loaded.agents[0].token}" in ran.out
    assert "HERMES_BRIDGE_RELAY_URL=ws://127.0.0.1:8787/bridge/connect" in ran.out


def test_init_does_not_replace_a_file_unless_told_to(cli: Cli) -> None:
    cli("init")
    before = (cli.folder / "config.yaml").read_text()
    ran = cli("init")
    assert ran.code == 2 and "exists already" in ran.err and "--force" in ran.err
    assert (cli.folder / "config.yaml").read_text() == before
    assert cli("init", "--force").code == 0
    assert (cli.folder / "config.yaml").read_text() != before


def test_ask_shows_the_answer_and_nothing_else_when_piped(
    cli: Cli, serving: Callable[[], str]
) -> None:
    tokens = init(cli, "daniel-bot")
    base = serving()
    with agent(base, tokens["daniel-bot"]):
        ran = cli("ask", "daniel-bot", "hello")
        assert ran == (0, "HELLO\n", "")
        result = json.loads(cli("ask", "daniel-bot", "-", "--json", stdin="from a pipe").out)
        assert (result["ok"], result["answer"]) == (True, "FROM A PIPE")
        again = cli(
            "ask", "daniel-bot", "more", "--conversation", result["conversation_id"], "--json"
        )
        assert json.loads(again.out)["conversation_id"] == result["conversation_id"]
        failed = cli("ask", "daniel-bot", "fail")
        assert failed.code == 1 and "no idea" in failed.err and failed.out == ""
        by_env = cli(
            "ask",
            "daniel-bot",
            "x",
            "--relay-url",
            base.replace("http", "ws") + "/bridge/connect",
            HERMES_BRIDGE_TOKEN=tokens["operator"],
        )
        assert by_env.out == "X\n"
        talk = cli("chat", "daniel-bot", stdin="one\ntwo\n\n")
        assert "daniel-bot> ONE" in talk.out and "daniel-bot> TWO" in talk.out


def test_an_ask_that_fails_says_why_and_what_to_do(cli: Cli, serving: Callable[[], str]) -> None:
    init(cli, "daniel-bot")
    gone = cli("ask", "daniel-bot", "hello")
    assert gone.code == 1 and "No relay answers" in gone.err and "hermes-bridge serve" in gone.err
    serving()
    offline = cli("ask", "daniel-bot", "hello")
    assert offline.code == 1 and "agent_offline" in offline.err
    unknown = cli("ask", "daniel-bt", "hello")
    assert unknown.code == 1 and "daniel-bot" in unknown.err
    refused = cli("ask", "daniel-bot", "hello", HERMES_BRIDGE_TOKEN="not-a-token-of-this-relay")
    assert refused.code == 1 and "does not know this token" in refused.err
    assert cli("ask", "daniel-bot", "x", "--as", "nobody").code == 2


def test_an_ask_can_be_left_and_its_answer_fetched_with_the_key(
    cli: Cli, serving: Callable[[], str]
) -> None:
    tokens = init(cli, "daniel-bot")
    base = serving()
    left = cli("ask", "daniel-bot", "later", "--queue", "--no-wait", "--key", "k1")
    assert left.code == 0 and "request_id" in left.out
    with agent(base, tokens["daniel-bot"]):
        assert cli("ask", "daniel-bot", "later", "--key", "k1").out == "LATER\n"


def test_agents_are_added_rotated_and_removed_with_comments_kept(
    cli: Cli, serving: Callable[[], str]
) -> None:
    init(cli, "daniel-bot")
    file = cli.folder / "config.yaml"
    file.write_text(file.read_text() + "# my own remark\n")
    added = json.loads(
        cli("agents", "add", "new-bot", "--description", "tests: things", "--json").out
    )
    assert config.load(file).agents[-1].token == added["token"]
    assert cli("agents", "add", "new-bot").code == 2
    rotated = json.loads(cli("agents", "rotate", "new-bot", "--json").out)
    assert config.load(file).agents[-1].tokens == [rotated["token"], added["token"]]
    final = json.loads(cli("agents", "rotate", "new-bot", "--drop-old", "--json").out)
    assert config.load(file).agents[-1].token == final["token"]
    offline = cli("agents", "list")
    assert "new-bot" in offline.out and "does not answer" in offline.err
    serving()
    lines = json.loads(cli("agents", "list", "--json").out)
    assert [(a["name"], a["online"]) for a in lines][-1] == ("new-bot", False)
    assert cli("agents", "remove", "new-bot").code == 0
    assert cli("agents", "remove", "new-bot").code == 2
    text = file.read_text()
    assert "new-bot" not in text and "# my own remark" in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_change_that_would_break_the_file_is_not_written(cli: Cli) -> None:
    init(cli, "daniel-bot")
    before = (cli.folder / "config.yaml").read_text()
    ran = cli("agents", "add", "main")
    assert ran.code == 2 and "reserved" in ran.err
    assert (cli.folder / "config.yaml").read_text() == before


def test_doctor_finds_what_is_wrong_and_what_to_do(cli: Cli, serving: Callable[[], str]) -> None:
    assert cli("doctor").code == 1
    init(cli, "daniel-bot")
    stopped = cli("doctor")
    assert stopped.code == 1 and "hermes-bridge serve" in stopped.out
    serving()
    healthy = cli("doctor")
    assert healthy.code == 0, healthy.out
    (cli.folder / "config.yaml").chmod(0o644)
    findings = {f["what"]: f for f in json.loads(cli("doctor", "--json").out)}
    assert not findings["secrets"]["ok"] and "chmod 600" in findings["secrets"]["hint"]
    assert findings["relay"]["ok"] and findings["token daniel-bot"]["ok"]
    cli("agents", "add", "unknown-to-it")
    assert "SIGHUP" in cli("doctor").out


@pytest.mark.parametrize("verb", sorted(_VERBS))
def test_every_verb_explains_itself_with_an_example(cli: Cli, verb: str) -> None:
    ran = cli(verb, "--help")
    assert ran.code == 0 and "Example:" in ran.out and f"hermes-bridge {verb}" in ran.out


def test_mistakes_on_the_command_line_end_with_2(cli: Cli) -> None:
    near = cli("srve")
    assert near.code == 2 and "Did you mean serve?" in near.err
    assert cli("serve").code == 2
    assert cli("ask").code == 2
    assert cli("init", "--port", "0").code == 2


def test_a_port_in_use_is_explained(cli: Cli, serving: Callable[[], str]) -> None:
    init(cli, "daniel-bot")
    serving()
    second = cli("serve")
    assert second.code == 2 and "Cannot listen" in second.err and "listen.port" in second.err


def test_version_and_completion(cli: Cli) -> None:
    assert cli("--version").out.startswith("hermes-bridge, version ")
    for shell in ("bash", "zsh", "fish"):
        assert "_HERMES_BRIDGE_COMPLETE" in cli("completion", shell).out


def test_the_demo_shows_an_ask_and_its_answer(cli: Cli, tmp_path: Path) -> None:
    ran = cli("demo")
    assert ran.code == 0, ran.err
    assert "has the answer" in ran.out and "/ui" in ran.out


def test_ctrl_c_ends_a_verb_as_a_shell_expects(cli: Cli, serving: Callable[[], str]) -> None:
    init(cli, "daniel-bot")
    serving()
    tail = subprocess.Popen(
        [sys.executable, "-m", "hermes_bridge", "tail", "--json"],
        cwd=cli.folder, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert cli("ask", "daniel-bot", "are you there?").code == 1
    assert tail.stdout is not None
    assert json.loads(tail.stdout.readline())["message"] == "are you there?"
    tail.send_signal(signal.SIGINT)
    _, err = tail.communicate(timeout=30)
    assert (tail.returncode, err) == (130, b"")


def test_tail_shows_as_many_earlier_exchanges_as_it_is_told(
    cli: Cli, serving: Callable[[], str]
) -> None:
    init(cli, "daniel-bot")
    serving()
    for text in ("one", "two", "three"):
        cli("ask", "daniel-bot", text)
    for last in (0, 2, 3, 100):
        lines = cli("tail", "--once", "--last", str(last)).out.splitlines()
        assert len(lines) == min(last, 3)
    assert cli("tail", "--last", "-1").code == 2


def test_doctor_looks_at_a_configuration_that_is_no_file(cli: Cli) -> None:
    init(cli, "daniel-bot")
    text = (cli.folder / "config.yaml").read_text()
    (cli.folder / "config.yaml").unlink()
    ran = cli("doctor", "--json", HERMES_BRIDGE_CONFIG_TEXT=text)
    findings = {f["what"]: f for f in json.loads(ran.out)}
    assert findings["configuration"]["ok"] and findings["secrets"]["ok"]
    assert not findings["relay"]["ok"]


def test_a_linked_configuration_stays_a_link(cli: Cli) -> None:
    init(cli, "daniel-bot")
    real = cli.folder / "real.yaml"
    (cli.folder / "config.yaml").rename(real)
    (cli.folder / "config.yaml").symlink_to(real)
    assert cli("agents", "add", "late-bot").code == 0
    assert (cli.folder / "config.yaml").is_symlink()
    assert "late-bot" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600


def test_a_configuration_that_cannot_be_written_is_explained(cli: Cli) -> None:
    (cli.folder / "file").write_text("")
    ran = cli("init", "--config", "file/config.yaml")
    assert ran.code == 2
    assert "cannot be written" in ran.err and "--config" in ran.err


def test_a_secret_with_a_line_break_is_not_installed(cli: Cli) -> None:
    ran = cli("install", "http-callback", "--secret", "one\ntwo", "--hermes-home", ".")
    assert ran.code == 2 and "control characters" in ran.err
    assert not list(cli.folder.iterdir())
