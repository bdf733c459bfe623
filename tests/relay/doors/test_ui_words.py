"""The page's sentences stand in one module: a check of its JavaScript without a browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes_bridge.relay.doors import ui_assets

STATIC = Path(ui_assets.__file__).parent / "static"
TAGS = set(re.findall(r"\w+", "a article button dialog input li select summary textarea auto"))
"""Of selectors; and a keyword of the style sheets."""
KEYS = {"Enter", "Escape"}
"""What a keyboard event calls its keys."""


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Give every string and every fixed part of a template, with its line."""
    at, end = 0, len(source)
    holes: list[int] = []  # braces open inside each `${` that is open
    last = ""  # the last character of code, which tells a division from a pattern
    while at < end:
        char, rest = source[at], source[at : at + 2]
        if rest in ("//", "/*"):
            stop = source.find("\n" if rest == "//" else "*/", at)
            at = end if stop < 0 else stop + (rest == "/*") * 2
            continue
        if char in "\"'" or char == "`" or (char == "}" and holes and holes[-1] == 0):
            if char == "}":
                holes.pop()
            close = char if char in "\"'" else "`"
            start = at = at + 1
            while source[at] != close and not (close == "`" and source[at : at + 2] == "${"):
                at += 2 if source[at] == "\\" else 1
            yield source.count("\n", 0, start) + 1, source[start:at]
            if source[at] != close:
                holes.append(0)
                at += 1
            at, last = at + 1, "x"
            continue
        if char == "/" and last in "(,=:[!&|?{};":
            inside = False
            at += 1
            while source[at] != "/" or inside:
                inside = source[at] == "[" or (inside and source[at] != "]")
                at += 2 if source[at] == "\\" else 1
            at, last = at + 1, "x"
            continue
        if holes:
            holes[-1] += {"{": 1, "}": -1}.get(char, 0)
        last = char if not char.isspace() else last
        at += 1


def classes() -> set[str]:
    sheets = "".join(path.read_text() for path in STATIC.glob("*.css"))
    names = re.findall(r"\.([a-z][\w-]*)", sheets)
    return {*names, *(name.rstrip("0123456789") for name in names)}


def sentence(text: str, names: set[str]) -> bool:
    """Whether somebody reads this: a capital word, words in a row, or a word that joins others."""
    tokens = text.split()
    words = [t.strip(",.:;…") for t in tokens if re.fullmatch(r"\(?[A-Za-z]+[,.:;…)]*", t)]
    if any(re.fullmatch(r"\(?[A-Z][a-z]+", word) and word not in KEYS for word in words):
        return True
    said = [word for word in words if word not in names | KEYS and not word.isupper()]
    return bool(said) and (len(words) > 1 or text != text.strip())


def found(source: str, names: set[str]) -> list[tuple[int, str]]:
    return [(line, text) for line, text in literals(source) if sentence(text, names)]


@pytest.mark.parametrize("name", sorted(p.name for p in STATIC.glob("*.js")))
def test_what_people_read_stands_in_the_module_of_words_alone(name: str) -> None:
    said = found((STATIC / name).read_text(), classes() | TAGS)
    assert bool(said) is (name == "words.js"), said


@pytest.mark.parametrize(
    "source",
    [
        'h("p", null, "Nothing is waiting.")',
        "toast(`Link copied`)",
        "const text = `${n} exchanges`;",
        'p.append(name, " asked ", other)',
        "say(n === 1 ? `${n} new exchange` : `x`)",
        'const r = /["`]/g; call("could not load")',
        "`${a ? `${b} is at risk` : {}}`",
        'f("Idle") // "not this"',
    ],
)
def test_a_sentence_in_another_module_is_found(source: str) -> None:
    assert found(source, classes() | TAGS)


def test_what_nobody_reads_is_no_sentence() -> None:
    code = """h("p", { class: `st bare s-${tone} tall`, on: { click } }, x / 2 / y);
    // A comment "with words"
    const path = `M${x} ${y}Q${z}`, at = el.closest("a, button, [popover]");
    import { h } from "./dom.js"; ask(`/ui/api/state?cut=${CUT}`);"""
    assert not found(code, classes() | TAGS)


@pytest.mark.parametrize("name", sorted(p.name for p in STATIC.glob("*.js")))
def test_scripts_are_served_without_what_only_their_authors_need(name: str) -> None:
    source, served = (STATIC / name).read_text(), ui_assets.load().files[name].plain.decode()
    assert [text for _, text in literals(served)] == [text for _, text in literals(source)]
    assert [line for line, _ in literals(served)] == [line for line, _ in literals(source)]
    assert not any("\n" in text for _, text in literals(source)), "indentation is never text"


def test_every_word_is_used() -> None:
    """A label that no module names is dead."""
    words = (STATIC / "words.js").read_text()
    others = "".join(p.read_text() for p in STATIC.glob("*.js") if p.name != "words.js")
    named = set(re.findall(r"\w+", others))
    keys = set(re.findall(r"(?:^|[{,]) *([a-zA-Z]\w*): ", words, re.M))
    assert len(keys) > 150
    assert not keys - named
