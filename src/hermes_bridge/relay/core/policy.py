"""Limits, and who may ask whom. All numbers come from the configuration."""

import re

import msgspec

from hermes_bridge.relay.core.roster import Agent

WIRE_LIMIT = 1_048_576
"""Bots read frames of at most 1 MiB (contract, part 2); escaped text counts as it goes out."""

FRAME_ROOM = 4096
"""What a wake or a result needs beside the text."""

KEY_LIFE = 86_400_000
"""How long an idempotency key leads to the same exchange: 24 h."""


_NUL = "it holds a NUL character or half of a surrogate pair"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Lifecycle times in milliseconds, bounds in pieces or bytes."""

    ask_timeout_ms: int = 120_000
    ask_max_ms: int = 3_600_000
    hold_ms: int = 100_000
    reconnect_grace_ms: int = 30_000
    queue_ttl_ms: int = 86_400_000
    max_turns: int = 40
    max_run: int = 10
    run_pause_ms: int = 5_000
    max_depth: int = 4
    max_message_bytes: int = 262_144
    rate_per_minute: int = 0
    """Asks an agent may make in a minute; 0 = no limit."""
    max_pending: int = 1_000
    """Open asks a target may have."""


def may_ask(asker: Agent, target: str) -> bool:
    """Whether the asker's list names the target; no list names everybody."""
    return asker.may_ask is None or target in asker.may_ask


def text_fault(text: str) -> str | None:
    """Say why a text cannot be delivered or stored, or None."""
    if not text or text.isspace():
        return "blank"
    if text.isascii():
        return _NUL if "\0" in text else None
    if "\0" in text:
        return _NUL
    try:
        text.encode()
    except UnicodeEncodeError:
        return "it holds half of a surrogate pair"
    return None


def without_halves(content: bytes) -> bytes:
    """Give JSON with `\\u0000` in the place of every escaped half of a surrogate pair.

    No reader takes such text in; marked like this, the text is refused where it stands
    (`text_fault`), and the rest of the message is still read.
    """
    return _ESCAPE.sub(_no_half, content)


def _no_half(escape: re.Match[bytes]) -> bytes:
    return b"\\u0000" if escape["half"] else escape[0]


def too_large(text: str, limit: int, data: bytes | None = None) -> bool:
    """Whether a text and its data are over the limit in bytes, or over a bot's frame once escaped."""
    beside = len(data) if data else 0
    if len(text) * 6 + beside <= min(limit, WIRE_LIMIT - FRAME_ROOM):
        return False
    if len(text.encode()) + beside > limit:
        return True
    return len(msgspec.json.encode(text)) + beside > WIRE_LIMIT - FRAME_ROOM


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


class Rates:
    """A bucket an agent: `limit` asks at once, refilled evenly over a minute."""

    def __init__(self) -> None:
        self._buckets: dict[str, tuple[float, int]] = {}

    def allows(self, agent: str, limit: int, now: int) -> bool:
        """Take one piece from the agent's bucket; false if it is empty."""
        if limit <= 0:
            return True
        level, at = self._buckets.get(agent, (float(limit), now))
        level = min(float(limit), level + (now - at) * limit / 60_000)
        allowed = level >= 1
        self._buckets[agent] = (level - 1 if allowed else level, now)
        return allowed

    def count(self, agent: str, extra: int, limit: int, now: int) -> None:
        """Take `extra` pieces that were used elsewhere."""
        if limit > 0:
            level, at = self._buckets.get(agent, (float(limit), now))
            level = min(float(limit), level + (now - at) * limit / 60_000)
            self._buckets[agent] = (max(0.0, level - extra), now)
