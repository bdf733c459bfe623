"""Words and tables for the operator's terminal; JSON for programs."""

import json
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TextIO


def table(head: Sequence[str], rows: Sequence[Sequence[Any]], width: int | None = None) -> str:
    """Lay out rows in columns; the last column is cut to fit the terminal."""
    cells = [[str("" if cell is None else cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    room = (width or shutil.get_terminal_size((100, 20)).columns) - sum(widths[:-1]) - 2 * len(head)
    widths[-1] = min(widths[-1], max(20, room))
    lines = ["  ".join(text.upper().ljust(size) for text, size in zip(head, widths, strict=True))]
    for row in cells:
        row[-1] = row[-1] if len(row[-1]) <= widths[-1] else row[-1][: widths[-1] - 1] + "…"
        lines.append("  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)))
    return "\n".join(line.rstrip() for line in lines)


def moment(ms: int | None) -> str:
    """Write a time for people, in UTC."""
    if not ms:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def span(ms: int) -> str:
    """Write a length of time for people."""
    seconds = max(0, ms) // 1000
    for size, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}".replace(".0 ", " ")
    return f"{seconds} s"


def say(text: str, stream: TextIO | None = None) -> None:
    """Print for people."""
    (stream or sys.stdout).write(text + "\n")


def say_json(value: Any) -> None:
    """Print for programs; bytes become text."""
    say(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
