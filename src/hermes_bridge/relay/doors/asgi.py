"""The relay's ASGI application: which path leads to which door. `/mcp` takes the direct lane."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Protocol

import msgspec

from hermes_bridge import __version__
from hermes_bridge.log import Quiet
from hermes_bridge.relay.doors.bridge import BridgeDoor
from hermes_bridge.relay.relay import Relay

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_log = logging.getLogger("hermes_bridge.http")
_encode = msgspec.json.Encoder().encode


class Beside(Protocol):
    """Another part with doors of its own in the same process (the connector)."""

    def serves(self, path: str) -> bool:
        """Whether a path is its own."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or socket."""
        ...


class RelayApp:
    """Routes by exact path. What goes wrong inside a door ends one request, never the process."""

    def __init__(
        self,
        relay: Relay,
        bridge: BridgeDoor,
        ui: App,
        metrics: App,
        *,
        beside: Beside | None = None,
        report: Callable[[], dict[str, Any]] | None = None,
    ) -> None:
        """`beside` serves its own paths; `report` is what `/health` says of it."""
        self._relay = relay
        self._beside, self._report = beside, report
        self._quiet = Quiet(_log, relay.clock.now)
        self._bridge, self._ui = bridge, ui
        self._started_at = relay.clock.now()
        self._paths: dict[str, App] = {
            "/health": self._health,
            "/ready": self._ready,
            "/metrics": metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one WebSocket."""
        started = False

        async def noting(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        path = scope["path"]
        if self._beside is not None and self._beside.serves(path):
            door: App = self._beside
        elif scope["type"] == "websocket":
            door = self._bridge if path == "/bridge/connect" else _no_such_socket
        else:
            door = self._paths.get(path) or (self._ui if _is_page(path) else _no_such_path)
        try:
            await door(scope, receive, noting)
        except Exception as error:  # noqa: BLE001 - a door ends a request, never the process
            cause = f"{type(error).__name__} in {path[:64]}"
            self._quiet.event("door.failed", cause, logging.ERROR)
            _log.debug("door.failed", exc_info=True)
            if not started and scope["type"] == "http":
                await _answer(
                    send, 500, {"error": "internal error", "hint": "See the relay's log."}
                )

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say that the process lives, and how it is."""
        relay = self._relay
        body: dict[str, object] = {
            "status": "ok",
            "version": __version__,
            "uptime_s": (relay.clock.now() - self._started_at) // 1000,
            "agents_online": relay.roster.online(),
            "exchanges_open": len(relay.book),
            **self._store(),
        }
        if self._report is not None:
            body["connector"] = self._report()
        await _answer(send, 200, body)

    async def _ready(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say whether asks are taken, and gateways if there is a connector that is still starting.

        A dead store does not make the relay unready, nor does a connector that cannot start.
        """
        ready = not self._relay.draining
        body = {"ready": ready, "status": "", "bus": "local", **self._store()}
        if self._report is not None:
            body["connector"] = self._report()["status"]
            body["ready"] = ready = ready and body["connector"] != "starting"
        well = body["store"] == "up" and body.get("connector", "ok") == "ok"
        body["status"] = ("ok" if well else "degraded") if ready else "not ready"
        await _answer(send, 200 if ready else 503, body)

    def _store(self) -> dict[str, object]:
        journal = self._relay.journal
        down = journal.down_since is not None or not self._relay.loaded
        return {
            "store": "down" if down else "up",
            "store_waiting": len(journal),
            "store_lost": journal.lost,
        }


def _is_page(path: str) -> bool:
    return path == "/ui" or path.startswith("/ui/")


async def _answer(send: Send, status: int, body: dict[str, object]) -> None:
    content = _encode(body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


async def _no_such_path(scope: Scope, receive: Receive, send: Send) -> None:
    await _answer(
        send,
        404,
        {
            "error": "not found",
            "hint": "Paths: /mcp, /bridge/connect, /ui, /metrics, /health, /ready.",
        },
    )


async def _no_such_socket(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    body = b'{"error":"not found","hint":"Agents connect to /bridge/connect."}'
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "websocket.http.response.start", "status": 404, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
