"""Whatever a `config.yaml` or `.env` looks like: installed, unchanged by a second run, given back."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from hermes_bridge.errors import ConfigError
from hermes_bridge.install import dotenv
from hermes_bridge.install.installer import Wish, plan_install, plan_uninstall
from hermes_bridge.install.plugins import BRIDGE

SMALL = dataclasses.replace(BRIDGE, source=Path(__file__).parents[1] / "e2e" / "hermes" / "spy")
"""The bridge with two files instead of sixteen: this is about the other files."""
ENV = {"HERMES_BRIDGE_TOKEN": "tok-1", "HERMES_BRIDGE_RELAY_URL": "wss://r.example/bridge/connect"}
MCP = {"mcp_servers.hermes-bridge": {"url": "https://r.example/mcp", "tools": {"include": ["a"]}}}

names = st.text("abcxyzé漢_-", min_size=1, max_size=6).filter(lambda n: n.strip("-"))
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=12) | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
plugins = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.none() | names | st.lists(names | st.just("hermes-bridge"), max_size=4),
        "disabled": st.none() | st.lists(names, max_size=2),
        "other": values,
    },
)
configs = st.fixed_dictionaries(
    {},
    optional={
        "model": values,
        "plugins": st.none() | plugins,
        "tools": st.none() | st.dictionaries(names | st.just("tool_search"), values, max_size=3),
        "mcp_servers": st.none() | st.dictionaries(names, st.dictionaries(names, values)),
        "platforms": st.just({"hermes-bridge": {"enabled": False}}) | st.none(),
        "zzz": values,
    },
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A config as text: block or flow, any indent, comments and blank lines, CRLF, no last newline."""
    data = draw(configs)
    flow = draw(st.sampled_from([False, False, None, True]))
    written = yaml.safe_dump(
        data, default_flow_style=flow, indent=draw(st.sampled_from([2, 4])), sort_keys=False,
        allow_unicode=True, width=draw(st.sampled_from([40, 10_000])),
    )  # fmt: skip
    lines: list[str] = []
    for line in written.splitlines() if data else []:
        if not line.startswith(" ") and ":" in line:
            lines += draw(st.sampled_from([[], ["# a section"], ["", "#tabs\there", ""]]))
        lines.append(line)
    lines += draw(st.sampled_from([[], ["# the end"], [""]]))
    head = draw(st.sampled_from([[], ["---"], ["# top", ""], ["%YAML 1.1", "---"]]))
    newline = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    text = newline.join(head + lines) + draw(st.sampled_from(["", newline]))
    return draw(st.sampled_from(["", "", "\ufeff"])) + text


def install(home: Path, *, mcp: bool) -> int:
    """Install; gives the number of changed files."""
    plan = plan_install(Wish(SMALL, home, dict(ENV), MCP if mcp else {}))
    plan.apply()
    return len(plan.changes)


def uninstall(home: Path) -> None:
    plan_uninstall(SMALL, home).apply()


def read(home: Path) -> Any:
    return yaml.safe_load((home / "config.yaml").read_bytes()) or {}


