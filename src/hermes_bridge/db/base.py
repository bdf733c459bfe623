"""What a store can do, whichever it is. Knows SQL, knows no table.

SQL text is written once with `$1, $2` for its arguments. Everything that fails because of the
store (gone, locked, full, corrupt) is a `DatabaseDown`: the caller keeps its rows and retries.
Data that the store will never take is a `RowRefused`. Instants are unix milliseconds in every
dialect, whatever the column's type.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

Row = tuple[Any, ...]


class Statement(NamedTuple):
    """One statement with its arguments."""

    sql: str
    args: Row = ()


class Upsert(NamedTuple):
    """Many rows for one table, none twice. `tail` is the conflict clause (`ON CONFLICT ...`) or empty."""

    table: str
    columns: tuple[str, ...]
    tail: str
    rows: Sequence[Row]


class Migration(NamedTuple):
    """One numbered step of a part's schema: its statements for each dialect."""

    version: int
    sqlite: tuple[str, ...]
    postgres: tuple[str, ...]


class Schema(NamedTuple):
    """A part's migrations, oldest first. `part` names it in the table of applied steps."""

    part: str
    migrations: tuple[Migration, ...]


class Database(Protocol):
    """A store. All methods raise `DatabaseDown` and nothing else when it does not answer in time."""

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgres`."""
        ...

    async def open(self, *schemas: Schema) -> None:
        """Connect and bring every schema up to date; also used to come back after an outage."""
        ...

    async def write(self, *work: Statement | Upsert) -> None:
        """Do all of `work` in one transaction, or none of it."""
        ...

    async def read(self, sql: str, *args: Any) -> list[Row]:
        """Give the rows of a query. Never waits for a writer."""
        ...

    async def scan(self, sql: str, *args: Any) -> list[Row]:
        """Give the rows of a query that may take long. No `read` waits for it."""
        ...

    async def close(self) -> None:
        """Let go. Safe to call twice."""
        ...
