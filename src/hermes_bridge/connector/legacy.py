"""The seed's cursor files: read on a first start, kept up to date for whoever else reads them."""

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from hermes_bridge.connector.core.cursor import stamp
from hermes_bridge.log import event

_logger = logging.getLogger("hermes_bridge.connector.legacy")
_MAX_FILE = 16 * 1024 * 1024


def cursor_file(directory: str, bot_id: str) -> Path:
    """Where the seed keeps the cursors of a bot; an id cannot leave the directory."""
    safe = bot_id.replace("/", "_").replace("\\", "_").replace("\0", "_")
    return Path(directory) / f"last-seen-msg-ts-{safe}.json"


def read(directory: str, bot_id: str) -> tuple[dict[str, str], str]:
    """Give the cursors of a bot and the moment that they were written at.

    A torn file still has that moment: its channels are then read from there, instead of being
    taken for new.
    """
    path = cursor_file(directory, bot_id)
    try:
        written = stamp(int(path.stat().st_mtime * 1000))
        with path.open("rb") as file:
            found = json.loads(file.read(_MAX_FILE))
        marks = {str(key): value for key, value in found.items() if isinstance(value, str)}
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        event(_logger, "cursor_file.unreadable", logging.WARNING, bot=bot_id, cause=error.strerror)
        return {}, ""
    except (ValueError, AttributeError):
        event(_logger, "cursor_file.torn", logging.WARNING, bot=bot_id, reading_from=written)
        return {}, written
    return marks, written


async def write(directory: str, marks_of: Mapping[str, Mapping[str, str]]) -> None:
    """Replace the files of some bots, each in one step, so that nobody ever reads half of one."""
    texts = {bot_id: json.dumps(dict(marks)) for bot_id, marks in marks_of.items()}
    for bot_id, trouble in (await asyncio.to_thread(_replace_all, directory, texts)).items():
        event(_logger, "cursor_file.not_written", logging.WARNING, bot=bot_id, cause=trouble)


def _replace_all(directory: str, texts: Mapping[str, str]) -> dict[str, str]:
    """Give the bots whose file could not be written, and why."""
    troubles = {
        bot_id: _replace(cursor_file(directory, bot_id), text) for bot_id, text in texts.items()
    }
    return {bot_id: trouble for bot_id, trouble in troubles.items() if trouble}


def _replace(path: Path, text: str) -> str:
    fresh = path.with_name(f".{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""
