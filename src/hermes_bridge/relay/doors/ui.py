"""The operator's page: documents, assets, sign-in, and the JSON behind it (docs/guides/page.md).

Reading never waits for a store that is in trouble: what memory holds is shown instead.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote

import msgspec

from hermes_bridge.log import Quiet, event
from hermes_bridge.relay.config import UiSection
from hermes_bridge.relay.doors import ui_assets, ui_reads
from hermes_bridge.relay.doors.ui_access import (
    COOKIE,
    SESSION_MS,
    Access,
    Headers,
    Visitor,
    local_path,
    own_page,
)
from hermes_bridge.relay.relay import Relay

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log = logging.getLogger("hermes_bridge.ui")
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
_FRESH = [*_SAFE, (b"cache-control", b"no-store")]
_KEPT = [*_SAFE, (b"cache-control", b"public, max-age=31536000, immutable")]
_VIEWS = ("/ui", "/ui/", "/ui/agents", "/ui/map")
_SHUT = {
    "shut": (
        "This page shows the full text of every message, and the relay listens beyond this machine. "
        "To open it, set ui.password in the relay's configuration "
        "(or ui.auth: none, if something in front of it decides who may look), and restart the relay."
    ),
    "name": (
        "Without a password this page answers only to localhost. To reach it under another name, "
        "set ui.password in the relay's configuration (or ui.auth: none), and restart the relay."
    ),
}


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
        await self.answer(status, b"application/json", _encode(body), _FRESH)

    async def html(self, status: int, content: bytes, *more: tuple[bytes, bytes]) -> None:
        """Send a document."""
        await self.answer(status, b"text/html; charset=utf-8", content, [*_FRESH, *more])

    async def go(self, where: str, *more: tuple[bytes, bytes]) -> None:
        """Send the browser somewhere else."""
        headers = [*_FRESH, (b"location", where.encode("latin-1", "replace")), *more]
        await self.answer(303, b"text/plain", b"", headers)

    async def fail(self, status: int, error: str, hint: str = "") -> None:
        """Say why not, as JSON."""
        await self.json(status, {"error": error, "hint": hint} if hint else {"error": error})


class UiDoor:
    """The door to everything below `/ui`."""

    def __init__(self, relay: Relay, section: UiSection, *, open_to_all: bool) -> None:
        """`open_to_all`: the server listens on loopback only."""
        self._relay = relay
        self.access = Access(section, local=open_to_all, now=relay.clock.now)
        self._quiet = Quiet(_log, relay.clock.now)
        self._reads = ui_reads.Reads(relay)

    def replace(self, section: UiSection) -> None:
        """Take a new configuration."""
        self.access.replace(section)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            request = Request(scope, receive, send)
        except ValueError:
            request = Request({**scope, "query_string": b""}, receive, send)
            await request.fail(400, "bad query", "The address has too many parameters.")
            return
        visitor = self.access.visitor(request.headers, request.peer)
        if visitor.why_not in _SHUT:
            await self._shut(request, visitor.why_not)
        elif request.path.startswith("/ui/static/"):
            await _static(request)
        elif request.path in ("/ui/login", "/ui/logout"):
            await (self._login if request.path == "/ui/login" else self._logout)(request, visitor)
        elif request.path.startswith("/ui/api/"):
            await self._api(request, visitor)
        else:
            await self._page(request, visitor)

    async def _shut(self, request: Request, why: str) -> None:
        self._quiet.event("ui.shut", why, peer=request.peer, hint=_SHUT[why])
        if request.path.startswith("/ui/api/"):
            await request.fail(403, "the page is not open", _SHUT[why])
            return
        text = f"<!doctype html><title>hermes-bridge</title><p>{escape(_SHUT[why])}"
        await request.html(403, text.encode())

    async def _page(self, request: Request, visitor: Visitor) -> None:
        if not request.reads:
            await _not_so(request, b"GET, HEAD")
        elif not visitor.may_read:
            whole = request.path + (f"?{request.raw_query}" if request.raw_query else "")
            await request.go(f"/ui/login?next={quote(local_path(whole), safe='/')}")
        else:
            known = request.path in _VIEWS or request.path.startswith("/ui/c/")
            document = await asyncio.to_thread(_document, "page.html")
            await request.html(200 if known else 404, document)

    async def _api(self, request: Request, visitor: Visitor) -> None:
        if not visitor.may_read:
            wait = self.access.wait_s(request.peer)
            if wait:
                await request.fail(429, "too many tries", f"Wait {wait} s.")
            else:
                await request.fail(
                    401,
                    "sign in first",
                    "Open /ui/login, or send `Authorization: Bearer` with ui.password.",
                )
            return
        if not request.reads:
            await _not_so(request, b"GET, HEAD")
            return
        if request.path == "/ui/api/state":
            body = await self._reads.state(cut=_number(request.query.get("cut")))
            body["signed_in"] = visitor.signed_in
            body["csrf"] = self.access.csrf(visitor)
            await request.json(200, body)
        elif request.path.startswith("/ui/api/exchanges/"):
            found = await self._reads.exchange(request.path.rpartition("/")[2])
            if found is None:
                await request.fail(404, "no such exchange", "It may be older than the relay keeps.")
            else:
                await request.json(200, found)
        else:
            await request.fail(404, "not found")

    async def _login(self, request: Request, visitor: Visitor) -> None:
        fields = request.query
        if request.method == "POST":
            fields = await request.form()
        where = local_path(fields.get("next", "/ui"))
        if visitor.may_read and request.reads:
            await request.go(where)
        elif request.reads:
            await self._login_page(request, 200, where)
        elif request.method != "POST":
            await _not_so(request, b"GET, HEAD, POST")
        elif not own_page(request.headers):
            await request.fail(403, "sent by another site", "Sign in on the relay's own page.")
        else:
            await self._try(request, fields.get("password", ""), where)

    async def _try(self, request: Request, password: str, where: str) -> None:
        wait = self.access.wait_s(request.peer)
        if wait:
            await self._login_page(request, 429, where, f"Too many tries. Wait {wait} s.")
        elif self.access.check(password.encode(), request.peer):
            event(_log, "ui.signed_in", peer=request.peer)
            session = await asyncio.to_thread(self.access.new_session)
            await request.go(where, _cookie(session, SESSION_MS // 1000, request.tls))
        else:
            self._quiet.event("ui.wrong_password", request.peer)
            await self._login_page(request, 401, where, "Wrong password. Try again.")

    async def _login_page(self, request: Request, status: int, where: str, error: str = "") -> None:
        document = await asyncio.to_thread(
            _document,
            "login.html",
            next=escape(where),
            error=escape(error),
            wrong="wrong" if error else "",
            hidden="" if error else "hidden",
        )
        await request.html(status, document)

    async def _logout(self, request: Request, visitor: Visitor) -> None:
        if request.method != "POST":
            await _not_so(request, b"POST")
            return
        token = request.headers.get(b"x-csrf-token", b"").decode("latin-1")
        if not own_page(request.headers) or not self.access.may_change(visitor, token):
            await request.fail(403, "not allowed", "Load the page again and sign out from there.")
            return
        self.access.end_session(visitor.nonce)
        event(_log, "ui.signed_out", peer=request.peer)
        await request.go("/ui/login", _cookie("", 0, request.tls))


def _cookie(value: str, seconds: int, tls: bool) -> tuple[bytes, bytes]:
    text = f"{COOKIE}={value}; Path=/ui; Max-Age={seconds}; HttpOnly; SameSite=Lax"
    return b"set-cookie", (text + ("; Secure" if tls else "")).encode()


def _document(name: str, **fields: str) -> bytes:
    return ui_assets.load().document(name, **fields)


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 8 else 0


async def _static(request: Request) -> None:
    if not request.reads:
        await _not_so(request, b"GET, HEAD")
        return
    assets = await asyncio.to_thread(ui_assets.load)
    folder, _, name = request.path.rpartition("/")
    asset = assets.files.get(name) if folder == assets.base else None
    if asset is None:
        await request.fail(404, "not found", "Load the page again.")
        return
    headers = [*_KEPT, (b"vary", b"accept-encoding")]
    if b"gzip" in request.headers.get(b"accept-encoding", b""):
        headers.append((b"content-encoding", b"gzip"))
        await request.answer(200, asset.kind, asset.packed, headers)
    else:
        await request.answer(200, asset.kind, asset.plain, headers)


async def _not_so(request: Request, allowed: bytes) -> None:
    headers = [*_FRESH, (b"allow", allowed)]
    body = _encode({"error": "method not allowed"})
    await request.answer(405, b"application/json", body, headers)
