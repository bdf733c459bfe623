"""Counts for the page: asks, failures and durations by pair, over any range, quickly.

A range is cut into whole hours, ten minutes and minutes; each piece is counted once by the
store and kept, so a week over a million exchanges costs a few additions. A piece is counted again
while it is young or holds open exchanges. What is not counted in time is counted in the background,
and the answer says that it is not complete yet.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

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
_K = TypeVar("_K")
_STEPS = (HOUR, 10 * MINUTE, MINUTE)
_SETTLE_MS = 5_000
_YOUNG_MS = 2_000
_OPEN_MS = 30_000
_BUDGET_S = 0.03
_PATIENCE_S = 30.0
_KEEP = 3_000
_MANY_ROWS = 1_000
_MANY_PAIRS = 100


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

    def add(self, other: "Sum", times: int = 1) -> None:
        """Add other counts; with `times` -1 take them away again (but for the last error)."""
        self.asks += times * other.asks
        self.ok += times * other.ok
        self.failed += times * other.failed
        self.open += times * other.open
        mine = self.buckets
        for bucket, count in other.buckets.items():
            mine[bucket] += times * count
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
    asked: dict[str, Sum]
    total: Sum
    read_at: int
    final: bool


class Counted(NamedTuple):
    """The counts of a range: by pair, by target, in all, and by piece in the order of time."""

    since: int
    pairs: Pairs
    asked: dict[str, Sum]
    """By the agent that was asked."""
    total: Sum
    pieces: list[tuple[int, Sum]]
    complete: bool


class _Window:
    """The sum of a range that moves on: only what is new or gone is added or taken away."""

    def __init__(self, steps: Sequence[int]) -> None:
        self.steps = steps
        self.lock = asyncio.Lock()
        self.pairs: Pairs = {}
        self.asked: dict[str, Sum] = {}
        self.total = Sum()
        self._has: dict[tuple[int, int], _Piece] = {}

    async def take(self, found: dict[tuple[int, int], _Piece]) -> None:
        """Become the sum of these pieces."""
        changes: list[tuple[_Piece, int]] = []
        for key, piece in self._has.items():
            if found.get(key) is not piece:
                changes.append((piece, -1))
        for key, piece in found.items():
            if self._has.get(key) is not piece:
                changes.append((piece, 1))
        self._has = found
        for piece, times in changes:
            # A large piece is added beside the loop: asks must not wait for the page.
            if len(piece.pairs) > _MANY_PAIRS:
                await asyncio.to_thread(self._add, piece, times)
            else:
                self._add(piece, times)

    def _add(self, piece: _Piece, times: int) -> None:
        self.total.add(piece.total, times)
        _add_all(self.pairs, piece.pairs, times)
        _add_all(self.asked, piece.asked, times)


def _add_all(sums: dict[_K, Sum], others: dict[_K, Sum], times: int) -> None:
    for key, counts in others.items():
        into = sums.get(key)
        if into is None:
            into = sums[key] = Sum()
        into.add(counts, times)
        if not into.asks:
            del sums[key]


class Tallies:
    """Keeps counted pieces of time."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._pieces: dict[tuple[int, int], _Piece] = {}
        self._windows: dict[tuple[int, bool], _Window] = {}
        self._wanted: list[tuple[int, int]] = []
        self._task: asyncio.Task[None] | None = None
        self._down_until = 0

    async def over(self, length: int, *, finest: bool = False) -> Counted:
        """Count the last `length` ms, begun with a whole minute; `finest` = minute by minute."""
        window = self._windows.get((length, finest))
        if window is None:
            steps = _STEPS[-1:] if finest else _STEPS
            window = self._windows[length, finest] = _Window(steps)
        now = self._relay.clock.now()
        until = (now // MINUTE + 1) * MINUTE
        since = until - max(MINUTE, length // MINUTE * MINUTE)
        async with window.lock:
            found, complete = await self._gather(list(pieces(since, until, window.steps)), now)
            if self._relay.clock.now() < self._down_until:
                return self._from_memory(since, until)
            await window.take(found)
            totals = [(key[0], piece.total) for key, piece in found.items()]
            return Counted(since, window.pairs, window.asked, window.total, totals, complete)

    async def _gather(
        self, keys: list[tuple[int, int]], now: int
    ) -> tuple[dict[tuple[int, int], _Piece], bool]:
        """Give the pieces that are known or can be counted in time, the newest first counted."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + _BUDGET_S
        missing: list[tuple[int, int]] = []
        found: dict[tuple[int, int], _Piece] = {}
        self._wanted = []
        for key in reversed(keys):
            piece = self._pieces.get(key)
            if piece is None or not self._fresh(key, piece, now):
                left = ends_at - loop.time()
                if left <= 0 or not await self._counted_within(key, left):
                    missing.append(key)
                piece = self._pieces.get(key)
            if piece is not None:
                found[key] = piece
        self._wanted = missing
        if missing and self._task is None and self._relay.clock.now() >= self._down_until:
            self._later(missing[0])
        return dict(reversed(found.items())), not missing

    async def _counted_within(self, key: tuple[int, int], seconds: float) -> bool:
        """Count a piece if that is quick; otherwise it goes on in the background."""
        if self._task is not None or self._relay.clock.now() < self._down_until:
            return False
        task = self._later(key)
        await asyncio.wait({task}, timeout=seconds)
        return task.done()

    def _later(self, key: tuple[int, int]) -> asyncio.Task[None]:
        self._task = asyncio.create_task(self._count_on(key))
        return self._task

    async def _count_on(self, key: tuple[int, int]) -> None:
        """Count a piece, and whatever is wanted by then."""
        try:
            await self._count(key)
            while self._wanted:
                await self._count(self._wanted.pop(0))
        except (DatabaseDown, TimeoutError):
            self._wanted = []
            self._down_until = self._relay.clock.now() + _YOUNG_MS
        finally:
            self._task = None

    def close(self) -> None:
        """Stop counting."""
        if self._task is not None:
            self._task.cancel()

    def _fresh(self, key: tuple[int, int], piece: _Piece, now: int) -> bool:
        fresh_for = _YOUNG_MS if key[1] > now - _SETTLE_MS else _OPEN_MS
        return piece.final or now - piece.read_at < fresh_for

    async def _count(self, key: tuple[int, int]) -> _Piece:
        now = self._relay.clock.now()
        async with asyncio.timeout(_PATIENCE_S):
            rows = await self._relay.ledger.tally(*key)
        if len(rows) > _MANY_ROWS:
            sums = await asyncio.to_thread(_sums, rows)
        else:
            sums = _sums(rows)
        settled = key[1] < now - _SETTLE_MS - self._relay.journal.lag()
        self._pieces.pop(key, None)
        piece = self._pieces[key] = _Piece(*sums, now, settled and not sums[2].open)
        while len(self._pieces) > _KEEP:
            del self._pieces[next(iter(self._pieces))]
        return piece

    def _from_memory(self, since: int, until: int) -> Counted:
        """Without a store: count what memory holds."""
        relay = self._relay
        known: dict[str, Exchange] = {x.rid: x for x in relay.book.ended_lately()}
        known |= {x.rid: x for x in relay.journal.waiting()}
        known |= {x.rid: x for x in relay.book.open_exchanges()}
        counted = [x for x in known.values() if since <= x.at < until]
        sums = _sums(map(_row, counted))
        by_minute: dict[int, list[Row]] = {}
        for x in counted:
            by_minute.setdefault(x.at // MINUTE * MINUTE, []).append(_row(x))
        totals = [(at, _sums(rows)[2]) for at, rows in sorted(by_minute.items())]
        return Counted(since, *sums, totals, True)


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


def _sums(rows: Iterable[Row]) -> tuple[Pairs, dict[str, Sum], Sum]:
    pairs: Pairs = {}
    asked: dict[str, Sum] = {}
    total = Sum()
    for asker, target, *rest in rows:
        by_pair, by_target = pairs.get((asker, target)), asked.get(target)
        if by_pair is None:
            by_pair = pairs[asker, target] = Sum()
        if by_target is None:
            by_target = asked[target] = Sum()
        for counts in (by_pair, by_target, total):
            counts.row(asker, *rest)
    return pairs, asked, total
