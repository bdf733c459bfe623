"""The mention grammar: which identities a text calls by name.

    mention := (start | a char that is not letter, digit, "_", "@", "-") "@" called
    called  := id, not followed by letter, digit, "_", "(", "-"
             | name "(" id ")"        name: no space, no "@", "(", ")"

Case matters. After `name(id)` anything may follow; after a bare id it may not: people write
`@Forge(agent-a)s`, but `@agent-ab` is somebody else. Source: the seed's connector.
"""

import re
from collections.abc import Iterable

_NAMED = re.compile(r"[^\s\ufeff@()]+\(")


class Mentions:
    """Finds the ids of one table in texts. Cost grows with the text, not with the table."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._ids = frozenset(ids)
        self._lengths = sorted({len(each) for each in self._ids}, reverse=True)

    def called(self, text: str) -> frozenset[str]:
        """Give the ids that `text` mentions."""
        found: set[str] = set()
        at = text.find("@")
        while at >= 0:
            if at == 0 or not _joins(text[at - 1], "_@-"):
                self._at(text, at + 1, found)
            at = text.find("@", at + 1)
        return frozenset(found)

    def _at(self, text: str, start: int, found: set[str]) -> None:
        named = _NAMED.match(text, start)
        inner = named.end() if named else -1
        for length in self._lengths:
            bare = text[start : start + length]
            if bare in self._ids:
                after = text[start + length : start + length + 1]
                if not after or not _joins(after, "_(-"):
                    found.add(bare)
            if inner >= 0:
                inside = text[inner : inner + length]
                if inside in self._ids and text[inner + length : inner + length + 1] == ")":
                    found.add(inside)


def _joins(char: str, others: str) -> bool:
    return char.isalnum() or char in others
