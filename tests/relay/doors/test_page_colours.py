"""The page's colours, computed: WCAG AA on every ground they stand on, in both themes."""

import re
from pathlib import Path

import pytest

import hermes_bridge.relay.doors as doors

TOKENS = (Path(doors.__file__).parent / "static" / "tokens.css").read_text()
TEXT = ["ink", "ink-2", "ink-3", "accent", "ok", "warn", "bad", "refused", "off"]


def tokens(theme: str) -> dict[str, str]:
    start = {
        "light": ":root {",
        "dark": ':root[data-theme="dark"] {',
        "system": ":not([data-theme])",
    }
    block = TOKENS[TOKENS.index(start[theme]) :].split("}", 1)[0]
    return dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{3,6})", block))


def light(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_and_edges_reach_wcag_aa(theme: str) -> None:
    known = tokens(theme)
    pairs = [(text, ground) for text in TEXT for ground in ("surface", "bg", "sunken")]
    pairs += [(tone, f"{tone}-soft") for tone in TEXT[3:]]
    pairs += [("ink", "bubble"), ("ink-2", "bubble"), ("ink", "mark"), ("ink-2", "mark")]
    pairs += [("ink", "accent-soft"), ("ink-2", "bad-soft"), ("ink-3", "accent-soft")]
    pairs += [("on-accent", "accent"), ("surface", "bad"), ("bg", "ink")]
    low = {pair: contrast(*(known[name] for name in pair)) for pair in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < 4.5} == {}
    assert contrast(known["control"], known["surface"]) >= 3


def test_the_systems_dark_theme_is_the_chosen_one() -> None:
    assert tokens("system") == tokens("dark")
