"""Exchanges that ended lately: a late answer, a second reply or the asker's question finds them."""

from collections import OrderedDict

from hermes_bridge.relay.core.exchange import Exchange

_MOST = 2048
_MOST_BYTES = 16_777_216


class EndedLately:
    """The newest ended exchanges, bounded in pieces and bytes; older ones the ledger has."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Exchange] = OrderedDict()
        self._bytes = 0

    def get(self, rid: str) -> Exchange | None:
        """Give one by its id."""
        return self._kept.get(rid)

    def all(self) -> list[Exchange]:
        """Give all of them, oldest end first."""
        return list(self._kept.values())

    def grew(self, size: int) -> None:
        """Note that a text was added to one of them."""
        self._bytes += size

    def keep(self, exchange: Exchange) -> None:
        """Take one in; the oldest ones go when there are too many."""
        kept = self._kept
        if exchange.rid not in kept:
            kept[exchange.rid] = exchange
            self._bytes += exchange.weight()
        while len(kept) > _MOST or (self._bytes > _MOST_BYTES and len(kept) > 1):
            _, oldest = kept.popitem(last=False)
            self._bytes -= oldest.weight()
