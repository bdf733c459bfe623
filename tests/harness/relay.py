"""A real relay process; what talks to it: `Bot` (bot.py), `Mcp` (mcp.py), raw bytes (wire.py).

The relay is a subprocess on a free port with a folder of its own; the fixtures `relays` (one test)
and `module_relays` (one module) make them, stop them, and fail the test when a relay wrote a
traceback, wrote one cause twice, or ended by itself::

    async def test_an_ask_is_answered(relays):
        relay = relays(ask_timeout_ms=2000)                 # agents a, b, c; keys of config.yaml
        async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
            b.on_wake = lambda wake: "4"                    # answers every wake
            assert (await a.tool("ask_agent", {"to": "b", "message": "2+2"}))["answer"] == "4"

`RelayProcess` is synchronous; an async test whose bots must go on meanwhile calls `stop` through
`anyio.to_thread.run_sync`. `Bot` and `Mcp` are asynchronous. Every wait is bounded.
"""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.mcp import Mcp
from tests.harness.process import Child, plain_env, text_of
from tests.harness.waits import eventually, until
from tests.harness.wire import Json


def token_of(name: str) -> str:
    """The token that a relay of these tests gives an agent."""
    return f"token-of-{name}-0123456789"


def crowd(count: int) -> list[str]:
    """Names of `count` agents, to be taken one by one with `RelayProcess.agent`."""
    return [f"n{i}" for i in range(count)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RelayProcess(Child):
    """`python -m hermes_bridge serve` with its configuration, store and log in `folder`."""

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any] | None = None,
        *,
        agents: Sequence[str | Mapping[str, Any]] = ("a", "b", "c"),
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.tokens: dict[str, str] = {}
        listed = [self._agent(agent) for agent in agents]
        base: Json = {
            "agents": listed,
            "listen": {"host": "127.0.0.1", "port": self.port},
            "db": {"driver": "sqlite", "path": str(folder / "relay.db")},
            "log": {"format": "json"},
        }
        self.config: Json = {**base, **(config or {})}
        self.write(self.config)
        self._unused = iter([entry["name"] for entry in listed])
        self.env = plain_env(folder, env)

    def _agent(self, agent: str | Mapping[str, Any]) -> Json:
        entry = {"name": agent} if isinstance(agent, str) else dict(agent)
        if not entry.keys() & {"token", "tokens", "token_sha256"}:
            entry["token"] = token_of(entry["name"])
        if "token" in entry:
            self.tokens[entry["name"]] = entry["token"]
        elif "tokens" in entry:
            self.tokens[entry["name"]] = entry["tokens"][0]
        return entry

    # Names

    @property
    def config_file(self) -> Path:
        return self.folder / "config.yaml"

    @property
    def database(self) -> Path:
        return self.folder / "relay.db"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def mcp_url(self) -> str:
        return self.url + "/mcp"

    @property
    def bridge_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/bridge/connect"

    def token(self, agent: str) -> str:
        return self.tokens.get(agent) or token_of(agent)

    def agent(self) -> str:
        """An agent that no test of this module used before (`agents=crowd(50)`)."""
        return next(self._unused)

    # Life

    def launch(self) -> "RelayProcess":
        """Start the process and do not wait."""
        command = [sys.executable, "-m", "hermes_bridge", "serve"]
        command += ["--config", str(self.config_file)]
        self.spawn(command, folder=self.folder, env=self.env, out="out.log", err="stderr.log")
        return self

    def start(self, timeout: float = 60) -> "RelayProcess":
        """Start, and wait until `/health` answers."""
        self.launch()
        end = time.monotonic() + timeout
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get("/health")[0] == 200:
                    return self
            assert self.running, f"the relay ended with {self.process}\n{self.log()}"
            assert time.monotonic() < end, f"no /health after {timeout} s\n{self.log()}"
            time.sleep(0.01)  # nothing to wait on before it listens

    def stop(self, timeout: float = 30) -> int:
        """SIGTERM; return the exit code. Fails when it takes longer than the promised 10 s would on a
        busy machine."""
        assert self.process is not None
        if self.running:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the relay did not end in {timeout} s\n{self.log()}") from None

    def restart(self) -> "RelayProcess":
        """SIGTERM if it runs, then start again on the same port and database."""
        if self.running:
            assert self.stop() == 0
        return self.start()

    def write(self, config: Mapping[str, Any] | str) -> None:
        """Replace the configuration file; a running relay reads it on `reload`."""
        text = config if isinstance(config, str) else yaml.safe_dump(dict(config), sort_keys=False)
        self.config_file.write_text(text, "utf-8")
        if not isinstance(config, str):
            self.config = dict(config)

    def reload(self, **changes: Any) -> None:
        """Change keys of the configuration, send SIGHUP, wait until the log says it was read."""
        if changes:
            changes["agents"] = [
                self._agent(x) for x in changes.get("agents", self.config["agents"])
            ]
            self.write({**self.config, **changes})
        before = len(self.events("reload.done", "reload.refused"))
        os.kill(self.pid, signal.SIGHUP)
        until(
            lambda: len(self.events("reload.done", "reload.refused")) > before, "reload in the log"
        )

    # What it says

    def get(self, path: str, timeout: float = 5) -> tuple[int, bytes]:
        """GET a path without a token: status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def health(self) -> Json:
        status, body = self.get("/health")
        assert status == 200, status
        found: Json = json.loads(body)
        return found

    async def written(self) -> None:
        """Wait until everything that the relay has told so far is in its store."""
        await eventually(lambda: self.health()["store_waiting"] == 0, "written")

    def log(self) -> str:
        return text_of(self.folder / "stderr.log")

    def log_lines(self) -> list[Json]:
        """The log as records (`at`, `level`, `event`, fields); lines that are none are left out."""
        found = []
        for line in self.log().splitlines():
            with contextlib.suppress(ValueError):
                record = json.loads(line)
                if isinstance(record, dict) and "event" in record:
                    found.append(record)
        return found

    def events(self, *names: str) -> list[Json]:
        """The log records of these events."""
        return [line for line in self.log_lines() if line["event"] in names]

    def no_traceback(self) -> None:
        log = self.log()
        assert "Traceback" not in log and '  File "' not in log, log[-8000:]
        assert not self.events("door.failed", "link.failed", "store.row_lost"), log[-8000:]

    def one_line_a_cause(self) -> None:
        """No warning was written twice without saying how often it was held back."""
        counted: Counter[str] = Counter()
        for line in self.log_lines():
            if line["level"] in ("WARNING", "ERROR") and "not_shown" not in line:
                key = {k: v for k, v in line.items() if k in ("event", "cause", "reason", "agent")}
                counted[json.dumps(key, sort_keys=True)] += 1
        twice = {key: count for key, count in counted.items() if count > 1}
        assert not twice, twice

    def __enter__(self) -> "RelayProcess":
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.stop()


Make = Callable[..., RelayProcess]


def _factory(folder: Path) -> Iterator[Make]:
    made: list[tuple[RelayProcess, bool]] = []

    def make(
        *,
        agents: Sequence[str | Mapping[str, Any]] = ("a", "b", "c"),
        env: Mapping[str, str] | None = None,
        start: bool = True,
        chatty: bool = False,
        **config: Any,
    ) -> RelayProcess:
        """`chatty` allows one cause to be logged more than once (several relays lives, say)."""
        relay = RelayProcess(folder / f"relay{len(made)}", config, agents=agents, env=env)
        made.append((relay, chatty))
        return relay.start() if start else relay

    yield make
    try:
        for relay, chatty in made:
            if relay.process is not None:
                relay.no_traceback()
                if not chatty:
                    relay.one_line_a_cause()
                ended = relay.process.poll()
                assert ended in (None, 0, -signal.SIGKILL), f"ended with {ended}\n{relay.log()}"
    except AssertionError:
        for relay, _ in made:
            print(f"--- {relay.folder.name}\n{relay.log()[-6000:]}", file=sys.stderr)
        raise
    finally:
        for relay, _ in made:
            if relay.running:
                relay.stop()


@pytest.fixture
def relays(tmp_path: Path) -> Iterator[Make]:
    """Return `make(agents=..., **config)`: a running `RelayProcess` of this test."""
    yield from _factory(tmp_path)


@pytest.fixture(scope="module")
def module_relays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """The same for relays that the tests of one module share."""
    yield from _factory(tmp_path_factory.mktemp("relays"))


@pytest.fixture
def relay(shared: RelayProcess) -> Iterator[RelayProcess]:
    """The relay that a module's tests share (its fixture `shared`), looked at after each of them."""
    yield shared
    assert shared.running, shared.log()[-8000:]
    shared.no_traceback()
    assert shared.get("/health")[0] == 200


Clients = Callable[..., "Mcp"]


@pytest.fixture
async def mcp(relay: RelayProcess) -> AsyncIterator[Clients]:
    """Return `make(agent, era=...)`: MCP clients of the shared relay, closed after the test."""
    made: list[Mcp] = []

    def make(agent: str, **options: Any) -> Mcp:
        made.append(Mcp(relay, agent, **options))
        return made[-1]

    yield make
    for client in made:
        await client.close()
