"""Conversations: two participants, a bounded number of turns.

A conversation is known for ever (the ledger has it) but held in memory only while it is in use:
the least recently used ones are forgotten here and `load`ed again when somebody goes on with them.
"""

from collections import OrderedDict

import msgspec

HOUR = 3_600_000


class Talk(msgspec.Struct, gc=False):
    """One conversation in memory."""

    first: str
    second: str
    starts: tuple[int, ...]
    """When exchanges of the last hour began, oldest first."""
    run: int = 1
    """How many exchanges followed each other without a pause."""
    quiet_since: int = 0
    """When the last exchange ended; 0 = one is open."""

    def has(self, one: str, other: str) -> bool:
        """Whether these two are its participants."""
        return (one, other) in ((self.first, self.second), (self.second, self.first))


class Conversations:
    """The sole writer of participants and turns."""

    def __init__(self, *, keep: int = 5_000) -> None:
        self._talks: OrderedDict[str, Talk] = OrderedDict()
        self._keep = keep

    def __len__(self) -> int:
        return len(self._talks)

    def get(self, conversation: str) -> Talk | None:
        """Give a conversation that is in memory."""
        return self._talks.get(conversation)

    def load(self, conversation: str, first: str, second: str, starts: tuple[int, ...]) -> None:
        """Take a conversation from outside (the ledger): participants and its recent starts."""
        if conversation not in self._talks:
            self._put(conversation, Talk(first, second, starts, run=1))

    def over_limit(
        self, conversation: str, now: int, *, max_turns: int, max_run: int, pause: int
    ) -> bool:
        """Whether one more exchange now would be a turn too many."""
        talk = self._talks.get(conversation)
        if talk is None:
            return False
        recent = sum(1 for start in talk.starts if now - start < HOUR)
        if recent >= max_turns:
            return True
        return talk.run >= max_run and not self._paused(talk, now, pause)

    def began(self, conversation: str, asker: str, target: str, now: int, pause: int) -> None:
        """Note a new exchange."""
        talk = self._talks.get(conversation)
        if talk is None:
            self._put(conversation, Talk(asker, target, (now,)))
            return
        talk.run = 1 if self._paused(talk, now, pause) else talk.run + 1
        talk.starts = (*(start for start in talk.starts if now - start < HOUR), now)
        talk.quiet_since = 0
        self._talks.move_to_end(conversation)

    def ended(self, conversation: str, now: int) -> None:
        """Note that an exchange of it has ended."""
        talk = self._talks.get(conversation)
        if talk is not None:
            talk.quiet_since = now

    @staticmethod
    def _paused(talk: Talk, now: int, pause: int) -> bool:
        return bool(talk.quiet_since) and now - talk.quiet_since >= pause

    def _put(self, conversation: str, talk: Talk) -> None:
        self._talks[conversation] = talk
        if len(self._talks) > self._keep:
            self._talks.popitem(last=False)
