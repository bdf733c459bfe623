"""What the page reads: the ledger's rows with what is live in memory laid over them."""

import asyncio
import contextlib
import heapq
from collections.abc import Iterable, Mapping

from hermes_bridge import __version__
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.relay.core.conversation import HOUR
from hermes_bridge.relay.core.exchange import ENDS, REFUSALS, Exchange
from hermes_bridge.relay.doors import ui_rows
from hermes_bridge.relay.doors.ui_rows import Json
from hermes_bridge.relay.doors.ui_tallies import DAY, RANGES, Counted, Sum, Tallies
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.sql.reads import FAILED, Cursor, Wanted

STATE_ROWS = 200
OPEN_ROWS = 100
PAGE_ROWS = 50
CONVERSATION_ROWS = 500
_PATIENCE_S = 3.0
"""How long a look waits for the store before it shows what memory holds."""
_FIRST_STEP = 1_000
_SEARCH_S = 0.015
"""A search looks back in steps that grow; after so long it gives what it has and says how far."""
_COUNT_S = 0.02
_SOME = 1_000
"""More than an index of words names at once."""
_ERRORS = 10
_COUNT_AGE_MS = 15_000
_GROUPS = {
    "answered": frozenset({"ok"}),
    "unanswered": FAILED,
    "cancelled": frozenset({"cancelled"}),
    "refused": frozenset(status.value for status in REFUSALS - ENDS),
}


