"""The relay's own life: stop, crash and return, with agents connected and asks held."""

import asyncio
import os
import signal
import sqlite3
from pathlib import Path

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp, Pending
from tests.harness.relay import Make, RelayProcess
from tests.harness.waits import eventually
from tests.harness.wire import Json, Wire

pytestmark = pytest.mark.anyio


async def stopped(relay: RelayProcess) -> int:
    return await anyio.to_thread.run_sync(relay.stop, 25)


# SIGTERM


@pytest.mark.clause("bridge.link.9", "bridge.wait.4", "bridge.ask.9")
async def test_sigterm_ends_it_with_agents_connected_and_asks_held(relays: Make) -> None:
    """4.16: every kind of open connection at once."""
    relay = relays()
    async with (
        Bot(relay, "b", hello=True) as b,
        Bot(relay, "c") as seed,
        Mcp(relay, "a") as a,
        Mcp(relay, "a", era="modern") as modern,
    ):
        ask = {"to": "b", "message": "?"}
        held = [await a.start("ask_agent", ask), await modern.start("ask_agent", ask, progress=1)]
        on_link = asyncio.create_task(b.call("ask_agent", {"to": "c", "message": "?"}))
        wakes = [await b.wake(), await b.wake(), await seed.wake()]
        for pending in held:
            await pending.streams()
        held.append(await a.start("ask_agent", ask))  # and this one is not
        await b.wake()
        silent, half = await Wire.open(relay.port), await Wire.open(relay.port)
        await half.send(b"POST /mcp HTTP/1.1\r\nContent-Length: 100\r\n\r\nxx")
        assert await stopped(relay) == 0
        for pending in held:
            said = await pending.result()
            assert said["error"] == "working"
            assert said["request_id"] and said["hint"]
        assert (await on_link)["error"] == "working"
        assert (await b.closed())[0] == 1012
        assert (await seed.closed())[0] == 1012
        assert len(wakes) == 3
        await silent.close()
        await half.close()
    stopping = relay.events("serve.stopping", "serve.stopped")
    assert [line["event"] for line in stopping] == ["serve.stopping", "serve.stopped"]


async def test_sigint_ends_it_too_and_a_second_signal_hurts_nothing(relays: Make) -> None:
    relay = relays()
    assert relay.process is not None
    os.kill(relay.pid, signal.SIGINT)
    os.kill(relay.pid, signal.SIGTERM)
    assert await anyio.to_thread.run_sync(relay.process.wait, 10) == 0


async def test_a_peer_that_answers_nothing_does_not_hold_up_the_end(relays: Make) -> None:
    """A frozen bot, a client that never reads its stream, one that uploads for ever."""
    relay = relays()
    async with Mcp(relay, "a") as a:
        bot = await Bot(relay, "b", hello=True).connect()
        pending = await a.start("ask_agent", {"to": "b", "message": "?"})
        await bot.wake()
        bot.socket.transport.pause_reading()
        pending.wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
        assert await stopped(relay) == 0
        bot.vanish()


@pytest.mark.clause("bridge.life.10", "bridge.wait.4")
async def test_a_graceful_restart_in_the_middle_of_an_ask_is_hardly_noticed(relays: Make) -> None:
    relay = relays()
    async with Mcp(relay, "a") as a:
        b = await Bot(relay, "b", hello=True).connect()
        pending = await a.start("ask_agent", {"to": "b", "message": "?"})
        rid = (await b.wake())["request_id"]
        await anyio.to_thread.run_sync(relay.restart)
        assert (await pending.result())["error"] == "working"
        waiting = await a.start("wait_answer", {"request_id": rid})
        async with Bot(relay, "b", hello=True) as again:
            await again.no_wake()  # it was acked: the bot works on it
            await again.reply(rid, "as if nothing had been")
            assert (await waiting.result())["answer"] == "as if nothing had been"


# kill -9


