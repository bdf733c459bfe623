"""The faults of the original, one by one, and what happens here instead (issue 2).

Two rows are proved elsewhere: 4.5 to 4.7, 4.20 and 4.22 with real Hermes gateways (test_hermes.py
and the plugin's tests), 4.4 and 4.19 with real stores (test_store.py), 4.15 and 4.16 in test_life.py,
4.23 by the installer's tests.
"""

import asyncio
import json
import sqlite3

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Clients, Make, RelayProcess, crowd
from tests.harness.waits import eventually
from tests.harness.wire import raw, request_bytes

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(
        agents=crowd(120), ask_timeout_ms=2000, ask_max_ms=6000, reconnect_grace_ms=1000
    )


async def online(client: Mcp, name: str) -> bool:
    agents = {line["name"]: line["online"] for line in await client.tool("list_agents")}
    return bool(agents[name])


@pytest.mark.clause("bridge.link.6")
async def test_4_1_the_end_of_the_older_of_two_links_changes_nothing(
    relay: RelayProcess, mcp: Clients
) -> None:
    """4.1 and 4.1b, S2: also with an ask under way on the newer one."""
    name, client = relay.agent(), mcp(relay.agent())
    old = await Bot(relay, name).connect()
    async with Bot(relay, name) as new:
        code, reason = await old.closed()
        assert (code, reason.partition(":")[0]) == (4409, "superseded")
        pending = await client.start("ask_agent", {"to": name, "message": "?"})
        wake = await new.wake()
        await old.close()
        assert await online(client, name)
        await new.reply(wake["request_id"], "from the new one")
        assert (await pending.result())["answer"] == "from the new one"


@pytest.mark.clause("bridge.reply.1", "bridge.life.8")
async def test_4_2_only_the_asked_agent_can_answer(relay: RelayProcess, mcp: Clients) -> None:
    """4.2, S1: neither a third agent nor the asker itself, by MCP or by frame."""
    asker, thief = mcp(relay.agent()), mcp(relay.agent())
    async with (
        Bot(relay, relay.agent(), hello=True) as bot,
        Bot(relay, thief.agent, hello=True) as thief_bot,
    ):
        pending = await asker.start("ask_agent", {"to": bot.name, "message": "?"})
        rid = (await bot.wake())["request_id"]
        evil = {"request_id": rid, "answer": "evil"}
        for said in (
            await thief.tool("reply", evil),
            await asker.tool("reply", evil),
            await thief_bot.call("reply", evil),
            await thief.tool("reply", {**evil, "kind": "failure"}),
        ):
            assert (said["ok"], said["error"]) == (False, "not_your_request")
        for tool in ("wait_answer", "cancel_ask"):
            said = await thief.tool(tool, {"request_id": rid})
            assert said["error"] == "not_your_request"
            assert "answer" not in said
        assert await bot.reply(rid, "good") == {"ok": True}
        assert (await pending.result())["answer"] == "good"


async def test_4_2b_a_stranger_learns_no_request_ids(relays: Make) -> None:
    """S8: beyond loopback the page and its state need a password; an id alone gives no right."""
    relay = relays(start=False)
    relay.write({**relay.config, "listen": {"host": "0.0.0.0", "port": relay.port}})
    relay.start()
    async with Bot(relay, "b") as bot, Mcp(relay, "a") as a, Mcp(relay, "c") as thief:
        rid = (await a.ask("b", "secret?", wait_ms=0))["request_id"]
        await bot.wake()
        for path in ("/ui", "/ui/", "/ui/api/state", "/ui/api/state?x", "/ui/api/search?q=secret"):
            status, body = relay.get(path)
            assert status in (302, 303, 401, 403, 404), path
            assert b"secret" not in body and rid.encode() not in body
        said = await thief.tool("reply", {"request_id": rid, "answer": "x"})
        assert said["error"] == "not_your_request"


@pytest.mark.clause("bridge.life.8")
async def test_4_2c_beats_of_others_prolong_nothing(relay: RelayProcess, mcp: Clients) -> None:
    async with (
        Bot(relay, relay.agent()) as bot,
        Bot(relay, relay.agent(), hello=True) as other,
    ):
        pending = await mcp(relay.agent()).start("ask_agent", {"to": bot.name, "message": "?"})
        rid = (await bot.wake())["request_id"]
        meddling = asyncio.create_task(other.beating(rid, 0.2))
        await other.ack(rid)
        assert (await pending.result())["error"] == "timeout"
        meddling.cancel()