class Reads:
    """Answers every question of the page. Raises nothing because of a store in trouble."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self.tallies = Tallies(relay)
        self._total: tuple[int, int | None] = (0, None)
        self._totalling: asyncio.Task[None] | None = None

    async def state(self, cut: int = 0, most: int = STATE_ROWS, since: int = 0) -> Json:
        """Give agents, the newest exchanges (oldest first, `most` of them) and the riskiest open ones.

        With `since` only those of the newest that are open or changed after that instant.
        """
        relay = self._relay
        now = relay.clock.now()
        try:
            async with asyncio.timeout(_PATIENCE_S):
                stored, whole = await relay.ledger.recent(most), True
        except (DatabaseDown, TimeoutError):
            stored, whole = relay.book.ended_lately(), False
        rows = heapq.nlargest(most, self._overlaid(stored), key=_place)[::-1]
        if since:
            rows = [x for x in rows if not x.ended_at or _changed_at(x) >= since]
        open_now = relay.book.open_exchanges()
        riskiest = heapq.nsmallest(OPEN_ROWS, open_now, key=lambda x: (x.deadline, x.at))
        shown = {x.rid for x in rows}
        return {
            "now": now,
            "version": __version__,
            "agents": ui_rows.agents(relay, now),
            "exchanges": [ui_rows.exchange(x, cut) for x in rows],
            "open": len(open_now),
            "open_exchanges": [
                ui_rows.exchange(x, cut or 400) for x in riskiest if x.rid not in shown
            ],
            "store": self.store(whole),
            "limits": self.limits(),
        }

    async def exchange(self, rid: str) -> Json | None:
        """Give one exchange with its whole texts, and which turn of its conversation it is."""
        found, turn = None, 0
        with contextlib.suppress(DatabaseDown, TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                found = await self._relay.recall.find(rid)
                if found is not None and found.status not in REFUSALS - ENDS:
                    turn = await self._relay.ledger.turn(found)
        if found is None:
            return None
        return ui_rows.exchange(found) | ({"turn": turn} if turn else {})

    async def page(self, wanted: Wanted, before: Cursor | None, limit: int, cut: int) -> Json:
        """Give a page of history, newest first, and where the next one begins (`next`)."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                stored, after = await self._stored_page(wanted, before, limit)
            whole = True
        except (DatabaseDown, TimeoutError):
            stored, after, whole = self._relay.book.ended_lately(), None, False
        rows = [
            x
            for x in self._overlaid(stored)
            if wanted.has(x, ui_rows.status(x))
            and (before is None or _place(x) < before)
            and (after is None or _place(x) >= after)
        ]
        rows.sort(key=_place, reverse=True)
        if not whole:
            rows = rows[:STATE_ROWS]
        words = tuple(word.lower() for word in wanted.words)
        return {
            "now": self._relay.clock.now(),
            "exchanges": [ui_rows.exchange(x, cut, words) for x in rows],
            "next": f"{after.at}-{after.rid}" if after else None,
            "store": self.store(whole),
        }

    async def _stored_page(
        self, wanted: Wanted, before: Cursor | None, limit: int
    ) -> tuple[list[Exchange], Cursor | None]:
        ledger = self._relay.ledger
        if not wanted.filters:
            rows = await ledger.page(wanted, before, None, limit + 1)
            return rows[:limit], _place(rows[limit - 1]) if len(rows) > limit else None
        loop = asyncio.get_running_loop()
        ends_at, step = loop.time() + _SEARCH_S, _FIRST_STEP
        found: list[Exchange] = []
        by_words = bool(wanted.words)
        while True:
            began = loop.time()
            floor = await ledger.floor(before, wanted.until, step)
            if floor is not None and wanted.since is not None and floor.at < wanted.since:
                floor = None
            found += await ledger.page(wanted, before, floor, limit + 1 - len(found))
            if len(found) > limit:
                return found[:limit], _place(found[limit - 1])
            if floor is None:
                return found, None
            if by_words and (known := await ledger.holding(wanted.words)) is not None:
                rest = await ledger.page(wanted, floor, None, _SOME, known)
                found += [x for x in rest if wanted.has(x, ui_rows.status(x))]
                more = len(found) > limit
                return found[:limit], _place(found[limit - 1]) if more else None
            by_words = False
            left, took = ends_at - loop.time(), loop.time() - began
            if left <= 0:
                return found, floor
            before, step = floor, max(200, min(2 * step, int(step * left / max(took, 1e-4))))

    async def conversation(self, conversation: str, before: Cursor | None, cut: int) -> Json:
        """Give a conversation's last exchanges before a place, oldest first; empty for an unknown one."""
        relay = self._relay
        try:
            async with asyncio.timeout(_PATIENCE_S):
                stored = await relay.ledger.conversation(conversation, CONVERSATION_ROWS, before)
            whole = True
        except (DatabaseDown, TimeoutError):
            stored, whole = relay.book.ended_lately(), False
        rows = [
            x
            for x in self._overlaid(stored)
            if x.conv == conversation and (before is None or _place(x) < before)
        ]
        rows.sort(key=_place)
        now = relay.clock.now()
        turns = sum(now - x.at < HOUR and x.status not in REFUSALS - ENDS for x in rows)
        return {
            "now": now,
            "conversation_id": conversation,
            "exchanges": [ui_rows.exchange(x, cut) for x in rows],
            "turns": turns,
            "more": whole and len(stored) >= CONVERSATION_ROWS,
            "next": f"{stored[0].at}-{stored[0].rid}" if whole and stored else None,
            "store": self.store(whole),
        }

    async def hour(self) -> Json:
        """Give the last hour minute by minute, and how many exchanges there are in all."""

        def show(counted: Counted) -> Json:
            return {
                **counted.total.shown(),
                "since": counted.since,
                "p95": counted.total.quantile(0.95),
                "minutes": counted.pieces,
                "complete": counted.complete,
            }

        body = await self.tallies.over(RANGES["1h"], show, finest=True)
        body["total"] = await self._count()
        body["complete"] &= body["total"] is not None or self._totalling is None
        return body

    async def counts(self, name: str) -> Json:
        """Give a range's counts: in all, by pair, and (up to a day) by hour."""

        def show(counted: Counted) -> Json:
            return {
                **counted.total.shown(),
                "range": name,
                "since": counted.since,
                "complete": counted.complete,
                "pairs": [
                    {"from": asker, "to": target, **counts.shown()}
                    for (asker, target), counts in counted.pairs.items()
                ],
                "hours": _hours(counted) if RANGES[name] <= DAY else [],
            }

        return await self.tallies.over(RANGES[name], show)

    async def agents(self, name: str) -> Json:
        """Give all agents with what they do now and a range's counts."""
        return await self.tallies.over(RANGES[name], lambda counted: self._agents(name, counted))

    def _agents(self, name: str, counted: Counted) -> Json:
        relay = self._relay
        now = relay.clock.now()
        asks: dict[str, int] = {}
        for (asker, _), counts in counted.pairs.items():
            asks[asker] = asks.get(asker, 0) + counts.asks
        waiting: dict[str, list[Exchange]] = {}
        for x in relay.book.open_exchanges():
            if not x.attempt:
                waiting.setdefault(x.target, []).append(x)
        rows = ui_rows.agents(relay, now)
        for row in rows:
            of = counted.asked.get(row["name"], Sum())
            queue = waiting.get(row["name"], ())
            works = relay.book.working_on(row["name"])
            row |= {"counts": of.shown(), "asks_out": asks.get(row["name"], 0)}
            row |= {"queue": len(queue), "oldest": min((x.at for x in queue), default=None)}
            if works is not None:
                row["works"] = ui_rows.exchange(works, 200)
            if (error := of.last_error(counted.since)) is not None:
                row["last_error"] = error
        return {"now": now, "range": name, "agents": rows, "complete": counted.complete}

    async def agent(self, name: str) -> Json | None:
        """Give what the unfolded row of an agent shows."""
        detail = ui_rows.agent_detail(self._relay, name)
        if detail is None:
            return None
        bad = FAILED | _GROUPS["refused"]
        wanted = Wanted(agents=(name,), role="target", statuses=bad)
        page = await self.page(wanted, None, _ERRORS, 200)
        return {**detail, "errors": page["exchanges"][:_ERRORS]}

    async def _count(self) -> int | None:
        """Give how many exchanges there are, as counted lately; None if that is not known yet."""
        if self._relay.clock.now() - self._total[0] > _COUNT_AGE_MS and self._totalling is None:
            self._totalling = asyncio.create_task(self._count_all())
        if self._totalling is not None:
            await asyncio.wait({self._totalling}, timeout=_COUNT_S)
        return self._total[1]

    async def _count_all(self) -> None:
        now, count = self._relay.clock.now(), None
        try:
            async with asyncio.timeout(_PATIENCE_S):
                count = await self._relay.ledger.count()
        except (DatabaseDown, TimeoutError):
            pass
        finally:
            self._total, self._totalling = (now, count), None

    def close(self) -> None:
        """Stop what goes on in the background."""
        self.tallies.close()
        if self._totalling is not None:
            self._totalling.cancel()

    def _overlaid(self, stored: Iterable[Exchange]) -> list[Exchange]:
        """Give stored exchanges with the live ones in their places, and those not stored yet."""
        relay = self._relay
        found = {x.rid: x for x in stored}
        for x in relay.journal.waiting():
            found[x.rid] = x
        for x in relay.book.open_exchanges():
            found[x.rid] = x
        return list(found.values())

    def store(self, whole: bool = True) -> Json:
        """Say how the store is; `lost` counts rows that were never stored."""
        journal = self._relay.journal
        down = journal.down_since is not None or not self._relay.loaded or not whole
        return {
            "up": not down,
            "down_since": journal.down_since,
            "waiting": len(journal),
            "lost": journal.lost,
        }

    def limits(self) -> Json:
        """Give the limits in force that the page names."""
        limits = self._relay.book.limits
        return {
            "ask_timeout_ms": limits.ask_timeout_ms,
            "ask_max_ms": limits.ask_max_ms,
            "reconnect_grace_ms": limits.reconnect_grace_ms,
            "max_turns": limits.max_turns,
            "max_message_bytes": limits.max_message_bytes,
            "rate_per_minute": limits.rate_per_minute,
            "max_pending": limits.max_pending,
        }


