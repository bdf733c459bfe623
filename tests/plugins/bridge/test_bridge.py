"""The shell over real sockets, with a Hermes that the test plays and a relay that it plays too."""

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from tests.plugins.bridge.fake_relay import FakeRelay

from hermes_bridge.plugins.bridge import link as link_module
from hermes_bridge.plugins.bridge.bridge import Bridge
from hermes_bridge.plugins.bridge.frames import Wake
from hermes_bridge.plugins.bridge.inbox import Reply
from hermes_bridge.plugins.bridge.journal import Journal
from hermes_bridge.plugins.bridge.settings import Settings
from hermes_bridge.plugins.bridge.tools import Session, Tools

pytestmark = pytest.mark.anyio


class PlayedHermes:
    """A host: notes what it is told; turns end when the test says so."""

    def __init__(self) -> None:
        self.is_ready = True
        self.begun: asyncio.Queue[tuple[Wake, str]] = asyncio.Queue()
        self.interrupted: asyncio.Queue[str] = asyncio.Queue()
        self.states: list[tuple[bool, str, str]] = []
        self.turns: set[str] = set()

    def ready(self, conversation: str) -> bool:
        return self.is_ready

    def busy(self, conversation: str) -> bool:
        return conversation in self.turns

    async def begin(self, wake: Wake, text: str) -> None:
        self.turns.add(wake.conversation_id)
        self.begun.put_nowait((wake, text))

    async def interrupt(self, conversation: str) -> None:
        self.interrupted.put_nowait(conversation)

    def show(self, online: bool, code: str, words: str) -> None:
        self.states.append((online, code, words))


class Bot:
    """A bridge, its host, and what a test wants to do with them."""

    def __init__(self, relay: FakeRelay, home: Path) -> None:
        self.relay, self.home = relay, home
        self.host = PlayedHermes()
        self.token = relay.token
        self.bridge = Bridge(self.host, self.settings, Journal(home / "exchanges.jsonl"))

    def settings(self) -> Settings:
        return Settings(self.relay.url, self.token)

    async def turn(self) -> tuple[Wake, str]:
        async with asyncio.timeout(10):
            return await self.host.begun.get()

    async def end(self, wake: Wake, answer: str | None) -> None:
        if answer is not None:
            await self.bridge.final(wake.request_id, Reply(answer))
        self.host.turns.discard(wake.conversation_id)
        self.bridge.turn_over(wake.request_id)


Start = Callable[..., Awaitable[Bot]]


@pytest.fixture
def relay() -> Iterator[FakeRelay]:
    with FakeRelay(heartbeat_ms=100) as played:
        yield played


@pytest.fixture
async def start(relay: FakeRelay, tmp_path: Path) -> AsyncIterator[Start]:
    bots: list[Bot] = []

    async def make(*, online: bool = True) -> Bot:
        bot = Bot(relay, tmp_path)
        bots.append(bot)
        bot.bridge.start()
        if online:
            async with asyncio.timeout(10):
                await bot.bridge._up.wait()
        return bot

    yield make
    for bot in bots:
        await bot.bridge.close()


async def at(work: Callable[..., Any], *args: Any, **kw: Any) -> Any:
    return await to_thread.run_sync(lambda: work(*args, **kw))


