"""A real relay in a process of its own, and the command line as a person calls it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

import pytest
from tests.harness.waits import until

ENV = {
    k: v for k, v in os.environ.items() if not k.startswith(("HERMES", "DATABASE", "HOST", "PORT"))
}


class Ran(NamedTuple):
    code: int
    out: str
    err: str


class Cli:
    """Runs verbs in one folder, without a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *args: str, stdin: str = "", **env: str) -> Ran:
        done = subprocess.run(
            [sys.executable, "-m", "hermes_bridge", *args],
            cwd=self.folder,
            env={**ENV, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)


@pytest.fixture
def serving(cli: Cli) -> Iterator[Callable[[], str]]:
    """Start `hermes-bridge serve` on the folder's config.yaml; give its base URL."""
    running: list[subprocess.Popen[bytes]] = []

    def start() -> str:
        from hermes_bridge import config

        port = config.load(cli.folder / "config.yaml").listen.port
        with (cli.folder / "relay.log").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "hermes_bridge", "serve"],
                cwd=cli.folder,
                env=ENV,
                stdin=subprocess.DEVNULL,
                stderr=out,
            )
        running.append(process)
        base = f"http://127.0.0.1:{port}"

        def ready() -> bool:
            assert process.poll() is None, (cli.folder / "relay.log").read_text()
            with contextlib.suppress(OSError), urlopen(f"{base}/health", timeout=30):
                return True
            return False

        until(ready, "the relay ready", 60)
        return base

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0
    if running:
        assert "Traceback" not in (cli.folder / "relay.log").read_text()
