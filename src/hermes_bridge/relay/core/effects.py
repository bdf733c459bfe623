"""What a core wants done. Frozen records; the relay performs them, in order."""

import msgspec

from hermes_bridge.relay.core.exchange import Exchange, Outcome


class Record(msgspec.Struct, frozen=True, gc=False):
    """Make the new exchange known to the store; then call `ExchangeBook.recorded`."""

    exchange: Exchange


class Wake(msgspec.Struct, frozen=True, gc=False):
    """Send the wake to the target's link of that generation."""

    exchange: Exchange
    generation: int


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Make the outcome true; then call `ExchangeBook.committed` with the outcome that is stored."""

    rid: str
    outcome: Outcome


class Tell(msgspec.Struct, frozen=True, gc=False):
    """Tell one origin that the exchange has ended."""

    origin: str
    exchange: Exchange


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The exchange has ended: store it, count it, release what waited for it."""

    exchange: Exchange


class Stop(msgspec.Struct, frozen=True, gc=False):
    """Tell the target's link that nobody waits for its work any more (a `cancel` frame)."""

    exchange: Exchange
    reason: str


class Touched(msgspec.Struct, frozen=True, gc=False):
    """Something worth storing changed: taken, sent again, a late answer."""

    exchange: Exchange


Effect = Record | Wake | Commit | Tell | Settled | Stop | Touched
