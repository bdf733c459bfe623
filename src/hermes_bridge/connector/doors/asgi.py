"""One ASGI application: the connector's doors."""

from hermes_bridge.connector.connector import Connector
from hermes_bridge.connector.doors.gate import Gate
from hermes_bridge.connector.doors.gateway import (
    GatewayDoor,
    Receive,
    Scope,
    Send,
    refuse_upgrade,
)
from hermes_bridge.connector.doors.http import HttpDoor

PATHS = ("/relay", "/relay/policy", "/relay/media")


class Doors:
    """The application. `serves` tells a server that has other doors which requests are ours."""

    def __init__(self, connector: Connector) -> None:
        gate = Gate(connector.state)
        self._gateway = GatewayDoor(connector, gate)
        self._http = HttpDoor(connector, gate)

    def serves(self, path: str) -> bool:
        """Whether a path belongs to the connector."""
        return path in PATHS or path.startswith("/relay/media/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            if scope["path"] == "/relay":
                await self._gateway(scope, receive, send)
            else:
                await receive()
                await refuse_upgrade(send, 404, b"there is nothing here\n")


def build(connector: Connector) -> Doors:
    """Give the application of a connector."""
    return Doors(connector)
