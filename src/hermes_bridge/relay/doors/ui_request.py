"""One HTTP request to the page, and the ways to answer it: every answer carries the strict policy."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

import msgspec

from hermes_bridge.relay.doors.ui_access import Headers

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_encode = msgspec.json.Encoder().encode
_MAX_BODY = 8192
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_SAFE = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
FRESH = [*_SAFE, (b"cache-control", b"no-store")]
KEPT = [*_SAFE, (b"cache-control", b"public, max-age=31536000, immutable")]


class Request:
    """One HTTP request below `/ui`, with its headers by name."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.path: str = scope["path"]
        self.method: str = scope["method"]
        self.headers: Headers = dict(scope["headers"])
        self.peer: str = (scope.get("client") or ("?", 0))[0]
        self.tls = scope.get("scheme") == "https"
        self.receive, self.send = receive, send
        raw = scope.get("query_string", b"").decode("latin-1")
        self.raw_query: str = raw
        self.query = {key: values[-1] for key, values in parse_qs(raw, max_num_fields=32).items()}

    @property
    def reads(self) -> bool:
        """Whether the method changes nothing."""
        return self.method in ("GET", "HEAD")

    async def form(self) -> dict[str, str]:
        """Give the fields of a posted form; of one that is too large, none."""
        body = b""
        while True:
            message = await self.receive()
            body += message.get("body", b"")
            if len(body) > _MAX_BODY or message["type"] != "http.request":
                return {}
            if not message.get("more_body"):
                break
        try:
            fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=16)
        except ValueError:
            return {}
        return {key: values[-1] for key, values in fields.items()}

    async def answer(
        self, status: int, kind: bytes, content: bytes, headers: list[tuple[bytes, bytes]]
    ) -> None:
        """Send a whole response."""
        head = [*headers, (b"content-type", kind), (b"content-length", b"%d" % len(content))]
        await self.send({"type": "http.response.start", "status": status, "headers": head})
        await self.send({"type": "http.response.body", "body": content})

    async def json(self, status: int, body: object) -> None:
        """Send JSON."""
        await self.answer(status, b"application/json", _encode(body), FRESH)

    async def html(self, status: int, content: bytes, *more: tuple[bytes, bytes]) -> None:
        """Send a document."""
        await self.answer(status, b"text/html; charset=utf-8", content, [*FRESH, *more])

    async def go(self, where: str, *more: tuple[bytes, bytes]) -> None:
        """Send the browser somewhere else."""
        headers = [*FRESH, (b"location", where.encode("latin-1", "replace")), *more]
        await self.answer(303, b"text/plain", b"", headers)

    async def fail(self, status: int, error: str, hint: str = "") -> None:
        """Say why not, as JSON."""
        await self.json(status, {"error": error, "hint": hint} if hint else {"error": error})

    async def not_so(self, allowed: bytes) -> None:
        """Say which methods the path takes."""
        body = _encode({"error": "method not allowed"})
        await self.answer(405, b"application/json", body, [*FRESH, (b"allow", allowed)])
