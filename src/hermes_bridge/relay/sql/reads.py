"""SQL of the page's questions: a filtered page of history, and counts.

A page is searched backwards in bounded steps: a question looks at so many rows at most and says how
far it came, so that no filter, however rare its hits, takes long on a million rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.sql.schema import BAD, EXCHANGES, IS_BAD
from hermes_bridge.relay.sql.words import folded

FAILED = frozenset(
    {
        Status.TIMEOUT.value,
        Status.DEADLINE_EXCEEDED.value,
        Status.AGENT_DISCONNECTED.value,
        Status.AGENT_OFFLINE.value,
        Status.FAILED.value,
    }
)
"""Ends without an answer."""
_BAD = frozenset(status.value for status in BAD)
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
        return bool(self.words or self.agents or self.partner or self.statuses) and not self.bad

    @property
    def bad(self) -> bool:
        """Whether an index of its own knows what is wanted."""
        return bool(self.statuses) and self.statuses <= _BAD and not self.words

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
        text = folded("\n".join(texts_of(x)))
        return all(folded(word) in text for word in self.words)


def texts_of(x: Exchange) -> list[str]:
    """Give the texts in which words are looked for: `_TEXTS`, of an exchange in memory."""
    return [
        text for text in (x.message, x.answer, x.late_answer, x.reason, x.asker, x.target) if text
    ]


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

    def of_conversation(self, conversation: str) -> None:
        """Only one conversation."""
        self._conditions.append(f"conversation_id = {self.arg(conversation)}")

    def before(self, cursor: Cursor | None) -> None:
        """Only what is older than the cursor."""
        if cursor is not None:
            at, rid = self.arg(cursor.at), self.arg(cursor.rid)
            self._conditions.append(
                f"started_at <= {at} AND (started_at < {at} OR request_id < {rid})"
            )

    def after(self, at: int, rid: str) -> None:
        """Only what follows a place in the order of time."""
        self._conditions.append(f"(started_at, request_id) > ({self.arg(at)}, {self.arg(rid)})")

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

    def among(self, rids: Sequence[str]) -> None:
        """Only these."""
        self._conditions.append(self._among("request_id", rids) if rids else "1 = 0")

    def wanted(self, wanted: Wanted) -> None:
        """Only what the filter names."""
        if wanted.statuses:
            codes = self._among("status", sorted(wanted.statuses))
            if wanted.statuses <= _BAD:
                self._conditions.append(IS_BAD)
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


def tally(dialect: str, step: int) -> str:
    """Give the query that counts the exchanges of a time by pieces of `step` ms and by pair.

    Rows: start of the piece, asker, target, asks, answered, failed, open, the last bad one (its
    start in 15 digits and its status, or null), and the answered ones' durations: for each a
    letter that stands for a bucket of two digits (`letter`, `letter_ms`), so that medians can be
    told. All but the letters' sum is the store's work.
    """
    postgres = dialect == "postgres"
    at = "(extract(epoch FROM started_at) * 1000)::bigint" if postgres else "started_at"
    joined = "string_agg" if postgres else "group_concat"
    stamp = f"lpad({at}::text, 15, '0')" if postgres else "printf('%015d', started_at)"
    d = duration(dialect)
    steps = " ".join(f"WHEN {d} < {10 ** (n + 2)} THEN {n * 100} + {d} / {10**n}" for n in range(7))
    bucket = f"32 + CASE WHEN {d} < 0 THEN 0 {steps} ELSE 699 END"
    letter = f"chr(({bucket})::int)" if postgres else f"char({bucket})"
    failed = ", ".join(repr(code) for code in sorted(FAILED))
    ok = f"status = '{Status.OK.value}' AND ended_at IS NOT NULL"

    def count(condition: str) -> str:
        return f"sum(CASE WHEN {condition} THEN 1 ELSE 0 END)"

    return (
        f"SELECT {at} / {step} * {step}, from_agent, to_agent, count(*), {count(ok)}, "  # noqa: S608
        f"{count(f'ended_at IS NOT NULL AND status IN ({failed})')}, {count('ended_at IS NULL')}, "
        f"max(CASE WHEN ended_at IS NOT NULL AND {IS_BAD} THEN {stamp} || status END), "
        f"{joined}(CASE WHEN {ok} THEN {letter} END, '') "
        f"FROM {EXCHANGES} WHERE started_at >= $1 AND started_at < $2 GROUP BY 1, 2, 3"
    )


def letter(ms: int) -> str:
    """Give the letter of a duration."""
    return chr(32 + bucket_of(ms))


def letter_ms(letter: str) -> int:
    """Give the duration that a letter stands for, in milliseconds."""
    return bucket_ms(ord(letter) - 32)


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
