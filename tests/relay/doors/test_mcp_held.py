"""Calls that are held: signs of life, hang-ups, cancels (docs/protocol/mcp.md, `mcp.hold`)."""

import asyncio
import itertools
import json

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp, Pending
from tests.harness.relay import Clients, Make, RelayProcess, crowd
from tests.harness.wire import Reply

pytestmark = pytest.mark.anyio

HOLD_S = 10.5


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=crowd(120))


async def status_of(asker: Mcp, rid: str) -> str:
    found = await asker.tool("wait_answer", {"request_id": rid, "wait_ms": 0})
    return str(found.get("error", "ok"))


async def hold_in_every_way(relay: RelayProcess, mcp: Clients, target: str) -> dict[str, Pending]:
    """Streams with and without progress, in both eras, a client without streams, and a batch."""
    ask = {"to": target, "message": "long"}
    modern = mcp(relay.agent(), era="modern")
    no_streams = mcp(relay.agent(), headers={"Accept": "application/json"})
    client = mcp(relay.agent())
    call = {"name": "ask_agent", "arguments": ask}
    batch = [client.message("tools/call", call)[0], client.message("ping")[0]]
    return {
        "comments": await mcp(relay.agent()).start("ask_agent", ask),
        "progress": await mcp(relay.agent()).start("ask_agent", ask, progress="p"),
        "modern": await modern.start("ask_agent", ask, progress=7),
        "no streams": await no_streams.start("ask_agent", ask),
        "batch": await client.begin(batch),
    }


def shows_life(reply: Reply) -> None:
    times = [reply.opened_at, *(sign.at for sign in reply.signs), reply.ended_at]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert max(gaps) <= 10, gaps
    assert len(reply.signs) >= 3, reply.signs


def tells_progress(reply: Reply, token: str | int) -> None:
    told = reply.progress
    assert [x["progressToken"] for x in told] == [token] * len(told)
    grows = [x["progress"] for x in told]
    assert grows == sorted(set(grows))
    assert told[-1]["message"] == "thinking"


@pytest.mark.clause("mcp.hold.1")
async def test_a_held_call_shows_life_at_least_every_ten_seconds(
    relay: RelayProcess, mcp: Clients
) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        held = await hold_in_every_way(relay, mcp, bot.name)
        wakes = [await bot.wake() for _ in held]
        for wake in wakes:
            await bot.beat(wake["request_id"], "thinking")
        await asyncio.sleep(HOLD_S)  # the time is what is tested
        for wake in wakes:
            await bot.reply(wake["request_id"], "at last")
        replies = {name: await pending.done() for name, pending in held.items()}
    for reply in replies.values():
        shows_life(reply)
    for name in ("comments", "progress", "modern"):
        assert replies[name].result["answer"] == "at last"
        assert replies[name].headers["cache-control"].startswith("no-cache")
        assert replies[name].headers["x-accel-buffering"] == "no"
    assert not replies["comments"].progress
    assert {sign.kind for sign in replies["comments"].signs[:-1]} == {"comment"}
    tells_progress(replies["progress"], "p")
    tells_progress(replies["modern"], 7)
    json_only = replies["no streams"]
    assert json_only.headers["content-type"] == "application/json"
    assert json_only.result["answer"] == "at last"
    assert sorted(m.get("id") for m in replies["batch"].messages if "id" in m) == [1, 2]


@pytest.mark.clause("mcp.hold.1", "bridge.wait.1")
async def test_a_slice_ends_with_working_and_the_exchange_goes_on(
    relay: RelayProcess, mcp: Clients
) -> None:
    target = relay.agent()
    for era in ("legacy", "modern"):
        client = mcp(relay.agent(), era=era)
        async with Bot(relay, target, hello=True) as bot:
            reply = await client.call("ask_agent", {"to": target, "message": "?", "wait_ms": 300})
            assert not reply.streamed  # answered within a second: plain JSON
            first = reply.result
            assert (first["ok"], first["error"]) == (False, "working")
            assert "wait_answer" in first["hint"]
            assert {"request_id", "conversation_id"} <= first.keys()
            later = await client.call(
                "wait_answer", {"request_id": first["request_id"], "wait_ms": 1500}, progress=1
            )
            assert later.streamed
            assert later.result["error"] == "working"
            wake = await bot.wake()
            await bot.reply(wake["request_id"], "42")
            found = await client.tool("wait_answer", {"request_id": first["request_id"]})
            assert (found["answer"], found["ok"]) == ("42", True)


async def begun(client: Mcp, bot: Bot, **args: str) -> tuple[Pending, str]:
    pending = await client.start("ask_agent", {"to": bot.name, "message": "?", **args})
    return pending, (await bot.wake())["request_id"]


