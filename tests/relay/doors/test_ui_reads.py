"""What the page reads over real sockets: pages, conversations, counts, agents."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.browser.running import Bot, Running, ended, relay

from hermes_bridge.relay.core.exchange import Status
from hermes_bridge.relay.doors.ui_tallies import DAY, HOUR, MINUTE, pieces
from hermes_bridge.relay.ledger import Ledger

NAMES = ["a-bot", "b-bot", "c-bot"]


@pytest.fixture
def running() -> Iterator[Running]:
    with relay(NAMES, rate_per_minute=30) as made:
        yield made


def all_pages(running: Running, query: str = "", limit: int = 10) -> list[Any]:
    rows: list[Any] = []
    cursor = ""
    for _ in range(100):
        page = running.json(f"/ui/api/exchanges?limit={limit}{query}{cursor}")
        rows += page["exchanges"]
        if not page["next"]:
            return rows
        cursor = f"&before={page['next']}"
    raise AssertionError("pages without end")


def counted(running: Running, path: str) -> Any:
    """Ask until everything is counted."""
    for _ in range(200):
        found = running.json(path)
        if found["complete"]:
            return found
    raise AssertionError("never complete")


def test_history_comes_in_pages_newest_first(running: Running) -> None:
    running.keep(*(ended("a-bot", "b-bot", str(n), ago=60_000 - n * 100) for n in range(55)))
    assert [x["message"] for x in all_pages(running)] == [str(n) for n in range(54, -1, -1)]


def test_a_rare_hit_is_found_in_bounded_steps(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_bridge.relay.doors.ui_reads._FIRST_STEP", 7)
    monkeypatch.setattr("hermes_bridge.relay.doors.ui_reads._SEARCH_S", 0)

    async def cannot_tell(ledger: Ledger, words: object) -> None:
        return None

    monkeypatch.setattr(Ledger, "holding", cannot_tell)
    rows = [ended("a-bot", "b-bot", str(n), ago=60_000 - n * 100) for n in range(50)]
    rows[3].answer = "the Needle"
    running.keep(*rows)
    first = running.json("/ui/api/search?q=needle")
    assert (first["exchanges"], bool(first["next"])) == ([], True)
    assert [x["message"] for x in all_pages(running, "&q=needle")] == ["3"]


def test_a_rare_word_is_found_at_once_by_the_index(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_bridge.relay.doors.ui_reads._FIRST_STEP", 7)
    monkeypatch.setattr("hermes_bridge.relay.doors.ui_reads._SEARCH_S", 0)
    rows = [ended("a-bot", "b-bot", f"plain {n}", ago=60_000 - n * 100) for n in range(50)]
    for n in (3, 5, 8):
        rows[n].answer = f"the Needle {n}"
    running.keep(*rows)
    first = running.json("/ui/api/search?q=needle&limit=2")
    assert [x["answer"] for x in first["exchanges"]] == ["the Needle 8", "the Needle 5"]
    found = [x["answer"] for x in all_pages(running, "&q=needle", limit=2)]
    assert found == ["the Needle 8", "the Needle 5", "the Needle 3"]
    assert all_pages(running, "&q=needle&role=asker&agent=b-bot") == []


def test_pages_show_open_exchanges_as_they_stand_and_filter_by_that(running: Running) -> None:
    a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
    rid = a.ask("b-bot", "how long?")["request_id"]
    b.woken()
    running.drained()
    for query in ("", "&status=open", "&status=taken", "&q=long", "&agent=b-bot&role=target"):
        assert [x["status"] for x in all_pages(running, query)] == ["taken"], query
    for query in ("&status=answered", "&agent=c-bot", "&agent=b-bot&role=asker", "&q=short"):
        assert all_pages(running, query) == [], query
    b.reply(rid, "not long")
    assert [x["answer"] for x in all_pages(running, "&status=answered")] == ["not long"]
    assert all_pages(running, "&status=open") == []


def test_filters_that_make_no_sense_are_harmless(running: Running) -> None:
    running.keep(ended("a-bot", "b-bot"))
    for query in (
        "q=%00",
        "agent=%00,,,",
        "status=%00",
        "since=x&until=-1",
        "since=99999999999999999999",
        "before=x",
        "before=1-",
        "limit=99999999&cut=-1",
        "q=" + "x+" * 150,
        "agent=" + "x," * 500,
        "q=%ff%fe",
        "since=%D9%A1",
    ):
        assert running.get(f"/ui/api/exchanges?{query}").status == 200, query


def test_a_conversation_is_given_oldest_first_with_its_turns(running: Running) -> None:
    running.keep(
        ended("a-bot", "b-bot", "one", ago=9000, conv="c1"),
        ended("b-bot", "a-bot", "two", ago=8000, conv="c1"),
        ended("a-bot", "c-bot", "no", ago=7000, conv="c1", status=Status.UNKNOWN_CONVERSATION),
        ended("a-bot", "c-bot", "other", ago=6000, conv="c2"),
        ended("a-bot", "b-bot", "zero", ago=2 * HOUR, conv="c1"),
    )
    found = running.json("/ui/api/conversations/c1")
    assert [x["message"] for x in found["exchanges"]] == ["zero", "one", "two", "no"]
    assert found["turns"] == 2
    assert running.json("/ui/api/conversations/nobody")["exchanges"] == []


def test_an_exchange_tells_its_heartbeats_and_repeated_wakes(running: Running) -> None:
    a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
    rid = a.ask("b-bot", "how long?")["request_id"]
    b.expect("wake")
    b.close()
    b = Bot(running, "b-bot")
    assert b.woken()["attempt"] == 2
    b.beat(rid, "one")
    b.beat(rid, "two")
    b.ask("a-bot", "a round trip, so that the beats are in")
    row = running.json(f"/ui/api/exchanges/{rid}")
    assert len(row["beat_times"]) == row["beats"] == 2
    assert all(row["taken_at"] <= t <= row["heard_at"] for t in row["beat_times"])
    assert len(row["resent"]) == 1
    assert row["sent_at"] <= row["resent"][0] <= row["taken_at"]


def test_the_last_hour_is_counted_by_minute(running: Running) -> None:
    running.keep(
        *(ended("a-bot", "b-bot", ago=n * MINUTE, took=1000 * n) for n in range(1, 11)),
        ended("a-bot", "b-bot", ago=MINUTE, took=120_000, status=Status.TIMEOUT),
        ended("a-bot", "x", ago=MINUTE, took=0, status=Status.UNKNOWN_AGENT),
        ended("a-bot", "b-bot", ago=2 * HOUR),
    )
    hour = counted(running, "/ui/api/hour")
    assert (hour["asks"], hour["failed"], hour["total"]) == (12, 1, 13)
    assert hour["answered"] == pytest.approx(10 / 11)
    assert hour["median"] == pytest.approx(5000, rel=0.06)
    assert hour["p95"] == pytest.approx(10_000, rel=0.06)
    assert len(hour["minutes"]) == 60
    assert sum(asks for _, asks, _ in hour["minutes"]) == 12
    assert sum(failed for _, _, failed in hour["minutes"]) == 1


def test_counts_by_pair_and_hour_follow_what_happens(running: Running) -> None:
    running.keep(
        ended("a-bot", "b-bot", ago=MINUTE),
        ended("a-bot", "b-bot", ago=5 * HOUR),
        ended("b-bot", "a-bot", ago=3 * DAY, status=Status.FAILED, reason="no"),
        ended("b-bot", "a-bot", ago=9 * DAY),
    )
    day = counted(running, "/ui/api/counts?range=24h")
    assert [(p["from"], p["to"], p["asks"]) for p in day["pairs"]] == [("a-bot", "b-bot", 2)]
    assert sum(asks for _, asks, _ in day["hours"]) == 2
    week = counted(running, "/ui/api/counts?range=7d")
    assert {(p["from"], p["to"]): (p["asks"], p["failed"]) for p in week["pairs"]} == {
        ("a-bot", "b-bot"): (2, 0),
        ("b-bot", "a-bot"): (1, 1),
    }
    tallies = running.service._ui._reads.tallies
    for piece, kept in tallies._pieces.items():
        tallies._pieces[piece] = kept._replace(read_at=0)
    running.keep(ended("c-bot", "b-bot", ago=100))
    assert counted(running, "/ui/api/counts?range=15m")["asks"] == 2


def test_a_range_is_cut_into_the_largest_aligned_pieces() -> None:
    steps = (DAY, HOUR, MINUTE)
    cut = list(pieces(DAY - HOUR - MINUTE, 2 * DAY + 2 * MINUTE, steps))
    assert [end - start for start, end in cut] == [MINUTE, HOUR, DAY, MINUTE, MINUTE]
    assert all(a[1] == b[0] for a, b in pairwise(cut))


def test_agents_show_links_work_queue_counts_and_last_error(running: Running) -> None:
    a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
    running.keep(
        ended("a-bot", "b-bot", ago=3000, took=2000),
        ended("c-bot", "b-bot", ago=2000, took=10, status=Status.FAILED, reason="no idea"),
    )
    rid = a.ask("b-bot", "work!")["request_id"]
    b.woken()
    a.ask("c-bot", "when you are back", if_offline="queue")
    running.drained()
    rows = {row["name"]: row for row in counted(running, "/ui/api/agents?range=1h")["agents"]}
    busy = rows["b-bot"]
    assert (busy["presence"], busy["protocol"], busy["client"]) == (
        "online",
        2,
        "bot of the tests/1",
    )
    assert busy["works"]["request_id"] == rid
    assert (busy["counts"]["asks"], busy["counts"]["failed"], busy["asks_out"]) == (3, 1, 0)
    assert (busy["last_error"]["status"], busy["last_error"]["from"]) == ("failed", "c-bot")
    assert (rows["c-bot"]["queue"], rows["a-bot"]["asks_out"]) == (1, 3)
    detail = running.json("/ui/api/agents/b-bot")
    assert detail["rate_per_minute"] == 30
    assert [link["client"] for link in detail["links"]] == ["bot of the tests/1"]
    assert [x["error"] for x in detail["errors"]] == ["no idea"]
    assert running.get("/ui/api/agents/nobody").status == 404


def test_without_a_store_pages_and_counts_come_from_memory(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with relay(NAMES, db=tmp_path / "taken") as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        rid = a.ask("b-bot", "still there?")["request_id"]
        b.woken()
        b.reply(rid, "yes")
        page = running.json("/ui/api/exchanges?status=answered")
        assert [x["answer"] for x in page["exchanges"]] == ["yes"]
        assert (page["next"], page["store"]["up"]) == (None, False)
        assert counted(running, "/ui/api/counts?range=1h")["asks"] == 1
        assert running.json("/ui/api/hour")["total"] is None
        conversation = page["exchanges"][0]["conversation_id"]
        assert len(running.json(f"/ui/api/conversations/{conversation}")["exchanges"]) == 1


def test_a_state_can_be_short_and_tell_only_what_changed(running: Running) -> None:
    a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
    rid = a.ask("b-bot", "still open")["request_id"]
    b.woken()
    rows = [ended("a-bot", "b-bot", str(n), ago=600_000 - n * 1000, took=1500) for n in range(20)]
    running.keep(*rows)
    newest = running.json("/ui/api/state?rows=3")["exchanges"]
    assert [x["message"] for x in newest] == ["18", "19", "still open"]
    since = newest[1]["started_at"]
    found = running.json(f"/ui/api/state?since={since}")["exchanges"]
    assert [x["message"] for x in found] == ["18", "19", "still open"]
    found = running.json(f"/ui/api/state?since={since + 3_600_000}")["exchanges"]
    assert [x["request_id"] for x in found] == [rid]
    assert len(running.json("/ui/api/state?rows=x&since=y")["exchanges"]) == 21


def test_a_hit_beyond_the_cut_is_given_with_what_stands_around_it() -> None:
    far = "x " * 100 + "a NEEDLE lies here" + " y" * 100
    with relay() as running:
        running.keep(ended(message=far, answer="a needle at once" + " z" * 100))
        row = running.json("/ui/api/exchanges?q=needle&cut=50")["exchanges"][0]
        assert row["message"] == far[:50]
        assert set(row["hits"]) == {"message"}, "the other text shows its hit itself"
        assert "a NEEDLE lies here" in row["hits"]["message"]
        assert len(row["hits"]["message"]) == 180
        assert "hits" not in running.json("/ui/api/exchanges?cut=50")["exchanges"][0]
