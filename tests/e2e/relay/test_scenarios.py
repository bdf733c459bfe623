"""What must work from end to end: the life of asks as users and their bots see it (bridge.md)."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Clients, Make, RelayProcess, crowd
from tests.harness.waits import eventually
from tests.harness.wire import Json

pytestmark = pytest.mark.anyio

Work = Callable[[Bot, str], Coroutine[None, None, None]]
"""What a bot does about a wake, given its request id."""

BUSY_S = 20.0
"""How long an answer that comes at once may take on a busy machine; the hold is three times that."""


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    """The times of the scenarios: a window of 2 s, a cap of 7 s, slices of 5 s."""
    return module_relays(
        agents=crowd(250),
        ask_timeout_ms=2000,
        ask_max_ms=7_000,
        hold_ms=5000,
        max_turns=12,
        max_run=6,
    )


async def beats_then_answers(bot: Bot, rid: str) -> None:
    for _ in range(8):
        await asyncio.sleep(0.5)
        await bot.beat(rid)
    await bot.reply(rid, "done")


async def is_silent(bot: Bot, rid: str) -> None:
    pass


async def beats_for_ever(bot: Bot, rid: str) -> None:
    await bot.beating(rid, 0.5)


@pytest.mark.clause("bridge.life.2", "bridge.life.3", "bridge.life.8")
async def test_beats_keep_an_ask_alive_silence_ends_it_the_cap_ends_it(
    relay: RelayProcess, mcp: Clients
) -> None:
    """O3: four asks at once, each with its own target; beats of a fifth agent count for nothing."""
    said: dict[str, Json] = {}  # in the order of their ends
    meddler = Bot(relay, relay.agent(), hello=True)

    async def another_beats(bot: Bot, rid: str) -> None:
        await beats_for_ever(meddler, rid)

    async def ask(work: Work) -> None:
        asker = mcp(relay.agent())
        async with Bot(relay, relay.agent()) as bot:
            pending = await asker.start("ask_agent", {"to": bot.name, "message": "?"})
            task = asyncio.create_task(work(bot, (await bot.wake())["request_id"]))
            said[work.__name__] = await asker.outcome(await pending.result())
            task.cancel()

    async with meddler, asyncio.TaskGroup() as group:
        for work in (beats_then_answers, is_silent, beats_for_ever, another_beats):
            group.create_task(ask(work))
    assert set(list(said)[:2]) == {"is_silent", "another_beats"}
    assert list(said)[2:] == ["beats_then_answers", "beats_for_ever"]
    assert said["beats_then_answers"]["answer"] == "done"
    for name, error, least in (
        ("is_silent", "timeout", 2000),
        ("another_beats", "timeout", 2000),
        ("beats_for_ever", "deadline_exceeded", 7000),
    ):
        assert (said[name]["error"], said[name]["elapsed_ms"] >= least) == (error, True)
        assert {"hint", "request_id", "conversation_id"} <= said[name].keys()


@pytest.mark.clause("bridge.reply.1", "bridge.reply.2", "bridge.reply.5", "bridge.life.1")
async def test_only_the_asked_bot_answers_and_only_once(relay: RelayProcess, mcp: Clients) -> None:
    """O4, S1."""
    asker, c = mcp(relay.agent()), mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        pending = await asker.start("ask_agent", {"to": bot.name, "message": "?"})
        rid = (await bot.wake())["request_id"]
        evil = await c.tool("reply", {"request_id": rid, "answer": "evil"})
        assert evil["error"] == "not_your_request"
        assert await bot.reply(rid, "good") == {"ok": True}
        assert (await pending.result())["answer"] == "good"
        assert await bot.reply(rid, "good") == {"ok": True}  # the same frame twice
        assert (await bot.reply(rid, "better"))["error"] == "already_answered"
        assert (await bot.reply(rid, "no", kind="failure"))["error"] == "already_answered"
        assert (await bot.reply("never-given", "x"))["error"] == "unknown_request"
        found = await asker.tool("wait_answer", {"request_id": rid})
        assert found["answer"] == "good"


@pytest.mark.clause("bridge.link.6", "bridge.life.6")
@pytest.mark.parametrize("hello", [False, True])
async def test_a_reconnect_race_loses_nothing(
    relay: RelayProcess, mcp: Clients, hello: bool
) -> None:
    """O5, S2, T50: a wake whose frame was written but not taken is sent again, once."""
    asker, watcher, name = mcp(relay.agent()), mcp(relay.agent()), relay.agent()
    seen: list[bool] = []

    async def watch() -> None:
        while True:
            agents = {x["name"]: x["online"] for x in await watcher.tool("list_agents")}
            seen.append(agents[name])
            await asyncio.sleep(0.01)

    one = await Bot(relay, name, hello=hello, ack=False).connect()
    pending = await asker.start("ask_agent", {"to": name, "message": "?"})
    rid = (await one.wake())["request_id"]
    watching = asyncio.create_task(watch())
    async with Bot(relay, name, hello=hello) as two:
        again = await two.wake()
        await one.close()
        assert again["request_id"] == rid
        if hello:
            assert again["attempt"] == 2
        await two.no_wake()
        assert not pending.reading.done()
        await two.reply(rid, "on the second")
        assert (await pending.result())["answer"] == "on the second"
        watching.cancel()
    assert seen and all(seen)


@pytest.mark.clause("bridge.life.6")
async def test_a_wake_is_kept_until_it_is_acked_by_the_bot_itself(
    relay: RelayProcess, mcp: Clients
) -> None:
    """T50: that the frame left the relay counts for nothing; three links die right after it."""
    asker, name = mcp(relay.agent()), relay.agent()
    pending = None
    for attempt in (1, 2, 3):
        bot = await Bot(relay, name, hello=True, ack=False).connect()
        if pending is None:
            pending = await asker.start("ask_agent", {"to": name, "message": "?"})
        assert (await bot.wake())["attempt"] == attempt
        bot.vanish()
        await bot.closed()
    async with Bot(relay, name, hello=True) as bot:
        wake = await bot.wake()
        assert wake["attempt"] == 4
        await bot.reply(wake["request_id"], "finally")
        assert pending is not None
        assert (await pending.result())["answer"] == "finally"


@pytest.mark.clause("bridge.life.4")
async def test_in_one_conversation_wakes_come_one_at_a_time_and_in_order(
    relay: RelayProcess, mcp: Clients
) -> None:
    """T24, T25, 4.7: five within a second; another conversation is not held up."""
    one, two = mcp(relay.agent()), mcp(relay.agent())
    async with Bot(relay, relay.agent()) as bot:
        first = await one.ask(bot.name, "0", wait_ms=0)
        conversation = first["conversation_id"]
        more = [
            await one.ask(bot.name, str(i), wait_ms=0, conversation_id=conversation)
            for i in range(1, 5)
        ]
        other = await two.ask(bot.name, "beside", wait_ms=0)
        assert {(await bot.wake())["message"], (await bot.wake())["message"]} == {"0", "beside"}
        await bot.no_wake()
        await bot.reply(other["request_id"], "ok")
        order = [first, *more]
        for number, ask in enumerate(order):
            if number:
                wake = await bot.wake()
                assert (wake["message"], wake["request_id"]) == (str(number), ask["request_id"])
            assert bot._wakes.empty()
            await bot.reply(ask["request_id"], f"answer {number}")
        for number, ask in enumerate(order):
            found = await one.tool("wait_answer", {"request_id": ask["request_id"]})
            assert found["answer"] == f"answer {number}"


@pytest.mark.clause("bridge.life.4")
async def test_waiting_behind_another_ask_is_not_silence(relay: RelayProcess, mcp: Clients) -> None:
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent()) as bot:
        first = await client.ask(bot.name, "long", wait_ms=0)
        second = await client.ask(
            bot.name, "behind", wait_ms=0, conversation_id=first["conversation_id"]
        )
        beating = asyncio.create_task(bot.beating(first["request_id"], 0.5))
        async with Bot(relay, relay.agent()) as silent:  # a whole window passes
            assert (await client.ask(silent.name, "?"))["error"] == "timeout"
        beating.cancel()
        await bot.reply(first["request_id"], "at last")
        assert (await bot.wake())["message"] == "long"
        assert (await bot.wake())["message"] == "behind"
        await bot.reply(second["request_id"], "quick")
        found = await client.tool("wait_answer", {"request_id": second["request_id"]})
        assert found["answer"] == "quick"


@pytest.mark.clause("bridge.ask.8")
async def test_the_same_key_leads_to_the_same_exchange(relay: RelayProcess, mcp: Clients) -> None:
    """T40: before, while and after the answer; other agents' keys are their own."""
    one, two = mcp(relay.agent()), mcp(relay.agent())
    async with Bot(relay, relay.agent()) as bot:
        pendings = [
            await one.start("ask_agent", {"to": bot.name, "message": "?", "idempotency_key": "k"})
            for _ in range(5)
        ]
        theirs = await two.ask(bot.name, "!", idempotency_key="k", wait_ms=0)
        wakes = [await bot.wake(), await bot.wake()]
        await bot.no_wake()
        mine = next(w for w in wakes if w["message"] == "?")
        assert theirs["request_id"] != mine["request_id"]
        await bot.reply(mine["request_id"], "one")
        results = [await pending.result() for pending in pendings]
        results.append(await one.ask(bot.name, "something else", idempotency_key="k"))
        assert {(x["request_id"], x["answer"]) for x in results} == {(mine["request_id"], "one")}


