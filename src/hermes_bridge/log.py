"""Log lines: one event a line, ids not contents, never a secret.

`event(logger, "link.opened", agent="b")` gives `... link.opened agent=b`, or a JSON object with
`log.format: json`. `Quiet` keeps a hammering peer from filling the disk: one line a cause.
"""

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

_FIELDS = "bridge_fields"


def event(logger: logging.Logger, name: str, /, level: int = logging.INFO, **fields: Any) -> None:
    """Write one event with its fields. Values are ids and numbers, never message text."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={_FIELDS: fields})


def _plain(value: object) -> str:
    text = str(value)
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return json.dumps(clean) if " " in clean or not clean else clean


class LineFormat(logging.Formatter):
    """`2026-11-30T12:00:00.000Z INFO link.opened agent=b`."""

    def format(self, record: logging.LogRecord) -> str:
        """Give one line; an exception, where one is logged, follows as its last words only."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, object] = getattr(record, _FIELDS, {})
        words = [f"{stamp}.{int(record.msecs):03d}Z", record.levelname, record.getMessage()]
        words += [f"{key}={_plain(value)}" for key, value in fields.items()]
        if record.exc_info and record.exc_info[1] is not None:
            words.append(f"cause={_plain(repr(record.exc_info[1])[:200])}")
        return " ".join(words)


class JsonFormat(logging.Formatter):
    """The same as one JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Give one JSON object: `at` (unix seconds), `level`, `event`, then the fields."""
        fields: dict[str, object] = getattr(record, _FIELDS, {})
        body = {"at": round(record.created, 3), "level": record.levelname}
        body |= {"event": record.getMessage(), **fields}
        if record.exc_info and record.exc_info[1] is not None:
            body["cause"] = repr(record.exc_info[1])[:200]
        return json.dumps(body, default=str)


def configure(*, level: str = "INFO", form: str = "line") -> None:
    """Send all log lines to standard error in one of two forms, `line` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormat() if form == "json" else LineFormat())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    loop = logging.getLogger("asyncio")
    loop.setLevel(logging.ERROR)
    loop.addFilter(_not_of_files)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _not_of_files(record: logging.LogRecord) -> bool:
    """Drop what the loop says of missing files, once a second: `web/files.py` says it better."""
    return "out of system resource" not in record.getMessage()


class Quiet:
    """Lets a cause's first line through, then one a minute that says how many were kept back."""

    def __init__(
        self, logger: logging.Logger, now: Callable[[], int], *, every_ms: int = 60_000
    ) -> None:
        self._logger, self._now, self._every = logger, now, every_ms
        self._seen: dict[tuple[str, str], tuple[int, int]] = {}

    def event(self, name: str, cause: str, /, level: int = logging.WARNING, **fields: Any) -> None:
        """Write the event unless the same `name` and `cause` was written within the last minute."""
        now = self._now()
        last, held = self._seen.get((name, cause), (0, 0))
        if last and now - last < self._every:
            self._seen[name, cause] = (last, held + 1)
            return
        if len(self._seen) > 1000:
            self._seen.clear()
        self._seen[name, cause] = (now, 0)
        extra = {"not_shown": held} if held else {}
        event(self._logger, name, level, cause=cause, **fields, **extra)