async def test_the_link_says_hello_with_its_token_and_shows_connected_only_when_welcome(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    assert relay.headers["Authorization"] == f"Bearer {relay.token}"
    assert (await at(relay.expect, type="hello"))["protocol"] == 2
    assert bot.host.states == [(True, "", "connected")]


async def test_a_wake_becomes_an_ack_a_turn_heartbeats_and_an_answer(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(relay.wake, "r1", "2+2?")
    wake, text = await bot.turn()
    assert "2+2?" in text
    await at(relay.expect, type="ack", request_id="r1")
    await at(relay.expect, type="heartbeat", request_id="r1", count=3)
    await bot.end(wake, "4")
    expected = {"request_id": "r1", "answer": "4", "kind": "answer"}
    assert await at(relay.reply, "r1") == expected
    beats = len(relay.of(type="heartbeat"))
    await at(relay.none, 0.35, type="call", tool="ask_agent")
    assert len(relay.of(type="heartbeat")) <= beats + 1
    assert len(relay.of(type="call", tool="reply")) == 1


async def test_five_wakes_at_once_are_five_turns_in_order_while_another_conversation_runs(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    for n in range(5):
        await at(relay.wake, f"r{n}", f"question {n}")
    await at(relay.wake, "other", "elsewhere", "c2")
    first, _ = await bot.turn()
    other, _ = await bot.turn()
    assert (first.request_id, other.request_id) == ("r0", "other")
    await at(relay.expect, type="heartbeat", request_id="r4", note="queued")
    order = [first]
    for n in range(5):
        await bot.end(order[-1], f"answer {n}")
        if n < 4:
            order.append((await bot.turn())[0])
    assert [wake.request_id for wake in order] == [f"r{n}" for n in range(5)]
    for n in range(5):
        assert (await at(relay.reply, f"r{n}"))["answer"] == f"answer {n}"


async def test_a_wake_sent_twice_runs_once_also_over_a_restart(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(relay.wake, "r1", "hi")
    wake, _ = await bot.turn()
    await at(relay.wake, "r1", "hi", attempt=2)
    await at(relay.expect, type="ack", request_id="r1", count=2)
    await bot.end(wake, "yes")
    await at(relay.reply, "r1")
    await asyncio.sleep(0)
    await bot.bridge.close()
    again = await start()
    await at(relay.wake, "r1", "hi", attempt=3)
    await at(relay.expect, type="call", tool="reply", args__request_id="r1", count=2)
    assert again.host.begun.empty()


async def test_a_turn_that_was_on_when_the_process_died_is_begun_again(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(relay.wake, "r1", "hi")
    await bot.turn()
    await at(relay.expect, type="ack", request_id="r1")
    await bot.bridge.close()
    again = await start()
    wake, text = await again.turn()
    assert wake.attempt == 2
    assert "interrupted" in text


async def test_an_answer_given_while_the_relay_is_away_arrives_when_it_is_back(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(relay.wake, "r1", "hi")
    wake, _ = await bot.turn()
    await at(relay.stop)
    await bot.end(wake, "kept")
    await at(relay.none, 0.2, type="call")
    await at(relay.start)
    assert (await at(relay.reply, "r1"))["answer"] == "kept"


async def test_while_a_question_is_open_a_lost_relay_is_dialled_every_three_seconds(
    relay: FakeRelay, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    real = asyncio.sleep

    async def note(wait: float) -> None:
        waits.append(wait)
        await real(min(wait, 0.02))

    bot = await start()
    await at(relay.wake, "r1", "hi")
    wake, _ = await bot.turn()
    monkeypatch.setattr(link_module.asyncio, "sleep", note)
    await at(relay.stop)
    await at(_until, lambda: len(waits) >= 5)
    assert max(waits) <= link_module.URGENT_S
    await bot.end(wake, "kept")
    await at(relay.start)
    await at(relay.reply, "r1")
    await at(_until, lambda: len(bot.bridge.calls) == 0)
    await at(relay.stop)
    del waits[:]
    await at(_until, lambda: len(waits) >= 5)
    assert max(waits) > 10


async def test_an_answer_without_a_result_is_repeated_on_the_next_link_only(
    relay: FakeRelay, start: Start
) -> None:
    relay.answer = lambda call: None
    bot = await start()
    await at(relay.wake, "r1", "hi")
    await bot.end((await bot.turn())[0], "once")
    await at(relay.reply, "r1")
    relay.answer = lambda call: {"ok": True}
    await at(relay.drop)
    await at(relay.expect, type="call", tool="reply", count=2)
    await at(relay.drop)
    await at(relay.expect, type="hello", count=3)
    await at(relay.none, 0.3, type="call", tool="reply", id="x")
    assert len(relay.of(type="call", tool="reply")) == 2


async def test_a_turn_that_ends_without_a_text_fails_at_once(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(relay.wake, "r1", "hi")
    await bot.end((await bot.turn())[0], None)
    assert (await at(relay.reply, "r1"))["kind"] == "failure"


async def test_a_turn_that_hermes_lost_without_a_word_is_noticed(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(relay.wake, "r1", "hi")
    wake, _ = await bot.turn()
    bot.host.turns.discard(wake.conversation_id)
    assert (await at(relay.reply, "r1", 5))["kind"] == "failure"


async def test_a_cancelled_turn_is_interrupted_and_answers_nobody(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(relay.wake, "r1", "hi")
    wake, _ = await bot.turn()
    await at(relay.send, {"type": "cancel", "request_id": "r1", "reason": "changed my mind"})
    async with asyncio.timeout(5):
        assert await bot.host.interrupted.get() == "c1"
    await bot.end(wake, "too late")
    await at(relay.none, type="call")


async def test_a_gateway_that_is_not_ready_gets_the_turn_when_it_is(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    bot.host.is_ready = False
    await at(relay.wake, "r1", "hi")
    await at(relay.expect, type="heartbeat", request_id="r1", note="queued")
    assert bot.host.begun.empty()
    bot.host.is_ready = True
    assert (await bot.turn())[0].request_id == "r1"


async def test_an_answer_the_relay_finds_too_large_is_cut_and_sent_again(
    relay: FakeRelay, start: Start
) -> None:
    def small(call: dict[str, Any]) -> dict[str, Any]:
        too_large = len(call["args"]["answer"]) > 2_000
        return {"ok": False, "error": "message_too_large"} if too_large else {"ok": True}

    relay.answer = small
    bot = await start()
    await at(relay.wake, "r1", "hi")
    await bot.end((await bot.turn())[0], "x" * 5_000)
    sent = await at(relay.expect, type="call", tool="reply", count=3)
    assert "[cut by hermes-bridge" in sent["args"]["answer"]


async def test_nonsense_frames_do_not_end_the_link_and_are_told_once(
    relay: FakeRelay, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    bot = await start()
    with caplog.at_level(logging.WARNING):
        for text in ("{", "[]", "{", json.dumps({"type": "wake", "request_id": 5})):
            await at(relay.send, text)
        await at(relay.wake, "r1", "hi")
        await bot.turn()
    assert relay.dials == 1
    assert len(caplog.records) == 3


async def test_a_wrong_token_is_one_line_and_joins_when_it_is_right(
    relay: FakeRelay,
    start: Start,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bot = Bot(relay, Path("/nonexistent"))
    _hasten(monkeypatch)
    relay.refuse = True
    with caplog.at_level(logging.WARNING):
        bot = await start(online=False)
        await at(_until, lambda: relay.dials >= 3)
        refused = [r for r in caplog.records if "token refused" in r.message]
    assert len(refused) == 1
    assert not refused[0].exc_info
    assert relay.token not in caplog.text
    assert bot.host.states[-1][:2] == (False, "refused")
    relay.refuse = False
    async with asyncio.timeout(10):
        await bot.bridge._up.wait()
    assert bot.host.states[-1] == (True, "", "connected")


async def test_a_superseded_link_says_so(relay: FakeRelay, start: Start) -> None:
    bot = await start()
    await at(relay.drop, 4409)
    await at(_until, lambda: bot.host.states[-1][0] is False)
    assert bot.host.states[-1][1] == "superseded"
    assert "another process" in bot.host.states[-1][2]


async def test_a_relay_that_never_welcomes_is_named_for_what_it_is(
    relay: FakeRelay, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "WELCOME_S", 0.2)
    relay.welcomes = False
    bot = await start(online=False)
    await at(_until, lambda: bot.host.states and not bot.host.states[-1][0])
    assert bot.host.states[-1][1] == "no_welcome"


async def test_a_tool_call_waits_over_a_restart_of_the_relay_with_one_idempotency_key(
    relay: FakeRelay, start: Start
) -> None:
    relay.answer = lambda call: None
    bot = await start()
    asked = asyncio.create_task(at(tools(bot).handler("ask_agent"), {"to": "b", "message": "hi"}))
    first = await at(relay.expect, type="call", tool="ask_agent")
    relay.answer = lambda call: {"ok": True, "answer": "hello"}
    await at(relay.stop)
    await at(relay.start)
    second = await at(relay.expect, type="call", tool="ask_agent", count=2)
    assert first["args"]["idempotency_key"] == second["args"]["idempotency_key"]
    assert json.loads(await asked) == {"ok": True, "answer": "hello"}


async def test_an_ask_goes_on_while_the_other_agent_works(relay: FakeRelay, start: Start) -> None:
    results = iter(
        [
            {"ok": False, "error": "working", "request_id": "x"},
            {"ok": False, "error": "working", "request_id": "x"},
            {"ok": True, "answer": "done"},
        ]
    )
    relay.answer = lambda call: next(results)
    bot = await start()
    said = await at(tools(bot).handler("ask_agent"), {"to": "b", "message": "hi"})
    assert json.loads(said)["answer"] == "done"
    assert [f["tool"] for f in relay.of(type="call")] == ["ask_agent", "wait_answer", "wait_answer"]


async def test_an_ask_with_its_own_wait_gives_working_back(relay: FakeRelay, start: Start) -> None:
    working = {"ok": False, "error": "working", "request_id": "x"}
    relay.answer = lambda call: working
    bot = await start()
    said = await at(tools(bot).handler("ask_agent"), {"to": "b", "message": "h", "wait_ms": 0})
    assert json.loads(said) == working


async def test_a_call_names_the_exchange_of_its_turn(relay: FakeRelay, start: Start) -> None:
    bot = await start()
    await at(relay.wake, "r1", "hi", "c7")
    await bot.turn()
    session = Session("hermes-bridge", "hermes-bridge:c7")
    await at(tools(bot, session).handler("list_agents"), {})
    assert (await at(relay.expect, type="call", tool="list_agents"))["request_id"] == "r1"
    await at(tools(bot, Session("telegram", "7")).handler("list_agents"), {})
    assert "request_id" not in await at(relay.expect, type="call", tool="list_agents", count=2)


async def test_the_reply_tool_answers_only_the_question_of_its_turn(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(relay.wake, "mine", "hi", "c1")
    await at(relay.wake, "other", "hi", "c2")
    await bot.turn()
    await bot.turn()
    reply = tools(bot, Session("hermes-bridge", "hermes-bridge:c1")).handler("reply")
    stolen = json.loads(await at(reply, {"request_id": "other", "answer": "x"}))
    assert stolen["error"] == "not_your_request"
    assert json.loads(await at(reply, {"request_id": "mine", "answer": "y"})) == {"ok": True}
    again = json.loads(await at(reply, {"request_id": "mine", "answer": "z"}))
    assert again["error"] == "already_answered"
    assert (await at(relay.reply, "mine"))["answer"] == "y"
    assert json.loads(await at(reply, {"request_id": "mine"}))["error"] == "invalid_message"


async def test_data_goes_with_an_answer_unless_it_makes_it_too_large(
    relay: FakeRelay, start: Start
) -> None:
    def no_data(call: dict[str, Any]) -> dict[str, Any]:
        large = "data" in call["args"] and call["args"]["request_id"] == "big"
        return {"ok": False, "error": "message_too_large"} if large else {"ok": True}

    relay.answer = no_data
    bot = await start()
    for rid in ("small", "big"):
        await at(relay.wake, rid, "hi", rid)
        await bot.turn()
        reply = tools(bot, Session("hermes-bridge", f"hermes-bridge:{rid}")).handler("reply")
        await at(reply, {"request_id": rid, "answer": "y", "data": {"k": 1}})
    assert (await at(relay.reply, "small"))["data"] == {"k": 1}
    again = await at(relay.expect, type="call", tool="reply", args__request_id="big", count=2)
    assert "data" not in again["args"]


async def test_a_call_that_would_cost_the_link_is_refused_before_it_is_sent(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    ask = tools(bot).handler("ask_agent")
    refused = json.loads(await at(ask, {"to": "b", "message": "x" * 1_100_000}))
    assert refused["error"] == "message_too_large"
    await at(relay.wake, "r1", "hi")
    await bot.turn()
    reply = tools(bot, Session("hermes-bridge", "hermes-bridge:c1")).handler("reply")
    await at(reply, {"request_id": "r1", "answer": "y", "data": {"k": "x" * 1_100_000}})
    assert await at(relay.reply, "r1") == {"request_id": "r1", "answer": "y", "kind": "answer"}
    assert relay.dials == 1


async def test_half_a_character_in_a_question_does_not_hold_the_call(
    relay: FakeRelay, start: Start
) -> None:
    bot = await start()
    await at(tools(bot).handler("ask_agent"), {"to": "b", "message": "a\ud800b"})
    assert (await at(relay.expect, type="call"))["args"]["message"] == "a\ufffdb"


async def test_an_interrupted_ask_of_a_cancelled_turn_is_withdrawn(
    relay: FakeRelay, start: Start
) -> None:
    relay.answer = lambda call: None
    bot = await start()
    await at(relay.wake, "r1", "hi")
    await bot.turn()
    stop = threading.Event()
    ask = tools(bot, Session("hermes-bridge", "hermes-bridge:c1"), stop.is_set).handler("ask_agent")
    asked = asyncio.create_task(at(ask, {"to": "b", "message": "x"}))
    first = await at(relay.expect, type="call", tool="ask_agent")
    await at(relay.send, {"type": "cancel", "request_id": "r1", "reason": ""})
    async with asyncio.timeout(5):
        await bot.host.interrupted.get()
    relay.answer = lambda call: {"ok": False, "error": "working", "request_id": "nested"}
    stop.set()
    assert json.loads(await asked)["error"] == "interrupted"
    again = await at(relay.expect, type="call", tool="ask_agent", count=2)
    assert again["args"]["idempotency_key"] == first["args"]["idempotency_key"]
    await at(relay.expect, type="call", tool="cancel_ask", args__request_id="nested")


async def test_without_a_link_a_tool_says_so_instead_of_hanging(
    relay: FakeRelay, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_bridge.plugins.bridge.bridge.PATIENCE_S", 0.1)
    await at(relay.stop)
    bot = await start(online=False)
    said = json.loads(await at(tools(bot).handler("list_agents"), {}))
    assert said["error"] == "relay_unreachable"
    assert json.loads(Tools(lambda: None, _nowhere, bool).handler("reply")({}))["ok"] is False


def tools(
    bot: Bot, session: Session | None = None, stop: Callable[[], bool] = lambda: False
) -> Tools:
    return Tools(lambda: bot.bridge, lambda: session or _nowhere(), stop)


def _nowhere() -> Session:
    return Session("", "")


def _until(condition: Callable[[], Any]) -> None:
    waiting = threading.Event()
    for _ in range(400):
        if condition():
            return
        waiting.wait(0.025)
    raise AssertionError("did not happen within 10 s")


def _hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the waits between dials short; their lengths are tested in test_dial.py."""
    real = asyncio.sleep
    monkeypatch.setattr(link_module.asyncio, "sleep", lambda wait: real(min(wait, 0.05)))
