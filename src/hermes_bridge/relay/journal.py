"""The queue between the relay and its store: it takes a record and returns at once.

It remembers *which* exchanges changed, not each change: an exchange that ends before its first
row was written needs one row. A dead store costs no ask: records wait up to a bound, the oldest
ended ones beyond it are counted as lost, and one line a cause goes to the log.
"""

import asyncio
import logging

from hermes_bridge import backoff
from hermes_bridge.clock import Clock
from hermes_bridge.db.base import Row
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.log import event
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.ledger import Ledger, agent_row, exchange_row

_log = logging.getLogger("hermes_bridge.journal")
_GATHER_S = 0.02
"""How long a batch gathers: what `kill -9` may forget."""
_BATCH = 2_000


class Journal:
    """The only writer of the ledger while the relay runs."""

    def __init__(self, ledger: Ledger, clock: Clock, *, bound: int = 50_000) -> None:
        self._ledger, self._clock, self._bound = ledger, clock, bound
        self._dirty: dict[str, Exchange] = {}
        self._writing: dict[str, Exchange] = {}
        self._agents: dict[str, Row] = {}
        self._something = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.down_since: int | None = None
        self.down_cause = ""
        self.lost = 0
        self.written = 0

    def __len__(self) -> int:
        return len(self._dirty) + len(self._writing)

    def note(self, exchange: Exchange) -> None:
        """Remember that an exchange changed."""
        self._dirty[exchange.rid] = exchange
        if not self._something.is_set():
            self._idle.clear()
            self._something.set()
        elif len(self._dirty) > self._bound:
            self._shed()

    def note_agent(self, name: str, last_seen: int, linked: bool) -> None:
        """Remember an agent's link."""
        self._agents[name] = agent_row(name, last_seen, linked)
        self._idle.clear()
        self._something.set()

    def find(self, rid: str) -> Exchange | None:
        """Give an exchange that waits to be written."""
        return self._dirty.get(rid) or self._writing.get(rid)

    def waiting(self) -> list[Exchange]:
        """Give all exchanges that wait to be written."""
        return list({**self._writing, **self._dirty}.values())

    async def run(self) -> None:
        """Write what was noted, for ever."""
        retry = backoff.delays(first=0.1, cap=5.0)
        while True:
            await self._something.wait()
            if self.down_since is None:
                await asyncio.sleep(_GATHER_S)
            try:
                await self._flush()
            except DatabaseDown as error:
                self._went_down(error)
                await asyncio.sleep(next(retry))
            except Exception:  # noqa: BLE001 - one row must not end the journal
                event(_log, "store.bad_row", logging.ERROR)
                await self._salvage()
            else:
                if self.down_since is not None:
                    retry = backoff.delays(first=0.1, cap=5.0)
                    self._came_back()

    async def drain(self, seconds: float) -> bool:
        """Wait until everything is written; false if `seconds` were not enough."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _flush(self) -> None:
        if len(self._dirty) > _BATCH:
            rids = list(self._dirty)[:_BATCH]
            self._writing = {rid: self._dirty.pop(rid) for rid in rids}
        else:
            self._writing, self._dirty = self._dirty, {}
        agents, self._agents = self._agents, {}
        if not self._dirty:
            self._something.clear()
        rows = [exchange_row(exchange) for exchange in self._writing.values()]
        try:
            await self._ledger.write(rows, list(agents.values()))
        except BaseException:
            self._dirty = {**self._writing, **self._dirty}
            self._agents = {**agents, **self._agents}
            self._writing = {}
            self._something.set()
            raise
        self.written += len(rows)
        self._writing = {}
        if not self._something.is_set():
            self._idle.set()

    async def _salvage(self) -> None:
        """A row that no store takes must not hold up the others: write one by one, lose that one."""
        batch, self._dirty = self._dirty, {}
        for rid, exchange in batch.items():
            try:
                await self._ledger.write([exchange_row(exchange)], [])
                self.written += 1
            except DatabaseDown:
                self._dirty.setdefault(rid, exchange)
            except Exception as error:  # noqa: BLE001 - see above
                self.lost += 1
                event(
                    _log,
                    "store.row_lost",
                    logging.ERROR,
                    cause=type(error).__name__,
                    request_id=rid,
                )

    def _shed(self) -> None:
        """Over the bound: give up the oldest ended exchanges, a tenth at a time."""
        ended = [rid for rid, x in self._dirty.items() if x.ended][: max(1, self._bound // 10)]
        for rid in ended or list(self._dirty)[:1]:
            del self._dirty[rid]
            self.lost += 1

    def _went_down(self, error: DatabaseDown) -> None:
        cause = str(error)
        if self.down_since is None:
            self.down_since = self._clock.now()
        if cause != self.down_cause:
            self.down_cause = cause
            event(
                _log, "store.down", logging.ERROR, cause=cause, effect="asks go on, history waits"
            )

    def _came_back(self) -> None:
        down_ms = self._clock.now() - (self.down_since or 0)
        event(_log, "store.up", down_ms=down_ms, lost=self.lost)
        self.down_since, self.down_cause = None, ""
