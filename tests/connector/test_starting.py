"""Doors of a connector that is not there yet: who comes early waits, and gets words if it is in vain."""

import asyncio
import json
import logging
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from tests.connector.probe import Gateway
from tests.harness.venvs import Venv
from tests.harness.waits import eventually
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from hermes_bridge.connector.config import configure
from hermes_bridge.connector.connector import Connector
from hermes_bridge.connector.doors.asgi import Doors
from hermes_bridge.connector.doors.gateway import Receive, Scope, Send
from hermes_bridge.connector.process import Inside
from hermes_bridge.contract.token import mint
from hermes_bridge.db.base import Schema
from hermes_bridge.db.sqlite import MEMORY, SqliteDatabase
from hermes_bridge.errors import DatabaseDown
from hermes_bridge.web import serving

pytestmark = pytest.mark.anyio
SECRET = "secret-of-a"
IDENTITY = {"botId": "a", "token": "t", "gatewayId": "gw-a", "secret": SECRET, "platform": "echo"}


class Counting:
    """Doors that count who is inside."""

    def __init__(self, doors: Doors) -> None:
        self._doors, self.inside = doors, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.inside += 1
        try:
            await self._doors(scope, receive, send)
        finally:
            self.inside -= 1


class SlowStore(SqliteDatabase):
    """A store that opens when the test says so, or is down until then."""

    def __init__(self, *, down: bool = False) -> None:
        super().__init__(MEMORY)
        self.gate, self.down, self.tries = asyncio.Event(), down, 0

    async def open(self, *schemas: Schema) -> None:
        self.tries += 1
        if self.down:
            raise DatabaseDown("the store does not answer")
        await self.gate.wait()
        await super().open(*schemas)


class Starting(NamedTuple):
    """A connector that is not there yet."""

    address: str
    store: SlowStore
    connector: Connector
    doors: Counting


@asynccontextmanager
async def served(doors: Any) -> AsyncIterator[str]:
    server = serving.build(doors)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


@asynccontextmanager
async def starting(tmp_path: Path, *, hold_s: float = 30) -> AsyncIterator[Starting]:
    """A connector whose store is held, behind its doors."""
    config = configure({"identities": [IDENTITY], "state_dir": str(tmp_path)}, {})
    store = SlowStore()
    connector = Connector(config, store)
    life = asyncio.create_task(connector.run())
    try:
        doors = Counting(Doors(connector, hold_s=hold_s))
        async with served(doors) as address:
            yield Starting(address, store, connector, doors)
    finally:
        life.cancel()
        await asyncio.wait([life])
        await store.close()


@pytest.mark.clause("relay.start.1")
async def test_who_comes_early_is_served_when_the_connector_is_there(tmp_path: Path) -> None:
    async with starting(tmp_path) as (address, store, _, doors), aiohttp.ClientSession() as http:
        gateway = Gateway(f"ws://{address}/relay", "gw-a", SECRET)
        dialling = asyncio.create_task(gateway.dial())
        asking = asyncio.create_task(http.get(f"http://{address}/relay/media/x"))
        async with asyncio.timeout(30):
            await eventually(lambda: store.tries and doors.inside == 2, "two wait inside")
            assert not (dialling.done() or asking.done())
            store.gate.set()
            await dialling
            assert (await gateway.hello("a", "echo"))["type"] == "descriptor"
            assert (await asking).status == 401
        await gateway.close()


@pytest.mark.clause("relay.start.2")
async def test_a_start_that_takes_too_long_is_answered_503_at_every_door(tmp_path: Path) -> None:
    async with (
        starting(tmp_path, hold_s=0.05) as (address, store, connector, _),
        aiohttp.ClientSession() as http,
    ):
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://{address}/relay")
        response = refused.value.response
        assert (response.status_code, response.headers["retry-after"]) == (503, "5")
        assert response.body is not None
        assert b"the connector is starting" in response.body
        for method, path in (
            ("POST", "/relay/policy"), ("POST", "/relay/media"), ("GET", "/relay/media/x"),
            ("GET", "/relay"), ("GET", "/health"),
        ):  # fmt: skip
            async with http.request(method, f"http://{address}{path}") as answer:
                assert (answer.status, answer.headers["retry-after"]) == (503, "5")
                assert "starting" in (await answer.json())["error"]
        store.gate.set()
        assert await connector.readiness.wait(30)
        async with http.get(f"http://{address}/health") as answer:
            assert answer.status == 200


