"""Who may look at the operator's page (spec: relay, part 3), and who is signed in.

Four cases. `ui.auth: none` and a server on loopback without a password are open to read. With
`ui.password` everybody signs in (or sends it as a bearer token). Anything else is shut. A page
that is open on loopback answers only to a loopback name: so no website can reach it by giving its
own name this machine's address, and no reverse proxy shows it to the world by accident.

Sessions are signed, not stored: `expiry.nonce.signature`. The key is derived from the password, so
a restart signs nobody out and a new password signs everybody out.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from enum import Enum, auto
from http.cookies import CookieError, SimpleCookie
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

import msgspec

from hermes_bridge.ids import digest
from hermes_bridge.relay.auth import bearer
from hermes_bridge.relay.config import UiSection

COOKIE = "hermes_bridge_session"
SESSION_MS = 30 * 86_400_000
_FREE_TRIES = 5
_FIRST_WAIT_MS = 10_000
_LONGEST_WAIT_MS = 300_000
_FORGIVEN_AFTER_MS = 900_000
_KEEP = 10_000

Headers = dict[bytes, bytes]


class Mode(Enum):
    """How the page is kept."""

    OPEN = auto()
    LOCAL = auto()
    PASSWORD = auto()
    SHUT = auto()


class Visitor(msgspec.Struct, frozen=True):
    """Who asks: may they read, and in which session (empty for a script's bearer token)."""

    may_read: bool
    signed_in: bool = False
    nonce: str = ""
    why_not: str = ""
    """`shut`, `name` (a foreign host name on loopback) or `login`."""


class Access:
    """Decides for one server. `local` = it listens on loopback only."""

    def __init__(self, section: UiSection, *, local: bool, now: Callable[[], int]) -> None:
        self._local, self._now = local, now
        self._revoked: dict[str, int] = {}
        self._tries: dict[str, tuple[int, int, int]] = {}
        self.replace(section)

    def replace(self, section: UiSection) -> None:
        """Take a new configuration; another password ends all sessions."""
        self._password = digest(section.password) if section.password else b""
        self._secret = section.password or ""
        self._key = b""
        if section.auth == "none":
            self.mode = Mode.OPEN
        elif section.password:
            self.mode = Mode.PASSWORD
        else:
            self.mode = Mode.LOCAL if self._local else Mode.SHUT

    def visitor(self, headers: Headers, peer: str) -> Visitor:
        """Say who asks."""
        if self.mode is Mode.OPEN:
            return Visitor(may_read=True)
        if self.mode is Mode.SHUT:
            return Visitor(may_read=False, why_not="shut")
        if self.mode is Mode.LOCAL:
            own = is_loopback_name(headers.get(b"host", b"").decode("latin-1"))
            return Visitor(may_read=own, why_not="" if own else "name")
        token = bearer(headers.get(b"authorization"))
        if token is not None:
            right = not self.wait_s(peer) and self.check(token, peer)
            return Visitor(may_read=right, signed_in=right, why_not="" if right else "login")
        nonce = self._session(headers)
        return Visitor(bool(nonce), bool(nonce), nonce, "" if nonce else "login")

    def check(self, password: bytes, peer: str) -> bool:
        """Compare a password in constant time, and remember a wrong one against its sender."""
        if self.mode is Mode.PASSWORD and hmac.compare_digest(digest(password), self._password):
            self._tries.pop(_place(peer), None)
            return True
        place, now = _place(peer), self._now()
        count, _, last = self._tries.pop(place, (0, 0, 0))
        count = 1 if now - last > _FORGIVEN_AFTER_MS else count + 1
        over = count - _FREE_TRIES
        wait = min(_LONGEST_WAIT_MS, _FIRST_WAIT_MS << min(over, 20)) if over >= 0 else 0
        self._tries[place] = (count, now + wait, now)
        if len(self._tries) > _KEEP:
            del self._tries[next(iter(self._tries))]
        return False

    def wait_s(self, peer: str) -> int:
        """Give the seconds this sender has to wait before its next try."""
        until = self._tries.get(_place(peer), (0, 0, 0))[1]
        return max(0, -(-(until - self._now()) // 1000))

    def new_session(self) -> str:
        """Give the value of a session cookie."""
        body = f"{self._now() + SESSION_MS}.{secrets.token_urlsafe(18)}"
        return f"{body}.{self._sign('session', body)}"

    def end_session(self, nonce: str) -> None:
        """Sign one session out: its cookie is worth nothing from now on."""
        now = self._now()
        self._revoked = {n: until for n, until in self._revoked.items() if until > now}
        self._revoked[nonce] = now + SESSION_MS

    def csrf(self, visitor: Visitor) -> str:
        """Give the token that a session's own page sends with every change."""
        return self._sign("csrf", visitor.nonce) if visitor.nonce else ""

    def may_change(self, visitor: Visitor, token: str) -> bool:
        """Whether this request may change something: signed in, and sent by our own page or a script."""
        if not visitor.signed_in:
            return False
        if not visitor.nonce:
            return True
        return hmac.compare_digest(token.encode(), self.csrf(visitor).encode())

    def _session(self, headers: Headers) -> str:
        """Give the nonce of a valid session cookie, or nothing."""
        raw = headers.get(b"cookie", b"")
        if COOKIE.encode() not in raw or len(raw) > 8192:
            return ""
        try:
            morsel = SimpleCookie(raw.decode("latin-1")).get(COOKIE)
        except CookieError:
            return ""
        parts = morsel.value.split(".") if morsel else []
        if len(parts) != 3 or not parts[0].isdecimal() or len(parts[0]) > 15:
            return ""
        expiry, nonce, signature = parts
        right = self._sign("session", f"{expiry}.{nonce}")
        if not hmac.compare_digest(signature.encode(), right.encode()):
            return ""
        return "" if int(expiry) < self._now() or nonce in self._revoked else nonce

    def _sign(self, what: str, body: str) -> str:
        if not self._key:
            # Costs some 30 ms, once: a stolen cookie must be no cheap way to guess the password.
            self._key = hashlib.scrypt(
                self._secret.encode(), salt=b"hermes-bridge page", n=1 << 13, r=8, p=1, dklen=32
            )
        return hmac.new(self._key, f"{what}.{body}".encode(), hashlib.sha256).hexdigest()


def is_loopback_name(host: str) -> bool:
    """Whether a Host header names this machine by a loopback name (or is not there at all)."""
    if not host:
        return True
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", "::1"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def own_page(headers: Headers) -> bool:
    """Whether a request that changes something was not sent by another site's page."""
    if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin.decode("latin-1")).netloc == headers.get(b"host", b"").decode(
            "latin-1"
        )
    except ValueError:
        return False


def local_path(wanted: str) -> str:
    """Give the path below `/ui` to go on with after signing in; anything else leads to `/ui`."""
    inside = wanted == "/ui" or wanted.startswith(("/ui/", "/ui?"))
    plain = len(wanted) < 2000 and wanted.isprintable() and wanted.isascii() and "\\" not in wanted
    return wanted if inside and plain and not wanted.startswith("/ui/log") else "/ui"


def _place(peer: str) -> str:
    """Give what tries are counted by: an IPv4 address, or an IPv6 network of a single owner."""
    try:
        address = ip_address(peer)
    except ValueError:
        return peer
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(int(address) >> 64)
    return peer
