"""The shell over real sockets, with a Hermes that the test plays and a relay that it plays too."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.harness.waits import until
from tests.plugins.bridge.conftest import Start
from tests.plugins.bridge.fake_relay import FakeRelay
from tests.plugins.bridge.played import Bot, at

from hermes_bridge.plugins.bridge import link as link_module

pytestmark = pytest.mark.anyio


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
    beats = len(relay.of(type="heartbeat", request_id="r1"))
    await at(relay.wake, "r2", "3+3?", conversation="c2")
    await at(relay.expect, type="heartbeat", request_id="r2", count=3)
    assert len(relay.of(type="heartbeat", request_id="r1")) <= beats + 1
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
    await at(until, lambda: len(waits) >= 5, "five waits")
    assert max(waits) <= link_module.URGENT_S
    await bot.end(wake, "kept")
    await at(relay.start)
    await at(relay.reply, "r1")
    await at(until, lambda: len(bot.bridge.calls) == 0, "the calls over")
    await at(relay.stop)
    del waits[:]
    await at(until, lambda: len(waits) >= 5, "five waits")
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
    await at(relay.none, type="call", tool="ask_agent")
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
    async with asyncio.timeout(30):
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
        await at(until, lambda: relay.dials >= 3, "three dials")
        refused = [r for r in caplog.records if "token refused" in r.message]
    assert len(refused) == 1
    assert not refused[0].exc_info
    assert relay.token not in caplog.text
    assert bot.host.states[-1][:2] == (False, "refused")
    relay.refuse = False
    async with asyncio.timeout(30):
        await bot.bridge._up.wait()
    assert bot.host.states[-1] == (True, "", "connected")


async def test_a_superseded_link_says_so(relay: FakeRelay, start: Start) -> None:
    bot = await start()
    await at(relay.drop, 4409)
    await at(until, lambda: bot.host.states[-1][0] is False, "offline")
    assert bot.host.states[-1][1] == "superseded"
    assert "another process" in bot.host.states[-1][2]


async def test_a_relay_that_never_welcomes_is_named_for_what_it_is(
    relay: FakeRelay, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "WELCOME_S", 0.2)
    relay.welcomes = False
    bot = await start(online=False)
    await at(until, lambda: bot.host.states and not bot.host.states[-1][0], "offline")
    assert bot.host.states[-1][1] == "no_welcome"


def _hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the waits between dials short; their lengths are tested in test_dial.py."""
    real = asyncio.sleep
    monkeypatch.setattr(link_module.asyncio, "sleep", lambda wait: real(min(wait, 0.05)))