@pytest.mark.clause("bridge.ask.3")
async def test_4_2d_a_conversation_belongs_to_its_two_agents(
    relay: RelayProcess, mcp: Clients
) -> None:
    """S5: a third agent with the id, and the two with a third target."""
    one, third = mcp(relay.agent()), mcp(relay.agent())
    async with Bot(relay, relay.agent()) as bot, Bot(relay, relay.agent()) as other:
        bot.on_wake = other.on_wake = lambda wake: "yes"
        conversation = (await one.ask(bot.name, "hi"))["conversation_id"]
        for said in (
            await third.ask(bot.name, "let me in", conversation_id=conversation),
            await one.ask(other.name, "come in", conversation_id=conversation),
            await one.ask(bot.name, "which?", conversation_id="never-seen"),
        ):
            assert (said["ok"], said["error"]) == (False, "unknown_conversation")
        again = await one.ask(bot.name, "still us", conversation_id=conversation)
        assert (again["answer"], again["conversation_id"]) == ("yes", conversation)
        assert [w["message"] for w in bot.frames] == ["hi", "still us"]


async def test_4_3_no_request_of_a_stranger_ends_the_process(relay: RelayProcess) -> None:
    """More targets: tests/relay/doors/test_server_bad_input.py."""
    upgrade = {"Host": "x", "Connection": "Upgrade", "Upgrade": "websocket"}
    upgrade |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
    for target in ("//", "///", "//x:y", "http://", "http://[", "http://x:99999/", "/%00"):
        for headers in ({"Host": "x"}, upgrade):
            answer = await raw(relay.port, request_bytes("GET", target, headers))
            assert answer.startswith(b"HTTP/1.1 4")


@pytest.mark.clause("bridge.ask.1")
async def test_4_8_a_message_that_would_knock_its_target_off_is_refused(
    relay: RelayProcess, mcp: Clients
) -> None:
    bystander, sender = mcp(relay.agent()), mcp(relay.agent())
    async with Bot(relay, relay.agent(), max_size=2**20) as bot:
        pending = await bystander.start("ask_agent", {"to": bot.name, "message": "innocent"})
        wake = await bot.wake()
        for _ in range(3):
            said = await sender.ask(bot.name, "x" * 1_100_000)
            assert said["error"] == "message_too_large"
        await bot.reply(wake["request_id"], "fine")
        assert (await pending.result())["answer"] == "fine"


@pytest.mark.clause("mcp.http.5", "bridge.link.3")
async def test_4_9_bodies_and_frames_have_a_bound(relay: RelayProcess, mcp: Clients) -> None:
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent()) as bot:
        body, headers = client.message("tools/call", {"name": "ask_agent"})
        body["params"]["arguments"] = {"to": bot.name, "message": "x" * 10_000_000}
        answer = await raw(
            relay.port, request_bytes("POST", "/mcp", headers, json.dumps(body).encode())
        )
        assert answer.startswith(b"HTTP/1.1 413 ")
        await bot.socket.send("x" * 2_000_000)
        assert (await bot.closed())[0] == 1009


@pytest.mark.clause("bridge.ask.6")
async def test_4_10_asks_are_bounded_by_queue_and_by_rate(relays: Make) -> None:
    agents = ["a", {"name": "b", "max_pending": 5}, {"name": "c", "rate_per_minute": 3}, "d"]
    relay = relays(agents=agents)
    async with (
        Bot(relay, "b") as b,
        Bot(relay, "d") as d,
        Mcp(relay, "a") as a,
        Mcp(relay, "c") as c,
    ):
        said = [await a.ask("b", str(i), wait_ms=0) for i in range(8)]
        assert [x["error"] for x in said] == ["working"] * 5 + ["queue_full"] * 3
        assert len(b.frames) <= 5
        assert (await a.ask("d", "others go on", wait_ms=0))["error"] == "working"
        said = [await c.ask("d", str(i), wait_ms=0) for i in range(5)]
        assert [x["error"] for x in said] == ["working"] * 3 + ["rate_limited"] * 2
        assert all(x["hint"] and x["request_id"] for x in said)
        await eventually(lambda: len(d.frames) == 4, "woken")


@pytest.mark.clause("bridge.life.3")
async def test_4_11_beats_for_ever_end_at_the_cap(relay: RelayProcess, mcp: Clients) -> None:
    async with Bot(relay, relay.agent()) as bot:
        pending = await mcp(relay.agent()).start("ask_agent", {"to": bot.name, "message": "?"})
        beating = asyncio.create_task(bot.beating((await bot.wake())["request_id"], 0.3))
        said = await pending.result()
        beating.cancel()
    assert (said["error"], said["elapsed_ms"] >= 6000) == ("deadline_exceeded", True)


