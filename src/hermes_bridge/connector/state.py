"""What the rooms of a running connector share. `Connector` is the only one that replaces parts."""

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from hermes_bridge.clock import Clock
from hermes_bridge.connector.config import ConnectorConfig
from hermes_bridge.connector.core.cursor import Cursors, later
from hermes_bridge.connector.core.guard import Redactor
from hermes_bridge.connector.core.identity import Identity, IdentityTable
from hermes_bridge.connector.core.inbox import Inbox
from hermes_bridge.connector.core.message import Message
from hermes_bridge.connector.core.route import Router
from hermes_bridge.connector.core.session import Requests
from hermes_bridge.connector.link import Link
from hermes_bridge.connector.media import Shelf
from hermes_bridge.connector.platforms.base import Platform
from hermes_bridge.connector.store import Store
from hermes_bridge.contract.frames import Policy
from hermes_bridge.log import Quiet

logger = logging.getLogger("hermes_bridge.connector")
_K = TypeVar("_K")
_V = TypeVar("_V")


class Recent(Generic[_K, _V]):
    """A mapping that forgets what was set longest ago."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._values: OrderedDict[_K, _V] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        """Give a value, or None."""
        return self._values.get(key)

    def set(self, key: _K, value: _V) -> None:
        """Set a value."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._keep:
            self._values.popitem(last=False)

    def known(self) -> list[_K]:
        """Give all keys."""
        return list(self._values)


class State:
    """The parts of one connector."""

    def __init__(self, config: ConnectorConfig, store: Store, clock: Clock) -> None:
        self.config, self.store, self.clock = config, store, clock
        self.table: IdentityTable = config.table
        self.redactor = Redactor(config.table.all_secrets())
        self.platforms: dict[str, Platform] = {}
        self.inbox = Inbox(config.rules)
        self.router = Router(config.table)
        self.requests = Requests()
        self.links: dict[int, Link] = {}
        self.shelf = Shelf(clock)
        self.cursors: dict[str, Cursors] = {}
        self.alive: dict[str, str] = {}
        self.declared: dict[tuple[str, str], Policy] = {}
        self.counts: Counter[str] = Counter()
        self.errors: dict[str, str] = {}
        self.quiet = Quiet(logger, clock.now)
        self.since: Recent[tuple[str, str], str] = Recent(20_000)
        self.authors: Recent[tuple[str, str], str] = Recent(20_000)
        self.threads: Recent[tuple[str, str], str] = Recent(20_000)
        self.spawn: Callable[[Coroutine[Any, Any, None]], None] = _nowhere
        self.settle: Callable[[], None] = _nothing

    def platform_of(self, identity: Identity) -> Platform:
        """Give the platform that an identity lives on."""
        return self.platforms[identity.platform]

    def told(self, bot_id: str, message: Message) -> None:
        """A message goes to a bot: what it was told last, by whom, and in which thread."""
        key = (bot_id, message.channel)
        if message.at and later(message.at, self.since.get(key) or ""):
            self.since.set(key, message.at)
        self.authors.set(key, message.sender)
        if message.parent:
            self.threads.set((message.channel, message.id), message.parent)

    def trouble(self, bot_id: str, what: str) -> None:
        """Remember the last error of an identity, for `/health`."""
        self.errors[bot_id] = self.redactor.clean(what)[:200]


def _nowhere(coroutine: Coroutine[Any, Any, None]) -> None:
    coroutine.close()


def _nothing() -> None:
    return
