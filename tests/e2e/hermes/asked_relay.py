"""A real relay as a subprocess, and a client that asks through it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

TEST_LIMITS = {"ask_timeout_ms": 30_000, "ask_max_ms": 90_000, "reconnect_grace_ms": 8_000}
"""A window that outlives the start of a gateway on a busy machine; a cap that ends a stuck test."""


def free_port() -> int:
    """Give a port that was free a moment ago, for a server that must come back on the same one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def token_of(agent: str) -> str:
    """Give the token of an agent in tests."""
    return f"token-of-{agent}-0123456789"


class Relay:
    """`hermes-bridge serve` in a folder of its own; `start`, `stop`, `kill` may be repeated."""

    def __init__(self, folder: Path, agents: Sequence[str], **settings: Any) -> None:
        self.folder = folder
        self.port = free_port()
        self.agents = list(agents)
        self.settings: dict[str, Any] = {**TEST_LIMITS, **settings}
        self.tokens = {agent: token_of(agent) for agent in agents}
        self.process: subprocess.Popen[bytes] | None = None
        self._pool = ThreadPoolExecutor(32)
        folder.mkdir(parents=True, exist_ok=True)
        self.configure()

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/bridge/connect"

    @property
    def http(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def configure(self) -> None:
        """Write the configuration as `tokens` and `settings` are now."""
        config = {
            "agents": [{"name": a, "token": t} for a, t in self.tokens.items()],
            "listen": {"host": "127.0.0.1", "port": self.port},
            "db": {"driver": "sqlite", "path": str(self.folder / "bridge.db")},
            **self.settings,
        }
        file = self.folder / "config.yaml"
        file.write_text(yaml.safe_dump(config), "utf-8")
        file.chmod(0o600)

    def reload(self) -> None:
        """Write the configuration and send SIGHUP."""
        assert self.process is not None
        self.configure()
        self.process.send_signal(signal.SIGHUP)

    def start(self, timeout: float = 20) -> "Relay":
        with (self.folder / "relay.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hermes_bridge", "serve", str(self.folder / "config.yaml")],
                cwd=self.folder,
                env={k: v for k, v in os.environ.items() if not k.startswith("HERMES_BRIDGE_")},
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        end = time.monotonic() + timeout
        while True:
            try:
                with urllib.request.urlopen(self.http + "/health", timeout=2) as health:
                    health.read()
                return self
            except (OSError, urllib.error.URLError):
                if self.process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(f"the relay did not start\n{self.log()}") from None
                time.sleep(0.05)

    def stop(self, timeout: float = 15) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        return int(self.process.returncode)

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        if self.process is not None:
            self.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def log(self) -> str:
        try:
            return (self.folder / "relay.log").read_text("utf-8", errors="replace")
        except OSError:
            return ""

    def call(self, agent: str, tool: str, timeout: float = 60, **args: Any) -> Any:
        """Call one tool as an agent; gives its result."""
        params = {"name": tool, "arguments": args}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "Authorization": f"Bearer {self.tokens[agent]}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        request = urllib.request.Request(self.http + "/mcp", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read().decode()
        lines = [x[6:] for x in text.splitlines() if x.startswith("data: ")] or [text]
        message = json.loads(lines[-1])
        return json.loads(message["result"]["content"][0]["text"])

    def ask(self, agent: str, to: str, message: str, **args: Any) -> Any:
        """Ask, and follow through slices to the end."""
        done = self.call(agent, "ask_agent", to=to, message=message, **args)
        while done.get("error") == "working" and "wait_ms" not in args:
            done = self.call(agent, "wait_answer", request_id=done["request_id"])
        return done

    def ask_soon(self, agent: str, to: str, message: str, **args: Any) -> "Future[Any]":
        """Ask on a thread."""
        return self._pool.submit(self.ask, agent, to, message, **args)

    def online(self) -> set[str]:
        """Give the names of the agents that are online."""
        found = self.call(self.agents[-1], "list_agents")
        return {agent["name"] for agent in found if agent["online"]}

    def wait_online(self, *agents: str, timeout: float = 30) -> None:
        """Wait until these agents are online."""
        end = time.monotonic() + timeout
        while not set(agents) <= self.online():
            assert time.monotonic() < end, f"{agents} not online: {self.online()}\n{self.log()}"
            time.sleep(0.05)
