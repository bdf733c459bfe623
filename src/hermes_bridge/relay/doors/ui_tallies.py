"""Counts for the page: asks, failures and durations by pair, over any range, quickly.

A range is cut into whole hours, ten minutes and minutes; each piece is counted once by the
store and kept, so a week over a million exchanges costs a few additions. A piece is counted again
while it is young or holds open exchanges. The last week is counted soon after the start and kept so
(`keep_warm`). What is not counted in time is counted in the background, and the answer says that it
is not complete yet.
"""

import asyncio
import contextlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from sys import intern
from typing import NamedTuple, TypeVar

import msgspec

from hermes_bridge.db.base import Row
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.doors.ui_rows import Json, status
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.sql.reads import FAILED, letter, letter_ms
from hermes_bridge.relay.sql.schema import BAD

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
RANGES = {"15m": 15 * MINUTE, "1h": HOUR, "24h": DAY, "7d": 7 * DAY}
_K = TypeVar("_K")
_T = TypeVar("_T")
_STEPS = (HOUR, 10 * MINUTE, MINUTE)
_SETTLE_MS = 5_000
_YOUNG_MS = 2_000
_OPEN_MS = 30_000
_COUNT_S, _ADD_S = 0.015, 0.01
"""How long a look waits for what is being counted, and for its sum."""
_QUICK_S, _SLOW_S = 0.004, 0.016
"""A statement counts more at once while it is quick, and less when it is not."""
_PATIENCE_S = 30.0
_WARM_S = 300.0
_KEEP = 3_000
_MANY_ROWS = 1_000
_BAD = frozenset(status.value for status in BAD)


class Sum(msgspec.Struct):
    """The counts of one pair, one agent, or everything. Refused asks count, but not as failures."""

    asks: int = 0
    ok: int = 0
    failed: int = 0
    open: int = 0
    answers: Counter[str] = msgspec.field(default_factory=Counter)
    """How many answers took how long, by `letter`."""
    last_bad: tuple[str, str] = ("", "")
    """When the last exchange began that failed or was refused and its status; who asked."""
    _shown: Json | None = None
    _letters: list[str] = msgspec.field(default_factory=list)
    """Those of `answers` in order: there are seldom new ones."""

    def add(self, row: Row, times: int) -> None:
        """Add a row of `Ledger.tally`; with `times` -1 take it away again (but for the last error)."""
        asker, _, asks, ok, failed, unended, bad, answers = row
        self.asks += times * asks
        self.ok += times * ok
        self.failed += times * failed
        self.open += times * unended
        if bad and bad > self.last_bad[0]:
            self.last_bad = (bad, asker)
        if answers:
            self.answers.update(answers) if times > 0 else self.answers.subtract(answers)
        self._shown = None

    def quantile(self, part: float) -> int | None:
        """Give the duration in ms that `part` of the answers stay within."""
        if not self.ok:
            return None
        if len(self._letters) != len(self.answers):
            self._letters = sorted(self.answers)
        within = list(accumulate(map(self.answers.__getitem__, self._letters)))
        at = bisect_left(within, self.ok * part)
        return letter_ms(self._letters[at]) if at < len(within) else None

    def last_error(self, since: int) -> Json | None:
        """Give the last bad end, if it began since then."""
        code, asker = self.last_bad
        if not code or int(code[:15]) < since:
            return None
        return {"at": int(code[:15]), "status": code[15:], "from": asker}

    def shown(self) -> Json:
        """Give the counts as JSON; `answered` is the share of the asks that ended by themselves."""
        if self._shown is None:
            ended = self.ok + self.failed
            self._shown = {
                "asks": self.asks,
                "failed": self.failed,
                "open": self.open,
                "answered": self.ok / ended if ended else None,
                "median": self.quantile(0.5),
            }
        return self._shown


Key = tuple[int, int]
"""A piece of time: its start and its end."""


class _Piece(NamedTuple):
    rows: list[Row]
    """By pair, without the start of the piece."""
    asks: int
    failed: int
    read_at: int
    final: bool


class Counted(NamedTuple):
    """The counts of a range: by pair, by target, in all, and by piece in the order of time."""

    since: int
    pairs: dict[tuple[str, str], Sum]
    asked: dict[str, Sum]
    """By the agent that was asked."""
    total: Sum
    pieces: list[tuple[int, int, int]]
    """Start, asks, failed."""
    complete: bool


