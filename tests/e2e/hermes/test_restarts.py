"""Real bots, and parts of the world that end and come back in the middle of a question."""

import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from tests.e2e.hermes.asked_relay import Relay
from tests.e2e.hermes.conftest import NAME, World, bot, warm_up
from tests.harness.gateway import Gateway
from tests.harness.llm import Call, Say
from tests.harness.venvs import Venv
from tests.harness.waits import until
from tests.plugins.bridge.fake_relay import FakeRelay

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(600)]

TOKEN = "not-the-token-" + "x" * 20


UP = pytest.mark.usefixtures("everything_is_up")


@UP
def test_a_relay_restarted_while_a_turn_runs_gets_the_answer(world: World) -> None:
    gate = threading.Event()
    world.llm.when("across a restart", Say("still here", gate=gate))
    asked = world.relay.call("asker", "ask_agent", to="b", message="across a restart", wait_ms=0)
    world.llm.wait_for("across a restart")
    assert world.relay.stop() == 0
    world.relay.start()
    world.relay.wait_online("b")
    gate.set()
    assert world.relay.follow("asker", asked)["answer"] == "still here"
    assert len(world.llm.texts("across a restart")) == 1


@UP
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
    assert "forty-two" in world.relay.follow("asker", asked)["answer"]


@UP
def test_a_bot_killed_in_a_turn_that_stays_away_is_disconnected(world: World) -> None:
    usual = world.relay.config["reconnect_grace_ms"]
    world.relay.reload(reconnect_grace_ms=2_000)
    world.llm.when("die now", Say("never", gate=threading.Event()))
    asked = world.relay.ask_soon("asker", "b", "die now")
    world.llm.wait_for("die now")
    began = time.monotonic()
    world.b.kill()
    assert asked.result(60)["error"] == "agent_disconnected"
    assert time.monotonic() - began > 1.5, "the grace was not waited for"
    world.relay.reload(reconnect_grace_ms=usual)


@UP
@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_bot_that_is_back_within_the_grace_answers(world: World, end: str) -> None:
    gate = threading.Event()
    world.llm.when(f"survive a {end}", Say("I am back", gate=gate))
    asked = world.relay.ask_soon("asker", "b", f"survive a {end}")
    words = world.llm.wait_for(f"survive a {end}").text
    world.b.kill() if end == "kill" else world.b.stop()
    gate.set()
    owe(world.b, words.partition("conversation_id=")[2].partition(")")[0])
    world.b.start()
    assert asked.result(90).get("answer") == "I am back", asked.result()
    seen = world.llm.texts(f"survive a {end}")
    assert len(seen) == 2
    assert "You were interrupted" in seen[1]
    world.b.wait_log("Redelivered recovered final response to hermes-bridge")


@pytest.fixture(scope="module")
def newcomer(
    hermes: Venv, world: World, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, Relay]]:
    """A third bot with room for one turn, started before its relay, which knows another token."""
    folder = tmp_path_factory.mktemp("newcomer")
    relay = Relay(folder / "relay", ("n", "carl", "asker"))
    room = {"max_concurrent_sessions": 1}
    gateway = bot(hermes, folder / "n", relay, world.llm, "n", token=TOKEN, config=room)
    try:
        yield gateway.start(), relay
    finally:
        gateway.stop(10)
        relay.close()


def test_a_relay_that_is_down_at_the_bots_start_is_joined_later_and_a_wrong_token_after_a_reload(
    newcomer: tuple[Gateway, Relay], world: World
) -> None:
    """Each trouble is one clear line."""
    gateway, relay = newcomer
    gateway.wait_platform(NAME, "retrying")
    assert "cannot reach the relay" in gateway.platform(NAME)["error_message"]
    relay.start()
    until(lambda: "token refused" in str(gateway.platform(NAME)), "the refusal shown", 90)
    assert gateway.platform(NAME)["state"] == "retrying"
    relay.reload(agents=[{"name": "n", "token": TOKEN}, "carl", "asker"])
    gateway.wait_platform(NAME, timeout=90)
    world.llm.when("warm up", Say("warm"))
    warm_up(relay, "n")
    for words in ("cannot reach", "token refused"):
        assert len([line for line in gateway.log().splitlines() if words in line]) == 1
    assert "/plugins/hermes-bridge/" not in traces(gateway)
    assert TOKEN not in gateway.log() + gateway.log("gateway.out")


def test_what_hermes_says_when_it_has_no_room_for_a_turn_is_a_failure_at_once(
    newcomer: tuple[Gateway, Relay], world: World
) -> None:
    gate, relay = threading.Event(), newcomer[1]
    world.llm.when("take the only place", Say("was there", gate=gate))
    first = relay.ask_soon("asker", "n", "take the only place")
    world.llm.wait_for("take the only place")
    refused = relay.ask("carl", "n", "is there room?")
    assert refused["error"] == "failed", refused
    assert "session limit" in refused["reason"]
    gate.set()
    assert first.result(60)["answer"] == "was there"


def test_a_wake_sent_twice_runs_once_also_across_a_restart_of_the_gateway(
    newcomer: tuple[Gateway, Relay], world: World
) -> None:
    gateway, real = newcomer
    real.stop()
    world.llm.when("only once", Say("done once"))
    with FakeRelay(token=TOKEN, port=real.port) as relay:
        gateway.wait_platform(NAME, timeout=90)
        relay.expect(type="hello", timeout=90)
        relay.wake("r1", "only once")
        relay.wake("r1", "only once", attempt=2)
        assert relay.reply("r1", timeout=60)["answer"] == "done once"
        gateway.restart()
        gateway.wait_platform(NAME)
        relay.wake("r1", "only once", attempt=3)
        relay.expect(type="call", tool="reply", args__request_id="r1", count=2, timeout=60)
        relay.wake("r2", "only once more")
        relay.reply("r2", timeout=60)
        assert len(world.llm.texts("only once")) == 2


def owe(gateway: Gateway, conversation: str) -> None:
    """Leave a reply in Hermes' ledger as a crash in mid-delivery does: it is made good at start."""
    script = (
        "import sys; from gateway import delivery_ledger as ledger; rid, chat = sys.argv[1:]; "
        "ledger.record_obligation(obligation_id=rid, session_key=rid, platform='hermes-bridge',"
        " chat_id=chat, thread_id=None, content='an answer of yesterday');"
        "ledger.mark_attempting(rid)"
    )
    chat = f"hermes-bridge:{conversation}"
    command = [str(gateway.venv.python), "-c", script, f"owed-{time.time_ns()}", chat]
    subprocess.run(command, env=gateway.env, cwd=gateway.home, check=True, timeout=60)


def traces(gateway: Gateway) -> str:
    """The files that tracebacks of a gateway's logs name (0.22 has some of its own)."""
    text = gateway.log() + gateway.log("gateway.out")
    return "\n".join(line for line in text.splitlines() if line.lstrip().startswith('File "'))
