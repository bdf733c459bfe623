"""The wait-for graph of held asks: who could never answer because it waits itself.

An edge exists while a call is held: asker -> target. An ask that would close a ring is looked at
by `ring`, which gives the agents on the way back from the target to the asker.
"""


class WaitGraph:
    """Edges by exchange. `source` names who reported the edge, so that one source can be dropped."""

    def __init__(self) -> None:
        self._edges: dict[str, dict[str, tuple[str, str, str]]] = {}
        """asker -> {rid: (target, conversation, source)}"""
        self._askers: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._askers)

    def add(self, rid: str, asker: str, target: str, conversation: str, source: str = "") -> None:
        """Note that `asker` waits for `target`."""
        self._askers[rid] = asker
        edges = self._edges.get(asker)
        if edges is None:
            edges = self._edges[asker] = {}
        edges[rid] = (target, conversation, source)

    def drop(self, rid: str) -> None:
        """Forget the edge of one exchange; unknown ones are fine."""
        asker = self._askers.pop(rid, None)
        if asker is not None:
            edges = self._edges[asker]
            del edges[rid]
            if not edges:
                del self._edges[asker]

    def drop_source(self, source: str) -> None:
        """Forget every edge that `source` reported."""
        for rid in [r for e in self._edges.values() for r, edge in e.items() if edge[2] == source]:
            self.drop(rid)

    def waits_in(self, agent: str, conversation: str) -> bool:
        """Whether `agent` waits for an answer in that conversation."""
        edges = self._edges.get(agent)
        return edges is not None and any(edge[1] == conversation for edge in edges.values())

    def ring(self, asker: str, target: str) -> tuple[str, ...] | None:
        """Give the ring that `asker` -> `target` would close, or None.

        The ring starts with the asker and follows the waits: `(a, b, c)` means a would wait for b,
        b waits for c, c waits for a. The shortest one is given.
        """
        if asker == target:
            return (asker,)
        if target not in self._edges:
            return None
        came_from = {target: asker}
        front = [target]
        while front:
            reached: list[str] = []
            for agent in front:
                for onward, _, _ in self._edges.get(agent, {}).values():
                    if onward == asker:
                        return _path(came_from, asker, agent)
                    if onward not in came_from:
                        came_from[onward] = agent
                        reached.append(onward)
            front = reached
        return None


def _path(came_from: dict[str, str], asker: str, last: str) -> tuple[str, ...]:
    path = [last]
    while path[-1] != asker:
        path.append(came_from[path[-1]])
    return tuple(reversed(path))
