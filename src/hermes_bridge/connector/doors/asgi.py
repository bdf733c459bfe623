"""One ASGI application: the connector's doors."""

from hermes_bridge.connector.connector import Connector
from hermes_bridge.connector.doors.gate import Gate
from hermes_bridge.connector.doors.gateway import (
    AGAIN,
    GatewayDoor,
    Receive,
    Scope,
    Send,
    refuse_upgrade,
)
from hermes_bridge.connector.doors.http import HttpDoor, answer

PATHS = ("/relay", "/relay/policy", "/relay/media")
HOLD_S = 8.0
"""How long who comes early waits: Hermes gives a dial up 10 s, and a failed first one costs it 30."""


class Doors:
    """The application. `serves` tells a server that has other doors which requests are ours."""

    def __init__(self, connector: Connector, *, hold_s: float = HOLD_S) -> None:
        gate = Gate(connector.state)
        self._readiness, self._hold_s = connector.readiness, hold_s
        self._gateway = GatewayDoor(connector, gate)
        self._http = HttpDoor(connector, gate)

    def serves(self, path: str) -> bool:
        """Whether a path belongs to the connector."""
        return path in PATHS or path.startswith("/relay/media/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket; while the connector starts, it waits."""
        if not self._readiness.serving and not await self._readiness.wait(self._hold_s):
            await self._not_now(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            if scope["path"] == "/relay":
                await self._gateway(scope, receive, send)
            else:
                await receive()
                await refuse_upgrade(send, 404, b"there is nothing here\n")

    async def _not_now(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 503: a closed WebSocket would leave Hermes waiting 30 s for its descriptor."""
        what = self._readiness.cause or "the connector is starting"
        if scope["type"] == "http":
            body = {"error": what, "hint": "Try again in a few seconds; the log says more."}
            await answer(send, 503, body, AGAIN)
        elif scope["type"] == "websocket":
            await receive()
            await refuse_upgrade(send, 503, f"{what}; try again soon\n".encode(), AGAIN)


def build(connector: Connector) -> Doors:
    """Give the application of a connector."""
    return Doors(connector)
