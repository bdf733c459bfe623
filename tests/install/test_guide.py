"""The lines of the guide for bots do what they say: each install line is run, the unit is read."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.conftest import missing
from tests.install.test_installer import CONFIG, home, run

__all__ = ["home"]

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "bots.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
LINES = [
    line.partition("#")[0].strip()
    for kind, block in BLOCKS
    if not kind
    for line in block.splitlines()
    if "hermes-bridge install bridge" in line
]


def test_the_guide_has_a_line_for_each_kind_of_bot() -> None:
    kinds = [line.split()[0] for line in LINES]
    assert sorted(kinds) == ["docker", "hermes-bridge", "sudo", "sudo"]


@pytest.mark.parametrize("line", LINES, ids=[" ".join(line.split()[:4]) for line in LINES])
def test_an_install_line_of_the_guide_installs(
    home: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """`docker exec` and `sudo` are left out; the home is one like the line's."""
    words = shlex.split(line)
    start = next(i for i, word in enumerate(words) if word.endswith("hermes-bridge"))
    args = [w.replace("--token=...", "--token=tok") for w in words[start + 1 :]]
    args = [w.replace("--relay-url=...", "--relay-url=ws://127.0.0.1:9") for w in args]
    told = [w for w in words[:start] if w.startswith("HERMES_HOME=")]
    args = [f"--hermes-home={home}" if w.startswith("--hermes-home=") else w for w in args]
    if told or "docker" in line:  # in the container it is set to /opt/data
        monkeypatch.setenv("HERMES_HOME", str(home))
    elif "--hermes-home" not in line:
        monkeypatch.setenv("HOME", str(home.parent))
        home.rename(home.parent / ".hermes")
        home = home.parent / ".hermes"
    assert run(*args) == 0
    installed = yaml.safe_load((home / "config.yaml").read_text())
    assert installed["plugins"]["enabled"] == ["web_search", "hermes-bridge"]
    assert (home / "plugins" / "hermes-bridge" / "plugin.yaml").is_file()
    assert (home / "config.yaml").read_text().startswith(CONFIG.partition("plugins")[0])


def test_systemd_takes_the_unit_of_the_guide(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        missing("systemd-analyze")
    (text,) = [block for kind, block in BLOCKS if kind == "ini"]
    unit = tmp_path / "hermes-gateway.service"
    unit.write_text(
        text.replace("/opt/hermes/bin/hermes", sys.executable).replace("=hermes\n", "=root\n")
    )
    done = subprocess.run(
        [str(tool), "verify", "--man=no", str(unit)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    about = [line for line in done.stderr.splitlines() if "hermes-gateway" in line]
    assert (done.returncode, about) == (0, []), done.stderr
