"""How many calls at once a receiver gets: more while it keeps up, fewer when it does not."""

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.plugins.http_callback.pace import FEWEST, MOST, Pace


def answers(pace: Pace, count: int, ms: int, *, wanted: bool = True, crowded: bool = False) -> None:
    for _ in range(count):
        pace.answered(ms, wanted=wanted, crowded=crowded)


@pytest.mark.clause("callback.pace.1")
def test_a_receiver_that_keeps_up_is_given_more_calls_up_to_the_most() -> None:
    pace = Pace(FEWEST, MOST)
    answers(pace, 1000, 50)
    assert pace.calls == MOST


def test_calls_that_nobody_needs_are_not_added() -> None:
    pace = Pace(FEWEST, MOST)
    answers(pace, 1000, 50, wanted=False)
    assert pace.calls == FEWEST


@pytest.mark.clause("callback.pace.2")
def test_a_receiver_that_becomes_slower_is_given_fewer_calls_but_never_under_four() -> None:
    pace = Pace(FEWEST, MOST)
    answers(pace, 20, 50)
    grown = pace.calls
    answers(pace, 5, 400)
    assert FEWEST < pace.calls < grown
    answers(pace, 60, 400)
    assert pace.calls == FEWEST


@pytest.mark.clause("callback.pace.2")
def test_a_failure_halves_and_others_take_the_room_back() -> None:
    pace = Pace(FEWEST, MOST)
    answers(pace, 100, 50)
    pace.failed()
    assert pace.calls == MOST // 2
    answers(pace, 100, 50, crowded=True)
    assert pace.calls == FEWEST


def test_a_receiver_that_is_slower_for_good_is_measured_by_its_new_time() -> None:
    pace = Pace(FEWEST, MOST)
    answers(pace, 10, 20)
    answers(pace, 2_000, 200)
    assert pace.calls == MOST


@pytest.mark.clause("callback.pace.3")
@given(st.lists(st.one_of(st.none(), st.integers(0, 30_000)), max_size=60))
def test_a_fixed_number_of_calls_stays(times: list[int | None]) -> None:
    pace = Pace(7)
    for ms in times:
        if ms is None:
            pace.failed()
        else:
            answers(pace, 1, ms)
        assert pace.calls == 7
