"""Which agent a bearer token belongs to. Only digests are kept; look-ups do not depend on secrets.

A token is hashed before it is looked up, so the time a look-up takes says nothing about any token
that is configured. Headers that were good are remembered: to meet one of them a guess must have
its whole hash, which a secret of the process keys, before a byte is compared.
"""

from collections.abc import Iterable, Mapping

from hermes_bridge.ids import digest

_LONGEST = 4096
_REMEMBERED = 4_096


def bearer(header: bytes | None) -> bytes | None:
    """Give the token of an `Authorization` header: scheme in any case, any number of blanks."""
    if header is None or len(header) > _LONGEST or header[:7].lower() != b"bearer ":
        return None
    return header[7:].strip() or None


class Tokens:
    """The tokens of all agents, as digests; replaced whole on reload."""

    def __init__(self, digests: Mapping[bytes, str]) -> None:
        """`digests` maps the SHA-256 of each token to the agent's name."""
        self._digests = dict(digests)
        self._good: dict[bytes, str] = {}

    def agent(self, header: bytes | None) -> str | None:
        """Give the agent that an `Authorization` header speaks for, or None."""
        known = self._good.get(header) if header is not None else None
        if known is not None:
            return known
        token = bearer(header)
        agent = self._digests.get(digest(token)) if token is not None else None
        if header is not None and agent is not None and len(self._good) < _REMEMBERED:
            self._good[header] = agent
        return agent

    def revoked_since(self, older: "Tokens") -> Iterable[bytes]:
        """Give the digests that `older` knew for an agent and this one does not."""
        return [d for d, name in older._digests.items() if self._digests.get(d) != name]