@pytest.mark.clause("bridge.life.10", "bridge.ask.8", "bridge.ask.3", "mcp.http.1")
@pytest.mark.parametrize("hello", [False, True])
async def test_a_killed_relay_comes_back_with_its_open_asks(relays: Make, hello: bool) -> None:
    """O6, T6, T33, T40, S4, 4.15."""
    relay = relays()
    stale = {"Mcp-Session-Id": "from-before"}
    async with Mcp(relay, "a", headers=stale) as a:
        b = await Bot(relay, "b", hello=hello, ack=False).connect()
        ask = {"to": "b", "message": "?", "idempotency_key": "k1"}
        pending = await a.start("ask_agent", ask)
        first = await b.wake()
        await relay.written()  # what is younger than a batch of the journal may be forgotten
        relay.kill()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await pending.done()
        await b.closed()
        relay.start()
        again = await a.start("ask_agent", ask)  # the client tries again with its key
        async with Bot(relay, "b", hello=hello) as b2:
            second = await b2.wake()
            assert second["request_id"] == first["request_id"]
            await b2.no_wake()
            await b2.reply(second["request_id"], "42")
            said = await again.result()
            assert (said["ok"], said["answer"]) == (True, "42")
            assert said["request_id"] == first["request_id"]
            assert (await a.ask(**ask))["answer"] == "42"
            found = await a.tool("wait_answer", {"request_id": first["request_id"]})
            assert found["answer"] == "42"
            await b2.no_wake()
            b2.on_wake = lambda wake: "still us"
            conversation = first["conversation_id"]
            assert (await a.ask("b", "go on", conversation_id=conversation))["ok"] is True
            async with Mcp(relay, "c") as c:
                said = await c.ask("b", "me too", conversation_id=conversation)
                assert said["error"] == "unknown_conversation"


@pytest.mark.clause("bridge.life.10", "bridge.reply.3")
async def test_everything_ended_and_queued_survives_kill_9(relays: Make) -> None:
    relay = relays(ask_timeout_ms=500, reconnect_grace_ms=500)
    async with Mcp(relay, "a") as a, Mcp(relay, "b") as of_b:
        async with Bot(relay, "b", hello=True) as b:
            done = await a.start("ask_agent", {"to": "b", "message": "1"})
            rid = (await b.wake())["request_id"]
            await b.reply(rid, "one", data={"n": 1})
            await done.result()
            timed_out = await a.ask("b", "2")
            assert timed_out["error"] == "timeout"
            cancelled = await a.ask("b", "3", wait_ms=0)
            await a.tool("cancel_ask", {"request_id": cancelled["request_id"]})
        queued = await a.ask("c", "4", if_offline="queue", wait_ms=0, data=[4])
        await relay.written()
        for _ in range(3):
            relay.kill()
            await anyio.to_thread.run_sync(relay.start)
        found = await a.tool("wait_answer", {"request_id": rid})
        assert (found["answer"], found["data"]) == ("one", {"n": 1})
        again = await of_b.tool("reply", {"request_id": rid, "answer": "other"})
        assert again["error"] == "already_answered"
        assert (await a.tool("wait_answer", {"request_id": cancelled["request_id"]}))[
            "error"
        ] == "cancelled"
        late = await of_b.tool("reply", {"request_id": timed_out["request_id"], "answer": "two"})
        assert late == {"ok": True, "late": True}
        found = await a.tool("wait_answer", {"request_id": timed_out["request_id"]})
        assert (found["answer"], found["late"]) == ("two", True)
        async with Bot(relay, "c", hello=True) as c:
            wake = await c.wake()
            assert (wake["message"], wake["data"]) == ("4", [4])
            await c.reply(wake["request_id"], "four")
        found = await a.tool("wait_answer", {"request_id": queued["request_id"]})
        assert found["answer"] == "four"


async def test_after_kill_9_an_agent_that_does_not_come_back_ends_its_asks(relays: Make) -> None:
    relay = relays(reconnect_grace_ms=700)
    async with Mcp(relay, "a") as a:
        b = await Bot(relay, "b", hello=True).connect()
        rid = (await a.ask("b", "?", wait_ms=0))["request_id"]
        await b.wake()
        await relay.written()
        relay.kill()
        await b.closed()
        relay.start()
        said = await a.tool("wait_answer", {"request_id": rid})
        assert said["error"] == "agent_disconnected"


async def test_many_open_asks_are_resumed_in_their_order(relays: Make) -> None:
    relay = relays(max_pending=5000)
    async with Mcp(relay, "a") as a:
        first = await a.ask("b", "0", if_offline="queue", wait_ms=0)
        conversation = first["conversation_id"]
        for number in range(1, 30):
            said = await a.ask(
                "b", str(number), if_offline="queue", wait_ms=0, conversation_id=conversation
            )
            if said["error"] == "turn_limit":  # a run without a pause: go on in a new one
                said = await a.ask("b", str(number), if_offline="queue", wait_ms=0)
                conversation = said["conversation_id"]
        await relay.written()
        relay.kill()
        relay.start()
        got: list[tuple[str, str]] = []
        async with Bot(relay, "b", hello=True) as b:
            while len(got) < 30:
                wake = await b.wake()
                got.append((wake["conversation_id"], wake["message"]))
                await b.reply(wake["request_id"], "ok")
        by_conversation: dict[str, list[int]] = {}
        for conversation, message in got:
            by_conversation.setdefault(conversation, []).append(int(message))
        assert sorted(n for numbers in by_conversation.values() for n in numbers) == list(range(30))
        assert all(numbers == sorted(numbers) for numbers in by_conversation.values())


