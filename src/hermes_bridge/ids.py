"""Identifiers and secrets: the one place that rolls dice."""

import hashlib
import os
import secrets

_POOL_BYTES = 4096
_PIECE = 20
_pool = ""
_used = 0
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_id(now: int) -> str:
    """Give a UUID (version 7) in text form: `now` in unix milliseconds, then 74 random bits.

    Ids that begin with the time keep neighbours together in an index: a batch of rows then touches
    a few pages of the store instead of one a row. Random bytes come from the system in blocks.
    """
    global _pool, _used
    if _used + _PIECE > len(_pool):
        _pool, _used = os.urandom(_POOL_BYTES).hex(), 0
    dice = _pool[_used : _used + _PIECE]
    _used += _PIECE
    time = f"{now:012x}"
    return f"{time[:8]}-{time[8:12]}-7{dice[:3]}-{_VARIANT[dice[3]]}{dice[4:7]}-{dice[7:19]}"


def keyed_id(owner: str, key: str, generation: int = 0) -> str:
    """Give the UUID (version 8) that `owner` and its idempotency `key` always lead to.

    `generation` grows when the same key is used again after it has expired.
    """
    seed = f"{len(owner)}:{owner}:{generation}:{key}".encode("utf-8", "surrogatepass")
    raw = hashlib.sha256(seed).hexdigest()
    variant = "89ab"[int(raw[16], 16) & 3]
    return f"{raw[:8]}-{raw[8:12]}-8{raw[13:16]}-{variant}{raw[17:20]}-{raw[20:32]}"


def new_token() -> str:
    """Give a fresh bearer token: 32 random bytes, URL-safe."""
    return secrets.token_urlsafe(32)


def digest(token: str | bytes) -> bytes:
    """Give the SHA-256 of a token: what is compared and what may be stored."""
    return hashlib.sha256(token.encode() if isinstance(token, str) else token).digest()
