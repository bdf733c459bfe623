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

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

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
        await send({"type": "websocket.accept"})
        session = RelaySession(verdict.gateway_id, verdict.secret)
        link = self._connector.gateways.opened(session, send, _base(scope))
        try:
            await self._serve(link, receive)
        finally:
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

    async def _serve(self, link: Link, receive: Receive) -> None:
        """Read and write side by side; whichever ends first ends the connection."""
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(self._read(link, receive))
            writer = group.create_task(link.run())
            link.cut = writer.cancel
            await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
            if not link.closing and not reader.done():
                event(logger, "gateway.does_not_read", logging.WARNING, link=link.number)
            reader.cancel()
            writer.cancel()

    async def _read(self, link: Link, receive: Receive) -> None:
        lines = Lines()
        hello_ms = self._connector.state.config.section.hello_timeout_ms
        try:
            async with asyncio.timeout(hello_ms / 1000) as deadline:
                waiting = True
                while True:
                    message = await receive()
                    if message["type"] == "websocket.disconnect":
                        return
                    text = message.get("text")
                    if text is None:
                        text = bytes(message.get("bytes") or b"").decode("utf-8", "replace")
                    for line in lines.feed(text):
                        self._connector.gateways.frame(link, line)
                    if waiting and link.session.bots:
                        waiting = False
                        deadline.reschedule(None)
                    if link.closing:
                        await asyncio.sleep(3600)  # the writer ends it
        except TimeoutError:
            event(logger, "gateway.silent", logging.WARNING, link=link.number)
            link.close(1002, "no hello within the deadline")
        except PeerError as error:
            event(logger, "gateway.broke_contract", logging.WARNING, link=link.number,
                  cause=str(error))  # fmt: skip
            link.close(error.close_code, str(error))
        await asyncio.sleep(3600)  # the writer sends the close frame and ends it


async def refuse_upgrade(send: Send, status: int, body: bytes) -> None:
    """Answer an upgrade request with a plain HTTP response."""
    headers = [(b"content-type", b"text/plain; charset=utf-8")]
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
