"""What several benches share: one exchange as relays have them, and a PostgreSQL from the wheel."""

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_bridge.ids import new_id
from hermes_bridge.relay.core.exchange import Exchange, Status

MESSAGE = "How many days of leave does somebody have in their first year? " * 2


def exchange(now: int, **more: Any) -> Exchange:
    """An ask that was sent: 126 characters from one bot to another."""
    base: dict[str, Any] = {
        "rid": new_id(now),
        "conv": new_id(now),
        "asker": "daniel-bot",
        "target": "helpdesk-bot",
        "message": MESSAGE,
        "at": now,
        "cap": now + 3_600_000,
        "window": 120_000,
        "status": Status.SENT,
        "attempt": 1,
        "sent_at": now,
        "order": (now, 1),
    }
    return Exchange(**{**base, **more})


def end(x: Exchange, now: int) -> None:
    """The answer, as long as the question."""
    x.status, x.taken_at, x.ended_at, x.answer = Status.OK, now, now, MESSAGE


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder for a bench; PostgreSQL's own user can enter it."""
    made = Path(tempfile.mkdtemp(prefix="hermes-bridge-bench-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextlib.contextmanager
def postgres(place: Path) -> Iterator[Any]:
    """A server (`tests/harness/postgres.py`) with its data in a folder."""
    from tests.harness.postgres import PostgresServer

    server = PostgresServer(place / "data").start()
    try:
        yield server
    finally:
        server.stop(signal.SIGQUIT)