class _Window:
    """The sum of a range that moves on: only what is new or gone is added or taken away."""

    def __init__(self, steps: Sequence[int]) -> None:
        self.steps = steps
        self.lock = asyncio.Lock()
        self.pairs: dict[tuple[str, str], Sum] = {}
        self.asked: dict[str, Sum] = {}
        self.total = Sum()
        self._has: dict[Key, _Piece] = {}

    async def take(self, found: dict[Key, _Piece]) -> bool:
        """Become the sum of these pieces, or come nearer to it; give whether it is."""
        ends_at = asyncio.get_running_loop().time() + _ADD_S
        for key, piece in list(self._has.items()):
            if found.get(key) is not piece:
                del self._has[key]
                self._add(piece, -1)
        for key, piece in reversed(found.items()):
            if key not in self._has:
                if asyncio.get_running_loop().time() > ends_at:
                    return False
                self._has[key] = piece
                self._add(piece, 1)
                await asyncio.sleep(0)  # asks go first
        return True

    def _add(self, piece: _Piece, times: int) -> None:
        for row in piece.rows:
            _add(self.pairs, row[:2], row, times)
            _add(self.asked, row[1], row, times)
            self.total.add(row, times)


def _add(sums: dict[_K, Sum], key: _K, row: Row, times: int) -> None:
    counts = sums.get(key)
    if counts is None:
        counts = sums[key] = Sum()
    counts.add(row, times)
    if not counts.asks:
        del sums[key]


