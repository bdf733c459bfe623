"""HTTP: `/health`, `/relay/policy`, `/relay/media`. Everything else is 404."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from hermes_bridge.connector import health
from hermes_bridge.connector.connector import Connector
from hermes_bridge.connector.doors.gate import Gate
from hermes_bridge.connector.doors.gateway import Receive, Scope, Send, address, header
from hermes_bridge.connector.media import MAX_FILE, Kept, safe_mime, safe_name
from hermes_bridge.connector.platforms.base import PlatformError
from hermes_bridge.contract.frames import decode_policy
from hermes_bridge.contract.token import Accepted
from hermes_bridge.errors import PeerError

_MAX_POLICY = 64 * 1024
_UPLOADS_AT_ONCE = 4
_UPLOAD_S = 60.0
_FETCH_S = 25.0
_MEDIA = "/relay/media"

Handler = Callable[[Scope, Receive, Send], Awaitable[None]]


class HttpDoor:
    """Serves plain HTTP requests."""

    def __init__(self, connector: Connector, gate: Gate) -> None:
        self._connector, self._gate = connector, gate
        self._uploads = asyncio.Semaphore(_UPLOADS_AT_ONCE)
        self._routes: dict[tuple[str, str], Handler] = {
            ("GET", "/health"): self._health,
            ("POST", "/relay/policy"): self._policy,
            ("POST", _MEDIA): self._upload,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method, path = scope["method"], scope["path"]
        handler = self._routes.get(("GET" if method == "HEAD" else method, path))
        if handler is not None:
            await handler(scope, receive, send)
        elif method == "GET" and path.startswith(_MEDIA + "/"):
            await self._download(scope, send, path.removeprefix(_MEDIA + "/"))
        elif any(known == path for _, known in self._routes):
            await answer(send, 405, {"error": "this method is not offered here"})
        else:
            await answer(send, 404, {"error": "there is nothing here"})

    async def _health(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer(send, 200, health.report(self._connector.state))

    async def _policy(self, scope: Scope, receive: Receive, send: Send) -> None:
        who = await self._who(scope, send)
        if who is None:
            return
        try:
            body = await _body(scope, receive, _MAX_POLICY)
            policy = decode_policy(body)
        except PeerError as error:
            await answer(send, 413 if error.close_code == 1009 else 400, {"error": str(error)})
            return
        table = self._connector.state.table
        served = [row for row in table.rows if row.gateway_id == who.gateway_id]
        if not any(row.platform == policy.platform for row in served):
            await answer(send, 404, {"error": "this gateway has no identity on that platform"})
            return
        self._connector.gateways.declare(who.gateway_id, policy)
        await answer(send, 200, {"ok": True})

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        who = await self._who(scope, send)
        if who is None:
            return
        try:
            async with self._uploads, asyncio.timeout(_UPLOAD_S):
                body = await _body(scope, receive, MAX_FILE)
                mime = header(scope, b"content-type")
                name = header(scope, b"x-media-filename")
                shelf = self._connector.state.shelf
                key = await shelf.keep(who.gateway_id, body, mime, name)
        except PeerError as error:
            await answer(send, 413 if error.close_code == 1009 else 400, {"error": str(error)})
        except TimeoutError:
            await answer(send, 408, {"error": "the file did not arrive in time"})
        except OSError:
            await answer(send, 507, {"error": "the file cannot be stored now"})
        else:
            if not body:
                await answer(send, 400, {"error": "the file is empty"})
            elif key is None:
                await answer(send, 429, {"error": "this gateway has too many files here"})
            else:
                await answer(send, 200, {"id": key})

    async def _download(self, scope: Scope, send: Send, key: str) -> None:
        who = await self._who(scope, send)
        if who is None:
            return
        state = self._connector.state
        item = state.shelf.find(key, who.gateway_id)
        if item is None:
            await answer(send, 404, {"error": "there is no such file, or its hour is over"})
            return
        try:
            if isinstance(item, Kept):
                body, mime, name = (
                    await asyncio.to_thread(item.path.read_bytes),
                    item.mime,
                    item.name,
                )
            else:
                identity = state.table.get(item.bot_id)
                if identity is None or identity.gateway_id != who.gateway_id:
                    await answer(send, 404, {"error": "there is no such file"})
                    return
                async with asyncio.timeout(_FETCH_S):
                    file = await state.platform_of(identity).fetch(identity, item.attachment)
                body, mime, name = file.body, file.mime, file.name
        except (PlatformError, OSError):
            await answer(send, 502, {"error": "the platform does not give the file now"})
            return
        await _file(send, body, mime, name)

    async def _who(self, scope: Scope, send: Send) -> Accepted | None:
        verdict = self._gate.judge(header(scope, b"authorization"))
        if isinstance(verdict, Accepted):
            return verdict
        status = 429 if self._gate.tired_of(address(scope)) else 401
        await answer(send, status, {"error": verdict.reason})
        return None


async def answer(send: Send, status: int, body: dict[str, Any], *more: tuple[bytes, bytes]) -> None:
    """Give a JSON answer."""
    raw = msgspec.json.encode(body)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(raw)),
        *more,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": raw})


async def _file(send: Send, body: bytes, mime: str, name: str) -> None:
    quoted = safe_name(name).encode("ascii", "replace").replace(b"?", b"_")
    headers = [
        (b"content-type", safe_mime(mime).encode()),
        (b"content-length", b"%d" % len(body)),
        (b"content-disposition", b'attachment; filename="' + quoted + b'"'),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """Read a request body. Raises `PeerError` 1009 when it is too large."""
    announced = header(scope, b"content-length")
    if announced.isdigit() and int(announced) > limit:
        raise PeerError("the body is too large", close_code=1009)
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise PeerError("the body was cut off")
        body += message.get("body", b"")
        if len(body) > limit:
            raise PeerError("the body is too large", close_code=1009)
        if not message.get("more_body", False):
            return bytes(body)
