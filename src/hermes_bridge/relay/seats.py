"""The live end of each agent's link: what the relay writes to."""

from collections.abc import Iterator
from typing import Protocol

from hermes_bridge.relay.core.exchange import Exchange


class LinkPort(Protocol):
    """What the relay may do with an agent's connection. Neither call waits or raises."""

    def send(self, frame: bytes) -> None:
        """Queue one frame; a link that cannot keep up is closed by its door."""
        ...

    def wake(self, exchange: Exchange) -> None:
        """Queue one wake; it is spelt when the bot can read it."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Close the connection."""
        ...


class Seats:
    """One port an agent. Who may have the seat is the roster's question."""

    def __init__(self) -> None:
        self._ports: dict[str, tuple[int, LinkPort]] = {}

    def take(self, agent: str, generation: int, port: LinkPort) -> LinkPort | None:
        """Seat a port; give the older one that had the seat."""
        older = self._ports.get(agent)
        self._ports[agent] = (generation, port)
        return older[1] if older is not None else None

    def leave(self, agent: str) -> None:
        """The seat is empty."""
        self._ports.pop(agent, None)

    def port(self, agent: str) -> LinkPort | None:
        """Give the port in the seat."""
        seated = self._ports.get(agent)
        return seated[1] if seated is not None else None

    def of(self, agent: str, generation: int) -> LinkPort | None:
        """Give the port in the seat if it is that generation's."""
        seated = self._ports.get(agent)
        return seated[1] if seated is not None and seated[0] == generation else None

    def __iter__(self) -> Iterator[LinkPort]:
        return iter([port for _, port in self._ports.values()])
