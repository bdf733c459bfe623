"""What the agent calls through its link: asks, replies and their bounds, against a played relay."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.plugins.bridge.conftest import Start
from tests.plugins.bridge.fake_relay import FakeRelay
from tests.plugins.bridge.played import Bot, at

from hermes_bridge.plugins.bridge.tools import Session, Tools

pytestmark = pytest.mark.anyio


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


@pytest.mark.clause("bridge.trace.5")
async def test_what_a_bot_asks_and_answers_carries_the_trace_of_the_question_over_a_restart(
    relay: FakeRelay, start: Start
) -> None:
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "baggage": "team=hr"}
    session = Session("hermes-bridge", "hermes-bridge:c1")
    bot = await start()
    await at(relay.wake, "r1", "hi", trace={**trace, "tracestate": "not\nprintable"})
    await bot.turn()
    await at(tools(bot, session).handler("list_agents"), {})
    assert (await at(relay.expect, tool="list_agents"))["trace"] == trace
    await at(tools(bot, Session("telegram", "7")).handler("list_agents"), {})
    assert "trace" not in await at(relay.expect, tool="list_agents", count=2)
    await bot.bridge.close()
    again = await start()
    wake, _ = await again.turn()
    assert tools(again, session).trace() == trace
    relay.answer = lambda call: None
    await again.end(wake, "done")
    assert (await at(relay.expect, tool="reply"))["trace"] == trace
    await again.bridge.close()
    await start()
    assert (await at(relay.expect, tool="reply", count=2))["trace"] == trace


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
    async with asyncio.timeout(30):
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
