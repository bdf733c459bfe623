"""Edits of a Hermes `.env`: one variable set or removed, every other byte left as it is.

Quotes are those of python-dotenv, with which Hermes reads the file.
"""

import re

_LINES = re.compile(r"[^\n]*\n|[^\n]+")


def assign(text: str, name: str, value: str) -> str:
    """Set a variable where it stands (also behind `export`), or at the end; later doubles go."""
    out: list[str] = []
    found = False
    for line in _LINES.findall(text):
        match = _line(name).match(line)
        if match is None:
            out.append(line)
        elif not found:
            found = True
            ending = line[len(line.rstrip("\r\n")) :] or _newline(text)
            out.append(f"{match['lead']}{name}={quoted(value)}{ending}")
    if not found:
        if out and not out[-1].endswith("\n"):
            out[-1] += _newline(text)
        out.append(f"{name}={quoted(value)}{_newline(text)}")
    return "".join(out)


def remove(text: str, name: str) -> str:
    """Take a variable out, with its line."""
    return "".join(line for line in _LINES.findall(text) if not _line(name).match(line))


def value_of(text: str, name: str) -> str | None:
    """Give a variable's value; the last line of it counts, as it does for Hermes."""
    found: str | None = None
    for line in _LINES.findall(text):
        match = _line(name).match(line)
        if match is not None:
            found = _unquoted(match["value"].strip())
    return found


def quoted(value: str) -> str:
    """Quote a value when a shell or a dotenv reader would not read it as it stands."""
    if re.fullmatch(r"[\w.,:/@%+=?&~-]*", value, re.ASCII):
        return value
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _unquoted(raw: str) -> str:
    if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "'\"":
        return re.sub(rf"\\([\\{raw[0]}])", r"\1", raw[1:-1])
    return raw.partition(" #")[0].rstrip()


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line(name: str) -> "re.Pattern[str]":
    return re.compile(rf"(?P<lead>\s*(?:export\s+)?){re.escape(name)}\s*=(?P<value>[^\r\n]*)")