# Links


async def test_a_bot_that_was_supersede_d_and_comes_back_supersedes_in_turn(relays: Make) -> None:
    relay = relays()
    for _ in range(3):
        one = await Bot(relay, "b", hello=True).connect()
        two = await Bot(relay, "b", hello=True).connect()
        assert (await one.closed())[0] == 4409
        await one.close()
        async with Mcp(relay, "a") as a:
            two.on_wake = lambda wake: "two"
            assert (await a.ask("b", "?"))["answer"] == "two"
        await two.close()


# The clock


JUMPING = """
import time
from pathlib import Path
_real, _file = time.time, Path(__file__).with_name("jump")
def _jumped():
    try:
        return _real() + float(_file.read_text())
    except (OSError, ValueError):
        return _real()
time.time = _jumped
"""


@pytest.mark.clause("bridge.life.2")
@pytest.mark.parametrize("hours", [1, -24 * 400])
async def test_a_clock_that_jumps_moves_no_deadline(
    relays: Make, tmp_path: Path, hours: float
) -> None:
    """The system's date is set while asks are open; the relay's Python reads it from a file."""
    (tmp_path / "sitecustomize.py").write_text(JUMPING)
    relay = relays(env={"PYTHONPATH": str(tmp_path)}, ask_timeout_ms=2000)
    async with (
        Bot(relay, "b", hello=True) as b,
        Bot(relay, "c", hello=True) as c,
        Mcp(relay, "a") as a,
    ):
        held: Pending = await a.start("ask_agent", {"to": "b", "message": "?"})
        silent = await a.start("ask_agent", {"to": "c", "message": "?"})
        wake: Json = await b.wake()
        await c.wake()
        (tmp_path / "jump").write_text(str(hours * 3600))
        beating = asyncio.create_task(b.beating(wake["request_id"], 0.2))
        said = await silent.result()
        assert (said["error"], 2000 <= said["elapsed_ms"] < 60_000) == ("timeout", True)
        assert not held.reading.done()  # a whole window after the jump
        beating.cancel()
        await b.reply(wake["request_id"], "in time")
        said = await held.result()
        assert (said["answer"], 2000 <= said["elapsed_ms"] < 60_000) == ("in time", True)
        again = await a.start("ask_agent", {"to": "b", "message": "and again"})
        await b.reply((await b.wake())["request_id"], "yes")
        assert (await again.result())["answer"] == "yes"
        # A restart takes the new date; asks and conversations stay what they are.
        open_ask = await a.ask("b", "open", wait_ms=0)
        await b.wake()
        await anyio.to_thread.run_sync(relay.restart)
        async with Bot(relay, "b", hello=True) as back:
            await back.reply(open_ask["request_id"], "after the restart")
            found = await a.tool("wait_answer", {"request_id": open_ask["request_id"]})
            assert (found["ok"], found["answer"]) == (True, "after the restart")


async def test_two_relays_on_one_port_say_so(relays: Make) -> None:
    relay = relays()
    second = relays(start=False)
    second.write({**second.config, "listen": {"host": "127.0.0.1", "port": relay.port}})
    process = second.launch().process
    assert process is not None
    assert await anyio.to_thread.run_sync(process.wait, 10) in (1, 2)
    said = second.log() + (second.folder / "out.log").read_text()
    assert str(relay.port) in said
    assert "Traceback" not in said
    second.process = None
    assert relay.get("/health")[0] == 200


async def test_the_store_holds_what_the_seeds_table_held(relays: Make) -> None:
    relay = relays()
    async with Bot(relay, "b") as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "4"
        said = await a.ask("b", "2+2")
        rows = sqlite3.connect(relay.database)
        columns = "from_agent, to_agent, message, status, answer, error"
        query = f"SELECT {columns} FROM hermes_bridge_exchanges WHERE request_id=? AND ended_at>0"
        found = await eventually(
            lambda: rows.execute(query, (said["request_id"],)).fetchall(), "a row"
        )
        rows.close()
        assert found == [("a", "b", "2+2", "ok", "4", None)]


async def test_a_link_that_ends_while_it_is_written_to_is_no_error(relays: Make) -> None:
    relay = relays()
    async with Mcp(relay, "a") as a:
        for _ in range(10):
            bot = await Bot(relay, "b", hello=True).connect()
            await a.ask("b", "x" * 100_000, wait_ms=0)
            bot.vanish()
            await bot.closed()
