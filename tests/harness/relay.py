"""A real relay process, and what talks to it: `RelayProcess`, `Bot`, `Mcp`, raw bytes.

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

import asyncio
import contextlib
import http.client
import inspect
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.harness.process import Child, plain_env, text_of

WAIT_S = 30.0
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
Json = dict[str, Any]


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


def until(condition: Callable[[], Any], what: str, timeout: float = WAIT_S) -> Any:
    """Wait for something that only a file or another process can tell."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"not {what} after {timeout} s"
        time.sleep(0.01)
    return found


async def eventually(condition: Callable[[], Any], what: str, timeout: float = WAIT_S) -> Any:
    """The same in an async test; `condition` may be awaitable."""
    end = time.monotonic() + timeout
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"not {what} after {timeout} s"
        await asyncio.sleep(0.01)


# Agents

Answer = str | None
OnWake = Callable[[Json], Answer | Awaitable[Answer]]


class Bot:
    """An agent's link. Without `hello` it speaks like the seed's adapters, with it version 2."""

    def __init__(
        self,
        relay: RelayProcess,
        name: str,
        *,
        hello: bool | Json = False,
        token: str | None = None,
        ack: bool = True,
        max_size: int | None = 2**20,
        **options: Any,
    ) -> None:
        self.relay, self.name = relay, name
        self.hello, self.ack_wakes = hello, ack
        self.token = token or relay.token(name)
        self._options = {
            "max_size": max_size,
            "open_timeout": WAIT_S,
            "close_timeout": 1,
            **options,
        }
        self.frames: list[Json] = []
        """Every frame that came, in order, with `at` (seconds of the monotonic clock)."""
        self.on_wake: OnWake | None = None
        self.welcome: Json = {}
        self._wakes: asyncio.Queue[Json] = asyncio.Queue()
        self._cancels: asyncio.Queue[Json] = asyncio.Queue()
        self._results: dict[Any, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._mcp: Mcp | None = None
        self.socket: ClientConnection

    async def __aenter__(self) -> "Bot":
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def connect(self) -> "Bot":
        """Dial, say hello if this bot does, and read from now on."""
        headers = {"Authorization": f"Bearer {self.token}"}
        self.socket = await connect(
            self.relay.bridge_url, additional_headers=headers, proxy=None, **self._options
        )
        if self.hello:
            said = {"type": "hello", "protocol": 2, "client": "test", "features": []}
            await self.send(**said | (self.hello if isinstance(self.hello, dict) else {}))
            async with asyncio.timeout(WAIT_S):
                self.welcome = json.loads(await self.socket.recv())
            assert self.welcome["type"] == "welcome", self.welcome
        self._spawn(self._read())
        return self

    async def close(self, code: int = 1000) -> None:
        with contextlib.suppress(ConnectionClosed, OSError):
            await self.socket.close(code)
        if self._mcp is not None:
            await self._mcp.close()
        for task in list(self._tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def vanish(self) -> None:
        """Reset the connection without a goodbye."""
        self.socket.transport.abort()

    async def closed(self, timeout: float = WAIT_S) -> tuple[int, str]:
        """Wait until the relay ends the link; the close code and its reason."""
        async with asyncio.timeout(timeout):
            await self.socket.wait_closed()
        return self.socket.close_code or 1006, self.socket.close_reason or ""

    async def send(self, **frame: Any) -> None:
        await self.socket.send(json.dumps(frame))

    async def beat(self, rid: str, note: str | None = None) -> None:
        more = {} if note is None else {"note": note}
        await self.send(type="heartbeat", request_id=rid, **more)

    async def ack(self, rid: str) -> None:
        await self.send(type="ack", request_id=rid)

    async def wake(self, timeout: float = WAIT_S) -> Json:
        """The next wake that `on_wake` did not take."""
        async with asyncio.timeout(timeout):
            return await self._wakes.get()

    async def no_wake(self, within: float) -> None:
        with pytest.raises(TimeoutError):
            await self.wake(within)

    async def cancelled(self, timeout: float = WAIT_S) -> Json:
        """The next `cancel` frame."""
        async with asyncio.timeout(timeout):
            return await self._cancels.get()

    async def call(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        turn: str | None = None,
        timeout: float = WAIT_S,
    ) -> Any:
        """A `call` frame; returns the verb's result."""
        call_id = next(self._ids)
        answer = self._results[call_id] = asyncio.get_running_loop().create_future()
        more = {} if turn is None else {"request_id": turn}
        await self.send(type="call", id=call_id, tool=tool, args=dict(args or {}), **more)
        async with asyncio.timeout(timeout):
            return await answer

    async def reply(self, rid: str, answer: str, **more: Any) -> Any:
        """Answer a wake: with a `call`, or through MCP as the seed's bots do."""
        args = {"request_id": rid, "answer": answer, **more}
        if self.hello:
            return await self.call("reply", args)
        if self._mcp is None:
            self._mcp = Mcp(self.relay, self.name, token=self.token)
        return await self._mcp.tool("reply", args)

    async def beating(self, rid: str, every: float) -> None:
        """Beat for ever (to be cancelled)."""
        while True:
            await self.beat(rid)
            await asyncio.sleep(every)

    async def _read(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for text in self.socket:
                frame: Json = {**json.loads(text), "at": time.monotonic()}
                self.frames.append(frame)
                await self._take(frame)
        for waiting in self._results.values():
            if not waiting.done():
                waiting.set_exception(ConnectionError("the link ended"))
                waiting.exception()

    async def _take(self, frame: Json) -> None:
        kind = frame.get("type", "wake")
        if kind == "wake":
            if self.hello and self.ack_wakes:
                await self.ack(frame["request_id"])
            if self.on_wake is None:
                self._wakes.put_nowait(frame)
            else:
                self._spawn(self._answer(frame))
        elif kind == "cancel":
            self._cancels.put_nowait(frame)
        elif kind == "result" and frame["id"] in self._results:
            waiting = self._results.pop(frame["id"])
            if not waiting.done():
                waiting.set_result(frame["result"])

    async def _answer(self, wake: Json) -> None:
        assert self.on_wake is not None
        answer = self.on_wake(wake)
        if inspect.isawaitable(answer):
            answer = await answer
        if answer is not None:
            with contextlib.suppress(ConnectionClosed, ConnectionError):  # the link ended meanwhile
                await self.reply(wake["request_id"], answer)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


# MCP


@dataclass
class Sign:
    """What came on a stream: a comment, a message, or blanks before a late JSON body."""

    at: float
    kind: str
    data: Json | None = None


@dataclass
class Reply:
    """An HTTP answer, read to its end."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    signs: list[Sign] = field(default_factory=list)
    opened_at: float = 0.0
    """When the head came."""
    ended_at: float = 0.0

    @property
    def streamed(self) -> bool:
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def messages(self) -> list[Any]:
        """All JSON-RPC messages, notifications included."""
        if self.streamed:
            return [sign.data for sign in self.signs if sign.kind == "message"]
        return [json.loads(self.body)] if self.body.strip() else []

    @property
    def message(self) -> Any:
        """The last message: the response."""
        return self.messages[-1]

    @property
    def progress(self) -> list[Json]:
        found = [m for m in self.messages if m.get("method") == "notifications/progress"]
        return [m["params"] for m in found]

    @property
    def error(self) -> Json:
        found: Json = self.message["error"]
        return found

    @property
    def tool_result(self) -> Json:
        found: Json = self.message["result"]
        return found

    @property
    def result(self) -> Any:
        """What the verb gave: the JSON in the one text block."""
        blocks = self.tool_result["content"]
        assert len(blocks) == 1 and blocks[0]["type"] == "text", blocks
        return json.loads(blocks[0]["text"])


class Wire:
    """One HTTP/1.1 connection: bytes out, `Reply` in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.reusable = True
        self.reading: Reply | None = None
        """The answer whose head came last, with what came of its body until now."""

    @classmethod
    async def open(cls, port: int, host: str = "127.0.0.1") -> "Wire":
        async with asyncio.timeout(WAIT_S):
            return cls(*await asyncio.open_connection(host, port, limit=2**24))

    async def send(self, data: bytes) -> None:
        self.reading = None
        self.writer.write(data)
        await self.writer.drain()

    async def head(self) -> Reply:
        """Read the status line and the headers."""
        text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = text.split("\r\n")[:-2]
        headers = {k.strip().lower(): v.strip() for k, _, v in (x.partition(":") for x in lines)}
        self.reading = Reply(int(first.split()[1]), headers, opened_at=time.monotonic())
        return self.reading

    async def rest(self, reply: Reply, method: str = "POST") -> Reply:
        """Read the body; signs of life carry the time at which they came."""
        headers = reply.headers
        pending = b""
        async for piece in self._pieces(headers, reply.status, method):
            reply.body += piece
            if not reply.streamed:
                if not piece.strip():
                    reply.signs.append(Sign(time.monotonic(), "blank"))
                continue
            pending += piece
            while b"\n\n" in pending:
                block, _, pending = pending.partition(b"\n\n")
                reply.signs.append(_sign(block))
        reply.ended_at = time.monotonic()
        if headers.get("connection", "").lower() == "close":
            self.reusable = False
        return reply

    async def _pieces(self, headers: dict[str, str], status: int, method: str) -> Any:
        if method == "HEAD" or status in (204, 304):
            return
        if headers.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readline(), 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readline()
        elif "content-length" in headers:
            if length := int(headers["content-length"]):
                yield await self.reader.readexactly(length)
        else:
            self.reusable = False
            while piece := await self.reader.read(65536):
                yield piece

    async def request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
    ) -> Reply:
        await self.send(request_bytes(method, path, headers, body))
        return await self.rest(await self.head(), method)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self.writer.wait_closed()

    def reset(self) -> None:
        """End with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


def _sign(block: bytes) -> Sign:
    now = time.monotonic()
    lines = block.decode().split("\n")
    if all(line.startswith(":") for line in lines):
        return Sign(now, "comment")
    data = "\n".join(line[5:].lstrip() for line in lines if line.startswith("data:"))
    return Sign(now, "message", json.loads(data))


def request_bytes(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *(f"{k}: {v}" for k, v in headers.items())]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Pending:
    """A call under way: it may be awaited, watched, or hung up."""

    def __init__(self, wire: Wire, reading: "asyncio.Task[Reply]") -> None:
        self.wire, self.reading = wire, reading

    async def done(self, timeout: float = WAIT_S) -> Reply:
        async with asyncio.timeout(timeout):
            return await self.reading

    async def result(self, timeout: float = WAIT_S) -> Any:
        return (await self.done(timeout)).result

    async def streams(self, *, progress: bool = False) -> None:
        """Wait until the call is held as a stream (and has shown progress)."""

        def so() -> bool:
            reply = self.wire.reading
            return reply is not None and reply.streamed and bool(reply.progress or not progress)

        await eventually(so, "a stream")

    async def hang_up(self, *, reset: bool = False) -> None:
        """End the connection before the answer."""
        self.reading.cancel()
        if reset:
            self.wire.reset()
        else:
            await self.wire.close()


class Mcp:
    """A raw MCP client of one agent: `era` is "legacy", "modern" or "none" (no version header)."""

    def __init__(
        self,
        relay: RelayProcess,
        agent: str,
        *,
        era: str = "legacy",
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.relay, self.agent, self.era = relay, agent, era
        self.base = {
            "Host": f"127.0.0.1:{relay.port}",
            "Authorization": f"Bearer {token or relay.token(agent)}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **(headers or {}),
        }
        self._idle: list[Wire] = []
        self._ids = itertools.count(1)
        self._pending: set[asyncio.Task[Reply]] = set()
        self._wires: list[Wire] = []

    async def __aenter__(self) -> "Mcp":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        for task in list(self._pending):
            task.cancel()
        for wire in self._wires:
            await wire.close()
        self._wires.clear()
        self._idle.clear()

    def message(
        self, method: str, params: Json | None = None, *, rid: Any = None, progress: Any = None
    ) -> tuple[Json, dict[str, str]]:
        """A request of this client's era and its headers."""
        params = dict(params or {})
        meta = dict(params.pop("_meta", {}))
        headers = dict(self.base)
        if progress is not None:
            meta["progressToken"] = progress
        if self.era == "modern":
            meta.setdefault("io.modelcontextprotocol/protocolVersion", MODERN)
            meta.setdefault("io.modelcontextprotocol/clientCapabilities", {})
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
            if "name" in params:
                headers["Mcp-Name"] = params["name"]
        elif self.era == "legacy":
            headers["MCP-Protocol-Version"] = LEGACY
        if meta:
            params["_meta"] = meta
        body: Json = {"jsonrpc": "2.0", "method": method}
        if rid != "notification":
            body["id"] = next(self._ids) if rid is None else rid
        if params or method == "tools/call":
            body["params"] = params
        return body, headers

    async def begin(
        self, body: Any, headers: Mapping[str, str] | None = None, *, method: str = "POST"
    ) -> Pending:
        """Send a request (JSON value or bytes) and read its answer in the background."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = request_bytes(method, "/mcp", self.base if headers is None else headers, content)
        wire = self._idle.pop() if self._idle else await self._open()
        if wire.reader.at_eof():
            wire = await self._open()
        await wire.send(sent)
        task = asyncio.get_running_loop().create_task(self._read(wire, method))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return Pending(wire, task)

    async def _open(self) -> Wire:
        wire = await Wire.open(self.relay.port)
        self._wires.append(wire)
        return wire

    async def _read(self, wire: Wire, method: str) -> Reply:
        reply = await wire.rest(await wire.head(), method)
        if wire.reusable:
            self._idle.append(wire)
        return reply

    async def post(
        self,
        body: Any,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = WAIT_S,
        method: str = "POST",
    ) -> Reply:
        return await (await self.begin(body, headers, method=method)).done(timeout)

    async def rpc(
        self, method: str, params: Json | None = None, *, timeout: float = WAIT_S, **more: Any
    ) -> Reply:
        body, headers = self.message(method, params, **more)
        return await self.post(body, headers, timeout=timeout)

    async def start(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        meta: Json | None = None,
        **more: Any,
    ) -> Pending:
        """Begin a tool call that will be held."""
        params: Json = {"name": tool, "arguments": dict(args or {})}
        if meta:
            params["_meta"] = meta
        return await self.begin(*self.message("tools/call", params, **more))

    async def call(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float = WAIT_S,
        **more: Any,
    ) -> Reply:
        """A tool call with everything that came back."""
        return await (await self.start(tool, args, **more)).done(timeout)

    async def tool(
        self,
        tool: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout: float = WAIT_S,
        **more: Any,
    ) -> Any:
        """A tool call; returns what the verb gave. A protocol error fails the test."""
        return (await self.call(tool, args, timeout=timeout, **more)).result

    async def ask(self, to: str, message: str, *, timeout: float = WAIT_S, **args: Any) -> Any:
        return await self.tool("ask_agent", {"to": to, "message": message, **args}, timeout=timeout)


async def raw(port: int, data: bytes, *, end: bool = False, timeout: float = 5) -> bytes:
    """Send bytes; return what came until the relay closed, or until it was silent after a whole
    answer came. `end` closes our sending side."""
    wire = await Wire.open(port)
    got = b""
    with contextlib.suppress(ConnectionError):
        await wire.send(data)
        if end:
            wire.writer.write_eof()
    try:
        async with asyncio.timeout(timeout):
            while not _whole(got):
                if not (piece := await wire.reader.read(65536)):
                    return got
                got += piece
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                while piece := await wire.reader.read(65536):
                    got += piece
    except ConnectionError:
        pass
    finally:
        await wire.close()
    return got


def _whole(answer: bytes) -> bool:
    """Whether bytes hold a response with all of its body."""
    head, found, body = answer.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return bool(found) and len(body) >= int(length or 0)
