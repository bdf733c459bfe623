"""Check a callback: is it signed by whom I know, fresh, and new?

Pure: give it the headers and the raw bytes of the body, before any framework has parsed them. Both
signatures of the plugin are known: Standard Webhooks (with a time, so that an old request cannot be
played again) and the original's HMAC over the body (without one).
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hermes_bridge.clock import wall_ms

__all__ = ["Callback", "File", "Refused", "Seen", "Verifier"]

_PART = re.compile(r'Content-Disposition: form-data; name="(\w+)"(?:; filename="([^"]*)")?')
LEGACY = "x-hermes-callback-signature"
MIN_KEY_BYTES, MAX_KEY_BYTES = 24, 64


class Refused(Exception):
    """The request must not be acted on. Answer with `status`; `str(error)` is for your log."""

    def __init__(self, reason: str, status: int = 401) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class File:
    """A file that came along (`media: multipart`). `part` is what its attachment names."""

    part: str
    name: str
    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Callback:
    """A callback that was checked. `hermes` is the plugin's own object ({} in the captain profile)."""

    id: str
    content: str
    reply_to: str | None
    metadata: dict[str, Any]
    timestamp: int
    attempt: int
    hermes: dict[str, Any] = field(default_factory=dict)
    files: tuple[File, ...] = ()

    @property
    def kind(self) -> str:
        """Say what it is: "final" unless the plugin says otherwise (cron, media, error, test...)."""
        return str(self.hermes.get("kind", "final"))


class Verifier:
    """Checks requests against one secret, or several while one is being replaced."""

    def __init__(
        self,
        *secrets: str,
        tolerance: float = 300,
        legacy: bool = True,
        now: Callable[[], float] | None = None,
    ) -> None:
        """Know the secrets, as they were given to the plugin.

        `tolerance`: how many seconds the sender's clock may differ. `legacy`: whether a request is
        accepted that carries the body-only signature alone. `now`: the clock, in unix seconds.

        Raises:
            ValueError: there is no secret, or one of them is malformed.
        """
        if not secrets:
            raise ValueError("a verifier needs a secret; an unsigned callback could be anybody's")
        self._keys = [(text.strip().encode(), _key(text.strip())) for text in secrets]
        self._tolerance = tolerance
        self._legacy = legacy
        self._now = now or (lambda: wall_ms() / 1000)

    def verify(
        self, headers: Mapping[str, str] | Iterable[tuple[str, str]], body: bytes
    ) -> Callback:
        """Check a request and read it.

        Raises:
            Refused: with the HTTP status to answer (401 signature, 400 body).
        """
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        known = {name.lower().replace("_", "-"): value for name, value in pairs}
        self._check(known, body)
        return _read(known, body)

    def _check(self, headers: dict[str, str], body: bytes) -> None:
        for prefix in ("webhook", "svix"):
            # Present means binding: a bad signature is not saved by a good weaker one.
            if f"{prefix}-signature" in headers:
                self._standard(headers, prefix, body)
                return
        if not self._legacy or LEGACY not in headers:
            raise Refused("the request carries no signature that is accepted here")
        given = headers[LEGACY].encode("utf-8", "replace")
        matches = [
            hmac.compare_digest(
                given, b"sha256=" + hmac.new(text, body, hashlib.sha256).hexdigest().encode()
            )
            for text, _ in self._keys
        ]
        if not any(matches):
            raise Refused("the signature does not match: another secret, or the body was changed")

    def _standard(self, headers: dict[str, str], prefix: str, body: bytes) -> None:
        id, stamp = headers.get(f"{prefix}-id", ""), headers.get(f"{prefix}-timestamp", "")
        if not id or not (stamp.isascii() and stamp.isdigit() and len(stamp) < 12):
            raise Refused(f"{prefix}-id or {prefix}-timestamp is missing or malformed")
        if abs(self._now() - int(stamp)) > self._tolerance:
            raise Refused("the request is too old or from the future: compare the clocks")
        signed = f"{id}.{stamp}.".encode("utf-8", "replace") + body
        wanted = [
            b"v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())
            for _, key in self._keys
        ]
        given = headers[f"{prefix}-signature"].split(" ")[:16]
        matches = [
            hmac.compare_digest(one.encode("utf-8", "replace"), good)
            for one in given
            for good in wanted
        ]
        if not any(matches):
            raise Refused("the signature does not match: another secret, or the body was changed")


