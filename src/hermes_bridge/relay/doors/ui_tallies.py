"""Counts for the page: asks, failures and durations by pair, over any range, quickly.

A range is cut into whole days, hours, ten minutes and minutes; each piece is counted once by the
store and kept, so a week over a million exchanges costs a few additions. A piece is counted again
while it is young or holds open exchanges. What is not counted in time is counted in the background,
and the answer says that it is not complete yet.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from hermes_bridge.db.base import Row
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.doors.ui_rows import Json, status
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.sql.reads import bucket_ms, bucket_of

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
RANGES = {"15m": 15 * MINUTE, "1h": HOUR, "24h": DAY, "7d": 7 * DAY}
FAILED = frozenset(
    {
        Status.TIMEOUT.value,
        Status.DEADLINE_EXCEEDED.value,
        Status.AGENT_DISCONNECTED.value,
        Status.AGENT_OFFLINE.value,
        Status.FAILED.value,
    }
)
_STEPS = (DAY, HOUR, 10 * MINUTE, MINUTE)
_SETTLE_MS = 5_000
_YOUNG_MS = 2_000
_OPEN_MS = 30_000
_BUDGET_S = 0.03
_KEEP = 3_000


class Sum(msgspec.Struct):
    """The counts of one pair, one agent, or everything. Refused asks count, but not as failures."""

    asks: int = 0
    ok: int = 0
    failed: int = 0
    open: int = 0
    buckets: Counter[int] = msgspec.field(default_factory=Counter)
    last_bad: tuple[int, str, str] = (0, "", "")
    """When the last exchange began that failed or was refused, its status, who asked."""

    def row(self, asker: str, code: str, bucket: int | None, count: int, last: int) -> None:
        """Take a row of `Ledger.tally`."""
        self.asks += count
        if bucket is None:
            self.open += count
        elif code == Status.OK.value:
            self.ok += count
            self.buckets[bucket] += count
        else:
            self.failed += count if code in FAILED else 0
            if code != Status.CANCELLED.value and last > self.last_bad[0]:
                self.last_bad = (last, code, asker)

    def add(self, other: "Sum") -> None:
        """Add other counts."""
        self.asks += other.asks
        self.ok += other.ok
        self.failed += other.failed
        self.open += other.open
        self.buckets.update(other.buckets)
        self.last_bad = max(self.last_bad, other.last_bad)

    def quantile(self, part: float) -> int | None:
        """Give the duration in ms that `part` of the answers stay within."""
        left = self.ok * part
        for bucket in sorted(self.buckets):
            left -= self.buckets[bucket]
            if left <= 0:
                return bucket_ms(bucket)
        return None

    def shown(self) -> Json:
        """Give the counts as JSON; `answered` is the share of the asks that ended by themselves."""
        ended = self.ok + self.failed
        return {
            "asks": self.asks,
            "failed": self.failed,
            "open": self.open,
            "answered": self.ok / ended if ended else None,
            "median": self.quantile(0.5),
        }


Pairs = dict[tuple[str, str], Sum]


class _Piece(NamedTuple):
    pairs: Pairs
    read_at: int
    final: bool


class Counted(NamedTuple):
    """The counts of a range: by pair, and by piece in the order of time."""

    since: int
    until: int
    pairs: Pairs
    pieces: list[tuple[int, int, Pairs]]
    complete: bool

    def total(self) -> Sum:
        """Give the counts of all pairs together."""
        total = Sum()
        for counts in self.pairs.values():
            total.add(counts)
        return total


class Tallies:
    """Keeps counted pieces of time."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._pieces: dict[tuple[int, int], _Piece] = {}
        self._wanted: list[tuple[int, int]] = []
        self._task: asyncio.Task[None] | None = None

    async def over(self, length: int, *, finest: bool = False) -> Counted:
        """Count the last `length` ms, begun with a whole minute; `finest` = minute by minute."""
        now = self._relay.clock.now()
        until = (now // MINUTE + 1) * MINUTE
        since = until - max(MINUTE, length // MINUTE * MINUTE)
        steps = _STEPS[-1:] if finest else _STEPS
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + _BUDGET_S
        missing: list[tuple[int, int]] = []
        found: list[tuple[int, int, Pairs]] = []
        for piece in reversed(list(pieces(since, until, steps))):
            known = self._known(piece, now)
            if known is None and loop.time() < ends_at:
                try:
                    known = await self._count(piece)
                except (DatabaseDown, TimeoutError):
                    return self._from_memory(since, until)
            if known is None:
                missing.append(piece)
                stale = self._pieces.get(piece)
                known = stale.pairs if stale else {}
            found.append((*piece, known))
        self._later(missing)
        return Counted(since, until, _together(p for *_, p in found), found[::-1], not missing)

    def close(self) -> None:
        """Stop counting."""
        if self._task is not None:
            self._task.cancel()

    def _known(self, piece: tuple[int, int], now: int) -> Pairs | None:
        known = self._pieces.get(piece)
        if known is None:
            return None
        fresh_for = _YOUNG_MS if piece[1] > now - _SETTLE_MS else _OPEN_MS
        return known.pairs if known.final or now - known.read_at < fresh_for else None

    async def _count(self, piece: tuple[int, int]) -> Pairs:
        now = self._relay.clock.now()
        async with asyncio.timeout(3):
            rows = await self._relay.ledger.tally(*piece)
        pairs = _by_pair(rows)
        settled = piece[1] < now - _SETTLE_MS - self._relay.journal.lag()
        final = settled and not any(counts.open for counts in pairs.values())
        self._pieces.pop(piece, None)
        self._pieces[piece] = _Piece(pairs, now, final)
        while len(self._pieces) > _KEEP:
            del self._pieces[next(iter(self._pieces))]
        return pairs

    def _later(self, missing: Sequence[tuple[int, int]]) -> None:
        self._wanted = list(missing)
        if missing and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        while self._wanted:
            try:
                await self._count(self._wanted.pop(0))
            except (DatabaseDown, TimeoutError):
                self._wanted.clear()

    def _from_memory(self, since: int, until: int) -> Counted:
        """Without a store: count what memory holds."""
        relay = self._relay
        known: dict[str, Exchange] = {x.rid: x for x in relay.book.ended_lately()}
        known |= {x.rid: x for x in relay.journal.waiting()}
        known |= {x.rid: x for x in relay.book.open_exchanges()}
        counted = [x for x in known.values() if since <= x.at < until]
        found = []
        for start, end in pieces(since, until, _STEPS[-1:]):
            rows = [_row(x) for x in counted if start <= x.at < end]
            if rows:
                found.append((start, end, _by_pair(rows)))
        return Counted(since, until, _together(p for *_, p in found), found, True)


def pieces(since: int, until: int, steps: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Cut a range of whole minutes into the largest aligned pieces."""
    at = since
    while at < until:
        step = next(step for step in steps if at % step == 0 and at + step <= until)
        yield at, at + step
        at += step


def _row(x: Exchange) -> Row:
    bucket = bucket_of(x.ended_at - x.at) if x.ended_at else None
    return x.asker, x.target, status(x), bucket, 1, x.at


def _by_pair(rows: Iterable[Row]) -> Pairs:
    pairs: Pairs = {}
    for asker, target, *rest in rows:
        counts = pairs.get((asker, target))
        if counts is None:
            counts = pairs[asker, target] = Sum()
        counts.row(asker, *rest)
    return pairs


def _together(parts: Iterable[Pairs]) -> Pairs:
    total: Pairs = {}
    for pairs in parts:
        for pair, counts in pairs.items():
            into = total.get(pair)
            if into is None:
                into = total[pair] = Sum()
            into.add(counts)
    return total
