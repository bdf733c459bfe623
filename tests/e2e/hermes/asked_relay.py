"""A real relay as a subprocess, and a client that asks through it, without an event loop."""

import json
import urllib.request
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.harness.relay import RelayProcess
from tests.harness.waits import until

TEST_LIMITS = {"ask_timeout_ms": 30_000, "ask_max_ms": 120_000, "reconnect_grace_ms": 60_000}
"""A window and a grace that outlive the start of a gateway on a busy machine; a cap that ends a stuck
test."""


class Relay(RelayProcess):
    """`hermes-bridge serve`, and an operator's way to ask; the last agent listed looks around."""

    def __init__(self, folder: Path, agents: Sequence[str], **settings: Any) -> None:
        super().__init__(folder, {**TEST_LIMITS, **settings}, agents=agents)
        self.watcher = agents[-1]
        self._pool = ThreadPoolExecutor(32)

    def start(self, timeout: float = 60) -> "Relay":
        super().start(timeout)
        return self

    def close(self) -> None:
        if self.process is not None:
            self.stop(30)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def call(
        self,
        agent: str,
        tool: str,
        timeout: float = 90,
        meta: dict[str, str] | None = None,
        **args: Any,
    ) -> Any:
        """Call one tool as an agent; gives its result."""
        params = {"name": tool, "arguments": args, "_meta": meta or {}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        headers = {
            "Authorization": f"Bearer {self.token(agent)}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }
        request = urllib.request.Request(self.mcp_url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read().decode()
        lines = [x[6:] for x in text.splitlines() if x.startswith("data: ")] or [text]
        message = json.loads(lines[-1])
        return json.loads(message["result"]["content"][0]["text"])

    def ask(self, agent: str, to: str, message: str, **args: Any) -> Any:
        """Ask, and follow through slices to the end."""
        done = self.call(agent, "ask_agent", to=to, message=message, **args)
        return done if "wait_ms" in args else self.follow(agent, done)

    def follow(self, agent: str, done: Any) -> Any:
        """Wait for the end of an ask that was given as working."""
        while done.get("error") == "working":
            done = self.call(agent, "wait_answer", request_id=done["request_id"])
        return done

    def ask_soon(self, agent: str, to: str, message: str, **args: Any) -> "Future[Any]":
        """Ask on a thread."""
        return self._pool.submit(self.ask, agent, to, message, **args)

    def online(self) -> set[str]:
        """Give the names of the agents that are online."""
        found = self.call(self.watcher, "list_agents")
        return {agent["name"] for agent in found if agent["online"]}

    def wait_online(self, *agents: str, timeout: float = 60) -> None:
        """Wait until these agents are online."""
        until(
            lambda: set(agents) <= self.online(),
            lambda: f"{agents} online: {self.online()}\n{self.log()}",
            timeout,
        )
