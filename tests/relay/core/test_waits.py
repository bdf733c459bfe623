import pytest
from hypothesis import given, strategies as st

from hermes_bridge.relay.core.waits import WaitGraph

EDGES = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), max_size=8)


def graph(*edges: tuple[str, str]) -> WaitGraph:
    g = WaitGraph()
    for number, (asker, target) in enumerate(edges):
        g.add(f"r{number}", asker, target, f"conv{number}", source=asker)
    return g


def _reaches(edges: list[tuple[str, str]], start: str, goal: str) -> bool:
    reached, front = {start}, [start]
    while front:
        front = [t for a, t in edges if a in front and t not in reached]
        reached.update(front)
    return goal in reached


@given(EDGES, st.sampled_from("abcde"), st.sampled_from("abcde"))
def test_a_ring_is_found_exactly_when_the_target_waits_for_the_asker(
    edges: list[tuple[str, str]], asker: str, target: str
) -> None:
    ring = graph(*edges).ring(asker, target)
    assert (ring is not None) == _reaches(edges, target, asker)
    if ring is not None and asker != target:
        assert ring[:2] == (asker, target)
        assert all(pair in edges for pair in zip(ring[1:], (*ring[2:], asker), strict=True))


@pytest.mark.clause("bridge.ring.1")
def test_asking_oneself_is_a_ring_of_one() -> None:
    assert graph().ring("a", "a") == ("a",)


def test_the_shortest_ring_is_given() -> None:
    g = graph(("b", "c"), ("c", "a"), ("b", "a"))
    assert g.ring("a", "b") == ("a", "b")


def test_a_dropped_edge_is_gone_and_dropping_twice_is_fine() -> None:
    g = graph(("b", "a"))
    g.drop("r0")
    g.drop("r0")
    g.drop("never")
    assert g.ring("a", "b") is None and len(g) == 0


def test_the_edges_of_one_source_can_be_dropped_together() -> None:
    g = graph(("a", "b"), ("b", "c"), ("a", "c"))
    g.drop_source("a")
    assert len(g) == 1 and g.ring("c", "b") == ("c", "b")


def test_an_edge_added_twice_counts_once() -> None:
    g = graph(("a", "b"))
    g.add("r0", "a", "b", "conv0")
    g.drop("r0")
    assert len(g) == 0


def test_it_knows_who_waits_in_which_conversation() -> None:
    g = graph(("a", "b"))
    assert (
        g.waits_in("a", "conv0") and not g.waits_in("a", "other") and not g.waits_in("b", "conv0")
    )
