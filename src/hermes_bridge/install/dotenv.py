"""Edits of a Hermes `.env`: one variable set or removed, every other byte left as it is."""

import re


def assign(text: str, name: str, value: str) -> str:
    """Set a variable where it stands (also behind `export`), or at the end; later doubles go."""
    lines, out, found = text.splitlines(keepends=True), [], False
    for line in lines:
        match = _line(name).match(line)
        if match is None:
            out.append(line)
        elif not found:
            found = True
            ending = line[len(line.rstrip("\r\n")) :] or "\n"
            out.append(f"{match['lead']}{name}={quoted(value)}{ending}")
    if not found:
        if out and not out[-1].endswith("\n"):
            out[-1] += "\n"
        out.append(f"{name}={quoted(value)}\n")
    return "".join(out)


def remove(text: str, name: str) -> str:
    """Take a variable out, with its line."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not _line(name).match(line))


def value_of(text: str, name: str) -> str | None:
    """Give a variable's value; the last line of it counts, as it does for Hermes."""
    found: str | None = None
    for line in text.splitlines():
        match = _line(name).match(line)
        if match is not None:
            raw = match["value"].strip()
            plain = len(raw) < 2 or raw[0] != raw[-1] or raw[0] not in "'\""
            found = raw.partition(" #")[0].rstrip() if plain else raw[1:-1]
    return found


def quoted(value: str) -> str:
    """Quote a value when a shell or a dotenv reader would not read it as it stands."""
    if re.fullmatch(r"[\w.,:/@%+=?&~-]*", value):
        return value
    if "'" not in value:
        return f"'{value}'"
    escaped = (
        value.replace("\\", "\\\\").replace('"', '\\"').replace("$", "\\$").replace("`", "\\`")
    )
    return f'"{escaped}"'


def _line(name: str) -> "re.Pattern[str]":
    return re.compile(rf"(?P<lead>\s*(?:export\s+)?){re.escape(name)}\s*=(?P<value>[^\r\n]*)")