@pytest.mark.clause("bridge.wait.1")
async def test_the_longest_hold_is_an_agents_own(relays: Make) -> None:
    """T1, T2, T3, T36, T42, T47: the id is there before any client gives up."""
    relay = relays(agents=[{"name": "a", "hold_ms": 400}, "b", "patient"], hold_ms=60_000)
    async with Bot(relay, "b") as bot, Mcp(relay, "a") as a, Mcp(relay, "patient") as patient:
        for wait in ({}, {"wait_ms": 10**9}, {"wait_ms": 1e300}):
            said = await a.ask("b", "?", timeout=BUSY_S, **wait)
            assert (said["error"], said["elapsed_ms"] >= 400) == ("working", True)
            assert {"request_id", "conversation_id", "hint"} <= said.keys()
        for wait_ms in (0, -5, 0.4, -1e300):
            said = await patient.ask("b", "?", timeout=BUSY_S, wait_ms=wait_ms)
            assert said["error"] == "working"
        assert bot.frames


@pytest.mark.clause("bridge.reply.3", "bridge.wait.2")
async def test_a_late_answer_is_kept_and_found(relay: RelayProcess, mcp: Clients) -> None:
    """T45, T47: after the silence, after a cancel; the first one stays."""
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        timed_out = await client.start("ask_agent", {"to": bot.name, "message": "1"})
        rid = (await bot.wake())["request_id"]
        assert (await timed_out.result())["error"] == "timeout"
        assert await bot.reply(rid, "slow") == {"ok": True, "late": True}
        assert await bot.reply(rid, "slow") == {"ok": True, "late": True}
        assert (await bot.reply(rid, "other"))["error"] == "already_answered"
        found = await client.tool("wait_answer", {"request_id": rid})
        assert (found["ok"], found["answer"], found["late"]) == (True, "slow", True)


