"""WS `/relay`: a gateway dials in, says who it is, and stays."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hermes_bridge.connector.connector import Connector
from hermes_bridge.connector.core.session import RelaySession
from hermes_bridge.connector.doors.gate import Gate
from hermes_bridge.connector.link import Link
from hermes_bridge.connector.state import logger
from hermes_bridge.contract.frames import Lines
from hermes_bridge.contract.token import Refused
from hermes_bridge.errors import PeerError
from hermes_bridge.log import event
from hermes_bridge.web.websocket import SOCKET, DirectSocket

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

AGAIN = (b"retry-after", b"5")
_CLOSE_S = 3.0
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9a-fA-F:.]+\](:\d{1,5})?")


def header(scope: Scope, name: bytes) -> str:
    """Give a request header as text, or an empty text."""
    for key, value in scope["headers"]:
        if key == name:
            return bytes(value).decode("latin-1")
    return ""


def address(scope: Scope) -> str:
    """Give the address that a request came from."""
    client = scope.get("client")
    return str(client[0]) if client else "local"


class GatewayDoor:
    """Serves the contract's socket."""

    def __init__(self, connector: Connector, gate: Gate) -> None:
        self._connector, self._gate = connector, gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one upgrade request to its end."""
        await receive()  # websocket.connect
        verdict = self._gate.judge(header(scope, b"authorization"))
        if isinstance(verdict, Refused):
            await self._refuse(scope, send, verdict.reason)
            return
        full = self._gate.full_for(verdict.gateway_id)
        if full:
            self._connector.state.counts["refused.full"] += 1
            self._connector.state.quiet.event("upgrade.no_room", full)
            await refuse_upgrade(send, 503, f"{full}; try later\n".encode(), AGAIN)
            return
        socket: DirectSocket = scope["extensions"][SOCKET]
        await send({"type": "websocket.accept"})
        session = RelaySession(verdict.gateway_id, verdict.secret)
        link = self._connector.gateways.opened(session, socket, _base(scope))
        reader = _Reader(self._connector, link)
        socket.sink = reader.take
        try:
            async with asyncio.TaskGroup() as group:
                closer = group.create_task(_close_when_asked(link, send))
                while (await receive())["type"] != "websocket.disconnect":
                    continue
                closer.cancel()
        finally:
            reader.end()
            self._connector.gateways.closed(link)

    async def _refuse(self, scope: Scope, send: Send, reason: str) -> None:
        """Close 4401 after the handshake, as Hermes expects; an address that floods gets less."""
        where = address(scope)
        if self._gate.tired_of(where):
            self._connector.state.counts["refused.throttled"] += 1
            self._connector.state.quiet.event("upgrade.throttled", where)
            await refuse_upgrade(send, 429, b"too many refused tokens; wait a minute\n")
            return
        event(logger, "upgrade.refused", logging.WARNING, address=where, reason=reason)
        self._connector.state.counts[f"refused.{reason}"] += 1
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.close", "code": 4401, "reason": reason})


class _Reader:
    """Takes the messages of one connection, as they arrive."""

    def __init__(self, connector: Connector, link: Link) -> None:
        self._connector, self._link = connector, link
        self._lines = Lines()
        wait = connector.state.config.section.hello_timeout_ms / 1000
        self._deadline = asyncio.get_running_loop().call_later(wait, self._too_late)

    def end(self) -> None:
        """The connection is over."""
        self._deadline.cancel()

    def take(self, text: str | None) -> None:
        """A message came; None: a binary one, which the contract does not know."""
        link = self._link
        try:
            for line in self._lines.feed(text or ""):
                if link.closing:
                    return
                self._connector.gateways.frame(link, line)
        except PeerError as error:
            event(logger, "gateway.broke_contract", logging.WARNING, link=link.number,
                  cause=str(error))  # fmt: skip
            link.close(error.close_code, str(error))
        except Exception as error:  # noqa: BLE001  one connection ends, never the process
            event(logger, "connector.bug", logging.ERROR, link=link.number,
                  cause=f"{type(error).__name__}: {error}"[:300])  # fmt: skip
            link.close(1011, "the connector failed; connect again")

    def _too_late(self) -> None:
        link = self._link
        if not link.session.bots and not link.closing:
            event(logger, "gateway.silent", logging.WARNING, link=link.number)
            link.close(1002, "no hello within the deadline")


async def _close_when_asked(link: Link, send: Send) -> None:
    await link.asked_to_close.wait()
    link.flush()
    code, reason = link.goodbye or (1000, "")
    try:
        async with asyncio.timeout(_CLOSE_S):
            await send({"type": "websocket.close", "code": code, "reason": reason})
            await asyncio.sleep(_CLOSE_S)  # the peer answers, or is cut off
    except TimeoutError:
        link.abort()
    except OSError:
        pass  # it is gone already


async def refuse_upgrade(send: Send, status: int, body: bytes, *more: tuple[bytes, bytes]) -> None:
    """Answer an upgrade request with a plain HTTP response."""
    headers = [(b"content-type", b"text/plain; charset=utf-8"), *more]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


def _base(scope: Scope) -> str:
    """Give the address under which this gateway reached us: where it can fetch files."""
    host = header(scope, b"host")
    if not _HOST.fullmatch(host):
        server = scope.get("server") or ("127.0.0.1", 0)
        host = f"{server[0]}:{server[1]}"
    forwarded = header(scope, b"x-forwarded-proto")
    scheme = "https" if scope.get("scheme") == "wss" or forwarded == "https" else "http"
    return f"{scheme}://{host}"
