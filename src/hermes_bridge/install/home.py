"""Which directory is the Hermes home of this bot."""

import os
from collections.abc import Mapping
from pathlib import Path

from hermes_bridge.errors import UsageError

DOCKER = Path("/opt/data")
MARKS = ("config.yaml", ".env", "state.db", "sessions", "plugins", "gateway_state.json")


def find_home(given: str | None, data_dir: str | None, env: Mapping[str, str] = os.environ) -> Path:
    """Give the home: the flag, `HERMES_HOME`, `/opt/data` if it is one, else `~/.hermes`.

    Raises UsageError when there is no such directory.
    """
    for chosen in (given, data_dir, env.get("HERMES_HOME")):
        if chosen:
            return _there(Path(chosen).expanduser())
    if looks_like_home(DOCKER):
        return DOCKER
    return _there(Path.home() / ".hermes")


def looks_like_home(path: Path) -> bool:
    """Whether Hermes has lived there."""
    return any((path / mark).exists() for mark in MARKS)


def _there(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(
            f"There is no Hermes home at {path}.",
            hint="Give it with --hermes-home; in Docker it is /opt/data, else usually ~/.hermes.",
        )
    return path.resolve()