@pytest.mark.clause("bridge.ask.5")
async def test_two_bots_that_talk_to_themselves_are_stopped(
    relay: RelayProcess, mcp: Clients
) -> None:
    """T31: without a pause after a run of six, within an hour after twelve."""
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent()) as bot:
        bot.on_wake = lambda wake: "and you?"
        said = await client.ask(bot.name, "hi")
        turns = 1
        while said["ok"]:
            said = await client.ask(bot.name, "and?", conversation_id=said["conversation_id"])
            turns += said["ok"]
        assert (said["error"], turns) == ("turn_limit", 6)
        assert said["hint"]
        fresh = await client.ask(bot.name, "something new")
        assert fresh["ok"]


@pytest.mark.clause("bridge.ask.2")
async def test_who_may_ask_whom_is_kept_and_shown(relays: Make) -> None:
    relay = relays(agents=[{"name": "a", "may_ask": ["b"]}, "b", "c-bot"])
    async with (
        Bot(relay, "b") as b,
        Bot(relay, "c-bot") as c,
        Mcp(relay, "a") as a,
        Mcp(relay, "b") as of_b,
    ):
        b.on_wake = c.on_wake = lambda wake: "yes"
        assert (await a.ask("b", "?"))["ok"] is True
        assert (await a.ask("c-bot", "?"))["error"] == "not_allowed"
        assert (await of_b.ask("c-bot", "?"))["ok"] is True
        lines = {line["name"]: line for line in await a.tool("list_agents")}
        assert [lines[n]["may_ask"] for n in ("a", "b", "c-bot")] == [False, True, False]
        said = await a.ask("c-bto", "?")
        assert said["error"] == "unknown_agent"
        assert "c-bot" in said["hint"]
        for odd in ("", "b" * 3_000_000, "\0", "b ", "B"):
            said = await a.ask(odd, "?", timeout=BUSY_S)
            assert (said["ok"], said["error"]) == (False, "unknown_agent")


async def test_the_list_says_who_is_there_and_who_works(relay: RelayProcess, mcp: Clients) -> None:
    """T52: online, working, and when last seen are different things."""
    client, name = mcp(relay.agent()), relay.agent()

    async def line() -> Json:
        found: Json = next(x for x in await client.tool("list_agents") if x["name"] == name)
        return found

    before = await line()
    assert list(before)[:2] == ["name", "online"]
    assert (before["online"], before["busy"], before["last_seen"]) == (False, False, None)
    async with Bot(relay, name, hello={"description": "knows all", "skills": ["x"]}) as bot:
        rid = (await client.ask(name, "?", wait_ms=0))["request_id"]
        await bot.wake()
        now = await line()
        assert (now["online"], now["busy"], now["description"]) == (True, True, "knows all")
        await bot.reply(rid, "!")
        assert (await line())["busy"] is False
    after = await eventually(line, "a line")
    assert after["last_seen"].endswith("Z")


async def test_the_whole_list_fits_onto_a_link_whatever_agents_say_of_themselves(
    relays: Make,
) -> None:
    many = [{"name": f"agent-{i}", "description": "d" * 2000} for i in range(600)]
    relay = relays(agents=["a", *many])
    async with Bot(relay, "a", hello=True, max_size=2**20) as a, Mcp(relay, "a") as client:
        assert len(await client.tool("list_agents")) == 601
        listed = await a.call("list_agents")
        assert [line["name"] for line in listed][:3] == ["a", "agent-0", "agent-1"]
        assert (await a.call("ask_agent", {"to": "agent-1", "message": "?"}))[
            "error"
        ] == "agent_offline"
