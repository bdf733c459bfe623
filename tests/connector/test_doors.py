"""The doors under bad manners: raw bytes, odd paths, broken frames, readers that do not read."""

import asyncio
import base64
import os
import time
from pathlib import Path

import pytest
from tests.connector.rig import Rig, rig
from tests.harness.waits import eventually

from hermes_bridge.contract.token import mint
from hermes_bridge.web import serving

pytestmark = pytest.mark.anyio


async def upgrade(
    r: Rig, path: str, token: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(r.base.rsplit(":", 1)[-1]))
    key = base64.b64encode(os.urandom(16)).decode()
    lines = [
        f"GET {path} HTTP/1.1", "Host: x", "Upgrade: websocket", "Connection: Upgrade",
        f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13",
    ]  # fmt: skip
    if token:
        lines.append(f"Authorization: Bearer {token}")
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    return reader, writer


async def status(reader: asyncio.StreamReader) -> str:
    async with asyncio.timeout(30):
        return (await reader.readline()).decode().strip()


def good() -> str:
    return mint("gw-a", "secret-of-a", int(time.time()) + 60)


@pytest.mark.clause("relay.token.6")
@pytest.mark.parametrize(
    "path", ["//", "/relay/", "/", "/relay/../x", "/%2e", "http://x/relay2", "*"]
)
async def test_no_path_hurts_the_connector(tmp_path: Path, path: str) -> None:
    """Faults 1 and 13 of the seed's connector."""
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        reader, writer = await upgrade(r, path, good())
        assert (await status(reader)).split()[1] in ("404", "400")
        writer.close()
        assert (await a.act("send", "room", content="alive"))["success"] is True


@pytest.mark.clause("relay.token.6")
async def test_an_unmasked_frame_after_a_refusal_hurts_nobody(tmp_path: Path) -> None:
    """Fault 2 of the seed's connector."""
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        for token in ("", good()):
            reader, writer = await upgrade(r, "/relay", token)
            assert "101" in await status(reader)
            writer.write(b"\x81\x02hi\xff\xff\xff")
            writer.close()
        assert (await a.act("send", "room", content="alive"))["success"] is True


@pytest.mark.clause("relay.frame.2")
async def test_nonsense_on_the_socket_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        for text in ("", "\n\n", "nonsense\n", "[]\n", '{"type":"unknown"}\n', "{" * 3000 + "\n", "7\n",
                     '{"type":"inbound_ack","bufferId":{}}\n', '{"type":"interrupt"}\n',
                     '{"type":"inbound_ack","bufferId":"99999999999999999999999"}\n'):  # fmt: skip
            await a.raw(text)
        await a.raw(b"\x00\x01")
        assert (await a.act("send", "room", content="alive"))["success"] is True
        assert "Traceback" not in caplog.text


@pytest.mark.clause("relay.frame.3")
async def test_a_frame_in_two_messages_and_two_in_one(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        line = '{"type":"outbound","requestId":"r1","action":{"op":"typing","chat_id":"room"}}\n'
        await a.raw(line[:30])
        await a.raw(line[30:] + line.replace("r1", "r2"))
        assert [(await a.result(each))["success"] for each in ("r1", "r2")] == [True, True]


@pytest.mark.clause("relay.frame.4")
async def test_a_frame_that_is_too_large_closes_with_1009(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        await a.raw("x" * (1024 * 1024 + 10))
        assert (await a.ended())[0] == 1009
        b = await r.joined("a")
        for _ in range(3):
            await b.raw("y" * 500_000)
        assert (await b.ended())[0] == 1009


@pytest.mark.clause("relay.frame.4")
async def test_a_huge_message_is_cut_so_that_hermes_can_read_it(tmp_path: Path) -> None:
    """Fault 20: a gateway closes a frame over 1 MiB."""
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        await r.hub.say("dm-a", "ada", "\\\x01é" * 500_000)
        (event,) = await a.got(1)
        assert event["text"].endswith("was cut by the connector]")


async def test_text_that_is_no_utf8_closes_that_connection_only(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        reader, writer = await upgrade(r, "/relay", good())
        assert "101" in await status(reader)
        writer.write(b"\x81\x82\x00\x00\x00\x00\xff\xfe")
        async with asyncio.timeout(30):
            while await reader.read(100):
                continue
        writer.close()
        assert (await (await r.joined("a")).act("typing", "room"))["success"] is True


@pytest.mark.clause("relay.frame.5")
async def test_a_gateway_that_does_not_read_loses_nothing_to_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_bridge.connector import link

    monkeypatch.setattr(link, "_FULL", 100_000)
    async with rig(tmp_path, "a") as r:
        stuck = await r.joined("a", acks=False)
        stuck.stop_reading()
        for n in range(90):
            r.hub.room(f"dm-{n}", "ada", "a")
            await r.hub.frame("a", {"type": "channel_created", "channel_id": f"dm-{n}"})
        await r.listening()
        for n in range(90):
            await r.hub.say(f"dm-{n}", "ada", "x" * 140_000)
        await eventually(lambda: r.connector.state.inbox.depth("a")[0] == 90, "in the inbox")
        (old,) = r.connector.state.links.values()
        assert old.full
        assert old._waiting < 1_000_000
        a = await r.joined("a")
        await a.got(90, timeout=30)
        await r.settled()
        stuck.cut()


@pytest.mark.clause("relay.frame.5")
async def test_answers_do_not_pile_up_for_a_gateway_that_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_bridge.connector import link

    monkeypatch.setattr(link, "_MAX_WAITING", 20_000)
    async with rig(tmp_path, "a") as r:
        stuck = await r.joined("a")
        stuck.stop_reading()
        filler = "f" * 150
        try:
            for n in range(200_000):
                await stuck.ask({"op": "typing", "chat_id": "room"}, request=f"{filler}{n}")
                if not r.connector.state.links:
                    break
        except Exception as error:
            assert "closed" in str(error).lower() or "close" in str(error).lower()
        await eventually(lambda: not r.connector.state.links, "cut")
        assert (await (await r.joined("a")).act("typing", "room"))["success"] is True
        stuck.cut()


@pytest.mark.clause("relay.frame.5")
async def test_an_idle_connection_is_pinged_and_lives_and_one_that_is_silent_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T49: what stands between the two forgets connections that are idle for minutes."""
    assert serving.PING_S <= 30, "some balancers cut what is silent for longer"
    monkeypatch.setattr(serving, "PING_S", 0.5)
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        reader, writer = await upgrade(r, "/relay", good())
        async with asyncio.timeout(30):
            await reader.readuntil(b"\r\n\r\n")
            frames = await reader.read()  # it answers no ping, and so it ends
        assert frames.count(b"\x89") == 1, "one ping, and no second one after no answer"
        writer.close()
        assert not a.closed.is_set(), "an idle connection that answers was cut as well"
        await r.hub.say("dm-a", "ada", "still there?")
        await a.got(1, 30)
