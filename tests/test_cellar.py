import io
import json
import logging
import time
import uuid

import pytest

from hermes_bridge import backoff, clock, ids, log
from hermes_bridge.testing import HandClock


def test_the_clock_does_not_follow_a_system_clock_that_jumps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steady = clock.SystemClock()
    before = steady.now()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3_600)
    assert 0 <= steady.now() - before < 1_000
    assert clock.wall_ms() - before >= 3_600_000


def test_ids_are_uuids_that_sort_by_time() -> None:
    made = [ids.new_id(1_800_000_000_000 + n) for n in range(1_000)]
    assert made == sorted(made) and len(set(made)) == 1_000
    assert {uuid.UUID(i).version for i in made} == {7}
    same = [ids.new_id(1_800_000_000_500) for _ in range(10_000)]
    assert same == sorted(same) and len(set(same)) == 10_000


def test_a_key_leads_to_one_id_an_owner_and_generation() -> None:
    assert ids.keyed_id("a", "k") == ids.keyed_id("a", "k")
    different = {
        ids.keyed_id("a", "k"),
        ids.keyed_id("b", "k"),
        ids.keyed_id("a", "k2"),
        ids.keyed_id("a", "k", 1),
        ids.keyed_id("ak", ""),
    }
    assert len(different) == 5
    assert uuid.UUID(ids.keyed_id("a", "\ud800")).version == 8


def test_tokens_are_long_and_digests_are_of_bytes() -> None:
    assert len(ids.new_token()) >= 43 and ids.new_token() != ids.new_token()
    assert ids.digest("x") == ids.digest(b"x")


def test_delays_grow_to_their_cap_with_jitter() -> None:
    found = backoff.delays(first=1, cap=5)
    seen = [next(found) for _ in range(6)]
    for delay, middle in zip(seen, [1, 2, 4, 5, 5, 5], strict=True):
        assert middle * 0.8 <= delay <= middle * 1.2


def _written(form: str, **fields: object) -> str:
    logger = logging.Logger("test")  # noqa: LOG001 - a logger of its own
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(log.JsonFormat() if form == "json" else log.LineFormat())
    logger.addHandler(handler)
    log.event(logger, "link.up", **fields)
    return out.getvalue()


def test_a_line_cannot_be_forged_by_what_a_peer_sends() -> None:
    line = _written("line", agent="a\nFAKE link.down", n=3)
    assert line.count("\n") == 1 and 'agent="a?FAKE link.down" n=3' in line


def test_a_json_line_is_one_object() -> None:
    body = json.loads(_written("json", agent="a\nb"))
    assert (body["event"], body["agent"], body["level"]) == ("link.up", "a\nb", "INFO")


def test_a_cause_is_logged_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    hand = HandClock()
    quiet = log.Quiet(logging.getLogger("test.quiet"), hand.now)
    for _ in range(50):
        quiet.event("mcp.refused", "bad token")
    quiet.event("mcp.refused", "origin")
    hand.pass_ms(60_000)
    quiet.event("mcp.refused", "bad token")
    assert [r.bridge_fields.get("not_shown") for r in caplog.records] == [None, None, 49]  # type: ignore[attr-defined]
