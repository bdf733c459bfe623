"""Which agent a bearer token belongs to. Only digests are kept; look-ups do not depend on secrets.

A token is hashed before it is looked up, so the time a look-up takes says nothing about any token
that is configured.
"""

from collections.abc import Iterable, Mapping

from hermes_bridge.ids import digest

_LONGEST = 4096


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

    def agent(self, header: bytes | None) -> str | None:
        """Give the agent that an `Authorization` header speaks for, or None."""
        token = bearer(header)
        return None if token is None else self._digests.get(digest(token))

    def revoked_since(self, older: "Tokens") -> Iterable[bytes]:
        """Give the digests that `older` knew for an agent and this one does not."""
        return [d for d, name in older._digests.items() if self._digests.get(d) != name]

    def digest_of(self, header: bytes | None) -> bytes | None:
        """Give the digest that a link is remembered by, to be closed when it is revoked."""
        token = bearer(header)
        return digest(token) if token is not None else None
