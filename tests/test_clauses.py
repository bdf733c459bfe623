"""Every clause of docs/protocol is cited by a test, and every citation exists."""

import ast
import re
from pathlib import Path

from hermes_bridge.relay.core.exchange import TRANSITIONS

ROOT = Path(__file__).parent.parent
CLAUSE = re.compile(r"^`\[([a-z]+(?:\.[a-z0-9_]+)+)\]`", re.MULTILINE)


def _cited() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "clause"
            ):
                for argument in node.args:
                    if isinstance(argument, ast.Constant):
                        found[str(argument.value)] = file
    return found


def _written() -> set[str]:
    pages = (ROOT / "docs" / "protocol").glob("*.md")
    return {clause for page in pages for clause in CLAUSE.findall(page.read_text("utf-8"))}


def test_every_citation_names_a_clause_that_exists() -> None:
    unknown = {c: str(f.relative_to(ROOT)) for c, f in _cited().items() if c not in _written()}
    assert not unknown


def test_every_clause_is_proved_by_a_test() -> None:
    assert sorted(_written() - set(_cited())) == []


def test_the_diagram_of_an_exchange_is_the_table_of_the_core() -> None:
    page = (ROOT / "docs" / "protocol" / "bridge.md").read_text("utf-8")
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", page, re.MULTILINE))
    assert drawn == {(str(a), str(b)) for a, ends in TRANSITIONS.items() for b in ends}