@pytest.mark.clause("mcp.hold.2")
async def test_4_12_what_an_asker_leaves_behind_is_cancelled_or_kept(
    relay: RelayProcess, mcp: Clients
) -> None:
    """A modern client: cancelled, and the target is told. An old one: kept, and found."""
    modern, old = mcp(relay.agent(), era="modern"), mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        left = await modern.start("ask_agent", {"to": bot.name, "message": "1"})
        rid = (await bot.wake())["request_id"]
        await left.hang_up()
        assert (await bot.cancelled())["request_id"] == rid
        left = await old.start("ask_agent", {"to": bot.name, "message": "2"})
        rid = (await bot.wake())["request_id"]
        await left.hang_up()
        assert await bot.reply(rid, "kept") == {"ok": True}
        assert (await old.tool("wait_answer", {"request_id": rid}))["answer"] == "kept"


@pytest.mark.clause("bridge.life.5", "bridge.life.6")
async def test_4_13_a_target_may_reconnect_while_it_works(
    relay: RelayProcess, mcp: Clients
) -> None:
    """A seed adapter is woken again; a version 2 bot that acked is not."""
    client = mcp(relay.agent())
    for hello in (False, True):
        name = relay.agent()
        first = await Bot(relay, name, hello=hello).connect()
        pending = await client.start("ask_agent", {"to": name, "message": "?"})
        wake = await first.wake()
        if hello:
            await first.lives()  # what it sent before, the ack, was read
        first.vanish()
        async with Bot(relay, name, hello=hello) as second:
            if hello:
                await second.no_wake()
            else:
                assert (await second.wake())["request_id"] == wake["request_id"]
            await second.reply(wake["request_id"], "finished")
            assert (await pending.result())["answer"] == "finished"


@pytest.mark.clause("bridge.life.5", "bridge.ask.7", "bridge.life.7")
async def test_4_13b_an_absent_target_is_offline_awaited_or_queued_for(
    relay: RelayProcess, mcp: Clients
) -> None:
    client, name = mcp(relay.agent()), relay.agent()
    said = await client.ask(name, "?")
    assert (said["error"], bool(said["hint"])) == ("agent_offline", True)
    queued = await client.ask(name, "later", if_offline="queue", wait_ms=0)
    assert queued["error"] == "working"
    async with Bot(relay, name) as bot:
        wake = await bot.wake()
        assert wake["request_id"] == queued["request_id"]
        await bot.reply(wake["request_id"], "here I am")
    found = await client.tool("wait_answer", {"request_id": queued["request_id"]})
    assert found["answer"] == "here I am"
    # Within the grace of a lost link an ask waits without being told to.
    soon = await client.ask(name, "soon", wait_ms=0)
    assert soon["error"] == "working"
    async with Bot(relay, name) as bot:
        await bot.reply((await bot.wake())["request_id"], "back")
    assert (await client.outcome(soon))["answer"] == "back"
    # After the grace it ends.
    asking = await client.start("ask_agent", {"to": name, "message": "never"})
    assert (await asking.result())["error"] in ("agent_offline", "agent_disconnected")


@pytest.mark.clause("bridge.life.5", "bridge.reply.3")
async def test_4_13c_an_answer_after_the_grace_is_kept(relay: RelayProcess, mcp: Clients) -> None:
    client, name = mcp(relay.agent()), relay.agent()
    bot = await Bot(relay, name, hello=True).connect()
    asking = await client.start("ask_agent", {"to": name, "message": "?"})
    rid = (await bot.wake())["request_id"]
    bot.vanish()
    assert (await asking.result())["error"] == "agent_disconnected"
    async with Bot(relay, name, hello=True) as back:
        assert await back.reply(rid, "late but here") == {"ok": True, "late": True}
    found = await client.tool("wait_answer", {"request_id": rid})
    assert (found["ok"], found["answer"], found["late"]) == (True, "late but here", True)


async def test_4_18b_without_a_token_nobody_is_anybody(relay: RelayProcess, mcp: Clients) -> None:
    client = mcp(relay.agent())
    for value in ("", "Bearer ", "Bearer"):
        _, headers = client.message("ping")
        reply = await client.post(client.message("ping")[0], {**headers, "Authorization": value})
        assert reply.status == 401


