"""What `/health` says: more than "alive", and no secret."""

from typing import Any

from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.platforms.base import ONLINE
from hermes_bridge.connector.state import State
from hermes_bridge.contract.descriptor import CONTRACT_VERSION


def report(state: State) -> dict[str, Any]:
    """Give the state of every identity and of the store."""
    rows = [_identity(state, identity) for identity in state.table.rows]
    good = all(row["account"] == ONLINE for row in rows) and not state.store.down_since
    return {
        "ok": True,
        "status": "ok" if good else "degraded",
        "service": "hermes-bridge-connector",
        "contract_version": CONTRACT_VERSION,
        "store": "down" if state.store.down_since else "ok",
        "connections": len(state.links),
        "identities": rows,
        "counts": dict(sorted(state.counts.items())),
    }


def _identity(state: State, identity: Identity) -> dict[str, Any]:
    bot_id = identity.bot_id
    account = state.platform_of(identity).account(bot_id)
    depth, oldest = state.inbox.depth(bot_id)
    number = state.inbox.serving(bot_id)
    row: dict[str, Any] = {
        "bot": bot_id,
        "platform": identity.platform,
        "account": account.state,
        "channels": account.channels,
        "gateway": "connected" if number is not None else "absent",
        "inbox": depth,
        "oldest_ms": state.clock.now() - oldest if oldest else 0,
    }
    if account.reason:
        row["reason"] = state.redactor.clean(account.reason)
    if bot_id in state.errors:
        row["last_error"] = state.errors[bot_id]
    return row
