"""The queue between the relay and its store: it takes a record and returns at once.

It remembers *which* exchanges changed, not each change: an exchange that ends before its first
row was written needs one row. A dead store costs no ask: records wait up to a bound of pieces and
bytes, the oldest ended ones beyond it are counted as lost, and one line a cause goes to the log.
After an outage batches begin small: a store that just came back need not swallow all at once.
"""

import asyncio
import logging

from hermes_bridge import backoff
from hermes_bridge.clock import Clock
from hermes_bridge.db.base import Row
from hermes_bridge.errors import DatabaseDown, RowRefused
from hermes_bridge.log import event
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.rows import agent_row, exchange_row

_log = logging.getLogger("hermes_bridge.journal")
_GATHER_S = 0.02
"""How long a batch gathers: what `kill -9` may forget."""
_BATCH = 500
_SMALL_BATCH = 50
_BATCH_BYTES = 8_388_608
_LOOK_FIRST = 2_000
"""From how many waiting exchanges on their bytes are counted."""
_LOOK_EVERY = 500
_GIVE_UP = 10
"""A tenth of what waits is given up at once: going over the bound must not cost every note."""


class Journal:
    """The only writer of the ledger while the relay runs."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        bound: int = 50_000,
        bound_bytes: int = 268_435_456,
    ) -> None:
        """`bound` exchanges of `bound_bytes` together may wait; of a larger number some are lost."""
        self.ledger, self._clock = ledger, clock
        self._bound, self._bound_bytes = bound, bound_bytes
        self._look_at = min(_LOOK_FIRST, bound)
        self._batch = _BATCH
        self._dirty: dict[str, Exchange] = {}
        self._writing: dict[str, Exchange] = {}
        self._agents: dict[str, Row] = {}
        self._something = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._since = 0
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
            self._begin()
        elif len(self._dirty) > self._look_at:
            self._shed()

    def note_agent(self, name: str, last_seen: int, linked: bool) -> None:
        """Remember an agent's link."""
        self._agents[name] = agent_row(name, last_seen, linked)
        if not self._something.is_set():
            self._begin()

    def lag(self) -> int:
        """Give how long the oldest record has waited, in milliseconds."""
        return self._clock.now() - self._since if len(self) or self._agents else 0

    def _begin(self) -> None:
        self._since = self._clock.now()
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
                self._batch = _SMALL_BATCH
                self.went_down(error)
                await asyncio.sleep(next(retry))
            except Exception as error:  # noqa: BLE001 - one row must not end the journal
                if not isinstance(error, RowRefused):
                    event(_log, "store.failed", logging.ERROR, cause=type(error).__name__)
                await self._salvage()
            else:
                self._batch = min(_BATCH, self._batch * 2)
                if self.down_since is not None:
                    retry = backoff.delays(first=0.1, cap=5.0)
                    self.came_back()

    async def drain(self, seconds: float) -> bool:
        """Wait until everything is written; false if `seconds` were not enough."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True

    async def _flush(self) -> None:
        self._writing = self._take()
        agents, self._agents = self._agents, {}
        if not self._dirty:
            self._something.clear()
        rows = [exchange_row(exchange) for exchange in self._writing.values()]
        try:
            await self.ledger.write(rows, list(agents.values()))
        except BaseException:
            self._dirty = {**self._writing, **self._dirty}
            self._agents = {**agents, **self._agents}
            self._writing = {}
            self._something.set()
            raise
        self.written += len(rows)
        self._writing = {}
        self._look_at = min(_LOOK_FIRST, self._bound)
        if not self._something.is_set():
            self._idle.set()

    def _take(self) -> dict[str, Exchange]:
        """Take the next batch out of what waits: all of it, if it is not too much for one."""
        dirty = self._dirty
        if len(dirty) <= self._batch and sum(map(_size, dirty.values())) <= _BATCH_BYTES:
            self._dirty = {}
            return dirty
        batch: dict[str, Exchange] = {}
        size = 0
        for rid, exchange in dirty.items():
            size += _size(exchange)
            if batch and (len(batch) >= self._batch or size > _BATCH_BYTES):
                break
            batch[rid] = exchange
        for rid in batch:
            del dirty[rid]
        return batch

    async def _salvage(self) -> None:
        """A row that no store takes must not hold up the others: write one by one, lose that one."""
        batch, agents = self._take(), self._agents
        self._agents = {}
        for rid, exchange in batch.items():
            try:
                await self.ledger.write([exchange_row(exchange)], [])
                self.written += 1
            except DatabaseDown:
                self._dirty.setdefault(rid, exchange)
            except Exception as error:  # noqa: BLE001 - see above
                self._lose_row(rid, error)
        for name, row in agents.items():
            try:
                await self.ledger.write([], [row])
            except DatabaseDown:
                self._agents.setdefault(name, row)
            except Exception as error:  # noqa: BLE001 - see above
                self._lose_row(name, error)

    def _lose_row(self, key: str, error: Exception) -> None:
        self.lost += 1
        cause = str(error) if isinstance(error, RowRefused) else type(error).__name__
        event(_log, "store.row_lost", logging.ERROR, cause=cause, row=key)

    def _shed(self) -> None:
        """Many wait. Over the bound of pieces or bytes, give up the oldest ended ones."""
        self._look_at = min(self._bound, len(self._dirty) + _LOOK_EVERY)
        size = sum(map(_size, self._dirty.values()))
        if len(self._dirty) <= self._bound and size <= self._bound_bytes:
            return
        # What is being written is not lost with its note: it comes back if the store refuses it.
        loose = [rid for rid in self._dirty if rid not in self._writing]
        ended = [rid for rid in loose if self._dirty[rid].ended] or loose
        for rid in ended[: max(1, len(self._dirty) // _GIVE_UP)]:
            del self._dirty[rid]
            self.lost += 1
        self._look_at = min(self._bound, len(self._dirty) + _LOOK_EVERY)

    def went_down(self, error: DatabaseDown) -> None:
        """The store does not answer: say so once a cause."""
        cause = str(error)
        if self.down_since is None:
            self.down_since = self._clock.now()
        if cause != self.down_cause:
            self.down_cause = cause
            event(
                _log, "store.down", logging.ERROR, cause=cause, effect="asks go on, history waits"
            )

    def came_back(self) -> None:
        """The store answers (again)."""
        if self.down_since is None:
            return
        down_ms = self._clock.now() - self.down_since
        event(_log, "store.up", down_ms=down_ms, lost=self.lost)
        self.down_since, self.down_cause = None, ""


def _size(exchange: Exchange) -> int:
    """Give the bytes of its texts, roughly: enough to bound memory."""
    size = 1_000 + len(exchange.message)
    if exchange.answer is not None:
        size += len(exchange.answer)
    for text in (exchange.data, exchange.answer_data, exchange.late_answer, exchange.late_data):
        if text is not None:
            size += len(text)
    return size