@pytest.mark.clause("mcp.hold.2", "bridge.life.9")
@pytest.mark.parametrize("reset", [True, False])
async def test_a_modern_client_that_hangs_up_cancels_its_ask(
    relay: RelayProcess, mcp: Clients, reset: bool
) -> None:
    client = mcp(relay.agent(), era="modern")
    async with Bot(relay, relay.agent(), hello=True) as bot:
        pending, rid = await begun(client, bot)
        await pending.hang_up(reset=reset)
        assert (await bot.cancelled())["request_id"] == rid
        assert await status_of(client, rid) == "cancelled"
        assert await bot.call("reply", {"request_id": rid, "answer": "still"}) == {
            "ok": True,
            "late": True,
        }
        found = await client.tool("wait_answer", {"request_id": rid})
        assert (found["answer"], found["late"]) == ("still", True)


@pytest.mark.clause("mcp.hold.2")
async def test_a_modern_client_that_hangs_up_a_stream_cancels_its_ask(
    relay: RelayProcess, mcp: Clients
) -> None:
    client = mcp(relay.agent(), era="modern")
    async with Bot(relay, relay.agent(), hello=True) as bot:
        pending, rid = await begun(client, bot)
        await pending.streams()
        await pending.hang_up()
        assert (await bot.cancelled())["request_id"] == rid


@pytest.mark.clause("mcp.hold.2")
@pytest.mark.parametrize(
    ("era", "args"),
    [
        ("legacy", {}),
        ("none", {}),
        ("modern", {"idempotency_key": "k1"}),
        ("legacy", {"idempotency_key": "k1"}),
    ],
)
async def test_an_ask_that_its_asker_can_come_back_to_outlives_a_hang_up(
    relay: RelayProcess, mcp: Clients, era: str, args: dict[str, str]
) -> None:
    """T43, T45: the work goes on, the answer is kept and found at once."""
    client = mcp(relay.agent(), era=era)
    async with Bot(relay, relay.agent(), hello=True) as bot:
        pending, rid = await begun(client, bot, **args)
        await pending.hang_up()
        await bot.beat(rid)
        assert await status_of(client, rid) == "working"
        assert await bot.call("reply", {"request_id": rid, "answer": "kept"}) == {"ok": True}
        found = await client.tool("wait_answer", {"request_id": rid})
        assert (found["ok"], found["answer"]) == (True, "kept")
        if args:
            again = await client.ask(bot.name, "?", **args)
            assert (again["request_id"], again["answer"]) == (rid, "kept")


@pytest.mark.clause("mcp.hold.2")
async def test_an_ask_that_another_call_waits_for_outlives_a_hang_up(
    relay: RelayProcess, mcp: Clients
) -> None:
    client = mcp(relay.agent(), era="modern")
    async with Bot(relay, relay.agent(), hello=True) as bot:
        pending, rid = await begun(client, bot)
        waiting = await client.start("wait_answer", {"request_id": rid})
        await client.heard()
        await pending.hang_up()
        await client.heard()
        await bot.reply(rid, "yes")
        assert (await waiting.result())["answer"] == "yes"


@pytest.mark.clause("mcp.hold.2")
async def test_hanging_up_a_wait_cancels_only_the_wait(relay: RelayProcess, mcp: Clients) -> None:
    """`wait_answer` reads: its end must not end the ask, which was meant to go on by itself."""
    client = mcp(relay.agent(), era="modern")
    async with Bot(relay, relay.agent(), hello=True) as bot:
        rid = (await client.ask(bot.name, "?", wait_ms=0))["request_id"]
        waiting = await client.start("wait_answer", {"request_id": rid})
        await client.heard()
        await waiting.hang_up()
        await client.heard()
        assert await status_of(client, rid) == "working"
        await bot.reply(rid, "yes")
        assert (await client.tool("wait_answer", {"request_id": rid}))["answer"] == "yes"


@pytest.mark.clause("mcp.hold.3", "bridge.life.9")
async def test_an_old_client_cancels_with_a_notification(relay: RelayProcess, mcp: Clients) -> None:
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        pending = await client.start("ask_agent", {"to": bot.name, "message": "?"}, rid="mine")
        rid = (await bot.wake())["request_id"]
        body, headers = client.message(
            "notifications/cancelled", {"requestId": "mine", "reason": "enough"}, rid="notification"
        )
        assert (await client.post(body, headers)).status == 202
        assert (await bot.cancelled())["request_id"] == rid
        assert (await pending.result())["error"] == "cancelled"


