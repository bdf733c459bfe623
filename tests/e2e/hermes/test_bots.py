"""Real bots that talk to each other."""

import hashlib
import hmac
import json
import threading
import time
import urllib.request

import pytest
from tests.e2e.hermes.conftest import World
from tests.harness.llm import Call, Say

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(600)]

RID = r"request_id=(?P<rid>[\w-]+).*"


def ask(to: str, message: str, **more: str) -> Call:
    return Call("ask_agent", {"to": to, "message": message, **more})


def test_a_bot_asks_another_and_tells_its_answer(world: World) -> None:
    world.llm.when("capital of France", Say("Paris"), model="model-b")
    world.llm.when("find out", ask("b", "capital of France?"), Say("b said: {result}"))
    done = world.ask("a", "find out the capital")
    assert '"answer": "Paris"' in done["answer"]


def test_a_asks_b_and_b_asks_a_back_in_a_new_conversation(world: World) -> None:
    world.llm.when("start the nest", ask("b", "inner question"), Say("a got [{result}]"))
    world.llm.when("inner question", ask("a", "ask back"), Say("b got [{result}]"))
    world.llm.when("ask back", Say("bedrock"), model="model-a")
    done = world.ask("a", "start the nest")
    assert "bedrock" in done["answer"]
    assert done["answer"].startswith("a got [")
    assert "b got [" in done["answer"]


def test_a_bot_that_asks_back_in_the_same_conversation_is_told_so_at_once(world: World) -> None:
    again = r"conversation_id=(?P<conv>[\w-]+)\).*ring around"
    world.llm.when("make a ring", ask("b", "ring around"), Say("a got {result}"))
    world.llm.when(again, ask("a", "and you?", conversation_id="{conv}"), Say("b got {result}"))
    done = world.ask("a", "make a ring")
    assert "would_deadlock" in done["answer"]


def test_a_bot_that_waits_in_an_ask_still_answers_others_at_once(world: World) -> None:
    gate = threading.Event()
    world.llm.when("think long", Say("thought", gate=gate), model="model-b")
    world.llm.when("delegate it", ask("b", "think long"), Say("a got {result}"))
    world.llm.when("quick question", Say("quick answer"), model="model-a")
    waiting = world.relay.ask_soon("asker", "a", "delegate it")
    world.llm.wait_for("think long")
    assert world.relay.ask("carl", "a", "quick question")["answer"] == "quick answer"
    assert not waiting.done(), waiting.result()
    gate.set()
    assert "thought" in waiting.result(30)["answer"]


def test_two_bots_talk_over_many_turns_of_one_conversation(world: World) -> None:
    world.llm.when(r"round (?P<n>\d)", Say("b{n}"), model="model-b")
    conversation = None
    for n in range(6):
        same = {"conversation_id": conversation} if conversation else {}
        world.llm.when(f"play {n}", ask("b", f"round {n}", **same), Say("{result}"))
        done = json.loads(world.ask("a", f"play {n}")["answer"])
        assert done["answer"] == f"b{n}"
        assert conversation in (None, done["conversation_id"])
        conversation = done["conversation_id"]
    heard = world.llm.wait_for("round 5", where=lambda asked: asked.model == "model-b")
    assert all(f"round {n}" in str(heard.messages) for n in range(6))


def test_a_bot_lists_agents_and_sees_itself_and_who_is_online(world: World) -> None:
    world.llm.when("who is there", Call("list_agents"), Say("{result}"))
    listed = json.loads(world.ask("a", "who is there?")["answer"])
    online = {x["name"]: x["online"] for x in listed}
    assert online == {"a": True, "b": True, "carl": False, "asker": False}


def test_a_person_on_another_platform_asks_a_bot_through_this_one(world: World) -> None:
    world.llm.when("capital of Peru", Say("Lima"), model="model-b")
    world.llm.when("Tell me", ask("b", "capital of Peru?"), Say("webhook got {result}"))
    post(world.webhook, "Tell me what b knows")
    heard = world.llm.wait_for("Tell me", where=lambda asked: bool(asked.results))
    assert json.loads(heard.results[0])["answer"] == "Lima"


def post(port: int, message: str) -> None:
    """Be a person on the bot's webhook platform."""
    body, stamp = json.dumps({"message": message}).encode(), str(int(time.time()))
    signed = hmac.new(b"s", stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    headers = {"X-Webhook-Timestamp": stamp, "X-Webhook-Signature-V2": signed}
    headers |= {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/webhooks/talk", body, headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 202


def test_through_two_mcp_entries_a_bot_answers_while_it_asks(world: World) -> None:
    """What `install --with-mcp` writes: one entry to ask, one to answer (Hermes locks per entry)."""
    gate = threading.Event()
    world.llm.when("ask over mcp", by_mcp("b", "think hard"), Say("mcp got {result}"))
    world.llm.when("think hard", Say("hard thought", gate=gate), model="model-b")
    world.llm.when(RID + "answer over mcp", by_reply("through mcp"), Say("said it"))
    waiting = world.relay.ask_soon("asker", "a", "ask over mcp")
    world.llm.wait_for("think hard")
    assert world.relay.ask("carl", "a", "answer over mcp")["answer"] == "through mcp"
    assert not waiting.done(), waiting.result()
    gate.set()
    assert "hard thought" in waiting.result(60)["answer"]


def test_through_mcp_a_asks_b_and_b_asks_a_back_and_both_complete(world: World) -> None:
    world.llm.when("nest over mcp", by_mcp("b", "inner mcp"), Say("a got [{result}]"))
    inner = (by_mcp("a", "back over mcp"), by_reply("b got {result}"), Say("said it"))
    world.llm.when(RID + "inner mcp", *inner, model="model-b")
    world.llm.when(RID + "back over mcp", by_reply("bedrock"), Say("said it too"))
    answer = world.ask("a", "nest over mcp")["answer"]
    assert answer.startswith("a got [")
    assert "b got " in answer
    assert "bedrock" in answer


def by_mcp(to: str, message: str) -> Call:
    return Call("mcp__bridge_ask__ask_agent", {"to": to, "message": message})


def by_reply(answer: str) -> Call:
    return Call("mcp__bridge_reply__reply", {"request_id": "{rid}", "answer": answer})