def wanted_of(query: Mapping[str, str]) -> Wanted:
    """Read a filter from a query; what makes no sense is left out."""
    codes: set[str] = set()
    for code in query.get("status", "").split(",")[:40]:
        codes |= _GROUPS.get(code, frozenset({code}) if code else frozenset())
    role = query.get("role", "any")
    return Wanted(
        words=tuple(query.get("q", "").replace("\0", "")[:200].split()[:8]),
        agents=tuple(filter(None, query.get("agent", "").replace("\0", "").split(",")[:16])),
        role=role if role in ("asker", "target") else "any",
        partner=query.get("with", "").replace("\0", "")[:64],
        statuses=frozenset(code.replace("\0", "") for code in codes),
        since=instant(query.get("since")),
        until=instant(query.get("until")),
    )


def cursor_of(text: str | None) -> Cursor | None:
    """Read a cursor that an earlier page gave."""
    at, _, rid = (text or "").partition("-")
    began = instant(at)
    return Cursor(began, rid.replace("\0", "")) if began is not None and rid else None


def instant(text: str | None) -> int | None:
    """Read unix milliseconds; None for what is not."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 15 else None


def _place(x: Exchange) -> Cursor:
    return Cursor(x.at, x.rid)


def _changed_at(x: Exchange) -> int:
    return max(x.at, x.ended_at or 0, x.late_at or 0, x.fetched_at or 0)


def _hours(counted: Counted) -> list[tuple[int, int, int]]:
    hours: dict[int, list[int]] = {}
    for start, asks, failed in counted.pieces:
        into = hours.setdefault(start // HOUR * HOUR, [0, 0])
        into[0] += asks
        into[1] += failed
    return [(at, asks, failed) for at, (asks, failed) in sorted(hours.items())]