@pytest.mark.clause("mcp.hold.3")
async def test_a_cancel_acts_on_no_call_of_another_agent_and_on_no_shared_id(
    relay: RelayProcess, mcp: Clients
) -> None:
    one, two = mcp(relay.agent()), mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        mine = await one.start("ask_agent", {"to": bot.name, "message": "1"}, rid=1)
        theirs = await two.start("ask_agent", {"to": bot.name, "message": "2"}, rid=1)
        shared = await one.start("ask_agent", {"to": bot.name, "message": "3"}, rid="s")
        shared2 = await one.start("ask_agent", {"to": bot.name, "message": "4"}, rid="s")
        wakes = {w["message"]: w["request_id"] for w in [await bot.wake() for _ in range(4)]}
        for client, rid in ((two, 1), (one, "s"), (one, "nobody's"), (one, 1.5), (one, None)):
            body, headers = client.message(
                "notifications/cancelled", {"requestId": rid}, rid="notification"
            )
            assert (await client.post(body, headers)).status == 202
        assert (await bot.cancelled())["request_id"] == wakes["2"]
        assert (await theirs.result())["error"] == "cancelled"
        for message in ("1", "3", "4"):
            await bot.reply(wakes[message], message)
        assert (await mine.result())["answer"] == "1"
        assert {(await p.result())["answer"] for p in (shared, shared2)} == {"3", "4"}


@pytest.mark.clause("mcp.hold.3")
async def test_cancelling_a_wait_ends_only_the_wait(relay: RelayProcess, mcp: Clients) -> None:
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        rid = (await client.ask(bot.name, "?", wait_ms=0))["request_id"]
        waiting = await client.start("wait_answer", {"request_id": rid}, rid=77)
        await client.heard()
        body, headers = client.message(
            "notifications/cancelled", {"requestId": 77}, rid="notification"
        )
        await client.post(body, headers)
        assert (await waiting.result())["error"] == "working"
        assert await status_of(client, rid) == "working"


async def test_an_answer_finds_every_call_that_waits_for_it(
    relay: RelayProcess, mcp: Clients
) -> None:
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        first, rid = await begun(client, bot)
        more = [await client.start("wait_answer", {"request_id": rid}) for _ in range(5)]
        await client.heard()
        await bot.reply(rid, "all")
        replies: list[Reply] = [await pending.done() for pending in (first, *more)]
        assert {reply.result["answer"] for reply in replies} == {"all"}


async def test_a_note_of_any_text_is_shown_as_progress(relay: RelayProcess, mcp: Clients) -> None:
    """Half a surrogate pair in a heartbeat's note must not end the signs of life of everybody."""
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        pending = await client.start("ask_agent", {"to": bot.name, "message": "?"}, progress="t")
        rid = (await bot.wake())["request_id"]
        for note in ('"\\ud800 half"', '"\\u0000"', '"' + "n" * 5000 + '"', '"<b>&"'):
            start = f'"type":"heartbeat","request_id":{json.dumps(rid)}'
            await bot.socket.send("{" + start + ',"note":' + note + "}")
        other = mcp(relay.agent())
        beside = await other.start("ask_agent", {"to": bot.name, "message": "2"}, progress="u")
        second = (await bot.wake())["request_id"]
        for call in (pending, beside):
            await call.streams(progress=True)
        await bot.reply(rid, "done")
        await bot.reply(second, "done")
        reply = await pending.done()
        assert reply.result["answer"] == "done"
        assert reply.progress[0]["message"] == "<b>&"
        assert (await beside.done()).progress


async def test_a_progress_token_of_any_kind_comes_back(relay: RelayProcess, mcp: Clients) -> None:
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        tokens = ["", "é\n", 0, 2**53, -7]
        held = [
            await client.start("ask_agent", {"to": bot.name, "message": "?"}, progress=token)
            for token in tokens
        ]
        wakes = [await bot.wake() for _ in tokens]
        for pending in held:
            await pending.streams(progress=True)
        for wake in wakes:
            await bot.reply(wake["request_id"], "!")
        replies = [await pending.done() for pending in held]
        assert [reply.progress[0]["progressToken"] for reply in replies] == tokens


async def test_five_hundred_held_calls_cost_little(relay: RelayProcess, mcp: Clients) -> None:
    """The memory of a pending ask is measured in benches; here it must only be bounded."""
    client = mcp(relay.agent())
    before = relay.rss_kib()
    async with Bot(relay, relay.agent(), hello=True) as bot:
        held = [
            await client.start("ask_agent", {"to": bot.name, "message": str(i)}) for i in range(500)
        ]
        wakes = [await bot.wake() for _ in held]
        assert relay.rss_kib() - before < 40_000
        for wake in wakes:
            await bot.send(
                type="call", id=wake["message"], tool="reply",
                args={"request_id": wake["request_id"], "answer": wake["message"]},
            )  # fmt: skip
        answers = [(await pending.result())["answer"] for pending in held]
        assert answers == [str(i) for i in range(500)]
