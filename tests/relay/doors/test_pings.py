"""A relay in this process, with pings that come fast: dead peers and refused ones."""

import asyncio
import base64
import contextlib
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes_bridge import config as config_file
from hermes_bridge.serve import Service
from hermes_bridge.web import serving

pytestmark = pytest.mark.anyio
TOKEN = "a-token-of-the-right-length"


@contextlib.asynccontextmanager
async def relay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(serving, "PING_S", 0.3)
    text = (
        f"agents: [{{name: a, token: {TOKEN}}}]\nlisten: {{port: 0}}\ndb: {{path: {folder}/x.db}}\n"
    )
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    service = Service(config_file.parse(text, {}), ready=ready.set_result)
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(service.run())
        yield int((await ready).rsplit(":", 1)[1])
        service.stop()


async def upgrade(
    port: int, token: str
) -> tuple[bytes, asyncio.StreamReader, asyncio.StreamWriter]:
    """Dial by hand: a client that answers no ping."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write(
        f"GET /bridge/connect HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode()
    )
    return await reader.readuntil(b"\r\n\r\n"), reader, writer


async def online(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    count: int = json.loads((await reader.read()).partition(b"\r\n\r\n")[2])["agents_online"]
    writer.close()
    return count


@pytest.mark.clause("bridge.link.7")
async def test_a_peer_that_answers_no_ping_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * serving.PING_S < 60
    async with relay(tmp_path, monkeypatch) as port:
        head, reader, writer = await upgrade(port, TOKEN)
        assert b" 101 " in head and await online(port) == 1
        frames = await reader.read()
        assert frames[:1] == b"\x89"
        assert await online(port) == 0
        writer.close()


@pytest.mark.clause("bridge.link.2")
async def test_a_token_that_is_not_known_is_refused_with_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with relay(tmp_path, monkeypatch) as port:
        head, reader, writer = await upgrade(port, "another-token-of-that-length")
        assert b" 401 " in head and b"www-authenticate: bearer" in head.lower()
        assert b"Authorization: Bearer" in await reader.read()
        assert await online(port) == 0
        writer.close()
