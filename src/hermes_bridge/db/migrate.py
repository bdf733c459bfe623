"""Bring a schema up to date, one numbered step at a time, each in the caller's transaction.

A store that is up to date is only read: a replica, a file without the right to write, or a role that
may not create tables will do.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from hermes_bridge.db.base import Migration, Schema

TABLE = "hermes_bridge_migrations"
CREATE = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} "
    "(part text NOT NULL, version integer NOT NULL, PRIMARY KEY (part, version))"
)


def pending(schema: Schema, applied: Iterable[int]) -> list[Migration]:
    """Give the steps of `schema` that are not in `applied`, oldest first."""
    done = set(applied)
    return [step for step in schema.migrations if step.version not in done]


APPLIED = f"SELECT part, version FROM {TABLE}"  # noqa: S608


def is_current(schemas: Iterable[Schema], applied: Iterable[Sequence[Any]]) -> bool:
    """Whether the rows of `APPLIED` name every step."""
    done = {(part, version) for part, version in applied}
    return all(
        (schema.part, step.version) in done for schema in schemas for step in schema.migrations
    )


def apply_sync(schema: Schema, execute: Callable[..., Iterable[tuple[int]]]) -> None:
    """Apply what is missing through `execute(sql, args)`, for a driver that is synchronous."""
    execute(CREATE, ())
    applied = [
        row[0]
        for row in execute(f"SELECT version FROM {TABLE} WHERE part=?", (schema.part,))  # noqa: S608
    ]
    for step in pending(schema, applied):
        for sql in step.sqlite:
            execute(sql, ())
        execute(f"INSERT INTO {TABLE}(part, version) VALUES (?, ?)", (schema.part, step.version))  # noqa: S608


async def apply_async(
    schema: Schema,
    execute: Callable[..., Awaitable[Any]],
    fetch: Callable[..., Awaitable[Sequence[Sequence[Any]]]],
) -> None:
    """Apply what is missing through `execute(sql, *args)`, for PostgreSQL."""
    await execute(CREATE)
    found = await fetch(f"SELECT version FROM {TABLE} WHERE part=$1", schema.part)  # noqa: S608
    for step in pending(schema, [row[0] for row in found]):
        for sql in step.postgres:
            await execute(sql)
        await execute(
            f"INSERT INTO {TABLE}(part, version) VALUES ($1, $2)",  # noqa: S608
            schema.part,
            step.version,
        )
