"""Two real Hermes bots, a relay and its page: one bot asks the other, and the answer comes back.

Run by `make demo-hermes` from the repository's root. Without a model of your own a scripted one
answers, so no key is needed. Exit code 0 when the answer came.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.e2e.hermes.asked_relay import Relay  # noqa: E402
from tests.harness import venvs  # noqa: E402
from tests.harness.gateway import Gateway  # noqa: E402
from tests.harness.llm import Call, Say, ScriptedModel  # noqa: E402
from tests.harness.relay import token_of  # noqa: E402

from hermes_bridge.cli.main import main as hermes_bridge  # noqa: E402

BOTS = ("daniel", "helpdesk")
TASK = "Ask the agent daniel for the VPN address, and tell me what he said."


def main() -> int:
    """Start everything, ask once, show the answer, and wait for Enter when a person watches."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--hermes", default="0.19", choices=("0.19", "0.22"))
    arguments.add_argument("--model-url", default="", help="an OpenAI-compatible address")
    arguments.add_argument("--model", default="scripted")
    arguments.add_argument("--model-key", default=os.environ.get("MODEL_KEY", ""))
    chosen = arguments.parse_args()
    venv = venvs.ready(f"hermes-{chosen.hermes}")
    if isinstance(venv, venvs.Unavailable):
        print(f"Hermes {chosen.hermes} cannot be installed here: {venv}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="two-hermes-bots-") as folder, script() as model:
        return play(chosen, venv, Path(folder), chosen.model_url or model.url)


def play(chosen: argparse.Namespace, venv: venvs.Venv, folder: Path, model_url: str) -> int:
    """Set up the homes with our own installer, start, ask."""
    relay = Relay(folder / "relay", (*BOTS, "you"), ask_timeout_ms=120_000, ask_max_ms=600_000)
    key = {"model": {"api_key": chosen.model_key}} if chosen.model_key else {}
    bots = [
        Gateway(venv, folder / name, llm_url=model_url, model=chosen.model, config=key)
        for name in BOTS
    ]
    try:
        relay.start()
        say(f"relay   {relay.url}   (page: {relay.url}/ui)")
        for name, bot in zip(BOTS, bots, strict=True):
            install(bot.home, token_of(name), relay.bridge_url)
            bot.launch()
        say("\nThe bots start (some seconds; a minute on a slow machine) ...")
        for name, bot in zip(BOTS, bots, strict=True):
            bot.wait_ready(240)
            say(f"bot     {name}   (Hermes {venv.version}, home {bot.home})")
        relay.wait_online(*BOTS, timeout=60)
        say(f"\nyou      -> helpdesk   {TASK}")
        done = relay.ask("you", "helpdesk", TASK)
        if not done["ok"]:
            say(f"helpdesk -> you        {done['error']}: {done['hint']}")
            return 1
        say(f"helpdesk -> you        {done['answer']}")
        if sys.stdin.isatty() and sys.stdout.isatty():
            say(f"\nLook at {relay.url}/ui, then press Enter to stop.")
            sys.stdin.readline()
        return 0
    finally:
        for bot in bots:
            bot.stop(10)
        relay.close()


def install(home: Path, token: str, url: str) -> None:
    """Do what an operator does."""
    arguments = [f"--token={token}", f"--relay-url={url}", f"--hermes-home={home}"]
    try:
        hermes_bridge(["install", "bridge", *arguments])
    except SystemExit as end:
        assert not end.code, "the installer failed"


def script() -> ScriptedModel:
    """A model that knows two lines."""
    model = ScriptedModel()
    question = {"to": "daniel", "message": "What is our VPN address?"}
    model.when("Ask the agent daniel", Call("ask_agent", question), Say("He said: {answer}"))
    model.when("What is our VPN address", Say("It is vpn.example.org."))
    return model


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
