"""What of a stranger's words may reach an agent, and what of an agent's words may leave it.

Hermes runs a text that begins with `/` as a command and takes a bare "yes" for the answer to a
pending approval. Only an agent's owner may do either. Secrets are masked in both directions.
"""

import re
from collections.abc import Iterable, Set
from functools import lru_cache

MASK = "[secret removed]"
_PLATFORM_KEY = re.compile(r"ac_[A-Za-z0-9_-]{16,}")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}")
_SHORTEST_SECRET = 8
_REMEMBERED = 8192

_YES = "approve|approved|yes|y|ok|okay|confirm|allow|always|once|session|remember|approve all"
_YES_LONG = "approve once|approve always|always approve|approve session|session approve"
_NO = "deny|no|n|reject|cancel|nevermind|\N{THUMBS UP SIGN}|\N{THUMBS DOWN SIGN}"
_ANSWERS = frozenset("|".join((_YES, _YES_LONG, _NO)).split("|"))
_COMMAND_ANSWER = re.compile(r"[/!]approve\b.*[/!]deny\b", re.DOTALL)
_APPROVAL_HEAD = re.compile(
    r"requires? (?:your )?approval\b|owner override for one operation", re.IGNORECASE
)
ZERO_WIDTH = "\u200b"
WITHHELD = "(This step needs my owner's approval, so I have stopped here.)"


class Redactor:
    """Masks platform keys, JWTs and every configured secret."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known = _Needles({each for each in secrets if len(each) >= _SHORTEST_SECRET})
        # One message goes to many bots, and into the context of many more.
        self._remembered = lru_cache(maxsize=128)(self._masked)

    def clean(self, text: str) -> str:
        """Give `text` without secrets."""
        return self._remembered(text) if len(text) <= _REMEMBERED else self._masked(text)

    def _masked(self, text: str) -> str:
        if "ac_" in text:
            text = _PLATFORM_KEY.sub(MASK, text)
        if "eyJ" in text:
            text = _JWT.sub(MASK, text)
        for secret in self._known.within(text):
            text = text.replace(secret, MASK)
        return text


class _Needles:
    """Finds which of many words a text holds, without trying each: there are two secrets a bot.

    A word is at least `step + span - 1` long: wherever it stands in a text, one of the text's
    pieces of `span` characters, taken every `step`, lies within its head. Only then every place
    of the text is compared with all heads.
    """

    def __init__(self, words: Set[str]) -> None:
        self._size = size = min(map(len, words), default=_SHORTEST_SECRET)
        self._span = (size + 1) // 2
        self._step = size - self._span + 1
        self._heads: dict[str, list[str]] = {}
        for word in words:
            self._heads.setdefault(word[:size], []).append(word)
        self._pieces = {
            head[at : at + self._span] for head in self._heads for at in range(self._step)
        }

    def within(self, text: str) -> list[str]:
        """Give the words that `text` holds, the longest first."""
        size, span = self._size, self._span
        places = range(0, len(text) - span + 1, self._step)
        if self._pieces.isdisjoint([text[at : at + span] for at in places]):
            return []
        places = range(len(text) - size + 1)
        heads = self._heads.keys() & {text[at : at + size] for at in places}
        found = [word for head in heads for word in self._heads[head] if word in text]
        return sorted(found, key=len, reverse=True)


def harmless(text: str, *, author: str, owner: bool, has_owners: bool) -> str:
    """Give the words of `author` in a form that Hermes reads as words, whoever wrote them.

    An owner's words pass as they are. Anybody else's command gets an invisible first character;
    with owners configured, anybody else's bare "yes" is quoted.
    """
    if owner:
        return text
    bare = text.strip()
    if has_owners and is_answer(bare):
        return f'{author} (not your owner) says: "{bare}"'
    if bare.startswith("/"):
        return ZERO_WIDTH + text
    return text


def is_answer(text: str) -> bool:
    """Whether a text alone would answer a pending approval of either Hermes generation."""
    words = text.strip().lstrip("!/").rstrip(".!?,;: ").casefold()
    return " ".join(words.split()) in _ANSWERS


def is_stop(text: str) -> bool:
    """Whether a text is the command that stops a running turn."""
    return text.strip().split(maxsplit=1)[:1] == ["/stop"]


def is_approval_prompt(text: str) -> bool:
    """Whether an agent's text asks for the approval of a command."""
    return bool(_APPROVAL_HEAD.search(text) and _COMMAND_ANSWER.search(text))
