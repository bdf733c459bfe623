"""The operator's page: documents, assets, sign-in, and the JSON behind it (docs/guides/page.md).

Reading never waits for a store that is in trouble: what memory holds is shown instead.
"""

import asyncio
import logging
from collections.abc import Callable
from html import escape
from urllib.parse import quote

from hermes_bridge.log import Quiet, event
from hermes_bridge.relay.config import UiSection
from hermes_bridge.relay.doors import ui_assets, ui_reads, ui_tallies
from hermes_bridge.relay.doors.ui_access import (
    COOKIE,
    SESSION_MS,
    Access,
    Visitor,
    local_path,
    own_page,
)
from hermes_bridge.relay.doors.ui_events import Hub
from hermes_bridge.relay.doors.ui_request import KEPT, Receive, Request, Scope, Send
from hermes_bridge.relay.doors.ui_rows import Json
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.sql.reads import Cursor

_log = logging.getLogger("hermes_bridge.ui")
_VIEWS = ("/ui", "/ui/", "/ui/agents", "/ui/map", "/ui/connector")
_CANCELLED_BY = "cancelled by operator"
_ENDED = "You were signed out. Sign in again."
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


class UiDoor:
    """The door to everything below `/ui`."""

    def __init__(self, relay: Relay, section: UiSection, *, open_to_all: bool) -> None:
        """`open_to_all`: the server listens on loopback only."""
        self._relay, self._section = relay, section
        self.access = Access(section, local=open_to_all, now=relay.clock.now)
        self._quiet = Quiet(_log, relay.clock.now)
        self._reads = ui_reads.Reads(relay)
        self._hub = Hub(relay, self._reads)
        self.connector: Callable[[], Json] | None = None
        """What a connector in this process says of itself."""
        self.keeps: Callable[[], int] = lambda: 0
        """For how many days exchanges are kept; 0 = not a matter of time."""

    def replace(self, section: UiSection) -> None:
        """Take a new configuration."""
        self._section = section
        self.access.replace(section)

    def close(self) -> None:
        """The relay stops: end the live streams."""
        self._hub.close()
        self._reads.close()

    async def keep_warm(self) -> None:
        """Have counted what the page shows first, for as long as the relay runs."""
        await self._reads.tallies.keep_warm()

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
            await request.not_so(b"GET, HEAD")
        elif not visitor.may_read:
            whole = request.path + (f"?{request.raw_query}" if request.raw_query else "")
            await request.go(f"/ui/login?next={quote(local_path(whole), safe='/')}")
        else:
            known = request.path in _VIEWS or request.path.startswith("/ui/c/")
            document = await asyncio.to_thread(_document, "page.html")
            await request.html(200 if known else 404, document)

    # The JSON

    async def _api(self, request: Request, visitor: Visitor) -> None:
        path = request.path.removeprefix("/ui/api/")
        if not visitor.may_read:
            await self._refuse(request)
        elif path.startswith("exchanges/") and path.endswith("/cancel"):
            await self._cancel(request, visitor, path[len("exchanges/") : -len("/cancel")])
        elif not request.reads:
            await request.not_so(b"GET, HEAD")
        elif path == "events":
            await self._events(request)
        else:
            body = await self._read(request, path)
            if body is None:
                await request.fail(404, "not found", "It may be older than the relay keeps.")
                return
            if path == "state":
                body["signed_in"] = visitor.signed_in
                body["csrf"] = self.access.csrf(visitor)
                body["connector"] = self.connector is not None
                body["trace_url"] = self._section.trace_url
                body["limits"]["retention_days"] = self.keeps()
            await request.json(200, body)

    async def _read(self, request: Request, path: str) -> Json | None:
        reads, query = self._reads, request.query
        cut = _number(query.get("cut"))
        kind, _, name = path.partition("/")
        if name:
            before = ui_reads.cursor_of(query.get("before"))
            return await self._read_one(kind, name, before, cut)
        span = query.get("range", "24h")
        span = span if span in ui_tallies.RANGES else "24h"
        match kind:
            case "state":
                most = min(ui_reads.STATE_ROWS, _number(query.get("rows")) or ui_reads.STATE_ROWS)
                return await reads.state(cut, most, ui_reads.instant(query.get("since")) or 0)
            case "exchanges" | "search":
                limit = min(200, _number(query.get("limit")) or ui_reads.PAGE_ROWS)
                before = ui_reads.cursor_of(query.get("before"))
                return await reads.page(ui_reads.wanted_of(query), before, limit, cut)
            case "hour":
                return await reads.hour()
            case "counts":
                return await reads.counts(span)
            case "agents":
                return await reads.agents(span)
            case "connector":
                return self.connector() if self.connector is not None else None
            case _:
                return None

    async def _read_one(self, kind: str, name: str, before: Cursor | None, cut: int) -> Json | None:
        match kind:
            case "exchanges":
                return await self._reads.exchange(name)
            case "conversations":
                return await self._reads.conversation(name, before, cut)
            case "agents":
                return await self._reads.agent(name)
            case _:
                return None

    async def _events(self, request: Request) -> None:
        def still() -> bool:
            return self.access.visitor(request.headers, request.peer).may_read

        if request.method == "HEAD":
            await request.json(200, {})
        else:
            await self._hub.serve(request, still)

    async def _refuse(self, request: Request) -> None:
        wait = self.access.wait_s(request.peer)
        if wait:
            await request.fail(429, "too many tries", f"Wait {wait} s.")
        else:
            hint = "Open /ui/login, or send `Authorization: Bearer` with ui.password."
            await request.fail(401, "sign in first", hint)

    async def _cancel(self, request: Request, visitor: Visitor, rid: str) -> None:
        """End an open exchange for the operator: signed in, from our own page, written down."""
        if request.method != "POST":
            await request.not_so(b"POST")
            return
        if not await self._may_change(request, visitor):
            return
        exchange = self._relay.book.get(rid)
        if exchange is None:
            await request.fail(404, "no such exchange", "It may be older than the relay keeps.")
        elif self._relay.cancel(rid, _CANCELLED_BY):
            by = visitor.nonce[:8] or "script"
            event(_log, "ui.cancelled", request_id=rid, peer=request.peer, session=by)
            await request.json(200, {"ok": True})
        else:
            await request.json(409, {"error": "already ended", "status": exchange.status.value})

    async def _may_change(self, request: Request, visitor: Visitor) -> bool:
        token = request.headers.get(b"x-csrf-token", b"").decode("latin-1")
        if own_page(request.headers) and self.access.may_change(visitor, token):
            return True
        if visitor.signed_in:
            hint = "Load the page again and try from there."
        else:
            hint = "Only a signed-in operator may change something: set ui.password."
        await request.fail(403, "not allowed", hint)
        return False

    # Signing in and out

    async def _login(self, request: Request, visitor: Visitor) -> None:
        fields = request.query
        if request.method == "POST":
            fields = await request.form()
        where = local_path(fields.get("next", "/ui"))
        if visitor.may_read and request.reads:
            await request.go(where)
        elif request.reads:
            await self._login_page(request, 200, where, _ENDED if "ended" in fields else "")
        elif request.method != "POST":
            await request.not_so(b"GET, HEAD, POST")
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
            await request.not_so(b"POST")
        elif await self._may_change(request, visitor):
            self.access.end_session(visitor.nonce)
            event(_log, "ui.signed_out", peer=request.peer)
            await request.go("/ui/login", _cookie("", 0, request.tls))


def _cookie(value: str, seconds: int, tls: bool) -> tuple[bytes, bytes]:
    text = f"{COOKIE}={value}; Path=/ui; Max-Age={seconds}; HttpOnly; SameSite=Lax"
    return b"set-cookie", (text + ("; Secure" if tls else "")).encode()


def _document(name: str, **fields: str) -> bytes:
    return ui_assets.load().document(name, **fields)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 8 else 0


async def _static(request: Request) -> None:
    if not request.reads:
        await request.not_so(b"GET, HEAD")
        return
    assets = await asyncio.to_thread(ui_assets.load)
    folder, _, name = request.path.rpartition("/")
    asset = assets.files.get(name) if folder == assets.base else None
    if asset is None:
        await request.fail(404, "not found", "Load the page again.")
        return
    headers = [*KEPT, (b"vary", b"accept-encoding")]
    if b"gzip" in request.headers.get(b"accept-encoding", b""):
        headers.append((b"content-encoding", b"gzip"))
        await request.answer(200, asset.kind, asset.packed, headers)
    else:
        await request.answer(200, asset.kind, asset.plain, headers)
