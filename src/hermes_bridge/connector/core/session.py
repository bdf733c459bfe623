"""One connection of a gateway: which identities it may speak for, and which requests it has made.

A connection's authority is the set of identities that it declared by a successful hello, and
nothing else: not the table, not another connection. Every operation checks it again, because a
reload may have removed or rotated an identity in between. Source: the seed, isolation rules.
"""

from collections import OrderedDict
from typing import Any

import msgspec

from hermes_bridge.connector.core.identity import Identity, IdentityTable

UNSUPPORTED_PLATFORM = "unsupported_platform"
UNKNOWN_IDENTITY = "unknown_identity"
CREDENTIAL_MISMATCH = "credential_mismatch"


class Declared(msgspec.Struct, frozen=True):
    """A hello that holds: the identity is this connection's to use."""

    identity: Identity


class HelloRefused(msgspec.Struct, frozen=True):
    """A hello that does not: the connection loses every identity and is closed 1002."""

    reason: str


class RelaySession:
    """The rights of one authenticated connection. `secret` is the one that proved it."""

    def __init__(self, gateway_id: str, secret: str) -> None:
        self.gateway_id = gateway_id
        self._secret = secret
        self._bots: dict[str, None] = {}
        self.idle = False

    def __repr__(self) -> str:
        return f"RelaySession({self.gateway_id!r}, bots={list(self._bots)})"

    @property
    def bots(self) -> tuple[str, ...]:
        """The bot ids that were declared, oldest first."""
        return tuple(self._bots)

    def hello(self, platform: str, bot_id: str, table: IdentityTable) -> Declared | HelloRefused:
        """A gateway declared an identity. A refusal takes away all that were declared before."""
        identity = table.get(bot_id)
        if platform not in table.platforms:
            refused = UNSUPPORTED_PLATFORM
        elif identity is None or identity.platform != platform:
            refused = UNKNOWN_IDENTITY
        elif not self._proves(identity):
            refused = CREDENTIAL_MISMATCH
        else:
            self._bots[bot_id] = None
            self.idle = False
            return Declared(identity)
        self._bots.clear()
        return HelloRefused(refused)

    def speaker(self, platform: Any, bot_id: Any, table: IdentityTable) -> Identity | None:
        """Say whose operation this is; None refuses it.

        A missing bot id means the one declared identity, if there is exactly one. A bot id that
        is present but malformed is never taken for a missing one.
        """
        if bot_id is msgspec.UNSET:
            if len(self._bots) != 1:
                return None
            (bot_id,) = self._bots
        if not isinstance(bot_id, str) or bot_id not in self._bots:
            return None
        identity = table.get(bot_id)
        if identity is None or not self._proves(identity):
            return None
        if platform is not msgspec.UNSET and platform != identity.platform:
            return None
        return identity

    def may_use(self, bot_id: str, table: IdentityTable) -> bool:
        """Whether this connection may receive what belongs to an identity."""
        identity = table.get(bot_id)
        return bot_id in self._bots and identity is not None and self._proves(identity)

    def reloaded(self, table: IdentityTable) -> tuple[str, ...]:
        """A new table is in force. Gives the declared bots that this connection just lost."""
        lost = tuple(bot for bot in self._bots if not self.may_use(bot, table))
        for bot in lost:
            del self._bots[bot]
        return lost

    def still_valid(self, table: IdentityTable) -> bool:
        """Whether the secret that opened this connection would still open it."""
        return self._secret in table.secrets_of(self.gateway_id)

    def profile_for(self, identity: Identity) -> str | None:
        """Give the session stamp of a delivery; None keeps Hermes' default session keys."""
        if identity.profile:
            return identity.profile
        return identity.bot_id if len(self._bots) > 1 else None

    def _proves(self, identity: Identity) -> bool:
        return identity.gateway_id == self.gateway_id and self._secret in identity.secrets


class Running(msgspec.Struct, frozen=True):
    """The same request is being worked on: its one answer is still to come."""


class Known(msgspec.Struct, frozen=True):
    """The same request was answered: this is the answer it got."""

    result: dict[str, Any]


class Reused(msgspec.Struct, frozen=True):
    """A request id that was used for something else."""


class Requests:
    """Operations by request id, so that a repeated frame never acts twice.

    A request belongs to a gateway and an identity, not to a connection: a gateway may repeat it
    after it dialled again.
    """

    def __init__(self, keep: int = 2048) -> None:
        self._keep = keep
        self._known: OrderedDict[tuple[str, str], tuple[bytes, dict[str, Any] | None]] = (
            OrderedDict()
        )

    def begin(self, bot_id: str, request_id: str, action: bytes) -> Running | Known | Reused | None:
        """A request arrived. None: it is new, and whoever asked must `finish` it."""
        key = (bot_id, request_id)
        seen = self._known.get(key)
        if seen is None:
            self._known[key] = (action, None)
            self._trim()
            return None
        before, result = seen
        if before != action:
            return Reused()
        return Running() if result is None else Known(result)

    def finish(self, bot_id: str, request_id: str, result: dict[str, Any]) -> None:
        """A request has its answer."""
        key = (bot_id, request_id)
        seen = self._known.get(key)
        if seen is not None:
            self._known[key] = (seen[0], result)

    def _trim(self) -> None:
        while len(self._known) > self._keep:
            oldest = next(iter(self._known))
            if self._known[oldest][1] is None:
                return  # running: it ends within its timeout, and trimming goes on then
            del self._known[oldest]