@pytest.mark.clause("bridge.ask.1")
async def test_4_19_and_4_21_texts_that_cannot_be_delivered_are_refused_at_once(
    relay: RelayProcess, mcp: Clients
) -> None:
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        for text in ("", " \n\t", "a\0b", "\ud800", "x\udc00y", "\0", "\u2003"):
            said = await client.ask(bot.name, text)
            assert (said["ok"], said["error"]) == (False, "invalid_message"), ascii(text)
            assert said["hint"]
            said = await bot.call("ask_agent", {"to": client.agent, "message": text})
            assert said["error"] == "invalid_message"
        assert not [f for f in bot.frames if f.get("type") == "wake"]
    rows = sqlite3.connect(relay.database)
    await eventually(
        lambda: rows.execute(
            "SELECT count(*) FROM hermes_bridge_exchanges WHERE status='invalid_message' "
            "AND from_agent=?", (client.agent,),
        ).fetchone()[0] == 7,
        "recorded",
    )  # fmt: skip
    found = rows.execute("SELECT message, conversation_id FROM hermes_bridge_exchanges").fetchall()
    rows.close()
    assert not [row for row in found if "\0" in row[0] + row[1]]


@pytest.mark.clause("bridge.ask.4", "bridge.ring.1", "bridge.ring.3", "bridge.ring.5")
async def test_4_24_and_4_5_an_ask_that_nobody_could_answer_is_refused_at_once(
    relay: RelayProcess, mcp: Clients
) -> None:
    """S6: an agent that asks itself, and a ring of agents that answer through MCP only."""
    async with Bot(relay, relay.agent()) as a, Bot(relay, relay.agent()) as b:
        ask_a, ask_b = mcp(a.name), mcp(b.name)
        said = await ask_a.ask(a.name, "?")
        assert (said["error"], said["chain"]) == ("would_deadlock", [a.name, a.name])
        asking = await ask_a.start("ask_agent", {"to": b.name, "message": "?"})
        wake = await b.wake()
        said = await ask_b.ask(a.name, "but you?")
        assert (said["error"], said["chain"]) == ("would_deadlock", [b.name, a.name, b.name])
        assert "wait_ms=0" in said["hint"]
        free = await ask_b.ask(a.name, "when you can", wait_ms=0)
        assert free["error"] == "working"
        await b.reply(wake["request_id"], "!")
        assert (await asking.result())["answer"] == "!"


@pytest.mark.clause("bridge.ring.2", "bridge.ring.4")
async def test_4_5b_with_version_2_links_an_ask_back_nests(relay: RelayProcess) -> None:
    async with (
        Bot(relay, relay.agent(), hello=True) as a,
        Bot(relay, relay.agent(), hello=True) as b,
    ):
        asking = asyncio.create_task(a.call("ask_agent", {"to": b.name, "message": "2+x?"}))
        wake = await b.wake()
        same = {"to": a.name, "message": "x?", "conversation_id": wake["conversation_id"]}
        said = await b.call("ask_agent", same, turn=wake["request_id"])
        assert said["error"] == "would_deadlock"
        a.on_wake = lambda wake: "3"
        inner = {"to": a.name, "message": "what is x?"}
        said = await b.call("ask_agent", inner, turn=wake["request_id"])
        assert said["answer"] == "3"
        await b.reply(wake["request_id"], "5")
        assert (await asking)["answer"] == "5"
        assert next(f for f in a.frames if f.get("type") == "wake")["depth"] == 1


@pytest.mark.clause("bridge.ring.4")
async def test_4_5c_nesting_ends_at_the_depth_that_is_allowed(relay: RelayProcess) -> None:
    """Two agents that ask each other back for ever are stopped with words, and all asks end."""
    async with (
        Bot(relay, relay.agent(), hello=True) as a,
        Bot(relay, relay.agent(), hello=True) as b,
    ):

        async def deeper(bot: Bot, other: Bot, wake: dict[str, object]) -> str:
            said = await bot.call(
                "ask_agent", {"to": other.name, "message": "and?"}, turn=str(wake["request_id"])
            )
            return str(said.get("answer") or said["error"])

        a.on_wake = lambda wake: deeper(a, b, wake)
        b.on_wake = lambda wake: deeper(b, a, wake)
        said = await a.call("ask_agent", {"to": b.name, "message": "and?"})
        assert (said["ok"], said["answer"]) == (True, "would_deadlock")
        depths = [f["depth"] for f in a.frames + b.frames if f.get("type") == "wake"]
        assert max(depths) == 4
