"""No addressed message is lost or run twice, whatever is cut: over real sockets, in one process."""

import asyncio
from pathlib import Path

import pytest
from tests.connector.rig import rig
from tests.harness.waits import eventually

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def store(request: pytest.FixtureRequest) -> dict[str, str]:
    """The setting for a connector's store, of each kind."""
    if request.param == "sqlite":
        return {}
    return {"database": request.getfixturevalue("postgres_url")}


@pytest.mark.clause("relay.inbox.1", "relay.route.2")
async def test_a_message_for_an_absent_gateway_waits_also_through_a_restart(
    tmp_path: Path, store: dict[str, str]
) -> None:
    async with rig(tmp_path, "a", **store) as r:
        await r.hub.say("room", "ada", "@a one")
        await r.hub.say("dm-a", "ada", "two")
        await r.restart()
        a = await r.joined("a")
        events = await a.got(2)
        assert {event["text"] for event in events} == {"@a one", "two"}
        await r.settled()
        await r.restart()
        again = await r.joined("a")
        await r.hub.say("dm-a", "ada", "three")
        await again.got(1)
        assert again.texts() == ["three"]
        assert (tmp_path / "hermes-bridge-connector.db").exists() is not bool(store)


@pytest.mark.clause("relay.route.2", "relay.inbound.2")
async def test_one_delivery_per_message_and_target_over_sockets_backfill_and_restart(
    tmp_path: Path,
) -> None:
    """Scenario O8."""
    async with rig(tmp_path, "x", "y", "z") as r:
        x, y, z = [await r.joined(bot) for bot in ("x", "y", "z")]
        await r.hub.say("room", "ada", "@x @y @x please")
        await x.got(1)
        await y.got(1)
        for bot in ("x", "y"):
            await r.hub.kick(bot)
        await r.hub.until(lambda: not r.hub.listens("x", "room"))
        await r.listening()
        await r.restart()
        x2, y2, z2 = [await r.joined(bot) for bot in ("x", "y", "z")]
        for n, gateway in enumerate((x2, y2, z2)):
            await r.hub.say(f"dm-{'xyz'[n]}", "ada", "the end")
            await gateway.got(1)
        assert x.texts() == y.texts() == ["@x @y @x please"]
        assert z.texts() == []
        assert [gateway.texts() for gateway in (x2, y2, z2)] == [["the end"]] * 3


@pytest.mark.clause("relay.inbox.3", "relay.inbound.2")
async def test_what_was_written_but_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        deaf = await r.joined("a", acks=False)
        await r.hub.say("dm-a", "ada", "one")
        await r.hub.say("dm-a", "ada", "two")
        await deaf.got(1)
        deaf.cut()
        a = await r.joined("a")
        await a.got(2)
        assert (deaf.texts(), a.texts()) == (["one"], ["one", "two"])
        assert a.buffers[0] == deaf.buffers[0]


async def test_a_gateway_that_goes_during_the_context_fetch_loses_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, "a", context_timeout_ms=5_000) as r:
        gone = await r.joined("a")
        r.hub.faults.history_gate = asyncio.Event()
        before = r.hub.calls["history"]
        await r.hub.say("room", "ada", "@a one")
        await r.hub.until(lambda: r.hub.calls["history"] > before)
        gone.cut()
        await gone.ended()
        a = await r.joined("a")
        r.hub.faults.history_gate.set()
        assert [event["text"] for event in await a.got(1)] == ["@a one"]
        assert gone.events == []


@pytest.mark.clause("relay.inbox.4")
async def test_a_silent_connection_gets_it_again_and_then_it_is_parked(tmp_path: Path) -> None:
    async with rig(tmp_path, "a", ack_timeout_ms=60, max_replays=2) as r:
        deaf = await r.joined("a", acks=False)
        await r.hub.say("dm-a", "ada", "poison")
        await deaf.got(3)
        await eventually(lambda: r.connector.state.counts["inbound.parked"], "parked")
        await r.hub.say("dm-a", "ada", "next")
        await deaf.got(4)
        assert deaf.texts() == ["poison"] * 3 + ["next"]
        assert len(set(deaf.buffers[:3])) == 1


async def test_an_ack_from_another_bots_gateway_removes_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a, b = await r.joined("a", acks=False), await r.joined("b")
        await r.hub.say("dm-a", "ada", "one")
        await a.got(1)
        await b.ack(a.buffers[0])
        await b.ack("no number")
        assert (await b.act("typing", "room"))["success"]
        assert r.connector.state.inbox.depth("a")[0] == 1
        await a.ack(a.buffers[0])
        await r.settled()


