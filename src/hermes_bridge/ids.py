"""Identifiers and secrets: the one place that rolls dice."""

import hashlib
import os
import secrets

_POOL_BYTES = 4096
_PIECE = 16
_MOST_A_MS = 0xFFF
_pool = ""
_used = 0
_last = 0
_count = 0
_stamp = ""
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def new_id(now: int) -> str:
    """Give a UUID (version 7) in text form: `now` in unix milliseconds, a count, 62 random bits.

    Ids that begin with the time keep neighbours together in an index: a batch of rows then touches
    a few pages of the store instead of one a row. The count orders ids of one millisecond, so ids
    sort in the order in which they were made. Random bytes come from the system in blocks.
    """
    global _pool, _used, _last, _count, _stamp
    if _used + _PIECE > len(_pool):
        _pool, _used = os.urandom(_POOL_BYTES).hex(), 0
    dice = _pool[_used : _used + _PIECE]
    _used += _PIECE
    if now <= _last and _count < _MOST_A_MS:
        _count += 1
    else:
        _last, _count = max(now, _last + 1), 0
        time = f"{_last:012x}"
        _stamp = f"{time[:8]}-{time[8:]}-7"
    return f"{_stamp}{_count:03x}-{_VARIANT[dice[0]]}{dice[1:4]}-{dice[4:]}"


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
