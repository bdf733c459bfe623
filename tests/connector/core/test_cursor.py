"""Cursors: padded comparison, no overtaking during a backfill, pages that lose nothing.

Planted mutants that these tests kill (each was seen to fail): a cursor that passes a gap while it is
read; timestamps that are compared as they stand.
"""

import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_bridge.connector.core.cursor import (
    Cursors,
    a_second_before,
    later,
    newest,
    next_page,
    padded,
    stamp,
)


@pytest.mark.clause("relay.cursor.1")
def test_timestamps_compare_whatever_their_precision() -> None:
    assert later("2026-01-01T10:00:05.700Z", "2026-01-01T10:00:05Z")
    assert later("2026-01-01T10:00:05.7000001Z", "2026-01-01T10:00:05.7Z")
    assert not later("2026-01-01T10:00:05.70Z", "2026-01-01T10:00:05.7Z")
    assert later("2026-01-01T10:00:05Z", "")
    assert not later("", "")
    assert padded("2026-01-01T10:00:05+01:00") == "2026-01-01T10:00:05+01:00"
    assert newest(["2026-01-01T10:00:05Z", "2026-01-01T10:00:05.7Z"]).endswith(".7Z")


@given(
    one=st.integers(0, 10**6),
    other=st.integers(0, 10**6),
    digits=st.tuples(st.integers(0, 9), st.integers(0, 9)),
)
def test_comparing_is_comparing_the_padded_forms(
    one: int, other: int, digits: tuple[int, int]
) -> None:
    def at(value: int, count: int) -> str:
        second, fraction = divmod(value, 1000)
        tail = f".{fraction:09d}"[: count + 1] if count else ""
        return f"2026-01-01T10:{second // 60 % 60:02d}:{second % 60:02d}{tail}Z"

    first, second = at(one, digits[0]), at(other, digits[1])
    assert later(first, second) is (padded(first) > padded(second))


def test_a_second_is_taken_off_any_precision() -> None:
    assert a_second_before("2026-01-01T10:00:05.25Z") == "2026-01-01T10:00:04.250Z"
    assert a_second_before("soon") == "soon"
    assert stamp(0) == "1970-01-01T00:00:00.000Z"


@pytest.mark.clause("relay.cursor.2")
def test_a_live_message_does_not_carry_the_cursor_over_a_gap() -> None:
    cursors = Cursors({"room": "2026-01-01T10:00:00Z"})
    cursors.begin("room")
    cursors.planned("room", "2026-01-01T12:00:00Z")
    assert cursors.get("room") == "2026-01-01T10:00:00Z"
    cursors.filled("room", "2026-01-01T10:30:00Z")
    assert cursors.take_dirty() == {"room": "2026-01-01T10:30:00Z"}
    cursors.complete("room")
    assert cursors.take_dirty() == {"room": "2026-01-01T12:00:00Z"}
    assert cursors.take_dirty() == {}


def test_a_cursor_never_goes_back() -> None:
    cursors = Cursors({"room": "2026-01-01T10:00:00Z"})
    cursors.planned("room", "2026-01-01T09:00:00Z")
    assert cursors.get("room") == "2026-01-01T10:00:00Z"


@pytest.mark.clause("relay.cursor.3")
@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=40),
    page=st.integers(5, 9),
)
def test_paging_reads_every_message_even_when_many_share_a_timestamp(
    counts: list[int], page: int
) -> None:
    rows = [
        (stamp(1_000 + second * 1000), f"m{second}.{number}")
        for second, count in enumerate(counts)
        for number in range(count)
    ]
    found: set[str] = set()
    after = stamp(0)
    for _ in range(200):
        answer = [row for row in rows if later(row[0], after)][:page]
        found |= {name for _, name in answer}
        after = next_page(after, [at for at, _ in answer]) if len(answer) >= page else ""
        if not after:
            break
    assert found == {name for _, name in rows}


class CursorMachine(RuleBasedStateMachine):
    """A cursor never passes a message that was neither planned live nor read."""

    def __init__(self) -> None:
        super().__init__()
        self.cursors = Cursors({"c": stamp(0)})
        self.time = 0
        self.unread: list[int] = []
        self.filling = False

    @rule(seen=st.booleans())
    def message(self, seen: bool) -> None:
        self.time += 1
        if seen and (self.filling or not self.unread):
            self.cursors.planned("c", stamp(self.time))
        else:
            self.cursors.begin("c")
            self.filling = True
            self.unread.append(self.time)

    @rule()
    def read_one(self) -> None:
        if self.unread:
            self.cursors.filled("c", stamp(self.unread.pop(0)))

    @rule()
    def caught_up(self) -> None:
        if self.filling and not self.unread:
            self.cursors.complete("c")
            self.filling = False
            assert not self.cursors.filling("c")

    @invariant()
    def no_unread_message_is_passed(self) -> None:
        if self.unread:
            assert later(stamp(self.unread[0]), self.cursors.get("c"))


TestCursorMachine = CursorMachine.TestCase
