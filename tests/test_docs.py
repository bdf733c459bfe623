"""The documents say what the code does: every key, verb, status and code, and no dead link."""

import re
from pathlib import Path
from typing import Any, get_args

import click
import msgspec
import pytest

import hermes_bridge
from hermes_bridge.cli.main import _VERBS, cli
from hermes_bridge.relay.config import AgentSection, RelayConfig
from hermes_bridge.relay.core.exchange import ENDS, REFUSALS
from hermes_bridge.relay.core.results import HINTS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def _keys(kind: Any, prefix: str = "") -> list[str]:
    found = []
    for field in msgspec.structs.fields(kind):
        inner = [t for t in (field.type, *get_args(field.type)) if _is_section(t)]
        if inner and inner[0] is not AgentSection and prefix == "" and field.name not in _WHOLE:
            found += _keys(inner[0], f"{field.name}.")
        else:
            found.append(f"{prefix}{field.name}")
    return found


_WHOLE = {"langfuse", "otlp", "connector"}


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


@pytest.mark.parametrize("key", [*_keys(RelayConfig), *_keys(AgentSection)])
def test_every_configuration_key_is_documented(key: str) -> None:
    assert f"`{key}`" in text("docs/reference/config.md")


def test_every_verb_is_documented() -> None:
    page = text("docs/reference/cli.md")
    for verb in _VERBS:
        assert f"`{verb}" in page, verb
        command = cli.get_command(click.Context(cli), verb)
        if isinstance(command, click.Group):
            for name in command.commands:
                assert f"`{verb} {name}" in page, f"{verb} {name}"


def test_every_status_and_code_is_documented() -> None:
    page = text("docs/reference/results.md")
    for code in {*(str(s) for s in ENDS - {"ok"}), *map(str, REFUSALS), *map(str, HINTS)}:
        assert f"`{code}`" in page, code


@pytest.mark.parametrize("code", ["1001", "1007", "1008", "1009", "1012", "4401", "4409"])
def test_every_close_code_is_documented(code: str) -> None:
    assert code in text("docs/protocol/bridge.md")


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 408, 413, 415, 431, 500, 503])
def test_every_http_status_is_documented(status: int) -> None:
    assert str(status) in text("docs/reference/http.md")


def test_the_readme_is_short_and_names_the_two_commands() -> None:
    page = text("README.md")
    assert page.count("\n") < 150
    assert "make demo" in page and "make test" in page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_link_is_dead(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_changelog_knows_the_version() -> None:
    newest = re.findall(r"^## (?:\[)?([\w.]+)", text("CHANGELOG.md"), re.MULTILINE)[0]
    assert newest in ("Unreleased", hermes_bridge.__version__)
