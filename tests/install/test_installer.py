"""Installing into a home and out of it: every byte that is not ours stays.

The defects of the installer before ours each have a test here.
"""

import stat
from pathlib import Path
from typing import Any

import pytest
import yaml

from hermes_bridge.cli.main import main
from hermes_bridge.install.files import CannotWrite, Plan
from hermes_bridge.install.home import find_home
from hermes_bridge.install.plugins import BRIDGE, HTTP_CALLBACK
from hermes_bridge.plugins.bridge import settings

CONFIG = """\
# my bot, do not touch
model:
    default: "opus"   # the good one

plugins:
  # only what I read first
  enabled:
    - web_search      # from the store
  disabled: []
platforms: {telegram: {enabled: true}}
"""
ENV = "# keys\nexport OPENAI_API_KEY='sk 1'\n\n\nA=1\n"
ARGS = ("--token=tok-abc123", "--relay-url=wss://relay.example.org/bridge/connect", "--no-check")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HERMES_HOME", "HERMES_BRIDGE_TOKEN", "HERMES_BRIDGE_RELAY_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / ".env").write_text(ENV)
    (tmp_path / ".env").chmod(0o600)
    return tmp_path


def install(home: Path, *more: str, args: tuple[str, ...] = ARGS) -> int:
    return run("install", "bridge", *args, f"--hermes-home={home}", *more)


def run(*args: str) -> int:
    with pytest.raises(SystemExit) as end:
        main(args)
    return int(end.value.code or 0)


def snapshot(home: Path) -> dict[str, bytes]:
    return {str(p.relative_to(home)): p.read_bytes() for p in home.rglob("*") if p.is_file()}


def config(home: Path) -> Any:
    return yaml.safe_load((home / "config.yaml").read_text())


def test_an_installation_is_complete_and_keeps_comments_and_order(home: Path) -> None:
    assert install(home) == 0
    text = (home / "config.yaml").read_text()
    for line in CONFIG.splitlines():
        assert line in text
    assert text.index("# my bot") < text.index("model:") < text.index("plugins:")
    assert config(home)["plugins"]["enabled"] == ["web_search", "hermes-bridge"]
    assert config(home)["tools"] == {"tool_search": {"enabled": "off"}}
    there = snapshot(home / "plugins" / "hermes-bridge")
    assert there == BRIDGE.files()
    env = (home / ".env").read_text()
    assert env.startswith(ENV)
    assert "HERMES_BRIDGE_TOKEN=tok-abc123\n" in env


def test_running_it_twice_changes_nothing(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(home)
    before = {p: p.stat().st_mtime_ns for p in home.rglob("*") if p.is_file()}
    assert install(home) == 0
    assert "Nothing to do" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in home.rglob("*") if p.is_file()} == before


def test_uninstall_gives_every_file_back_byte_for_byte(home: Path) -> None:
    before = snapshot(home)
    install(home)
    assert run("uninstall", "bridge", f"--hermes-home={home}") == 0
    assert snapshot(home) == before
    assert not (home / "plugins" / "hermes-bridge").exists()


def test_uninstall_keeps_what_others_changed_since(home: Path) -> None:
    install(home)
    file = home / "config.yaml"
    file.write_text(file.read_text().replace("opus", "sonnet") + "\nmine: 1\n")
    with (home / ".env").open("a") as env:
        env.write("LATER=2\n")
    run("uninstall", "bridge", f"--hermes-home={home}")
    expected = yaml.safe_load(CONFIG.replace("opus", "sonnet") + "\nmine: 1\n")
    assert config(home) == expected
    assert "# only what I read first" in file.read_text()
    assert (home / ".env").read_text() == ENV + "LATER=2\n"


def test_uninstall_survives_a_hermes_that_wrote_the_file_anew(home: Path) -> None:
    install(home)
    file = home / "config.yaml"
    file.write_text(yaml.safe_dump({**config(home), "_config_version": 33}))
    run("uninstall", "bridge", f"--hermes-home={home}")
    assert config(home) == {**yaml.safe_load(CONFIG), "_config_version": 33}


