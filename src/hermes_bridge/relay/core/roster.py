"""Who the agents are, who has a link, and since when not.

A link has a generation. Whatever an older link still says (its close, a late frame) names its own
generation and cannot unseat the newer one (spec: supersede; the seed's fault 4.1).
"""

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A configured participant. `may_ask` None = everybody; limits None = the relay's."""

    name: str
    description: str = ""
    may_ask: frozenset[str] | None = None
    hold_ms: int | None = None
    rate_per_minute: int | None = None
    max_pending: int | None = None


class Link(msgspec.Struct, gc=False):
    """An agent's bridge connection. `ready` turns true when wakes may be sent on it."""

    generation: int
    since: int
    protocol: int = 1
    client: str = ""
    ready: bool = False

    @property
    def acks(self) -> bool:
        """Whether the bot acknowledges wakes (version 2)."""
        return self.protocol >= 2


class Span(msgspec.Struct, gc=False):
    """One connection of an agent's past or present; `until` 0 = it lasts."""

    since: int
    until: int = 0
    protocol: int = 1
    client: str = ""
    superseded: bool = False


class Presence(StrEnum):
    """What can be said of an agent's link."""

    ONLINE = "online"
    RECONNECTING = "reconnecting"
    OFFLINE = "offline"


class Seen(msgspec.Struct, gc=False):
    """What is remembered of an agent across links and restarts."""

    last_seen: int = 0
    lost_at: int = 0
    """When the last link was lost; 0 = there is one, or there never was."""
    description: str = ""
    skills: tuple[str, ...] = ()


_KEEP_SPANS = 20


class Roster:
    """The sole writer of who is configured, linked, and when last seen."""

    def __init__(self, agents: Iterable[Agent] = ()) -> None:
        self._agents: dict[str, Agent] = {agent.name: agent for agent in agents}
        self._links: dict[str, Link] = {}
        self._seen: dict[str, Seen] = {}
        self._spans: dict[str, list[Span]] = {}
        self._generation = 0

    def __contains__(self, name: str) -> bool:
        return name in self._agents

    def agents(self) -> list[Agent]:
        """Give all agents in the order of the configuration."""
        return list(self._agents.values())

    def agent(self, name: str) -> Agent | None:
        """Give the agent of that name."""
        return self._agents.get(name)

    def names(self) -> list[str]:
        """Give all names in the order of the configuration."""
        return list(self._agents)

    def link(self, name: str) -> Link | None:
        """Give the agent's present link."""
        return self._links.get(name)

    def seen(self, name: str) -> Seen:
        """Give what is remembered of an agent (empty for one that never came)."""
        return self._seen.get(name) or Seen()

    def spans(self, name: str) -> list[Span]:
        """Give the agent's last connections since the process began, oldest first."""
        return list(self._spans.get(name, ()))

    def online(self) -> int:
        """Count the agents that have a link."""
        return len(self._links)

    def presence(self, name: str, now: int, grace: int) -> Presence:
        """Say whether the agent is linked, lost its link within `grace` ms, or is away."""
        if name in self._links:
            return Presence.ONLINE
        lost = self.seen(name).lost_at
        return Presence.RECONNECTING if lost and now - lost < grace else Presence.OFFLINE

    def link_up(self, name: str, now: int) -> tuple[Link, Link | None]:
        """Seat a new link; give it and the one it supersedes."""
        self._generation += 1
        old = self._links.get(name)
        link = Link(generation=self._generation, since=now)
        self._links[name] = link
        seen = self._seen.setdefault(name, Seen())
        seen.last_seen, seen.lost_at = now, 0
        spans = self._spans.setdefault(name, [])
        if old is not None and spans:
            spans[-1].until, spans[-1].superseded = now, True
        spans.append(Span(now))
        del spans[:-_KEEP_SPANS]
        return link, old

    def is_current(self, name: str, generation: int) -> bool:
        """Whether that link still has the seat."""
        link = self._links.get(name)
        return link is not None and link.generation == generation

    def greet(
        self,
        name: str,
        generation: int,
        *,
        protocol: int,
        client: str = "",
        description: str = "",
        skills: tuple[str, ...] = (),
    ) -> bool:
        """Take a `hello`; false if that link has lost the seat."""
        link = self._links.get(name)
        if link is None or link.generation != generation:
            return False
        link.protocol, link.client, link.ready = protocol, client, True
        self._spans[name][-1].protocol, self._spans[name][-1].client = protocol, client
        seen = self._seen[name]
        seen.description, seen.skills = description, skills
        return True

    def heard(self, name: str, now: int) -> None:
        """Note a sign of life of the agent itself."""
        seen = self._seen.get(name)
        if seen is not None:
            seen.last_seen = now

    def link_down(self, name: str, generation: int, now: int) -> bool:
        """Unseat a link; false (and no change) if a newer one has the seat."""
        if not self.is_current(name, generation):
            return False
        del self._links[name]
        seen = self._seen[name]
        seen.last_seen, seen.lost_at = now, now
        self._spans[name][-1].until = now
        return True

    def restore(self, name: str, *, last_seen: int, linked: bool, now: int) -> None:
        """After a restart: an agent that was linked counts as lost just now, so it has its grace."""
        if name not in self._links:
            self._seen[name] = Seen(last_seen=last_seen, lost_at=now if linked else 0)

    def replace(self, agents: Iterable[Agent]) -> list[str]:
        """Take a new list of agents; give the names that are gone (their links must be closed)."""
        fresh = {agent.name: agent for agent in agents}
        gone = [name for name in self._agents if name not in fresh]
        self._agents = fresh
        return gone
