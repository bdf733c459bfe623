"""Who may come in: the upgrade token, and patience with addresses that keep showing bad ones."""

from collections import OrderedDict

from hermes_bridge.clock import wall_ms
from hermes_bridge.connector.state import State
from hermes_bridge.contract.token import Accepted, Refused, read, verify

_MINUTE_MS = 60_000
_MAX_ADDRESSES = 10_000
_MAX_OF_ONE_GATEWAY = 16


class Gate:
    """Judges tokens. A good token always passes, whatever else its address does."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._refusals: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def judge(self, header: str) -> Accepted | Refused:
        """Judge an `Authorization` header."""
        if not header.startswith("Bearer "):
            return Refused("unauthorized")
        claims = read(header[7:].strip())
        secrets = self._state.table.secrets_of(claims.gateway_id) if claims else []
        return verify(claims, secrets, wall_ms() // 1000)

    def full_for(self, gateway_id: str) -> str:
        """Say why a gateway with a good token cannot have another connection; empty: it can."""
        state = self._state
        most = state.config.section.max_connections
        if len(state.links) >= most:
            return f"this connector has its {most} connections (max_connections)"
        own = sum(link.session.gateway_id == gateway_id for link in state.links.values())
        if own >= _MAX_OF_ONE_GATEWAY:
            return f"this gateway has {own} connections already"
        return ""

    def tired_of(self, address: str) -> bool:
        """A refusal goes to an address. True when it had too many within the last minute."""
        now = self._state.clock.now()
        since, count = self._refusals.get(address, (now, 0))
        if now - since >= _MINUTE_MS:
            since, count = now, 0
        self._refusals[address] = (since, count + 1)
        self._refusals.move_to_end(address)
        if len(self._refusals) > _MAX_ADDRESSES:
            self._refusals.popitem(last=False)
        return count >= self._state.config.section.refusals_per_minute
