"""SQL of the page's questions: a filtered page of history, and counts.

A page is searched backwards in bounded steps: a question looks at so many rows at most and says how
far it came, so that no filter, however rare its hits, takes long on a million rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.sql.schema import EXCHANGES

_TEXTS = ("message", "answer", "late_answer", "error", "from_agent", "to_agent")


class Cursor(NamedTuple):
    """A place in history: everything before it is older."""

    at: int
    rid: str


class Wanted(NamedTuple):
    """Which exchanges are asked for; empty fields ask for all. Words must all be there."""

    words: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    role: str = "any"
    """`asker`, `target` or `any`."""
    partner: str = ""
    """The other one of `agents`."""
    statuses: frozenset[str] = frozenset()
    """Status codes; `open` stands for everything without an end."""
    since: int | None = None
    until: int | None = None

    @property
    def filters(self) -> bool:
        """Whether rows must be looked at one by one."""
        return bool(self.words or self.agents or self.partner or self.statuses)

    def has(self, x: Exchange, status: str) -> bool:
        """Whether an exchange in memory is one of them."""
        if self.since is not None and x.at < self.since:
            return False
        if self.until is not None and x.at >= self.until:
            return False
        if self.statuses and not self._has_status(x, status):
            return False
        if self.agents and not self._has_agent(x):
            return False
        if self.partner and self.partner not in (x.asker, x.target):
            return False
        return not self.words or self._has_words(x)

    def _has_status(self, x: Exchange, status: str) -> bool:
        return status in self.statuses or ("open" in self.statuses and not x.ended_at)

    def _has_agent(self, x: Exchange) -> bool:
        asks = self.role != "target" and x.asker in self.agents
        return asks or (self.role != "asker" and x.target in self.agents)

    def _has_words(self, x: Exchange) -> bool:
        parts = (x.message, x.answer, x.late_answer, x.reason, x.asker, x.target)
        text = "\n".join(part for part in parts if part).lower()
        return all(word.lower() in text for word in self.words)


class Query:
    """Collects conditions and their arguments."""

    def __init__(self, dialect: str) -> None:
        self._like = "ILIKE" if dialect == "postgres" else "LIKE"
        self._conditions: list[str] = []
        self.args: list[object] = []

    def arg(self, value: object) -> str:
        """Add an argument; give its place."""
        self.args.append(value)
        return f"${len(self.args)}"

    @property
    def where(self) -> str:
        """The WHERE clause, or nothing."""
        return f" WHERE {' AND '.join(self._conditions)}" if self._conditions else ""

    def before(self, cursor: Cursor | None) -> None:
        """Only what is older than the cursor."""
        if cursor is not None:
            at, rid = self.arg(cursor.at), self.arg(cursor.rid)
            self._conditions.append(
                f"started_at <= {at} AND (started_at < {at} OR request_id < {rid})"
            )

    def not_before(self, cursor: Cursor | None) -> None:
        """Only the place itself and what is newer."""
        if cursor is not None:
            at, rid = self.arg(cursor.at), self.arg(cursor.rid)
            self._conditions.append(
                f"started_at >= {at} AND (started_at > {at} OR request_id >= {rid})"
            )

    def between(self, since: int | None, until: int | None) -> None:
        """Only what began within a time."""
        if since is not None:
            self._conditions.append(f"started_at >= {self.arg(since)}")
        if until is not None:
            self._conditions.append(f"started_at < {self.arg(until)}")

    def wanted(self, wanted: Wanted) -> None:
        """Only what the filter names."""
        if wanted.statuses:
            codes = self._among("status", sorted(wanted.statuses))
            also = " OR ended_at IS NULL" if "open" in wanted.statuses else ""
            self._conditions.append(f"({codes}{also})")
        if wanted.agents:
            sides = [
                self._among(column, wanted.agents)
                for column, other in (("from_agent", "target"), ("to_agent", "asker"))
                if wanted.role != other
            ]
            self._conditions.append(f"({' OR '.join(sides)})")
        if wanted.partner:
            name = self.arg(wanted.partner)
            self._conditions.append(f"(from_agent = {name} OR to_agent = {name})")
        for word in wanted.words:
            escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
            place = self.arg(f"%{escaped}%")
            hits = " OR ".join(f"{text} {self._like} {place} ESCAPE '\\'" for text in _TEXTS)
            self._conditions.append(f"({hits})")

    def _among(self, column: str, values: Sequence[str]) -> str:
        return f"{column} IN ({', '.join(self.arg(value) for value in values)})"


def duration(dialect: str) -> str:
    """Give the expression for how long an exchange took, in milliseconds."""
    if dialect == "postgres":
        return "(extract(epoch FROM ended_at - started_at) * 1000)::bigint"
    return "(ended_at - started_at)"


def tally(dialect: str) -> str:
    """Give the query that counts the exchanges of a time by pair, status and duration.

    Durations fall into buckets of two digits (see `bucket_ms`), so that medians can be told from
    counts. Rows: asker, target, status, bucket (null while open), count, when the last one began.
    """
    d = duration(dialect)
    steps = " ".join(f"WHEN {d} < {10 ** (n + 2)} THEN {n * 100} + {d} / {10**n}" for n in range(7))
    bucket = f"CASE WHEN ended_at IS NULL THEN NULL WHEN {d} < 0 THEN 0 {steps} ELSE 699 END"
    return (
        f"SELECT from_agent, to_agent, status, {bucket}, count(*), max(started_at) "  # noqa: S608
        f"FROM {EXCHANGES} WHERE started_at >= $1 AND started_at < $2 GROUP BY 1, 2, 3, 4"
    )


def bucket_of(ms: int) -> int:
    """Give the bucket of a duration."""
    ms, step = max(0, ms), 0
    while ms >= 100 and step < 6:
        ms, step = ms // 10, step + 1
    return step * 100 + min(ms, 99)


def bucket_ms(bucket: int) -> int:
    """Give the middle of a bucket, in milliseconds."""
    step, digits = divmod(bucket, 100)
    scale: int = 10**step
    return digits * scale + scale // 2
