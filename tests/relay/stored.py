"""Exchanges as they are stored, and ledgers to store them in."""

from collections.abc import Callable
from typing import Any

from hermes_bridge.db.base import Database
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.rows import exchange_row

Make = Callable[[], Database]
NOW = 1_796_065_547_875


def exchange(rid: str, at: int = NOW, **changes: Any) -> Exchange:
    base: dict[str, Any] = {
        "rid": rid,
        "conv": "c1",
        "asker": "a",
        "target": "b",
        "message": f"question {rid}",
        "at": at,
        "cap": at + 3_600_000,
        "window": 120_000,
        "status": Status.OK,
        "ended_at": at + 5,
        "answer": f"answer {rid}",
        "order": (1, 1),
    }
    return Exchange(**{**base, **changes})


async def opened(make: Make) -> Ledger:
    ledger = Ledger(make())
    await ledger.open()
    return ledger


async def put(ledger: Ledger, *exchanges: Exchange) -> None:
    await ledger.write([exchange_row(x) for x in exchanges], [])