@pytest.mark.clause("relay.start.1")
async def test_who_leaves_while_it_waits_hurts_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with starting(tmp_path) as (address, store, _, doors):
        host, port = address.split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        token = f"Authorization: Bearer {mint('gw-a', SECRET, int(time.time()) + 60)}\r\n"
        head = "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        writer.write(f"GET /relay HTTP/1.1\r\n{head}{key}{token}\r\n".encode())
        await writer.drain()
        await eventually(lambda: doors.inside == 1, "it waits inside")
        writer.transport.abort()
        store.gate.set()
        gateway = Gateway(f"ws://{address}/relay", "gw-a", SECRET)
        async with asyncio.timeout(30):
            await gateway.dial()
            assert (await gateway.hello("a", "echo"))["type"] == "descriptor"
        await gateway.close()
    assert "Traceback" not in caplog.text
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


@pytest.mark.clause("relay.start.2")
async def test_a_connector_whose_store_was_down_says_so_and_comes_up_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_bridge.connector.process._AGAIN_S", 0.05)
    store = SlowStore(down=True)
    monkeypatch.setattr("hermes_bridge.connector.process.database", lambda *_, **__: store)
    inside = Inside(configure({"identities": [IDENTITY], "state_dir": str(tmp_path)}, {}))
    assert inside.report() == {"status": "starting"}
    life = asyncio.create_task(inside.beside())
    async with served(inside.doors) as address, asyncio.timeout(30):
        await eventually(lambda: store.tries >= 2, "tried again")
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://{address}/relay")
        assert refused.value.response.status_code == 503
        assert inside.report()["status"] == "down"
        assert "the store does not answer" in inside.report()["cause"]
        store.down = False
        store.gate.set()
        await eventually(lambda: inside.report()["status"] != "down", "up")
        gateway = Gateway(f"ws://{address}/relay", "gw-a", SECRET)
        await gateway.dial()
        assert (await gateway.hello("a", "echo"))["type"] == "descriptor"
        await gateway.close()
        life.cancel()
        await asyncio.wait([life])
        with pytest.raises(InvalidStatus) as refused:
            await connect(f"ws://{address}/relay")
        assert refused.value.response.status_code == 503, "a stopped connector let somebody in"


@pytest.mark.hermes
@pytest.mark.clause("relay.start.1")
async def test_hermes_own_transport_gets_its_descriptor_from_a_connector_that_starts(
    hermes: Venv, tmp_path: Path
) -> None:
    async with starting(tmp_path) as (address, store, _, doors):
        process = await asyncio.create_subprocess_exec(
            str(hermes.python), "-c", _DIAL, f"ws://{address}/relay", SECRET,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert (await process.stdout.readline()).strip() == b"dialling"
            await eventually(lambda: doors.inside, "it waits inside", 60)
            store.gate.set()
            answer = json.loads(await process.stdout.readline())
            await process.wait()
        assert answer == {"platform": "echo"}


_DIAL = """
import asyncio, json, sys
from gateway.relay.ws_transport import WebSocketRelayTransport

async def main(url, secret):
    transport = WebSocketRelayTransport(
        url, "echo", "a", gateway_id="gw-a", upgrade_secret=secret, reconnect=True
    )
    print("dialling", flush=True)
    await transport.connect()
    print(json.dumps({"platform": (await transport.handshake()).platform}), flush=True)
    await transport.disconnect()

asyncio.run(main(*sys.argv[1:]))
"""
