"""What of a stranger's words may reach an agent, and what of an agent's words may leave it.

Hermes runs a text that begins with `/` as a command and takes a bare "yes" for the answer to a
pending approval. Only an agent's owner may do either. Secrets are masked in both directions.
"""

import re
from collections.abc import Iterable

MASK = "[secret removed]"
_PLATFORM_KEY = re.compile(r"ac_[A-Za-z0-9_-]{16,}")
_JWT = re.compile(r"eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}")
_SHORTEST_SECRET = 8

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
        known = sorted(
            {each for each in secrets if len(each) >= _SHORTEST_SECRET}, key=len, reverse=True
        )
        rest = [re.escape(each) for each in known if not _PLATFORM_KEY.fullmatch(each)]
        self._known = re.compile("|".join(rest)) if rest else None

    def clean(self, text: str) -> str:
        """Give `text` without secrets."""
        if "ac_" in text:
            text = _PLATFORM_KEY.sub(MASK, text)
        if "eyJ" in text:
            text = _JWT.sub(MASK, text)
        return self._known.sub(MASK, text) if self._known else text


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
