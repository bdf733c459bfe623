"""`hermes-bridge demo`: a real relay, two agents, one real ask and its answer."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import click

from hermes_bridge.errors import Unreachable
from hermes_bridge.ids import new_token
from hermes_bridge.testing import FakeAgent, Wake

_START_S = 20.0


@click.command()
@click.option(
    "--keep/--no-keep",
    default=None,
    help="Keep the relay running afterwards, to look at the page (default: on a terminal).",
)
def demo(keep: bool | None) -> None:
    """Start a relay on embedded defaults, let two agents join it, ask and answer.

    \b
    Example:  hermes-bridge demo --keep
    """
    with tempfile.TemporaryDirectory(prefix="hermes-bridge-demo-") as folder:
        tokens = {"daniel-bot": new_token(), "helpdesk-bot": new_token()}
        with _relay(Path(folder), tokens) as base:
            asyncio.run(_show(base, tokens))
            if keep if keep is not None else sys.stdout.isatty():
                click.echo(f"\nThe page shows it too: {base}/ui   (Ctrl-C ends the demo)")
                with _until_interrupted():
                    asyncio.run(asyncio.sleep(86_400))
            else:
                click.echo(
                    f"\nThe page was at {base}/ui; `hermes-bridge demo --keep` leaves it open."
                )
    click.echo("Next: hermes-bridge init")


async def _show(base: str, tokens: dict[str, str]) -> None:
    url = base.replace("http", "ws", 1) + "/bridge/connect"

    async def daniel(agent: FakeAgent, wake: Wake) -> str:
        _say("daniel-bot", f"was woken by {wake.sender}: “{wake.message}”")
        await asyncio.sleep(0.4)
        _say("daniel-bot", "is working (a heartbeat keeps the ask alive)")
        await agent.beat(wake.request_id, "looking it up")
        await asyncio.sleep(0.6)
        return "vpn.example.org, port 443. Ask me for an account if you need one."

    question = "What is the address of our VPN?"
    async with (
        FakeAgent(url, tokens["daniel-bot"], daniel, description="answers IT questions"),
        FakeAgent(url, tokens["helpdesk-bot"]) as helpdesk,
    ):
        click.echo("Two agents joined: daniel-bot, helpdesk-bot.\n")
        _say("helpdesk-bot", f"asks daniel-bot: “{question}”")
        result = await helpdesk.call("ask_agent", {"to": "daniel-bot", "message": question})
        if not result.get("ok"):
            raise Unreachable(f"The ask failed: {result.get('error')}. {result.get('hint', '')}")
        _say("helpdesk-bot", f"has the answer: “{result['answer']}”")
        click.echo(
            f"\nOne exchange, {result['elapsed_ms'] / 1000:.1f} s, request {result['request_id']}"
        )


def _say(who: str, what: str) -> None:
    click.echo(f"  {who:<13} {what}")


@contextmanager
def _relay(folder: Path, tokens: dict[str, str]) -> Iterator[str]:
    """Run a relay in a process of its own, on its usual port if that is free."""
    port = _free_port(8787)
    agents = "".join(f"  - {{name: {name}, token: {token}}}\n" for name, token in tokens.items())
    config = folder / "config.yaml"
    config.write_text(f"agents:\n{agents}listen: {{port: {port}}}\n", "utf-8")
    config.chmod(0o600)
    log = folder / "relay.log"
    env = {k: v for k, v in os.environ.items() if k not in ("HOST", "PORT", "DATABASE_URL")}
    with log.open("w") as out:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "hermes_bridge", "serve", "--config", str(config)],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stderr=out,
        )
    base = f"http://127.0.0.1:{port}"
    try:
        _wait_ready(base, process, log)
        click.echo(
            f"A relay runs at {base} (process {process.pid}, SQLite, no configuration needed)."
        )
        yield base
    finally:
        process.terminate()
        process.wait(15)


def _wait_ready(base: str, process: subprocess.Popen[bytes], log: Path) -> None:
    import time

    for _ in range(int(_START_S / 0.05)):
        if process.poll() is not None:
            raise Unreachable("The relay did not start.", hint=log.read_text()[-500:])
        try:
            with urlopen(f"{base}/health", timeout=2) as answer:  # noqa: S310 - our own address
                if answer.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.05)
    raise Unreachable("The relay did not become ready.", hint=log.read_text()[-500:])


def _free_port(wanted: int) -> int:
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            number: int = probe.getsockname()[1]
            return number
    raise Unreachable(
        "No port is free on this machine.",
        hint="End what listens on so many of them; see `ss -ltn`.",
    )


@contextmanager
def _until_interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        click.echo("")
