"""The stores that a test runs over: in memory, a SQLite file, a real PostgreSQL."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_bridge.db.base import Database
from hermes_bridge.db.postgres import PostgresDatabase
from hermes_bridge.db.sqlite import MEMORY, SqliteDatabase

STORES = ("memory", "sqlite", "postgres")


@pytest.fixture(params=STORES)
def new_database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Database]:
    """Return `make()`: another connection to one and the same fresh store (memory: another store)."""
    if request.param == "postgres":
        url: str = request.getfixturevalue("postgres_url")
        return lambda: PostgresDatabase(url)
    if request.param == "sqlite":
        return lambda: SqliteDatabase(tmp_path / "store.db")
    return lambda: SqliteDatabase(MEMORY)
