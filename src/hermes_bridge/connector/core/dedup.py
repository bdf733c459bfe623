"""Which messages were taken already: bounded by count and by age.

The durable half is the store, whose rows outlive their delivery; this is what it is loaded into.
"""

import hashlib
from collections import OrderedDict

DAY_MS = 24 * 3600 * 1000
CONTENT_MS = 60_000


class Seen:
    """A set that forgets its oldest keys. Times are unix milliseconds."""

    def __init__(self, *, keep: int = 50_000, age_ms: int = 7 * DAY_MS) -> None:
        self._keep, self._age = keep, age_ms
        self._until: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def take(self, key: str, now: int, *, age_ms: int | None = None) -> bool:
        """Reserve a key: True the first time, False while it is remembered."""
        until = self._until.get(key)
        if until is not None and until > now:
            return False
        self._until[key] = now + (self._age if age_ms is None else age_ms)
        self._until.move_to_end(key)
        while len(self._until) > self._keep:
            self._until.popitem(last=False)
        return True

    def clear(self) -> None:
        """Forget all keys."""
        self._until.clear()


def delivery_key(bot_id: str, channel: str, message_id: str) -> str:
    """Name one delivery. No part can be mistaken for another's: lengths are written out."""
    return f"{len(channel)}.{len(message_id)}:{channel}{message_id}{bot_id}"


def content_id(sender: str, at: str, text: str) -> str:
    """Give a stand-in for the id of a message that has none; it holds for a minute."""
    seed = f"{len(sender)}:{sender}{len(at)}:{at}{text}"
    return "~" + hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:32]