@settings(max_examples=60, deadline=None)
@given(text=texts(), mcp=st.booleans())
def test_any_config_is_installed_into_once_and_given_back(text: str, mcp: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, raw = Path(folder), text.encode()
        (home / "config.yaml").write_bytes(raw)
        before = read(home)
        install(home, mcp=mcp)
        after, now = read(home), (home / "config.yaml").read_bytes()
        assert "hermes-bridge" in after["plugins"]["enabled"]
        for key in before.keys() - {"plugins", "tools", "mcp_servers", "platforms"}:
            assert repr(after[key]) == repr(before[key])
        kept = now.decode().splitlines()
        for line in text.splitlines():
            if line.lstrip("\ufeff").startswith("#"):
                assert line in kept
        assert ("\r\n" in text) == ("\r\n" in now.decode()) or "\n" not in text
        assert install(home, mcp=mcp) == 0
        uninstall(home)
        assert (home / "config.yaml").read_bytes() == raw


@settings(max_examples=60, deadline=None)
@given(text=texts(), mcp=st.booleans())
def test_after_others_changed_the_config_only_ours_is_taken_out(text: str, mcp: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, file = Path(folder), Path(folder) / "config.yaml"
        file.write_bytes(text.encode())
        before = read(home)
        install(home, mcp=mcp)
        now = file.read_bytes()
        if "{" in text.partition("plugins")[0]:  # all in braces: another program writes it anew
            file.write_text(yaml.safe_dump({**read(home), "later": 1}))
        else:
            file.write_bytes(now + b"\n" * (not now.endswith(b"\n")) + b"later: 1 # mine\n")
        uninstall(home)
        assert read(home) == {**before, "later": 1}


lines = st.sampled_from(
    ["A=1", "", "# note", "export B='x y'", "HERMES_BRIDGE_TOKEN=old", " C = 2 ", "D=\u2028é",
     "export HERMES_BRIDGE_TOKEN='older'", "HERMES_BRIDGE_TOKEN_X=3", "no equals", "HERMES_HOME=/x"]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(lines, max_size=8),
    newline=st.sampled_from(["\n", "\r\n"]),
    last=st.booleans(),
    later=st.booleans(),
)
def test_any_env_file_is_written_into_once_and_given_back(
    rows: list[str], newline: str, last: bool, later: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, file = Path(folder), Path(folder) / ".env"
        raw = (newline.join(rows) + (newline if last else "")).encode() + b"\xff" * (not rows)
        file.write_bytes(raw)
        install(home, mcp=False)
        assert install(home, mcp=False) == 0
        ours = [r for r in file.read_bytes().splitlines() if b"HERMES_BRIDGE_TOKEN=" in r]
        assert [r.partition(b"=")[2] for r in ours] == [b"tok-1"]
        if not later:
            uninstall(home)
            assert file.read_bytes() == raw
            return
        file.write_bytes(file.read_bytes() + b"LATER=1")
        uninstall(home)
        after = file.read_bytes()
        assert after.endswith(b"LATER=1")
        assert b"tok-1" not in after
        for row in rows:
            assert "HERMES_BRIDGE_TOKEN=" in row or row.encode() in after
        known = dotenv.value_of(raw.decode(errors="replace"), "HERMES_BRIDGE_TOKEN")
        assert dotenv.value_of(after.decode(errors="replace"), "HERMES_BRIDGE_TOKEN") == known


@pytest.mark.parametrize(
    "text",
    [
        "base: &b [x]\nplugins: {enabled: *b}\n",
        "base: &b {enabled: [x]}\nplugins:\n  <<: *b\n",
        "base: &b {enabled: [x]}\nplugins: *b\n",
    ],
)
def test_an_alias_is_refused_or_changed_in_one_place_only(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    before = read(tmp_path)["base"]
    try:
        install(tmp_path, mcp=False)
    except ConfigError:
        assert (tmp_path / "config.yaml").read_text() == text
    else:
        assert read(tmp_path)["base"] == before
        assert "x" in read(tmp_path)["plugins"]["enabled"]
    assert read(tmp_path)["base"] == before


def test_a_huge_config_is_edited_at_one_place(tmp_path: Path) -> None:
    rows = "".join(f"k{n}:\n  - x\n  # {n}\n  - y\n" for n in range(4_000))
    text = "plugins:\n  enabled:\n    - a\n\n# rest\n" + rows
    (tmp_path / "config.yaml").write_text(text)
    install(tmp_path, mcp=True)
    now = (tmp_path / "config.yaml").read_text()
    assert now.startswith("plugins:\n  enabled:\n    - a\n    - hermes-bridge\n\n# rest\nk0:\n")
    assert rows in now
