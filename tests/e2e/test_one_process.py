"""The relay and the connector in one process, on one port, from one file."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from tests.harness.relay import Make, relays
from tests.harness.waits import eventually
from websockets.asyncio.client import connect

from hermes_bridge.contract.token import mint
from hermes_bridge.testing import FakeAgent, Wake

__all__ = ["relays"]
pytestmark = pytest.mark.anyio
SECRET = "the-secret-of-gateway-a"


def section(folder: Path) -> dict[str, object]:
    identity = {
        "botId": "echo-a",
        "token": "an-account-token",
        "gatewayId": "gw-a",
        "secret": SECRET,
        "platform": "echo",
    }
    return {"identities": [identity], "state_dir": str(folder / "connector")}


async def turn(_: FakeAgent, wake: Wake) -> str:
    return f"you said {wake.message}"


async def test_agents_and_gateways_share_a_server(relays: Make, tmp_path: Path) -> None:
    relay = relays(connector=section(tmp_path))
    dial = relay.bridge_url.removesuffix("/bridge/connect")
    async with (
        asyncio.timeout(30),
        FakeAgent(relay.bridge_url, relay.token("b"), turn),
        FakeAgent(relay.bridge_url, relay.token("a")) as a,
    ):
        async with connect(f"{dial}/relay") as stranger:
            await stranger.wait_closed()
            assert stranger.close_code == 4401
        token = mint("gw-a", SECRET, int(time.time()) + 60)
        headers = {"Authorization": f"Bearer {token}"}
        async with connect(f"{dial}/relay", additional_headers=headers) as gateway:
            await gateway.send('{"type": "hello", "platform": "echo", "botId": "echo-a"}\n')
            assert json.loads(await gateway.recv())["type"] == "descriptor"
            result = await a.call("ask_agent", {"to": "b", "message": "hello"})
            assert result["answer"] == "you said hello"
            health = relay.health()
            assert health["agents_online"] == 2
            assert health["connector"]["identities"][0]["gateway"] == "connected"
            await gateway.send('{"type": "outbound", "requestId": "1", "action": {"op": "send",'
                               ' "chat_id": "room", "content": "hello"}}\n')  # fmt: skip
            assert json.loads(await gateway.recv())["result"]["success"] is True
            figures = (await asyncio.to_thread(relay.get, "/metrics"))[1]
            text = figures.decode() if isinstance(figures, bytes) else figures
            for line in (
                "hermes_bridge_connector_up 1.0",
                'hermes_bridge_connector_gateway_online{bot="echo-a"} 1.0',
                'hermes_bridge_connector_account_online{bot="echo-a"} 1.0',
                'hermes_bridge_connector_inbox_depth{bot="echo-a"} 0.0',
                'hermes_bridge_connector_posts_total{outcome="sent"} 1.0',
                'hermes_bridge_connector_refused_upgrades_total{reason="unauthorized"} 1.0',
            ):
                assert line in text.splitlines()
    assert relay.stop() == 0


async def test_a_gateway_that_dials_at_once_is_served(relays: Make, tmp_path: Path) -> None:
    relay = relays(connector=section(tmp_path), start=False)
    relay.launch()
    token = mint("gw-a", SECRET, int(time.time()) + 60)
    dial = relay.bridge_url.removesuffix("/bridge/connect")
    async with asyncio.timeout(30):
        while True:
            try:
                gateway = await connect(
                    f"{dial}/relay", additional_headers={"Authorization": f"Bearer {token}"}
                )
                break
            except ConnectionRefusedError:
                await asyncio.sleep(0.001)
        await gateway.send('{"type": "hello", "platform": "echo", "botId": "echo-a"}\n')
        assert json.loads(await gateway.recv())["type"] == "descriptor"
        await gateway.close()
    assert json.loads(relay.get("/ready")[1])["connector"] == "ok"


async def test_a_connector_that_cannot_run_is_told_of_and_stops_no_ask(
    relays: Make, tmp_path: Path
) -> None:
    first = relays(connector=section(tmp_path))
    relay = relays(connector=section(tmp_path))
    await eventually(lambda: relay.health()["connector"]["status"] == "down", "given up")
    assert "does not run" in relay.health()["connector"]["cause"]
    status, ready = relay.get("/ready")
    assert (status, json.loads(ready)["connector"]) == (200, "down")
    lines = relay.get("/metrics")[1].decode().splitlines()
    assert "hermes_bridge_connector_up 0.0" in lines
    assert "hermes_bridge_connector_store_up 0.0" in lines
    assert not [line for line in lines if 'bot="echo-a"' in line]
    async with (
        asyncio.timeout(30),
        FakeAgent(relay.bridge_url, relay.token("b"), turn),
        FakeAgent(relay.bridge_url, relay.token("a")) as a,
    ):
        result = await a.call("ask_agent", {"to": "b", "message": "hello"})
        assert result["answer"] == "you said hello"
    assert "hermes_bridge_connector_up 1.0" in first.get("/metrics")[1].decode().splitlines()


async def test_a_wrong_connector_section_ends_the_start_with_words(relays: Make) -> None:
    relay = relays(start=False, connector={"identities_file": "/nowhere/identities.json"})
    relay.launch()
    assert relay.process is not None
    assert await asyncio.to_thread(relay.process.wait, 20) == 2
    assert "hermes-bridge: " in relay.log()
    relay.process = None
