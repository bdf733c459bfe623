"""Runs in a virtual environment of its own: an official `mcp` client driven by JSON lines.

`python official_client.py URL TOKEN MODE READ_TIMEOUT`; a line `{"id", "do", ...}` on standard input
is one request, done at once; a line on standard output is `{"id", "result" | "error"}` or
`{"id", "progress", "message"}`. `do` is "list", "ping" or "call" (`tool`, `args`, `timeout`).
"""

import asyncio
import contextlib
import json
import sys
from datetime import timedelta
from typing import Any

import mcp


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


@contextlib.asynccontextmanager
async def first_generation(url: str, token: str, read: float) -> Any:
    from mcp.client.streamable_http import streamablehttp_client

    headers = {"Authorization": f"Bearer {token}"}
    async with (
        streamablehttp_client(url, headers=headers, sse_read_timeout=read) as (reader, writer, _),
        mcp.ClientSession(reader, writer) as session,
    ):
        await session.initialize()
        yield session


@contextlib.asynccontextmanager
async def second_generation(url: str, token: str, mode: str, read: float) -> Any:
    import httpx2
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(30, read=read)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


async def do(client: Any, old: bool, line: dict[str, Any]) -> Any:
    if line["do"] == "list":
        return sorted(tool.name for tool in (await client.list_tools()).tools)
    if line["do"] == "ping":
        await client.send_ping()
        return {}

    async def progress(count: float, total: float | None, message: str | None) -> None:
        say(id=line["id"], progress=count, message=message)

    limit = line.get("timeout")
    if limit is not None and old:
        limit = timedelta(seconds=limit)
    result = await client.call_tool(line["tool"], line["args"], limit, progress)
    bad = getattr(result, "isError", None) or getattr(result, "is_error", None)
    return {"is_error": bool(bad), "said": json.loads(result.content[0].text)}


async def main() -> None:
    url, token, mode, read = sys.argv[1:5]
    old = mode == "first"
    connection = (
        first_generation(url, token, float(read))
        if old
        else second_generation(url, token, mode, float(read))
    )
    async with connection as client:
        say(id=0, result=getattr(client, "protocol_version", None))
        tasks: set[asyncio.Task[None]] = set()

        async def one(line: dict[str, Any]) -> None:
            try:
                say(id=line["id"], result=await do(client, old, line))
            except Exception as error:
                say(id=line["id"], error=f"{type(error).__name__}: {error}")

        loop = asyncio.get_running_loop()
        while text := await loop.run_in_executor(None, sys.stdin.readline):
            task = loop.create_task(one(json.loads(text)))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        for task in tasks:
            task.cancel()


asyncio.run(main())
