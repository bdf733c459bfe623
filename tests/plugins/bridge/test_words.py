"""Whatever the plugin says to a person stands in the guide, with what it means."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import hermes_bridge.plugins.bridge as plugin
from hermes_bridge.plugins.bridge import dial

SOURCES = sorted(Path(plugin.__file__).parent.glob("*.py"))
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "bots.md"
SPOKEN = {"warning", "error", "exception"}


def literal(node: ast.AST) -> str | None:
    """The text of a string, with `%s` where a format has a hole."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(p.value) if isinstance(p, ast.Constant) else "%s" for p in node.values)
    return None


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            called = getattr(function, "attr", getattr(function, "id", ""))
            if called == name:
                yield node


def spoken() -> Iterator[tuple[str, str]]:
    """(kind, text) of every line for the log, every failure, every code of a tool."""
    for rule in dial.RULES.values():
        yield "log", rule.words.replace("{url}", "%s").replace("{detail}", "%s")
    for source in SOURCES:
        tree = ast.parse(source.read_text("utf-8"))
        for method in SPOKEN:
            for call in calls(tree, method):
                text = literal(call.args[0]) if call.args else None
                if text not in (None, "hermes-bridge: %s"):
                    yield "log", str(text)
        for call in calls(tree, "_fault"):
            codes = [c.value for c in ast.walk(call.args[0]) if isinstance(c, ast.Constant)]
            yield from (("code", c) for c in codes if isinstance(c, str))
        for node in ast.walk(tree):
            if isinstance(node, ast.Dict):
                for key, value in zip(node.keys, node.values, strict=True):
                    if key is not None and literal(key) == "error" and literal(value):
                        yield "code", str(literal(value))
        names = {
            t.id: literal(n.value)
            for n in ast.walk(tree)
            if isinstance(n, ast.Assign)
            for t in n.targets
            if isinstance(t, ast.Name)
        }
        for call in calls(tree, "Reply"):
            if any(k.arg == "failure" for k in call.keywords) and call.args:
                first = call.args[0]
                text = names.get(first.id) if isinstance(first, ast.Name) else literal(first)
                if text:
                    yield "failure", text
        yield from (("failure", str(names[n])) for n in ("NO_TEXT", "NOT_STARTED") if n in names)


def stretches(text: str) -> list[str]:
    """The beginnings of what stands between the values and the punctuation of a text."""
    plain = text.removeprefix("hermes-bridge: ").removeprefix("hermes-bridge ")
    pieces = [p.strip() for p in re.split(r"%[sd]|[:;(),]", plain)]
    return [p[:30].strip() for p in pieces if len(p) > 8]


FOUND = sorted(set(spoken()))


def test_the_search_finds_what_is_known_to_be_said() -> None:
    kinds = [kind for kind, _ in FOUND]
    assert kinds.count("log") > 15
    assert kinds.count("failure") > 4
    assert ("code", "relay_unreachable") in FOUND


@pytest.mark.parametrize(("kind", "text"), FOUND)
def test_what_the_plugin_says_is_in_the_guide(kind: str, text: str) -> None:
    guide = " ".join(GUIDE.read_text("utf-8").split())
    wanted = [f"`{text}`"] if kind == "code" else stretches(text)
    assert any(stretch in guide for stretch in wanted), wanted
