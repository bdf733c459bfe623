"""How long a question takes to a bot that itself waits in `ask_agent` (issue 3, O1: under 1.5 s).

    python benches/waiting_bot.py [0.19 | 0.22]

Two real Hermes gateways, a relay, a scripted model that answers at once. Bot a is asked the same
short question while it is idle, while it waits for bot b through its native tool, and while it waits
through an `mcp_servers` entry (there it answers through the other entry). All within one run.
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

QUESTIONS = 10
RID = r"request_id=(?P<rid>[\w-]+).*"
ASK = {"to": "b", "message": "think long"}
REPLY = {"request_id": "{rid}", "answer": "over mcp"}


def measure(relay: Relay, question: str) -> str:
    """Ask bot a some questions, one after the other, each in a conversation of its own."""
    took: list[float] = []
    for _ in range(QUESTIONS):
        began = time.perf_counter()
        done = relay.ask("carl", "a", question)
        took.append(time.perf_counter() - began)
        assert done["ok"], done
    return f"{statistics.median(took) * 1000:.0f} ms (worst {max(took) * 1000:.0f})"


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
        llm.when("wait natively", Call("ask_agent", ASK), Say("got {result}"))
        llm.when("wait over mcp", Call("mcp__bridge_ask__ask_agent", ASK), Say("got {result}"))
        try:
            relay.start()
            for one in bots:
                one.launch()
            for one in bots:
                one.wait_ready(300)
            relay.wait_online("a", "b", timeout=60)
            for name in ("a", "b"):
                warm_up(relay, name)
            print(f"hermes {version}, load {os.getloadavg()[0]:.1f}, {QUESTIONS} questions each")
            print("  idle                        ", measure(relay, "quick"), flush=True)
            for n, (way, question) in enumerate(
                (("natively", "quick"), ("over mcp", "quick over mcp"))
            ):
                gate = threading.Event()
                llm.when("think long", Say("thought", gate=gate), model="model-b")
                waiting = relay.ask_soon("asker", "a", f"wait {way}")
                llm.wait_for("think long", count=n + 1, timeout=60)
                print(f"  while it waits {way}     ", measure(relay, question), flush=True)
                assert not waiting.done()
                gate.set()
                assert "thought" in waiting.result(60)["answer"]
        finally:
            for one in bots:
                one.stop(10)
            relay.close()


if __name__ == "__main__":
    for chosen in sys.argv[1:] or ("0.19", "0.22"):
        with tempfile.TemporaryDirectory(prefix="waiting-bot-") as home:
            play(chosen, Path(home))