@pytest.mark.clause("relay.inbox.7")
async def test_going_idle_is_acked_at_once_and_the_backlog_follows_in_order(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        await a.send({"type": "going_idle"})
        await a.until(lambda: a.of("going_idle_ack"))
        for n in range(5):
            await r.hub.say("dm-a", "ada", f"{n}")
        assert (await a.act("typing", "dm-a"))["success"]
        assert a.events == []
        await a.close()
        again = await r.joined("a")
        await again.got(5)
        assert again.texts() == list("01234")


@pytest.mark.clause("relay.inbox.7")
async def test_a_second_hello_on_an_idle_connection_drains_it(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        await a.send({"type": "going_idle"})
        await r.hub.say("dm-a", "ada", "while asleep")
        await a.until(lambda: a.of("going_idle_ack"))
        await a.hello("a")
        assert (await a.got(1))[0]["text"] == "while asleep"


@pytest.mark.clause("relay.frame.5", "relay.inbox.3")
async def test_a_half_open_connection_does_not_keep_the_mail_of_its_successor(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, "a") as r:
        half = await r.joined("a", acks=False)
        half.stop_reading()
        await r.hub.say("dm-a", "ada", "one")
        await eventually(lambda: r.connector.state.counts["inbound.written"], "written")
        a = await r.joined("a")
        for n in range(4):
            await r.hub.say("dm-a", "ada", f"more {n}")
        await a.got(5)
        assert a.texts() == ["one", "more 0", "more 1", "more 2", "more 3"]
        half.cut()


@pytest.mark.clause("relay.hold.1")
async def test_the_next_message_of_a_chat_waits_for_the_final_answer(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        await r.hub.say("dm-a", "ada", "one")
        await a.got(1)
        await a.act("send", "dm-a", content="1", metadata={"notify": True})
        await r.hub.say("dm-a", "ada", "two")
        await a.got(2)
        await r.hub.say("dm-a", "ada", "three")
        await r.hub.say("room", "ada", "@a elsewhere")
        await a.got(3)
        assert a.texts() == ["one", "two", "@a elsewhere"]
        await a.act("send", "dm-a", content="note", metadata={})
        assert len(a.events) == 3
        await a.act("send", "dm-a", content="2", metadata={"notify": True})
        await a.got(4)
        assert a.texts()[-1] == "three"


@pytest.mark.clause("relay.hold.3")
async def test_the_owners_stop_overtakes_what_is_held(tmp_path: Path) -> None:
    async with rig(tmp_path, "a", start=False) as r:
        r.rows[0]["owners"] = ["ada"]
        await r.start()
        a = await r.joined("a")
        await r.hub.say("dm-a", "ada", "one")
        await a.got(1)
        await a.act("typing", "dm-a")
        await r.hub.say("dm-a", "ada", "two")
        await r.hub.say("dm-a", "ada", "/stop")
        await a.got(2)
        assert a.texts() == ["one", "/stop"]


@pytest.mark.clause("relay.hold.3")
async def test_an_interrupt_goes_to_the_connection_that_serves_the_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a, b = await r.joined("a"), await r.joined("b")
        await r.hub.say("room", "ada", "@a @b hi")
        await a.got(1)
        await b.got(1)
        key = "agent:main:relay:group:room:ada"
        await a.send({"type": "interrupt", "session_key": key, "reason": None})
        await a.until(lambda: a.of("interrupt_inbound"))
        assert a.of("interrupt_inbound") == [
            {"type": "interrupt_inbound", "session_key": key, "chat_id": "room"}
        ]
        assert b.of("interrupt_inbound") == []


@pytest.mark.clause("relay.inbox.6")
async def test_an_absent_gateway_is_poked_once(tmp_path: Path) -> None:
    pokes: list[bytes] = []
    poked = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pokes.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        poked.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, rig(tmp_path, "a", start=False) as r:
        port = server.sockets[0].getsockname()[1]
        r.rows[0]["wakeUrl"] = f"http://127.0.0.1:{port}/wake"
        await r.start()
        for n in range(3):
            await r.hub.say("dm-a", "ada", f"{n}")
        async with asyncio.timeout(30):
            await poked.wait()
        await (await r.joined("a")).got(3)
        assert len(pokes) == 1
        assert pokes[0].startswith(b"GET /wake HTTP/1.1")


async def test_one_chat_of_a_bot_does_not_wait_for_another(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a", acks=False)
        await r.hub.say("dm-a", "ada", "not acknowledged")
        await a.got(1)
        await r.hub.say("room", "ada", "@a other chat")
        await a.got(2)
        assert a.texts() == ["not acknowledged", "@a other chat"]


async def test_the_store_may_be_gone_and_messages_are_still_delivered(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        database = r.process._inside._database  # type: ignore[union-attr]
        working, database._writer._call = database._writer._call, _broken
        await r.hub.say("dm-a", "ada", "one")
        await r.hub.say("dm-a", "ada", "two")
        await a.got(2)
        assert r.connector.state.store.down_since
        database._writer._call = working
        await eventually(lambda: not r.connector.state.store.down_since, "the store up")
        await r.settled()
        await r.restart()
        again = await r.joined("a")
        await r.hub.say("dm-a", "ada", "three")
        await again.got(1)
        assert again.texts() == ["three"]


def _broken(work: object) -> None:
    from hermes_bridge.errors import DatabaseDown

    raise DatabaseDown("the disk is gone")
