"""What the verbs that read the store share: opening it, time arguments, an exchange as data."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from hermes_bridge import config as config_file
from hermes_bridge.clock import wall_ms
from hermes_bridge.db.base import Database
from hermes_bridge.db.sqlite import MEMORY, SqliteDatabase
from hermes_bridge.errors import DatabaseDown, UsageError
from hermes_bridge.relay.config import DbSection
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.reads import Wanted
from hermes_bridge.relay.verbs import iso

_T = TypeVar("_T")
_AGO = re.compile(r"(\d{1,6})\s*(m|min|h|d|w)")
_UNITS = {"m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
PAGE = 500


def configured(config_path: str | None) -> Database:
    """Give the store that the configuration names."""
    section = config_file.load(config_path, os.environ).db
    if section.driver == "memory":
        raise UsageError(
            "The configuration keeps history in memory only (db.driver: memory).",
            hint="It can be seen on the page while the relay runs; to keep it, set db.driver: sqlite.",
        )
    return _store(section)


def named(address: str) -> Database:
    """Give the store of an address: a PostgreSQL URL, or the path of a SQLite file."""
    if address.startswith(("postgres://", "postgresql://", "postgresql+asyncpg://")):
        return _store(DbSection(driver="postgres", connection_string=address))
    path = address.removeprefix("sqlite://").removeprefix("sqlite:")
    if "://" in address and not address.startswith("sqlite://"):
        raise UsageError(
            "This is no address of a store.",
            hint="Give postgresql://user:password@host/name, or the path of a SQLite file.",
        )
    return _store(DbSection(driver="sqlite", path=path))


def _store(section: DbSection) -> Database:
    from hermes_bridge.serve import database

    return database(section)


def place(store: Database) -> str:
    """Say where a store is, without its password."""
    if isinstance(store, SqliteDatabase):
        return f"SQLite file {store.path}"
    where = getattr(store, "where", "")
    return f"PostgreSQL at {where}" if where else "PostgreSQL"


def must_exist(store: Database) -> None:
    """Do not make an empty file where somebody wants to read one."""
    if isinstance(store, SqliteDatabase) and store.path != MEMORY and not Path(store.path).exists():
        raise UsageError(
            f"There is no store at {store.path}.",
            hint="It appears when the relay runs; db.path in the configuration says where.",
        )


@asynccontextmanager
async def opened(store: Database, *, as_it_is: bool = False) -> AsyncIterator[Ledger]:
    """Open a store for one command; `as_it_is`: its tables are not brought up to date."""
    ledger = Ledger(store)
    try:
        try:
            await (store.open() if as_it_is else ledger.open())
        except DatabaseDown as error:
            raise DatabaseDown(
                f"The store ({place(store)}) does not answer: {error}.",
                hint="Check that it runs, and db.path or db.connection_string (DATABASE_URL).",
            ) from None
        yield ledger
    finally:
        await store.close()


def run(work: Callable[[], Awaitable[_T]]) -> _T:
    """Run one command's asynchronous part."""

    async def main() -> _T:
        return await work()

    return asyncio.run(main())


def instant(text: str | None, default: int, option: str) -> int:
    """Read a time: `7d`, `12h`, `30min` ago, or an ISO date or instant; give unix milliseconds."""
    if not text:
        return default
    ago = _AGO.fullmatch(text.strip().lower())
    if ago:
        return wall_ms() - int(ago[1]) * _UNITS[ago[2]]
    try:
        when = datetime.fromisoformat(text.strip())
        return int((when if when.tzinfo else when.astimezone()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):  # the latter for years that no clock here knows
        raise UsageError(
            f"{option} is not a time.", hint="Examples: 7d, 12h, 2026-11-30, 2026-11-30T14:00:00Z."
        ) from None


async def history(
    ledger: Ledger, since: int, wanted: Wanted, conversation: str | None
) -> AsyncIterator[Exchange]:
    """Give the wanted exchanges from an instant on, oldest first, a page at a time."""
    at, after = since, ""
    while page := await ledger.since(at, after, PAGE, wanted, conversation):
        for exchange in page:
            yield exchange
        at, after = page[-1].at, page[-1].rid


def as_data(x: Exchange) -> dict[str, Any]:
    """Give an exchange as people read it: names as on the page, instants in ISO 8601 (UTC)."""
    data: dict[str, Any] = {
        "request_id": x.rid,
        "conversation_id": x.conv,
        "from": x.asker,
        "to": x.target,
        "status": x.status.value,
        "started_at": iso(x.at),
        "ended_at": iso(x.ended_at) if x.ended_at else None,
        "duration_ms": x.ended_at - x.at if x.ended_at else None,
        "message": x.message,
        "answer": x.answer,
        "error": x.reason,
        "late_answer": x.late_answer,
        "late_at": iso(x.late_at) if x.late_at else None,
        "attempts": x.attempt,
        "data": _json(x.data),
        "answer_data": _json(x.answer_data),
    }
    return data


def _json(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


def local(at: int) -> str:
    """Give an instant as this machine's people read it."""
    return datetime.fromtimestamp(at / 1000, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def one_line(text: str, width: int) -> str:
    """Give a text on one line, without control characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return words if len(words) <= width else words[: width - 1] + "\N{HORIZONTAL ELLIPSIS}"