class Tallies:
    """Keeps counted pieces of time."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._pieces: dict[Key, _Piece] = {}
        self._windows: dict[tuple[int, bool], _Window] = {}
        self._wanted: dict[Key, None] = {}
        self._task: asyncio.Task[None] | None = None
        self._step = asyncio.Event()
        self._lookers = 0
        self._at_once = HOUR
        self._down_until = 0

    async def over(self, length: int, show: Callable[[Counted], _T], *, finest: bool = False) -> _T:
        """Count the last `length` ms, begun with a whole minute; `finest` = minute by minute.

        Gives what `show` makes of the counts, which move on afterwards.
        """
        window = self._windows.get((length, finest))
        if window is None:
            steps = _STEPS[-1:] if finest else _STEPS
            window = self._windows[length, finest] = _Window(steps)
        now = self._relay.clock.now()
        since, until = _last(length, now)
        keys = list(pieces(since, until, window.steps))
        complete = await self._fresh(keys, now)
        async with window.lock:
            if self._relay.clock.now() < self._down_until:
                return show(self._from_memory(since, until))
            found = {key: self._pieces[key] for key in keys if key in self._pieces}
            complete = await window.take(found) and complete
            marks = [(key[0], piece.asks, piece.failed) for key, piece in found.items()]
            return show(Counted(since, window.pairs, window.asked, window.total, marks, complete))

    async def keep_warm(self) -> None:
        """Have a day and a week counted before somebody looks, and keep them so."""
        while True:
            for length in (DAY, 7 * DAY):
                while not await self._warm(length):
                    await asyncio.sleep(0.5 if self._relay.loaded else 5)
            await asyncio.sleep(_WARM_S)

    async def _warm(self, length: int) -> bool:
        """Come nearer to a range's counts; who looks meanwhile does not wait for their sum."""
        now = self._relay.clock.now()
        if now >= self._down_until and not await self._fresh(
            list(pieces(*_last(length, now), _STEPS)), now
        ):
            return False
        return await self.over(length, _drawn)

    async def _fresh(self, keys: Sequence[Key], now: int) -> bool:
        """Wait a moment until these pieces are counted, the newest first; give whether all are."""
        missing = [key for key in reversed(keys) if not self._is_fresh(key, now)]
        if not missing:
            return True
        self._wanted = dict.fromkeys([*missing, *self._wanted])
        if self._relay.clock.now() < self._down_until:
            return False
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        self._lookers += 1
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_COUNT_S):
                    while any(key in self._wanted for key in missing):
                        await self._step.wait()
        finally:
            self._lookers -= 1
        return all(key not in self._wanted for key in missing)

    def _is_fresh(self, key: Key, now: int) -> bool:
        piece = self._pieces.get(key)
        if piece is None:
            return False
        fresh_for = _YOUNG_MS if key[1] > now - _SETTLE_MS else _OPEN_MS
        return piece.final or now - piece.read_at < fresh_for

    async def _work(self) -> None:
        """Count what is wanted; at half speed when nobody waits for it."""
        loop = asyncio.get_running_loop()
        try:
            while self._wanted:
                began = loop.time()
                await self._count(self._next_run())
                took = loop.time() - began
                if took < _QUICK_S:
                    self._at_once = min(2 * self._at_once, DAY)
                elif took > _SLOW_S:
                    self._at_once = HOUR
                self._told()
                if took > _QUICK_S and not self._lookers:
                    await asyncio.sleep(took)
        except (DatabaseDown, TimeoutError):
            self._wanted = {}
            self._down_until = self._relay.clock.now() + _YOUNG_MS
        finally:
            self._task = None
            self._told()

    def _told(self) -> None:
        self._step.set()
        self._step = asyncio.Event()

    def _next_run(self) -> list[Key]:
        """Give wanted pieces that follow each other, as many as one statement may count."""
        start, end = next(iter(self._wanted))
        run, step = [(start, end)], end - start
        while len(run) * step < self._at_once:
            before = (run[-1][0] - step, run[-1][0])
            if before not in self._wanted:
                break
            run.append(before)
        return run

    def close(self) -> None:
        """Stop counting."""
        if self._task is not None:
            self._task.cancel()

    def forget(self) -> None:
        """Count everything anew: somebody else wrote into the store."""
        self.close()
        self._pieces.clear()

    async def _count(self, run: list[Key]) -> None:
        """Count pieces of one length that follow each other, the last one first."""
        now, step = self._relay.clock.now(), run[0][1] - run[0][0]
        async with asyncio.timeout(_PATIENCE_S):
            rows = await self._relay.ledger.tally(run[-1][0], run[0][1], step)
        if len(rows) > _MANY_ROWS:
            found = await asyncio.to_thread(_by_start, rows)
        else:
            found = _by_start(rows)
        settled_before = now - _SETTLE_MS - self._relay.journal.lag()
        for key in run:
            rows = found.get(key[0], [])
            asks, failed, unended = (sum(row[n] for row in rows) for n in (2, 4, 5))
            final = key[1] < settled_before and not unended
            self._pieces.pop(key, None)
            self._pieces[key] = _Piece(rows, asks, failed, now, final)
            self._wanted.pop(key, None)
        while len(self._pieces) > _KEEP:
            del self._pieces[next(iter(self._pieces))]

    def _from_memory(self, since: int, until: int) -> Counted:
        """Without a store: count what memory holds."""
        relay = self._relay
        known: dict[str, Exchange] = {x.rid: x for x in relay.book.ended_lately()}
        known |= {x.rid: x for x in relay.journal.waiting()}
        known |= {x.rid: x for x in relay.book.open_exchanges()}
        window = _Window(_STEPS)
        by_minute: dict[int, list[int]] = {}
        for x in known.values():
            if since <= x.at < until:
                row = _row(x)
                window._add(_Piece([row], 1, 0, 0, True), 1)
                minute = by_minute.setdefault(x.at // MINUTE * MINUTE, [0, 0])
                minute[0] += 1
                minute[1] += row[4]
        marks = [(at, asks, failed) for at, (asks, failed) in sorted(by_minute.items())]
        return Counted(since, window.pairs, window.asked, window.total, marks, True)


def _drawn(counted: Counted) -> bool:
    for sums in (counted.pairs, counted.asked):
        for one in sums.values():
            one.shown()
    return counted.complete


def _by_start(rows: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for at, asker, target, *rest in rows:
        found.setdefault(at, []).append((intern(asker), intern(target), *rest))
    return found


def _last(length: int, now: int) -> tuple[int, int]:
    """Give the start and the end of the last `length` ms, in whole minutes."""
    until = (now // MINUTE + 1) * MINUTE
    return until - max(MINUTE, length // MINUTE * MINUTE), until


def pieces(since: int, until: int, steps: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Cut a range of whole minutes into the largest aligned pieces."""
    at = since
    while at < until:
        step = next(step for step in steps if at % step == 0 and at + step <= until)
        yield at, at + step
        at += step


def _row(x: Exchange) -> Row:
    code, ok = status(x), bool(x.ended_at) and x.status is Status.OK
    bad = f"{x.at:015}{code}" if x.ended_at and code in _BAD else None
    failed = int(bool(x.ended_at) and code in FAILED)
    took = letter(x.ended_at - x.at) if ok else None
    return x.asker, x.target, 1, int(ok), failed, int(not x.ended_at), bad, took