def test_uninstall_of_an_installation_without_a_record_removes_what_the_seed_wrote(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = home / "plugins" / "hermes-bridge"
    old.mkdir(parents=True)
    (old / "plugin.yaml").write_text("name: hermes-bridge\n")
    (home / "config.yaml").write_text("plugins: {enabled: [hermes-bridge, x]}\n")
    (home / ".env").write_text("A=1\nHERMES_BRIDGE_TOKEN=t\nHERMES_BRIDGE_RELAY_URL=u\n")
    run("uninstall", "bridge", f"--hermes-home={home}")
    assert config(home) == {"plugins": {"enabled": ["x"]}}
    assert (home / ".env").read_text() == "A=1\n"
    assert not old.exists()
    assert run("uninstall", "bridge", f"--hermes-home={home}") == 0
    assert "is not installed" in capsys.readouterr().out


def test_a_new_env_file_is_for_its_owner_only(home: Path) -> None:
    (home / ".env").unlink()
    install(home)
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600


def test_an_env_file_that_others_could_read_is_closed(home: Path) -> None:
    (home / ".env").chmod(0o644)
    install(home)
    assert stat.S_IMODE((home / ".env").stat().st_mode) == 0o600


def test_an_exported_variable_is_found_and_blank_lines_stay(home: Path) -> None:
    (home / ".env").write_text("A=1\n\n\nexport HERMES_BRIDGE_TOKEN=old\n\nB='x'\n")
    install(home)
    lines = (home / ".env").read_text().splitlines()
    assert lines[:6] == ["A=1", "", "", "export HERMES_BRIDGE_TOKEN=tok-abc123", "", "B='x'"]
    run("uninstall", "bridge", f"--hermes-home={home}")
    assert "export HERMES_BRIDGE_TOKEN=old" in (home / ".env").read_text()


def test_a_token_with_signs_a_shell_would_read_is_quoted(home: Path) -> None:
    token = ("--token=a$b#c'd\\e", *ARGS[1:])
    install(home, args=token)
    assert r"HERMES_BRIDGE_TOKEN='a$b#c\'d\\e'" in (home / ".env").read_text()
    assert settings.read({}, home).token == "a$b#c'd\\e"
    before = snapshot(home)
    install(home, args=token)
    assert snapshot(home) == before


def test_a_single_name_in_enabled_is_kept_as_a_list(home: Path) -> None:
    (home / "config.yaml").write_text("plugins:\n  enabled: web_search\n")
    install(home)
    assert config(home)["plugins"]["enabled"] == ["web_search", "hermes-bridge"]
    run("uninstall", "bridge", f"--hermes-home={home}")
    assert (home / "config.yaml").read_text() == "plugins:\n  enabled: web_search\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plugins: [a]\n", "plugins should be a mapping"),
        ("plugins: {enabled: {a: 1}}\n", "plugins.enabled should be a list"),
        ("- a\n- b\n", "the file should be a mapping"),
        ("a: [1\nb: 2\n", "not valid YAML, line"),
        ("plugins: {disabled: [hermes-bridge]}\n", "switches hermes-bridge off"),
        ("\xff\xfe", "not UTF-8"),
    ],
)
def test_a_config_that_cannot_be_edited_is_one_message_and_nothing_is_written(
    home: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (home / "config.yaml").write_bytes(text.encode("latin-1"))
    before = snapshot(home)
    assert install(home) == 2
    err = capsys.readouterr().err
    assert words in err
    assert "Traceback" not in err
    assert snapshot(home) == before


def test_force_takes_the_plugin_off_the_disabled_list(home: Path) -> None:
    (home / "config.yaml").write_text("plugins: {disabled: [hermes-bridge, b]}\n")
    assert install(home, "--force") == 0
    assert config(home)["plugins"] == {"disabled": ["b"], "enabled": ["hermes-bridge"]}


@pytest.mark.parametrize("text", ["", "# only a comment\n", "plugins:\n", "plugins:\n  enabled:\n"])
def test_an_empty_config_is_a_config(home: Path, text: str) -> None:
    (home / "config.yaml").write_text(text)
    assert install(home) == 0
    assert config(home)["plugins"]["enabled"] == ["hermes-bridge"]
    assert (home / "config.yaml").read_text().startswith(text.partition("\n")[0])
    run("uninstall", "bridge", f"--hermes-home={home}")
    assert (home / "config.yaml").read_text() == text


def test_a_home_without_config_and_env_gets_both_and_loses_both(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_text("")
    assert install(tmp_path) == 0
    assert config(tmp_path)["plugins"]["enabled"] == ["hermes-bridge"]
    run("uninstall", "bridge", f"--hermes-home={tmp_path}")
    assert set(snapshot(tmp_path)) == {"state.db"}


def test_a_dry_run_shows_the_changes_without_the_secret_and_makes_none(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(home)
    assert install(home, "--dry-run") == 0
    out = capsys.readouterr().out
    assert "+    - hermes-bridge" in out
    assert "+HERMES_BRIDGE_TOKEN=********" in out
    assert "tok-abc123" not in out
    assert "sk 1" not in out
    assert snapshot(home) == before


def test_with_mcp_writes_one_entry_to_ask_and_one_to_answer(home: Path) -> None:
    install(home, "--with-mcp")
    servers = config(home)["mcp_servers"]
    assert {name: entry["tools"]["include"] for name, entry in servers.items()} == {
        "bridge-ask": ["ask_agent", "wait_answer", "list_agents", "cancel_ask"],
        "bridge-reply": ["reply"],
    }
    assert {entry["url"] for entry in servers.values()} == {"https://relay.example.org/mcp"}
    assert "tok-abc123" not in (home / "config.yaml").read_text()


def test_an_mcp_entry_of_the_operator_is_left_alone_unless_forced(home: Path) -> None:
    with (home / "config.yaml").open("a") as file:
        file.write("mcp_servers:\n  bridge-ask: {url: 'http://mine/mcp'}\n")
    install(home, "--with-mcp")
    assert config(home)["mcp_servers"]["bridge-ask"] == {"url": "http://mine/mcp"}
    install(home, "--with-mcp", "--force")
    assert "relay.example.org" in config(home)["mcp_servers"]["bridge-ask"]["url"]
    run("uninstall", "bridge", f"--hermes-home={home}")
    assert config(home)["mcp_servers"] == {"bridge-ask": {"url": "http://mine/mcp"}}


def test_files_of_an_older_version_are_replaced_and_its_leftovers_go(home: Path) -> None:
    old = home / "plugins" / "hermes-bridge"
    old.mkdir(parents=True)
    (old / "adapter.py").write_text("old")
    (old / "gone.py").write_text("old")
    install(home)
    assert snapshot(old) == BRIDGE.files()


def test_a_write_that_fails_in_the_middle_undoes_the_ones_before(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(home)
    real_replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if Path(target).name == "link.py":
            raise OSError(28, "No space left on device", str(target))
        return real_replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    assert install(home) == 2
    assert "Nothing was changed" in capsys.readouterr().err
    assert snapshot(home) == before


def test_a_home_that_cannot_be_written_is_one_message(home: Path) -> None:
    blocked = home / "config.yaml" / "impossible"
    with pytest.raises(CannotWrite, match="Nothing was changed"):
        plan = Plan(home)
        plan.put(home / "new", b"1")
        plan.changes.append(type(plan.changes[0])(blocked, None, b"2"))
        plan.apply()
    assert not (home / "new").exists()


def test_a_linked_plugin_folder_is_not_written_through(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "work"
    elsewhere.mkdir()
    (home / "plugins").mkdir(exist_ok=True)
    (home / "plugins" / "hermes-bridge").symlink_to(elsewhere)
    assert install(home) == 2
    assert not list(elsewhere.iterdir())


@pytest.mark.parametrize(
    "args",
    [
        ("--token=x y", ARGS[1], "--no-check"),
        ("--token=", ARGS[1]),
        ("--token=t", "--relay-url=ftp://x"),
        ("--token=t", "--relay-url=wss://"),
        ("--token=t", "--relay-url=wss://h:99999"),
        ("--token=t",),
    ],
)
def test_a_token_or_address_that_cannot_be_right_is_refused_before_anything_is_read(
    home: Path, args: tuple[str, ...]
) -> None:
    before = snapshot(home)
    assert install(home, args=args) == 2
    assert snapshot(home) == before


def test_a_relay_that_is_not_there_is_said_and_does_not_stop_the_installation(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--token=tok-abc123", "--relay-url=ws://127.0.0.1:9/bridge/connect")
    assert install(home, args=args) == 0
    assert "No relay answers at http://127.0.0.1:9" in capsys.readouterr().out


def test_the_home_is_found_where_the_bot_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    native = tmp_path / ".hermes"
    native.mkdir()
    assert find_home(None, None, {}) in (native, Path("/opt/data"))
    assert find_home(None, None, {"HERMES_HOME": str(tmp_path)}) == tmp_path
    assert find_home(None, str(native), {"HERMES_HOME": str(tmp_path)}) == native
    assert run("install", "bridge", *ARGS, "--hermes-home=/nonexistent") == 2


def test_the_callback_plugin_installs_the_same_way(home: Path) -> None:
    before = snapshot(home)
    assert run("install", "http-callback", "--secret=whsec_x", f"--hermes-home={home}") == 0
    assert config(home)["plugins"]["enabled"] == ["web_search", "http_callback"]
    assert "tools" not in config(home)
    assert "HTTP_CALLBACK_SECRET=whsec_x" in (home / ".env").read_text()
    assert snapshot(home / "plugins" / "http_callback") == HTTP_CALLBACK.files()
    assert install(home) == 0
    assert run("uninstall", "bridge", f"--hermes-home={home}") == 0
    assert run("uninstall", "http-callback", f"--hermes-home={home}") == 0
    assert snapshot(home) == before


def test_a_dry_run_names_files_of_ours_and_never_shows_an_original(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(home, "--dry-run")
    out = capsys.readouterr().out
    assert "add plugins/hermes-bridge/adapter.py\n" in out
    assert "add hermes-bridge/install-hermes-bridge.json\n" in out
    assert len(out.splitlines()) < 80
    install(home)
    run("uninstall", "bridge", f"--hermes-home={home}", "--dry-run")
    assert "remove plugins/hermes-bridge/adapter.py\n" in capsys.readouterr().out


def test_what_others_wrote_between_two_installations_survives_the_uninstallation(
    home: Path,
) -> None:
    install(home)
    with (home / ".env").open("a") as env:
        env.write("LATER=2\n")
    with (home / "config.yaml").open("a") as file:
        file.write("later: 2\n")
    install(home, "--with-mcp", args=("--token=another", *ARGS[1:]))
    run("uninstall", "bridge", f"--hermes-home={home}")
    assert (home / ".env").read_text() == ENV + "LATER=2\n"
    assert (home / "config.yaml").read_text() == CONFIG + "later: 2\n"


def test_an_addition_to_a_list_stands_before_the_comment_of_the_next_section(home: Path) -> None:
    text = "plugins:\n  enabled:\n    - a\n\n# section two\nplatforms:\n  x: 1\n"
    (home / "config.yaml").write_text(text)
    install(home, "--keep-tool-search")
    with_it = text.replace("    - a\n", "    - a\n    - hermes-bridge\n")
    assert (home / "config.yaml").read_text() == with_it


def test_a_list_that_stands_in_two_places_is_not_changed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config.yaml").write_text("mine: &m\n  enabled: [a]\nplugins: *m\n")
    before = snapshot(home)
    assert install(home) == 2
    assert "an anchor" in capsys.readouterr().err
    assert snapshot(home) == before
