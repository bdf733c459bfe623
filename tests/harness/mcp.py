"""A raw MCP client of one agent, in either era, and its calls under way."""

import asyncio
import itertools
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.harness.waits import WAIT_S, eventually
from tests.harness.wire import Json, Reply, Wire, request_bytes

if TYPE_CHECKING:
    from tests.harness.relay import RelayProcess

MODERN = "2026-07-28"
LEGACY = "2025-11-25"


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
        relay: "RelayProcess",
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

    async def heard(self) -> None:
        """Wait until the relay has read what was sent before, on whichever connection.

        It reads connections in the order of arrival; a new one is accepted first, hence twice.
        """
        for _ in range(2):
            await self.rpc("ping")

    async def outcome(self, said: Json) -> Json:
        """Follow an ask through its slices to its end, from what it said first."""
        while said.get("error") == "working":
            said = await self.tool("wait_answer", {"request_id": said["request_id"]})
        return said

    async def ask(self, to: str, message: str, *, timeout: float = WAIT_S, **args: Any) -> Any:
        return await self.tool("ask_agent", {"to": to, "message": message, **args}, timeout=timeout)