def _key(text: str) -> bytes:
    if not text or text.startswith(("v1,", "whsk_", "whpk_")):
        raise ValueError("this is no shared secret: copy it again, without a 'v1,' before it")
    if not text.startswith("whsec_"):
        return text.encode()
    try:
        key = base64.b64decode(text[len("whsec_") :], validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("what follows 'whsec_' is not base64: copy the secret again") from None
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise ValueError(f"a 'whsec_' secret holds {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes")
    return key


def _parts(body: bytes, edge: bytes) -> tuple[bytes, tuple[File, ...]]:
    """Take a body with files apart, as the plugin writes it (the signature was good)."""
    payload, files = b"", []
    for part in (b"\r\n" + body).split(b"\r\n--" + edge)[1:-1]:
        head, blank, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        lines = head.decode("utf-8", "replace").split("\r\n")
        found = _PART.fullmatch(lines[0])
        if not blank or found is None or len(lines) != 2:
            raise Refused("a part of the body cannot be read", 400)
        if found[2] is None:
            payload = data
        else:
            mime = lines[1].partition(": ")[2]
            files.append(File(found[1], found[2].replace("%22", '"'), mime, data))
    return payload, tuple(files)


def _read(headers: dict[str, str], body: bytes) -> Callback:
    files: tuple[File, ...] = ()
    kind, _, edge = headers.get("content-type", "").partition("; boundary=")
    if kind == "multipart/form-data":
        body, files = _parts(body, edge.encode())
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise Refused("the body is not JSON", 400) from None
    inner = data.get("data") if isinstance(data, dict) and "type" in data else data
    if not isinstance(inner, dict) or not isinstance(inner.get("content"), str):
        raise Refused("the body is not a callback: `content` is missing", 400)
    hermes, metadata = inner.get("hermes"), inner.get("metadata")
    hermes = hermes if isinstance(hermes, dict) else {}
    attempt = headers.get("x-hermes-callback-attempt", "1")
    stamp = data.get("timestamp")
    reply_to = inner.get("reply_to")
    id = headers.get("webhook-id") or headers.get("svix-id") or headers.get("idempotency-key")
    return Callback(
        id=id or str(hermes.get("id", "")),
        content=inner["content"],
        reply_to=reply_to if isinstance(reply_to, str) else None,
        metadata=metadata if isinstance(metadata, dict) else {},
        timestamp=stamp if isinstance(stamp, int) else 0,
        attempt=int(attempt) if attempt.isascii() and attempt.isdigit() and len(attempt) < 9 else 1,
        hermes=hermes,
        files=files,
    )


class Seen:
    """Ids of callbacks already acted on, in memory: the last `most` of them.

    A sender that never heard the answer sends again, under the same id. Keep the ids in your database,
    in the transaction that acts, when acting twice would hurt.
    """

    def __init__(self, most: int = 10_000) -> None:
        """Remember at most so many."""
        self._most = most
        self._ids: OrderedDict[str, None] = OrderedDict()

    def first(self, id: str) -> bool:
        """Tell whether this id is new, and remember it."""
        if id in self._ids:
            self._ids.move_to_end(id)
            return False
        self._ids[id] = None
        if len(self._ids) > self._most:
            self._ids.popitem(last=False)
        return True

    def forget(self, id: str) -> None:
        """Take an id back: acting on it failed, and the sender will try again."""
        self._ids.pop(id, None)
