"""The upgrade token of Hermes' relay contract: mint, read, verify.

A token is `base64url("<gateway id>:<expiry>:<hex hmac-sha256>")` without padding. The expiry is
unix seconds, `0` meaning never. The gateway id may itself hold colons, so it is read from the
right. Nothing here knows the time: callers pass it.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import NamedTuple

TTL_S = 300
SKEW_S = 120
_MAX_TOKEN = 4096


class Claims(NamedTuple):
    """What a token says about itself, before anybody believed it."""

    gateway_id: str
    expires_at: int
    signature: str

    @property
    def signed(self) -> bytes:
        """The bytes under the signature."""
        return f"{self.gateway_id}:{self.expires_at}".encode()


class Accepted(NamedTuple):
    """A token that holds: whose it is, and the one secret that proved it."""

    gateway_id: str
    secret: str


class Refused(NamedTuple):
    """A token that does not: `reason` is `unauthorized` or, for age alone, `expired`."""

    reason: str


def mint(gateway_id: str, secret: str, expires_at: int) -> str:
    """Give the token that `gateway_id` shows when it dials (unix seconds; 0 never expires)."""
    claims = Claims(gateway_id, expires_at, "")
    raw = claims.signed + b":" + _sign(secret, claims.signed).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def read(token: str) -> Claims | None:
    """Take a token apart without believing it; None when it has no such shape."""
    if not token or len(token) > _MAX_TOKEN:
        return None
    try:
        raw = base64.b64decode(token.rstrip("=") + "=" * (-len(token.rstrip("=")) % 4), b"-_", True)
        text = raw.decode()
    except (binascii.Error, ValueError):
        return None
    payload, _, signature = text.rpartition(":")
    gateway_id, _, expiry = payload.rpartition(":")
    if not gateway_id or not expiry.isascii() or not expiry.isdigit() or len(expiry) > 15:
        return None
    return Claims(gateway_id, int(expiry), signature.lower())


def verify(
    claims: Claims | None, secrets: Sequence[str], now_s: int, *, skew_s: int = SKEW_S
) -> Accepted | Refused:
    """Judge a token against a gateway's valid secrets, in their order, in constant time each.

    `expired` is said only of a token whose signature holds: Hermes treats it as harmless.
    """
    if claims is None or len(claims.signature) != 64 or not claims.signature.isascii():
        return Refused("unauthorized")
    proved = ""
    for secret in secrets:
        if hmac.compare_digest(_sign(secret, claims.signed), claims.signature) and not proved:
            proved = secret
    if not proved:
        return Refused("unauthorized")
    if claims.expires_at and now_s > claims.expires_at + skew_s:
        return Refused("expired")
    return Accepted(claims.gateway_id, proved)


def _sign(secret: str, message: bytes) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
