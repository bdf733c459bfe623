"""Fills the full-text index beside the asks: slowly, and the slower the more the relay has to do.

What has not been read yet is found too: a search also looks through the newest exchanges
(`Ledger.search`). So an index that lags, or cannot be had, costs speed and nothing else.
"""

import asyncio
import logging
import time

from hermes_bridge import backoff
from hermes_bridge.errors import DatabaseDown, HermesBridgeError
from hermes_bridge.log import event
from hermes_bridge.relay.ledger import Ledger

_log = logging.getLogger("hermes_bridge.index")
_BATCH = 50
_IDLE_S = 2.0
_SHARE, _BUSY_SHARE = 9.0, 60.0
"""Idle this many times as long as it worked: while the relay has time, and while it has not."""
_BUSY = 0.4
"""From which part of a core on the relay has no time."""


class SearchIndex:
    """The only filler of the index while the relay runs."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def run(self) -> None:
        """Read what has ended, for ever."""
        trouble = backoff.delays(first=1.0, cap=60.0)
        used, since = time.process_time(), time.perf_counter()
        while True:
            began = time.perf_counter()
            spent = time.process_time()
            busy = spent - used > _BUSY * (began - since)
            used, since = spent, began
            try:
                count = await self._ledger.read_words(_BATCH) if self._ledger.searchable else 0
            except DatabaseDown:
                await asyncio.sleep(next(trouble))  # the journal says it
            except Exception as error:  # noqa: BLE001 - an index must not end the relay
                cause = str(error) if isinstance(error, HermesBridgeError) else type(error).__name__
                event(_log, "index.refused", logging.ERROR, cause=cause)
                await asyncio.sleep(60.0)
            else:
                trouble = backoff.delays(first=1.0, cap=60.0)
                worked = time.perf_counter() - began
                share = _BUSY_SHARE if busy else _SHARE
                await asyncio.sleep(worked * share if count == _BATCH else _IDLE_S)
