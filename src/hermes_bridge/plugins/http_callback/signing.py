"""Signatures: secrets, what is signed, and the headers of one attempt.

Pure. Two maths: the original's HMAC over the raw body (hex, one signature), and Standard Webhooks
(base64, over `id.timestamp.body`, several signatures while a secret is rotated).
"""

import base64
import binascii
import functools
import hmac
from dataclasses import dataclass, field

LEGACY_HEADER = "X-Hermes-Callback-Signature"
PROFILES = ("default", "captain", "standard", "svix", "github", "bearer")
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64


class SecretError(ValueError):
    """A secret cannot be used; the text says why and what to do, never the secret."""


@dataclass(frozen=True)
class Secret:
    """One secret: `text` as typed (legacy, bearer), `key` as Standard Webhooks uses it."""

    text: str = field(repr=False)
    key: bytes = field(repr=False)

    @property
    def weak(self) -> bool:
        """Tell whether guessing it is thinkable (under 16 bytes)."""
        return len(self.key) < 16


@functools.lru_cache(maxsize=64)
def read_secret(text: str) -> Secret:
    """Give the secret written as `text`: `whsec_<base64>` is decoded, anything else is used raw.

    Raises:
        SecretError: the form is a known one, but broken.
    """
    text = text.strip()
    if not text:
        raise SecretError("the secret is empty")
    if text.startswith(("v1,", "v1a,")):
        raise SecretError("the secret starts with 'v1,': keep only the part from 'whsec_' on")
    if text.startswith(("whsk_", "whpk_")):
        raise SecretError("this is an ed25519 key; callbacks are signed with a shared secret")
    if not text.startswith("whsec_"):
        return Secret(text, text.encode())
    try:
        key = base64.b64decode(text[len("whsec_") :], validate=True)
    except (binascii.Error, ValueError):
        raise SecretError("what follows 'whsec_' is not base64: copy the secret again") from None
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise SecretError(
            f"a 'whsec_' secret holds {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes, this one {len(key)}"
        )
    return Secret(text, key)


@dataclass(frozen=True)
class Keyring:
    """The secrets of one endpoint: the current one and, while it is rotated, the previous one."""

    current: Secret | None = None
    previous: Secret | None = None
    legacy_uses_previous: bool = False


@dataclass(frozen=True)
class Letter:
    """What one attempt sends: constant `id` and `body`, fresh `timestamp` and `attempt`."""

    id: str
    body: bytes = field(repr=False)
    timestamp: int
    attempt: int
    content_type: str = "application/json; charset=utf-8"


def legacy_signature(secret: Secret, body: bytes) -> str:
    """Sign the raw body as the original does: `sha256=` and lowercase hex."""
    return "sha256=" + hmac.digest(secret.text.encode(), body, "sha256").hex()


def standard_signature(secret: Secret, letter: Letter) -> str:
    """Sign `id.timestamp.body` as Standard Webhooks version 1 says."""
    signed = f"{letter.id}.{letter.timestamp}.".encode() + letter.body
    return "v1," + base64.b64encode(hmac.digest(secret.key, signed, "sha256")).decode()


def headers(profile: str, keys: Keyring, letter: Letter, agent: str) -> dict[str, str]:
    """Give every header of one attempt under a profile."""
    found = {
        "Content-Type": letter.content_type,
        "User-Agent": agent,
        "Idempotency-Key": letter.id,
        "X-Hermes-Callback-Attempt": str(letter.attempt),
    }
    if profile != "svix":
        found["webhook-id"] = letter.id
    if keys.current is not None:
        found.update(_proofs(profile, keys, keys.current, letter))
    return found


def _proofs(profile: str, keys: Keyring, current: Secret, letter: Letter) -> dict[str, str]:
    if profile == "bearer":
        return {"Authorization": f"Bearer {current.text}"}
    late = keys.previous if keys.legacy_uses_previous and keys.previous else current
    found = {LEGACY_HEADER: legacy_signature(late, letter.body)}
    if profile == "github":
        found["X-Hub-Signature-256"] = legacy_signature(late, letter.body)
    if profile in ("default", "standard", "svix"):
        prefix = "svix" if profile == "svix" else "webhook"
        ring = [current, keys.previous] if keys.previous else [current]
        found[f"{prefix}-id"] = letter.id
        found[f"{prefix}-timestamp"] = str(letter.timestamp)
        found[f"{prefix}-signature"] = " ".join(standard_signature(key, letter) for key in ring)
    return found


def check(secret: Secret, headers: dict[str, str], body: bytes) -> dict[str, bool]:
    """Check every signature of a caught request; `headers` have lower-case names."""
    found: dict[str, bool] = {}
    for name in (LEGACY_HEADER.lower(), "x-hub-signature-256"):
        if name in headers:
            found[name] = hmac.compare_digest(
                headers[name].encode(), legacy_signature(secret, body).encode()
            )
    for prefix in ("webhook", "svix"):
        given = headers.get(f"{prefix}-signature")
        if given is None:
            continue
        stamp = headers.get(f"{prefix}-timestamp", "")
        if not (stamp.isascii() and stamp.isdigit()):
            found[f"{prefix}-signature"] = False
            continue
        letter = Letter(headers.get(f"{prefix}-id", ""), body, int(stamp), 1)
        wanted = standard_signature(secret, letter).encode()
        matches = [hmac.compare_digest(one.encode(), wanted) for one in given.split(" ")]
        found[f"{prefix}-signature"] = any(matches)
    return found
