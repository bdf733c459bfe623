"""What was seen: once, bounded by count and age."""

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.connector.core.dedup import Seen, content_id, delivery_key


@pytest.mark.clause("relay.route.2")
def test_a_key_is_taken_once_until_it_is_too_old() -> None:
    seen = Seen(keep=10, age_ms=100)
    assert seen.take("k", 0)
    assert not seen.take("k", 99)
    assert seen.take("k", 100)


def test_the_oldest_keys_are_forgotten_first() -> None:
    seen = Seen(keep=2, age_ms=100)
    for key in ("a", "b", "c"):
        seen.take(key, 0)
    assert len(seen) == 2
    assert seen.take("a", 1)
    assert not seen.take("c", 1)
    seen.clear()
    assert seen.take("c", 1)


@given(one=st.tuples(*[st.text(max_size=4)] * 3), other=st.tuples(*[st.text(max_size=4)] * 3))
def test_two_deliveries_never_share_a_key(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (delivery_key(*one) == delivery_key(*other)) is (one == other)


def test_the_borders_between_the_parts_of_a_key_count() -> None:
    assert delivery_key("x", "a", "bc") != delivery_key("x", "ab", "c")
    assert delivery_key("cx", "a", "b") != delivery_key("x", "a", "bc")


def test_content_names_what_has_no_id() -> None:
    assert content_id("a", "", "x") != content_id("", "a", "x")
    assert content_id("a", "t", "x") == content_id("a", "t", "x")
