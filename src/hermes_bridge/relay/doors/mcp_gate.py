"""What an HTTP request to `/mcp` must be before its body is read (mcp.md, part 2)."""

from functools import lru_cache
from urllib.parse import urlsplit

from hermes_bridge.log import Quiet
from hermes_bridge.relay.doors.mcp_calls import JSON, Headers
from hermes_bridge.web.server import Out


class Gate:
    """Lets JSON POSTs through; those of a browser only from a permitted origin."""

    def __init__(self, origins: frozenset[str], quiet: Quiet) -> None:
        self._origins, self._quiet = origins, quiet

    def refused(self, method: str, headers: Headers, out: Out, peer: str) -> bool:
        """Answer what may not pass; true if it was refused."""
        if method != "POST":
            said = b'{"error":"use POST"}' if method != "HEAD" else b""
            out.respond(405, JSON + b"allow: POST\r\n", said)
            return True
        if b"origin" in headers and not self._origin_ok(headers):
            self._quiet.event("mcp.refused", "origin", peer=peer)
            what = b'{"error":"this origin may not use the relay","hint":"See allowed_origins."}'
            out.respond(403, JSON, what)
            return True
        if b"json" not in headers.get(b"content-type", b"").lower():
            out.respond(415, JSON, b'{"error":"the body must be application/json"}')
            return True
        return False

    def _origin_ok(self, headers: Headers) -> bool:
        """A browser's page may call only from a loopback relay's own address or a listed origin."""
        origin = headers[b"origin"].decode("latin-1").lower()
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if origin in self._origins:
            return True
        try:
            same = urlsplit(origin).netloc == host
        except ValueError:
            return False
        return same and _is_loopback(host)


@lru_cache(maxsize=64)
def accepted(accept: bytes) -> tuple[bool, bool]:
    """Whether a client takes JSON, and whether it takes a stream."""
    accept = accept.lower()
    json = b"json" in accept or b"*/*" in accept or b"application/*" in accept
    return json, b"text/event-stream" in accept


def _is_loopback(host: str) -> bool:
    name = host.rsplit(":", 1)[0].strip("[]")
    return name in ("localhost", "::1") or name.startswith("127.")
