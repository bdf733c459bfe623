"""Homes as they are out there: links, mounts, other owners, Docker's layout."""

import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.install.test_installer import ARGS, CONFIG, ENV, config, home, install, run, snapshot

from hermes_bridge.cli.main import main

__all__ = ["home"]


def test_a_file_that_is_mounted_by_itself_is_written_in_place(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker's `-v ./config.yaml:/opt/data/config.yaml`: such a file cannot be replaced."""
    real = Path.replace

    def busy(self: Path, target: Path) -> Path:
        if Path(target).name == "config.yaml":
            raise OSError(16, "Device or resource busy", str(target))
        return real(self, target)

    before, number = snapshot(home), (home / "config.yaml").stat().st_ino
    monkeypatch.setattr(Path, "replace", busy)
    assert install(home) == 0
    assert config(home)["plugins"]["enabled"] == ["web_search", "hermes-bridge"]
    assert (home / "config.yaml").stat().st_ino == number
    assert run("uninstall", "bridge", f"--hermes-home={home}") == 0
    assert snapshot(home) == before


def test_a_linked_config_stays_a_link(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    dotfiles = tmp_path_factory.mktemp("dotfiles")
    for name in ("config.yaml", ".env"):
        (home / name).rename(dotfiles / name)
        (home / name).symlink_to(dotfiles / name)
    before = snapshot(dotfiles)
    install(home)
    assert (home / "config.yaml").is_symlink()
    assert "hermes-bridge" in (dotfiles / "config.yaml").read_text()
    assert "tok-abc123" in (dotfiles / ".env").read_text()
    run("uninstall", "bridge", f"--hermes-home={home}")
    assert snapshot(dotfiles) == before
    assert (home / ".env").is_symlink()


def test_rights_are_kept_also_of_a_file_that_may_only_be_read(home: Path) -> None:
    (home / "config.yaml").chmod(0o440)
    assert install(home) == 0
    assert stat.S_IMODE((home / "config.yaml").stat().st_mode) == 0o440
    assert "hermes-bridge" in (home / "config.yaml").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_that_installs_leaves_every_file_to_the_owner_of_the_home(home: Path) -> None:
    for path in (home, *home.rglob("*")):
        os.chown(path, 10_000, 10_000)
    install(home)
    assert {(p.stat().st_uid, p.stat().st_gid) for p in home.rglob("*")} == {(10_000, 10_000)}


@pytest.fixture
def open_home() -> Iterator[Path]:
    """A home that others can look into: pytest's own folders are closed to them."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        home.chmod(0o755)
        (home / "config.yaml").write_text(CONFIG)
        (home / ".env").write_text(ENV)
        yield home


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_home_is_one_message_and_another_users_file_stays_theirs(
    open_home: Path,
) -> None:
    home = open_home
    (home / ".env").chmod(0o644)
    before = snapshot(home)
    code, said = as_user(10_000, home)
    assert code == 2, said
    assert "Nothing was changed" in said
    assert "docker exec -u" in said
    assert "Traceback" not in said
    assert snapshot(home) == before
    home.chmod(0o777)
    (home / "config.yaml").chmod(0o666)
    (home / ".env").unlink()
    code, said = as_user(10_000, home)
    assert code == 0, said
    assert (home / "config.yaml").stat().st_uid == 0
    assert (home / ".env").stat().st_uid == 10_000


def as_user(uid: int, home: Path) -> tuple[int, str]:
    """Install as another user, in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setresuid(uid, uid, uid)
        for stream in (1, 2):
            os.dup2(write, stream)
        sys.stdout = sys.stderr = os.fdopen(write, "w")
        code = 9
        try:
            main(["install", "bridge", *ARGS, f"--hermes-home={home}"])
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            sys.stdout.flush()
            os._exit(code)
    os.close(write)
    with os.fdopen(read) as out:
        said = out.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), said


@pytest.mark.parametrize("where", ["HERMES_HOME", "--hermes-home", "--data-dir"])
def test_a_home_like_dockers_is_found_and_its_layout_is_right(
    home: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """`HERMES_HOME=/opt/data`: plugins in `plugins/`, never in `.hermes/plugins/`."""
    args = ARGS
    if where == "HERMES_HOME":
        monkeypatch.setenv("HERMES_HOME", str(home))
    else:
        args = (*ARGS, f"{where}={home}")
    assert run("install", "bridge", *args) == 0
    assert (home / "plugins" / "hermes-bridge" / "plugin.yaml").is_file()
    assert not (home / ".hermes").exists()
    assert "HERMES_BRIDGE_TOKEN=tok-abc123" in (home / ".env").read_text()


def test_the_settings_that_docker_gives_by_environment_need_no_flags(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home))
    monkeypatch.setenv("HERMES_BRIDGE_TOKEN", "tok-env")
    monkeypatch.setenv("HERMES_BRIDGE_RELAY_URL", "relay:8787")
    assert run("install", "bridge", "--no-check") == 0
    assert "HERMES_BRIDGE_TOKEN=tok-env" in (home / ".env").read_text()


def test_flags_may_be_written_both_ways_and_a_misspelt_one_is_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(home)
    spaced = [word for arg in ARGS[:2] for word in arg.split("=", 1)]
    assert run("install", "bridge", *spaced, "--data-dirr", str(home), "--no-check") == 2
    assert "--data-dir" in capsys.readouterr().err  # the one that was meant
    assert snapshot(home) == before
    assert run("install", "bridge", *spaced, "--data-dir", str(home), "--no-check") == 0
    assert "hermes-bridge" in config(home)["plugins"]["enabled"]
    assert run("install", "--help") == 0
    assert "bridge" in capsys.readouterr().out
