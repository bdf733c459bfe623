"""How long a question takes to a bot that itself waits in `ask_agent` (issue 3, O1: under 1.5 s).

    python benches/waiting_bot.py [0.19 | 0.22]

Two real Hermes gateways, a relay, a scripted model that answers at once. Bot a is asked the same
short question while it is idle, while it waits for bot b through its native tool, and while it waits
through an `mcp_servers` entry (there it answers through the other entry), in turn, so that the three
can be compared also on a machine that does other things.
"""

import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.e2e.hermes.asked_relay import Relay
from tests.e2e.hermes.conftest import bot, mcp_servers, warm_up
from tests.harness import venvs
from tests.harness.llm import Call, Say, ScriptedModel

ROUNDS = 5
RID = r"request_id=(?P<rid>[\w-]+).*"
ASK = {"to": "b", "message": "think long {n} {way}"}
REPLY = {"request_id": "{rid}", "answer": "over mcp"}


def timed(relay: Relay, question: str) -> float:
    """Ask bot a in a conversation of its own; gives the seconds to its answer."""
    began = time.perf_counter()
    done = relay.ask("carl", "a", question)
    assert done["ok"], done
    return time.perf_counter() - began


def while_waiting(relay: Relay, llm: ScriptedModel, n: int, way: str, question: str) -> list[float]:
    """Have bot a wait for bot b, ask it twice meanwhile, and let it go on."""
    gate = threading.Event()
    llm.when(f"think long {n} {way}", Say("thought", gate=gate), model="model-b")
    waiting = relay.ask_soon("asker", "a", f"wait {n} {way}")
    llm.wait_for(f"think long {n} {way}", timeout=90)
    took = [timed(relay, question) for _ in range(2)]
    assert not waiting.done()
    gate.set()
    assert "thought" in waiting.result(90)["answer"]
    return took


def play(version: str, folder: Path) -> None:
    """Measure one version of Hermes."""
    venv = venvs.ready(f"hermes-{version}")
    if isinstance(venv, venvs.Unavailable):
        print(f"hermes-{version}: {venv}")
        return
    relay = Relay(folder / "relay", ("a", "b", "carl", "asker"), ask_timeout_ms=120_000)
    with ScriptedModel() as llm:
        servers = mcp_servers(relay)
        bots = [bot(venv, folder / n, relay, llm, n, config=servers) for n in ("a", "b")]
        llm.when("warm up", Say("warm"))
        llm.when("quick", Say("here"))
        llm.when(RID + "quick over mcp", Call("mcp__bridge_reply__reply", REPLY), Say("said"))
        wait = r"wait (?P<n>\d) (?P<way>%s)"
        llm.when(wait % "natively", Call("ask_agent", ASK), Say("got {result}"))
        llm.when(wait % "over mcp", Call("mcp__bridge_ask__ask_agent", ASK), Say("got {result}"))
        try:
            relay.start()
            for one in bots:
                one.launch()
            for one in bots:
                one.wait_ready(300)
            relay.wait_online("a", "b", timeout=60)
            for name in ("a", "b"):
                warm_up(relay, name)
            ways: dict[str, list[float]] = {"idle": [], "natively": [], "over mcp": []}
            for n in range(ROUNDS):
                ways["idle"] += [timed(relay, "quick") for _ in range(2)]
                ways["natively"] += while_waiting(relay, llm, n, "natively", "quick")
                ways["over mcp"] += while_waiting(relay, llm, n, "over mcp", "quick over mcp")
            print(f"hermes {version}, load {os.getloadavg()[0]:.1f}, {2 * ROUNDS} questions each")
            for way, took in ways.items():
                middle, worst = statistics.median(took) * 1000, max(took) * 1000
                print(f"  {way:10} {middle:6.0f} ms, worst {worst:.0f}", flush=True)
        finally:
            for one in bots:
                one.stop(10)
            relay.close()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or ("0.19", "0.22"):
        with tempfile.TemporaryDirectory(prefix="waiting-bot-") as home:
            play(chosen, Path(home))
