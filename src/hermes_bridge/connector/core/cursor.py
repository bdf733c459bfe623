"""Cursors: how far each channel was read, and what may be asked for again.

Timestamps are the platform's strings. They are compared in padded form, because `10:00:05Z` and
`10:00:05.700Z` do not compare as text. A cursor passes a message only when that message was
planned (it is in the inbox, or dropped for a named reason), never because a newer one came by.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from hermes_bridge.connector.core.message import Message

PAGE = 100
_DIGITS = 9


def padded(at: str, digit: str = "0") -> str:
    """Give a timestamp in the form that compares: nine fraction digits before the `Z`."""
    if not at.endswith("Z"):
        return at
    whole, dot, fraction = at[:-1].partition(".")
    if not dot:
        return f"{whole}.{digit * _DIGITS}Z"
    return f"{whole}.{fraction.ljust(_DIGITS, digit)}Z"


def later(one: str, other: str) -> bool:
    """Whether `one` is strictly after `other`; anything is after nothing."""
    if len(one) == len(other) and one.endswith("Z") and other.endswith("Z"):
        return one > other  # the same precision: as they stand
    return padded(one) > padded(other) if other else bool(one)


def newest(stamps: Iterable[str]) -> str:
    """Give the greatest of several timestamps, or an empty text."""
    return max(stamps, key=padded, default="")


def moment(at: str) -> datetime | None:
    """Read a timestamp; None when it is none."""
    try:
        found = datetime.fromisoformat(at)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def stamp(unix_ms: int) -> str:
    """Give a timestamp in the platform's form, of unix milliseconds."""
    found = datetime.fromtimestamp(unix_ms / 1000, UTC)
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond // 1000:03d}Z"


def a_second_before(at: str) -> str:
    """Give a timestamp one second earlier: what a platform that compares raw text is asked for."""
    found = moment(at)
    if found is None:
        return at
    return stamp(int((found - timedelta(seconds=1)).timestamp() * 1000))


def in_order(messages: Iterable[Message]) -> list[Message]:
    """Give messages oldest first."""
    return sorted(messages, key=lambda each: padded(each.at))


class Cursors:
    """The cursors of one identity."""

    def __init__(self, marks: Mapping[str, str] | None = None) -> None:
        self.marks: dict[str, str] = dict(marks or {})
        self._filling: dict[str, str] = {}
        self._dirty: set[str] = set()

    def get(self, channel: str) -> str:
        """Give how far a channel was read; empty: never."""
        return self.marks.get(channel, "")

    def planned(self, channel: str, at: str) -> None:
        """A live message was planned. While the channel is being backfilled this is only noted."""
        if channel in self._filling:
            self._filling[channel] = newest((self._filling[channel], at))
        else:
            self._move(channel, at)

    def begin(self, channel: str) -> None:
        """A backfill of a channel starts: older messages are still to come."""
        self._filling.setdefault(channel, "")

    def filled(self, channel: str, at: str) -> None:
        """A backfilled message was planned; they come in order."""
        self._move(channel, at)

    def complete(self, channel: str) -> None:
        """A backfill reached the end: what came by meanwhile counts now."""
        self._move(channel, self._filling.pop(channel, ""))

    def filling(self, channel: str) -> bool:
        """Whether a backfill of the channel is under way."""
        return channel in self._filling

    def take_dirty(self) -> dict[str, str]:
        """Give the cursors that moved since the last call."""
        moved = {channel: self.marks[channel] for channel in self._dirty}
        self._dirty.clear()
        return moved

    def _move(self, channel: str, at: str) -> None:
        if at and later(at, self.marks.get(channel, "")):
            self.marks[channel] = at
            self._dirty.add(channel)


def next_page(after: str, stamps: Iterable[str]) -> str:
    """Give the `after` of the next page of a backfill, or an empty text when it cannot move on.

    The newest timestamp of a full page may be shared by messages of the next one, so the next
    page starts before it and the ids tell what is new; only when a page holds a single timestamp
    does the next start behind it.
    """
    distinct = sorted({padded(each): each for each in stamps}.items())
    if not distinct:
        return ""
    step = distinct[-2][1] if len(distinct) > 1 else distinct[-1][1]
    if later(step, after):
        return step
    return distinct[-1][1] if later(distinct[-1][1], after) else ""
