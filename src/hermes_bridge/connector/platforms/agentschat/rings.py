"""The last messages of channels that are listened to, so that a mention needs no call.

A channel's ring is trusted from a reading of its history on, for as long as at least one account
that listens to it has never lost its socket: then every later message came by here. When the
last listener goes, the ring goes with it.
"""

from collections import OrderedDict, deque

import msgspec

from hermes_bridge.connector.core.message import Message

_KEEP = 50
_KEEP_TEXT = 600
_MAX_CHANNELS = 1000


class Rings:
    """The rings of one server."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[str]] = {}
        self._rings: OrderedDict[str, deque[Message]] = OrderedDict()

    def listening(self, bot_id: str, channel: str) -> None:
        """An account listens to a channel now."""
        self._listeners.setdefault(channel, set()).add(bot_id)

    def lost(self, bot_id: str) -> None:
        """An account's socket is gone."""
        for channel, bots in list(self._listeners.items()):
            bots.discard(bot_id)
            if not bots:
                del self._listeners[channel]
                self._rings.pop(channel, None)

    def heard(self, message: Message) -> None:
        """A message came by."""
        ring = self._rings.get(message.channel)
        if ring is not None and not any(each.id == message.id for each in reversed(ring)):
            ring.append(_short(message))

    def edited(self, channel: str, message_id: str, text: str) -> None:
        """A message was changed."""
        ring = self._rings.get(channel, deque())
        for place, each in enumerate(ring):
            if each.id == message_id:
                ring[place] = _short(msgspec.structs.replace(each, text=text))

    def deleted(self, channel: str, message_id: str) -> None:
        """A message was taken back."""
        ring = self._rings.get(channel)
        if ring is not None:
            for each in [each for each in ring if each.id == message_id]:
                ring.remove(each)

    def read(self, bot_id: str, channel: str) -> list[Message] | None:
        """Give the last messages, to an account that listens; None: they must be asked for."""
        if bot_id not in self._listeners.get(channel, ()):
            return None
        ring = self._rings.get(channel)
        if ring is None:
            return None
        self._rings.move_to_end(channel)
        return list(ring)

    def begin(self, bot_id: str, channel: str) -> bool:
        """A reading of the history begins; from now on what comes by is collected."""
        if bot_id not in self._listeners.get(channel, ()) or channel in self._rings:
            return False
        self._rings[channel] = deque(maxlen=_KEEP)
        if len(self._rings) > _MAX_CHANNELS:
            self._rings.popitem(last=False)
        return True

    def fill(self, channel: str, rows: list[Message] | None) -> None:
        """The reading ended: what it gave goes before what came by. None: it failed."""
        ring = self._rings.get(channel)
        if ring is None:
            return
        if rows is None:
            del self._rings[channel]
            return
        known = {row.id for row in rows}
        later = [each for each in ring if each.id not in known]
        ring.clear()
        ring.extend([_short(row) for row in rows] + later)


def _short(message: Message) -> Message:
    if len(message.text) <= _KEEP_TEXT:
        return message
    return msgspec.structs.replace(message, text=message.text[:_KEEP_TEXT])
