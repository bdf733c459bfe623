"""Real bots, and parts of the world that end and come back in the middle of a question."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.hermes.asked_relay import Relay
from tests.e2e.hermes.conftest import NAME, World, bot, warm_up
from tests.harness.gateway import Gateway
from tests.harness.llm import Call, Say

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _everything_is_up(world: World) -> None:
    """Whatever the test before has ended is up again."""
    if world.relay.process is None or world.relay.process.poll() is not None:
        world.relay.start()
    if not world.b.running:
        world.b.start()
    world.relay.wait_online("a", "b", timeout=60)
    warm_up(world.relay, "b")


def test_a_relay_restarted_while_a_turn_runs_gets_the_answer(world: World) -> None:
    gate = threading.Event()
    world.llm.when("across a restart", Say("still here", gate=gate))
    asked = world.relay.call("asker", "ask_agent", to="b", message="across a restart", wait_ms=0)
    world.llm.wait_for("across a restart")
    assert world.relay.stop() == 0
    world.relay.start()
    world.relay.wait_online("b")
    gate.set()
    assert follow(world.relay, asked["request_id"])["answer"] == "still here"
    assert len(world.llm.texts("across a restart")) == 1


def test_a_relay_killed_while_a_bot_waits_in_an_ask_gives_it_the_answer(world: World) -> None:
    gate = threading.Event()
    nested = Call("ask_agent", {"to": "b", "message": "deep thought"})
    world.llm.when("ask through a crash", nested, Say("a got {result}"))
    world.llm.when("deep thought", Say("forty-two", gate=gate), model="model-b")
    asked = world.relay.call("asker", "ask_agent", to="a", message="ask through a crash", wait_ms=0)
    world.llm.wait_for("deep thought")
    world.relay.kill()
    world.relay.start()
    world.relay.wait_online("a", "b")
    gate.set()
    assert "forty-two" in follow(world.relay, asked["request_id"])["answer"]


def test_a_bot_killed_in_a_turn_that_stays_away_is_disconnected(world: World) -> None:
    world.llm.when("die now", Say("never", gate=threading.Event()))
    asked = world.relay.ask_soon("asker", "b", "die now")
    world.llm.wait_for("die now")
    began = time.monotonic()
    world.b.kill()
    done = asked.result(30)
    assert done["error"] == "agent_disconnected"
    assert time.monotonic() - began > world.relay.settings["reconnect_grace_ms"] / 1000 - 1


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_bot_that_is_back_within_the_grace_answers(world: World, end: str) -> None:
    world.relay.settings["reconnect_grace_ms"] = 60_000
    world.relay.reload()
    world.llm.when("warm up", Say("warm"))
    gate = threading.Event()
    world.llm.when(f"survive a {end}", Say("I am back", gate=gate))
    asked = world.relay.ask_soon("asker", "b", f"survive a {end}")
    world.llm.wait_for(f"survive a {end}")
    world.b.kill() if end == "kill" else world.b.stop()
    gate.set()
    world.b.start()
    assert asked.result(60).get("answer") == "I am back", asked.result()
    seen = world.llm.texts(f"survive a {end}")
    assert len(seen) == 2
    assert "You were interrupted" in seen[1]


def test_a_relay_that_is_down_at_the_bots_start_is_joined_later(
    world: World, tmp_path: Path
) -> None:
    relay = Relay(tmp_path / "late", ("n", "asker"))
    late = bot(world.a.venv, tmp_path / "n", relay, world.llm, "n")
    try:
        late.start()
        late.wait_platform(NAME, "retrying")
        assert "cannot reach the relay" in late.platform(NAME)["error_message"]
        relay.start()
        late.wait_platform(NAME)
        warm_up(relay, "n")
        lines = [line for line in late.log().splitlines() if "cannot reach" in line]
        assert len(lines) == 1
        assert "/plugins/hermes-bridge/" not in traces(late)
    finally:
        late.stop(5)
        relay.close()


def test_a_wrong_token_is_one_clear_line_and_joins_after_a_reload(
    world: World, tmp_path: Path
) -> None:
    relay = Relay(tmp_path / "strict", ("n", "asker")).start()
    wrong = bot(world.a.venv, tmp_path / "n", relay, world.llm, "n", token="wrong-" + "x" * 20)
    try:
        wrong.start()
        wrong.wait_platform(NAME, "retrying")
        assert "token refused" in wrong.platform(NAME)["error_message"]
        relay.tokens["n"] = "wrong-" + "x" * 20
        relay.reload()
        wrong.wait_platform(NAME, timeout=60)
        lines = [line for line in wrong.log().splitlines() if "token refused" in line]
        assert len(lines) == 1
        assert "/plugins/hermes-bridge/" not in traces(wrong)
        assert "wrong-xxx" not in wrong.log() + wrong.log("gateway.out")
    finally:
        wrong.stop(5)
        relay.close()


def follow(relay: Relay, request_id: str) -> Any:
    while True:
        done = relay.call("asker", "wait_answer", request_id=request_id, wait_ms=2_000)
        if done.get("error") != "working":
            return done


def traces(gateway: Gateway) -> str:
    """The files that tracebacks of a gateway's logs name (0.22 has some of its own)."""
    text = gateway.log() + gateway.log("gateway.out")
    return "\n".join(line for line in text.splitlines() if line.lstrip().startswith('File "'))
