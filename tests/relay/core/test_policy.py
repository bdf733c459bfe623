import pytest
from hypothesis import given, strategies as st

from hermes_bridge.relay.core.policy import WIRE_LIMIT, Rates, may_ask, text_fault, too_large
from hermes_bridge.relay.core.roster import Agent

NOW = 1_800_000_000_000


@pytest.mark.clause("bridge.ask.1")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("hello", None),
        ("héllo ☃ 🎉", None),
        ("", "blank"),
        (" \n\t", "blank"),
        ("a\0b", "it holds a NUL character or half of a surrogate pair"),
        ("é\0", "it holds a NUL character or half of a surrogate pair"),
        ("\ud800", "it holds half of a surrogate pair"),
    ],
)
def test_what_cannot_be_stored_is_named(text: str, fault: str | None) -> None:
    assert text_fault(text) == fault


@pytest.mark.clause("bridge.ask.1")
@pytest.mark.parametrize(
    ("text", "limit", "large"),
    [
        ("x" * 100, 100, False),
        ("x" * 101, 100, True),
        ("é" * 50, 100, False),
        ("é" * 51, 100, True),
        ("\x01" * 170_000, WIRE_LIMIT, False),
        ("\x01" * 180_000, WIRE_LIMIT, True),
        ("x" * 180_000, WIRE_LIMIT, False),
    ],
)
def test_size_counts_bytes_and_what_escaping_makes_of_them(
    text: str, limit: int, large: bool
) -> None:
    assert too_large(text, limit) is large


@given(st.text(max_size=200), st.integers(1, 300))
def test_the_quick_check_of_size_never_lets_a_large_text_in(text: str, limit: int) -> None:
    encoded = text.encode("utf-8", "surrogatepass")
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert too_large(text, limit) is (len(encoded) > limit)


def test_no_list_means_everybody() -> None:
    assert may_ask(Agent(name="a"), "b")
    assert may_ask(Agent(name="a", may_ask=frozenset({"b"})), "b")
    assert not may_ask(Agent(name="a", may_ask=frozenset()), "b")


@pytest.mark.clause("bridge.ask.6")
def test_a_rate_refills_evenly_over_a_minute() -> None:
    rates = Rates()
    assert [rates.allows("a", 2, NOW) for _ in range(3)] == [True, True, False]
    assert not rates.allows("a", 2, NOW + 29_999)
    assert rates.allows("a", 2, NOW + 60_000)
    assert rates.allows("b", 2, NOW)


def test_no_rate_is_no_limit() -> None:
    rates = Rates()
    assert all(rates.allows("a", 0, NOW) for _ in range(100))


def test_uses_counted_elsewhere_are_taken_from_the_bucket() -> None:
    rates = Rates()
    rates.count("a", 2, 2, NOW)
    assert not rates.allows("a", 2, NOW)
    rates.count("a", 5, 0, NOW)
