"""What the page asks of the ledger, on every store."""

from collections.abc import Callable
from math import ceil

import pytest
from hypothesis import given, strategies as st
from tests.browser.running import ended

from hermes_bridge.db.base import Database
from hermes_bridge.relay.core.exchange import MOST_MARKS, Exchange, Mark, Status
from hermes_bridge.relay.core.roster import Agent, Roster
from hermes_bridge.relay.doors.ui_tallies import Sum
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.reads import Cursor, Wanted, bucket_ms, bucket_of, letter, letter_ms
from hermes_bridge.relay.sql.rows import exchange_row

pytestmark = pytest.mark.anyio
Make = Callable[[], Database]


async def filled(make: Make, *exchanges: Exchange) -> Ledger:
    ledger = Ledger(make())
    await ledger.open()
    await ledger.write([exchange_row(x) for x in exchanges], [])
    return ledger


async def messages(ledger: Ledger, wanted: Wanted) -> list[str]:
    return [x.message for x in await ledger.page(wanted, None, None, 50)]


async def test_pages_follow_each_other_without_gap_or_repeat(new_database: Make) -> None:
    rows = [ended(message=str(n), ago=60_000 - (n // 3) * 1000) for n in range(20)]
    same_instant = rows[0].at
    for x in rows[:3]:
        x.at = same_instant
    ledger = await filled(new_database, *rows)
    seen: list[Exchange] = []
    cursor: Cursor | None = None
    while True:
        page = await ledger.page(Wanted(), cursor, None, 7)
        seen += page
        if len(page) < 7:
            break
        cursor = Cursor(page[-1].at, page[-1].rid)
    assert [x.rid for x in seen] == [
        x.rid for x in sorted(rows, key=lambda x: (x.at, x.rid), reverse=True)
    ]
    await ledger.database.close()


async def test_filters_find_by_agent_role_partner_status_time_and_words(new_database: Make) -> None:
    now = ended(ago=0).at
    ledger = await filled(
        new_database,
        ended("a", "b", "badge for 100% of us", ago=5000),
        ended("b", "a", "lunch", ago=4000, status=Status.TIMEOUT, late_answer="a Badge"),
        ended("a", "c", "bad_ge", ago=3000, status=Status.FAILED, reason="no badge"),
        ended("c", "b", "done", ago=2000, answer="BADGE and lunch"),
    )

    async def found(**fields: object) -> list[str]:
        return await messages(ledger, Wanted(**fields))  # type: ignore[arg-type]

    assert await found(agents=("a",)) == ["bad_ge", "lunch", "badge for 100% of us"]
    assert await found(agents=("a",), role="asker") == ["bad_ge", "badge for 100% of us"]
    assert await found(agents=("a",), role="target") == ["lunch"]
    assert await found(agents=("a",), partner="c") == ["bad_ge"]
    assert await found(agents=("b", "c"), role="asker") == ["done", "lunch"]
    assert await found(statuses=frozenset({"timeout", "failed"})) == ["bad_ge", "lunch"]
    assert await found(since=now - 4500, until=now - 2500) == ["bad_ge", "lunch"]
    assert len(await found(words=("badge",))) == 4
    assert await found(words=("badge", "lunch")) == ["done", "lunch"]
    assert await found(words=("100%",)) == ["badge for 100% of us"]
    assert await found(words=("d_g",)) == ["bad_ge"]
    assert await found(words=("'; DROP TABLE x; --",)) == []
    await ledger.database.close()


async def test_memory_and_store_agree_on_what_is_wanted(new_database: Make) -> None:
    rows = [
        ended("a", "b", "x badge", ago=5000),
        ended("b", "a", "y", ago=4000, status=Status.TIMEOUT),
        ended("a", "c", "z", ago=3000, status=Status.CANCELLED, reason="badge"),
    ]
    ledger = await filled(new_database, *rows)
    for wanted in (
        Wanted(words=("badge",)),
        Wanted(agents=("a",), role="target"),
        Wanted(agents=("a",), role="asker", partner="c"),
        Wanted(statuses=frozenset({"open", "timeout"})),
        Wanted(since=rows[1].at),
        Wanted(until=rows[1].at),
    ):
        stored = {x.rid for x in await ledger.page(wanted, None, None, 50)}
        assert stored == {x.rid for x in rows if wanted.has(x, x.status.value)}
    await ledger.database.close()


async def test_a_search_step_looks_at_a_bounded_number_of_rows(new_database: Make) -> None:
    rows = [ended(message=f"needle {n}", ago=60_000 - n * 100) for n in range(30)]
    ledger = await filled(new_database, *rows)
    floor = await ledger.floor(None, None, 10)
    assert floor == Cursor(rows[19].at, rows[19].rid)
    page = await ledger.page(Wanted(words=("needle",)), None, floor, 50)
    assert [x.message for x in page] == [f"needle {n}" for n in range(29, 18, -1)]
    assert await ledger.floor(floor, None, 100) is None
    await ledger.database.close()


async def test_counts_by_pair_status_and_duration(new_database: Make) -> None:
    open_one = ended("a", "b", ago=1000, status=Status.TAKEN)
    open_one.ended_at = 0
    rows = [
        ended("a", "b", ago=9000, took=1230),
        ended("a", "b", ago=8000, took=1239),
        ended("a", "b", ago=7000, took=45_000),
        ended("b", "a", ago=6000, took=120_000, status=Status.TIMEOUT),
        open_one,
        ended("a", "b", ago=90_000),
    ]
    ledger = await filled(new_database, *rows)
    step = 1_000_000
    counted = await ledger.tally(rows[0].at, open_one.at + 1, step)
    pairs: dict[tuple[str, str], list[object]] = {}
    for start, asker, target, *counts, bad, answers in counted:
        assert start % step == 0
        of = pairs.setdefault((asker, target), [0, 0, 0, 0, None, ""])
        for n, count in enumerate(counts):
            of[n] += count  # type: ignore[operator]
        of[4] = bad or of[4]
        of[5] = "".join(sorted(of[5] + (answers or "")))  # type: ignore[operator]
    assert pairs == {
        ("a", "b"): [4, 3, 0, 1, None, letter(1230) * 2 + letter(45_000)],
        ("b", "a"): [1, 0, 1, 0, f"{rows[3].at:015}timeout", ""],
    }
    by_second = await ledger.tally(rows[0].at, open_one.at + 1, 1000)
    assert sum(row[3] for row in by_second) == 5
    assert {row[0] for row in by_second} == {x.at // 1000 * 1000 for x in rows[:5]}
    assert await ledger.count() == 6
    await ledger.database.close()


async def test_marks_come_back_from_the_store(new_database: Make) -> None:
    x = ended()
    x.mark(x.at + 5)
    x.mark(x.at + 9, Mark.AGAIN)
    ledger = await filled(new_database, x)
    found = await ledger.find(x.rid)
    assert found is not None
    assert found.marks == [6, -10]
    await ledger.database.close()


@given(st.integers(0, 10_000_000_000))
def test_a_bucket_tells_a_duration_within_six_percent(ms: int) -> None:
    told = letter_ms(letter(ms))
    assert told == bucket_ms(bucket_of(ms))
    if ms < 100_000_000:
        assert abs(told - ms) <= max(1, ms * 0.06)
    assert 0 <= bucket_of(ms) <= 699


@given(st.lists(st.lists(st.integers(0, 100_000), max_size=9), max_size=9), st.integers(0, 4))
def test_a_median_is_that_of_what_was_added_and_not_taken_away(
    pieces: list[list[int]], gone: int
) -> None:
    counts = Sum()

    def row(times: list[int]) -> tuple[object, ...]:
        return "a", "b", len(times), len(times), 0, 0, None, "".join(map(letter, times))

    for piece in pieces:
        counts.add(row(piece), 1)
        counts.quantile(0.5)
    for piece in pieces[:gone]:
        counts.add(row(piece), -1)
    left = sorted(letter(ms) for piece in pieces[gone:] for ms in piece)
    for part in (0.5, 0.95, 1.0):
        wanted = letter_ms(left[ceil(len(left) * part) - 1]) if left else None
        assert counts.quantile(part) == wanted


@given(st.lists(st.booleans(), max_size=400))
def test_marks_stay_few_and_keep_every_repeated_wake(kinds: list[bool]) -> None:
    x = ended()
    kinds = [kind and n % 20 == 0 for n, kind in enumerate(kinds)]
    for n, again in enumerate(kinds):
        x.mark(x.at + n * 1000, Mark.AGAIN if again else Mark.BEAT)
    marks = x.marks or []
    assert len(marks) <= MOST_MARKS
    assert [m for m in marks if m < 0] == [-n * 1000 - 1 for n, again in enumerate(kinds) if again]
    if kinds:
        assert abs(marks[-1]) == (len(kinds) - 1) * 1000 + 1


def test_an_agents_last_connections_are_remembered() -> None:
    roster = Roster([Agent(name="a")])
    first, _ = roster.link_up("a", 10)
    roster.greet("a", first.generation, protocol=2, client="x/1")
    second, _ = roster.link_up("a", 20)
    roster.link_down("a", second.generation, 35)
    for at in range(100, 200):
        roster.link_up("a", at)
    spans = roster.spans("a")
    assert len(spans) == 20
    assert spans[-1].until == 0
    assert all(span.superseded for span in spans[:-1])
    fresh = Roster([Agent(name="a")])
    link, _ = fresh.link_up("a", 10)
    fresh.greet("a", link.generation, protocol=2, client="x/1")
    fresh.link_up("a", 20)
    assert [(s.since, s.until, s.client, s.superseded) for s in fresh.spans("a")] == [
        (10, 20, "x/1", True),
        (20, 0, "", False),
    ]


async def test_what_went_wrong_is_found_by_its_own_index(new_database: Make) -> None:
    rows = [ended("a", "b", f"fine {n}", ago=60_000 - n) for n in range(50)]
    rows += [ended("a", "b", "bad", ago=90_000, status=Status.FAILED)]
    ledger = await filled(new_database, *rows)
    wanted = Wanted(agents=("b",), role="target", statuses=frozenset({"failed", "not_allowed"}))
    assert wanted.bad
    assert await messages(ledger, wanted) == ["bad"]
    assert not Wanted(statuses=frozenset({"failed", "ok"})).bad
    assert not Wanted(statuses=frozenset({"failed"}), words=("x",)).bad
    await ledger.database.close()


async def test_the_index_of_words_names_all_that_may_hold_them(new_database: Make) -> None:
    unfinished = ended("a", "b", "open one", status=Status.TAKEN)
    unfinished.ended_at = 0
    rows = [ended("a", "b", f"plain {n}") for n in range(30)] + [ended("a", "b", "a Unicorn")]
    ledger = await filled(new_database, *rows, unfinished)
    if not ledger.searchable:
        pytest.skip("this SQLite has no index of words")
    assert set(await ledger.holding(["unic"]) or ()) == {x.rid for x in [*rows, unfinished]}
    while await ledger.read_words(50):
        pass
    assert set(await ledger.holding(["unic"]) or ()) == {rows[30].rid, unfinished.rid}
    found = await ledger.page(
        Wanted(words=("unic",)), None, None, 9, await ledger.holding(["unic"])
    )
    assert rows[30].rid in {x.rid for x in found}
    assert await ledger.holding(["--"]) is None
    await ledger.database.close()
