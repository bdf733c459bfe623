"""What the receiver's answer means: delivered, again later, dead, gone, or blocked.

Pure. The status line decides; a body that cannot be read changes nothing.
"""

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

DEFAULT_SCHEDULE = (0, 2, 10, 60, 300, 1800, 7200, 21600, 43200)
CAPTAIN_SCHEDULE = (0, 2, 10, 30, 120, 300)
DEFAULT_MAX_AGE, CAPTAIN_MAX_AGE = 3 * 86400, 15 * 60
RETRY_AFTER_CAP = 3600
SHORT_TRIES = 3
JITTER = 0.2

_DEAD_AT_ONCE = frozenset({400, 413, 414, 415, 422})
_SHORT = frozenset({401, 403, 404, 405, 407})
_HEALTHY_REFUSALS = frozenset({408, 409, 425, 429})


class Failure(StrEnum):
    """Why there was no status line."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TLS_VERIFY = "tls-verify"
    TIMEOUT = "timeout"
    """The request was written, no answer came: the receiver may have acted on it."""
    BROKEN = "broken"
    """The connection ended before a status line: as ambiguous as a timeout."""
    BLOCKED = "blocked"
    INTERNAL = "internal"


class Outcome(StrEnum):
    """What becomes of the row."""

    DELIVERED = "delivered"
    AGAIN = "again"
    DEAD = "dead"
    GONE = "gone"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Answer:
    """What one attempt came to: a status with the headers that matter, or a failure."""

    status: int | None = None
    failure: Failure | None = None
    detail: str = ""
    retry_after: str = ""
    abort: bool = False
    location: str = ""
    head: str = ""
    ms: int = 0


@dataclass(frozen=True)
class Policy:
    """How patient an endpoint is. Times in seconds; `on_ambiguous`: "retry" or "hold"."""

    schedule: tuple[float, ...] = DEFAULT_SCHEDULE
    max_age: float = DEFAULT_MAX_AGE
    on_ambiguous: str = "retry"


@dataclass(frozen=True)
class Verdict:
    """The outcome of an attempt, with its reason in words.

    `delay_ms`: when to try again. `hold_ms`: how long the whole endpoint is left alone.
    `healthy`: what it tells the breaker (None: nothing).
    """

    outcome: Outcome
    reason: str = ""
    delay_ms: int = 0
    hold_ms: int = 0
    healthy: bool | None = None


def retry_after_ms(value: str, wall: int) -> int:
    """Read a `Retry-After` (seconds or an HTTP date) into ms, capped; 0 when there is none."""
    value = value.strip()
    if not value:
        return 0
    if value.isascii() and value.isdigit():
        seconds = float(int(value[:10]))
    else:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, TypeError, IndexError, OverflowError):
            return 0
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - wall
    return int(min(max(seconds, 0.0), RETRY_AFTER_CAP) * 1000)


def judge(answer: Answer, tries: int, policy: Policy, *, wall: int, jitter: float = 0.0) -> Verdict:
    """Say what an attempt's answer means.

    `tries` counts the attempts of this round, this one included. `wall` is the system's date in
    seconds (for dates in `Retry-After`); `jitter` lies in -1..1.
    """
    if answer.failure is not None:
        return _failed(answer, tries, policy, jitter)
    status = answer.status or 0
    if 200 <= status < 300:
        return Verdict(Outcome.DELIVERED, healthy=True)
    if answer.abort:
        return Verdict(Outcome.DEAD, "the receiver answered webhook-delivery: abort-message")
    if status == 410:
        return Verdict(Outcome.GONE, "HTTP 410: the receiver says this endpoint is gone")
    if 300 <= status < 400:
        where = f" to {answer.location}" if answer.location else ""
        return Verdict(Outcome.DEAD, f"HTTP {status}: a redirect{where} is not followed")
    if status in _DEAD_AT_ONCE:
        return Verdict(Outcome.DEAD, f"HTTP {status}: the receiver refuses this message")
    return _refused(answer, status, tries, policy, wall=wall, jitter=jitter)


def _refused(
    answer: Answer, status: int, tries: int, policy: Policy, *, wall: int, jitter: float
) -> Verdict:
    reason = f"HTTP {status}"
    wait = retry_after_ms(answer.retry_after, wall)
    hold = wait if status in (429, 503) else 0
    server_fault = 500 <= status < 600
    if status in _SHORT or not (server_fault or status in _HEALTHY_REFUSALS):
        return _again(reason, tries, policy, jitter, most=SHORT_TRIES, floor=wait)
    healthy = False if server_fault else None
    return _again(reason, tries, policy, jitter, floor=wait, hold=hold, healthy=healthy)


def _failed(answer: Answer, tries: int, policy: Policy, jitter: float) -> Verdict:
    failure = answer.failure or Failure.INTERNAL
    reason = f"{failure.value}: {answer.detail}" if answer.detail else failure.value
    if failure is Failure.BLOCKED:
        return Verdict(Outcome.REJECTED, answer.detail or reason)
    if failure is Failure.TLS_VERIFY:
        return _again(reason, tries, policy, jitter, most=SHORT_TRIES)
    if failure in (Failure.TIMEOUT, Failure.BROKEN) and policy.on_ambiguous == "hold":
        reason = f"ambiguous ({reason}): the receiver may have it; look there, then replay or drop"
        return Verdict(Outcome.DEAD, reason, healthy=False)
    healthy = None if failure is Failure.INTERNAL else False
    return _again(reason, tries, policy, jitter, healthy=healthy)


def _again(
    reason: str,
    tries: int,
    policy: Policy,
    jitter: float,
    *,
    most: int | None = None,
    floor: int = 0,
    hold: int = 0,
    healthy: bool | None = None,
) -> Verdict:
    allowed = len(policy.schedule) if most is None else min(most, len(policy.schedule))
    if tries >= allowed:
        gave_up = f"{reason}; gave up after {tries} attempt{'s' if tries != 1 else ''}"
        return Verdict(Outcome.DEAD, gave_up, hold_ms=hold, healthy=healthy)
    delay = int(policy.schedule[tries] * 1000 * (1 + JITTER * jitter))
    # No jitter below what the receiver asked for.
    return Verdict(Outcome.AGAIN, reason, max(delay, floor), hold, healthy)
