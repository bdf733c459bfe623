"""The operator's page and its JSON, in their first form. Who may look is decided here."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hermes_bridge.relay.config import UiSection
from hermes_bridge.relay.relay import Relay

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class UiDoor:
    """A place for the page."""

    def __init__(self, relay: Relay, section: UiSection, *, open_to_all: bool) -> None:
        self._relay, self._section, self._open = relay, section, open_to_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request below `/ui`."""
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})
