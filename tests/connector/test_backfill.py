"""What was said while nobody listened is read from the history, in order, once."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.connector.rig import rig
from tests.harness.waits import eventually

pytestmark = pytest.mark.anyio


@pytest.mark.clause("relay.context.3")
async def test_a_hung_history_delays_a_message_by_its_limit_and_no_more(tmp_path: Path) -> None:
    async with rig(tmp_path, "a", context_timeout_ms=150) as r:
        a = await r.joined("a")
        r.hub.faults.history_gate = asyncio.Event()
        for n in range(3):
            await r.hub.say("room", "ada", f"@a {n}")
        events = await a.got(3)
        assert [event["text"] for event in events] == ["@a 0", "@a 1", "@a 2"]
        assert all("context" not in event for event in events)
        r.hub.faults.history_gate.set()


@pytest.mark.clause("relay.cursor.3")
async def test_120_missed_messages_all_arrive_in_order(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        await r.hub.say("room", "ada", "before")
        await r.stop()
        for n in range(120):
            r.hub.record("room", "ada", f"@a {n}")
        await r.start()
        a = await r.joined("a")
        await a.got(120)
        assert a.texts() == [f"@a {n}" for n in range(120)]


@pytest.mark.clause("relay.cursor.3")
async def test_250_missed_messages_of_one_second_all_arrive(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        await r.hub.say("room", "ada", "before")
        await r.stop()
        for n in range(250):
            stamp = f"2099-06-01T10:00:{n // 60:02d}Z"
            r.hub.record("room", "ada", f"@a {n}", timestamp=stamp)
        await r.start()
        a = await r.joined("a")
        await a.got(250)
        assert sorted(a.texts()) == sorted(f"@a {n}" for n in range(250))


@pytest.mark.clause("relay.cursor.4")
async def test_a_room_created_while_down_is_read_and_a_new_store_has_no_past(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, "a", start=False) as r:
        now = "2099-01-01T00:00:0{}Z"  # later than the moment at which the connector last listened
        r.hub.record("room", "ada", "@a from before anything", timestamp="2020-01-01T00:00:00Z")
        await r.start()
        a = await r.joined("a")
        await r.stop()
        r.hub.room("dm-new", "eve", "a")
        r.hub.record("dm-new", "eve", "hello from a new place", timestamp=now.format(1))
        await r.start()
        again = await r.joined("a")
        await again.got(1)
        assert (a.texts(), again.texts()) == ([], ["hello from a new place"])


async def test_a_room_created_while_up_is_joined_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        r.hub.room("late", "ada", "a")
        await r.hub.frame("a", {"type": "channel_created", "channel_id": "late"})
        await r.hub.until(lambda: r.hub.listens("a", "late"))
        await r.hub.say("late", "ada", "@a welcome")
        assert (await a.got(1))[0]["source"]["chat_id"] == "late"


async def test_the_backfill_does_not_wait_for_a_gateway_and_a_late_one_gets_it(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, "a") as r:
        await r.hub.say("room", "ada", "before")
        await r.stop()
        r.hub.record("room", "ada", "@a missed")
        await r.start()
        await eventually(lambda: r.connector.state.inbox.depth("a")[0] == 1, "in the inbox")
        await r.restart()
        assert (await (await r.joined("a")).got(1))[0]["text"] == "@a missed"


@pytest.mark.clause("relay.cursor.2")
async def test_live_messages_wait_for_the_backfill_and_keep_the_order(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        await r.hub.say("dm-a", "ada", "before")
        await r.stop()
        r.hub.record("dm-a", "ada", "missed")
        r.hub.faults.history_gate = asyncio.Event()
        await r.start(wait=False)
        await r.hub.until(lambda: r.hub.listens("a", "dm-a"))
        await r.hub.say("dm-a", "ada", "live")
        r.hub.faults.history_gate.set()
        a = await r.joined("a")
        await a.got(3)
        assert a.texts() == ["before", "missed", "live"]


async def test_when_history_fails_live_messages_go_on_and_the_gap_is_read_later(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        await r.hub.say("dm-a", "ada", "before")
        await a.got(1)
        await r.stop()
        r.hub.record("dm-a", "ada", "missed")
        r.hub.faults.history_status = 500
        await r.start(wait=False)
        await r.hub.until(lambda: r.hub.listens("a", "dm-a"))
        again = await r.joined("a")
        await r.hub.say("dm-a", "ada", "live")
        await again.got(1)
        r.hub.faults.history_status = None
        await again.until(lambda: "missed" in again.texts())
        assert again.texts().count("missed") == 1


@pytest.mark.clause("relay.cursor.1")
async def test_the_seeds_cursor_files_are_read_and_written(tmp_path: Path) -> None:
    cursors = tmp_path / "cursors"
    async with rig(tmp_path, "a", start=False, cursor_dir=str(cursors)) as r:
        old = r.hub.record("room", "ada", "@a old")
        r.hub.record("room", "ada", "@a missed")
        cursors.mkdir()
        file = cursors / "last-seen-msg-ts-a.json"
        file.write_text(json.dumps({"room": old["timestamp"]}))
        await r.start()
        a = await r.joined("a")
        await a.got(1)
        assert a.texts() == ["@a missed"]
        await r.stop()
        assert json.loads(file.read_text())["room"] == r.hub.rooms["room"].rows[-1]["timestamp"]


async def test_a_torn_cursor_file_falls_back_to_the_time_it_was_written(tmp_path: Path) -> None:
    cursors = tmp_path / "cursors"
    async with rig(tmp_path, "a", start=False, cursor_dir=str(cursors)) as r:
        cursors.mkdir()
        (cursors / "last-seen-msg-ts-a.json").write_text('{"room": "2026-01')
        r.hub.record("room", "ada", "@a long ago", timestamp="2020-01-01T00:00:00Z")
        r.hub.record("room", "ada", "@a missed", timestamp="2099-01-01T00:00:00Z")
        await r.start()
        a = await r.joined("a")
        await a.got(1)
        assert a.texts() == ["@a missed"]
