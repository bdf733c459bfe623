"""Nobody speaks for another, whatever is sent, reloaded or repeated: over real sockets."""

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.connector.rig import rig
from tests.harness.waits import eventually
from websockets.exceptions import InvalidStatus

from hermes_bridge.contract.token import mint

pytestmark = pytest.mark.anyio
_UPGRADE = (
    b"GET /relay HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Authorization: Bearer bad\r\n\r\n"
)


@pytest.mark.clause("relay.hello.2", "relay.identity.2")
async def test_two_gateways_speak_each_for_their_own_bot(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a, b = await r.joined("a"), await r.joined("b")
        await a.act("send", "room", content="from a")
        await b.act("send", "room", content="from b")
        assert [(post["by"], post["content"]) for post in r.hub.posts] == [
            ("a", "from a"),
            ("b", "from b"),
        ]


@pytest.mark.clause("relay.hello.3")
@pytest.mark.parametrize(
    ("bot", "platform", "reason"),
    [
        ("b", "agentschat", "credential_mismatch"),
        ("nobody", "agentschat", "unknown_identity"),
        ("a", "telegram", "unsupported_platform"),
        ("", "relay", "unsupported_platform"),
    ],
)
async def test_a_wrong_hello_closes_1002_and_gives_nothing(
    tmp_path: Path, bot: str, platform: str, reason: str
) -> None:
    async with rig(tmp_path) as r:
        a = await r.joined("a")
        answer = await a.hello(bot, platform)
        assert answer == {"type": "error", "error": f"hello rejected: {reason}"}
        assert await a.ended() == (1002, f"hello rejected: {reason}")
        await r.hub.say("room", "ada", "@a are you there")
        again = await r.joined("a")
        assert (await again.got(1))[0]["text"] == "@a are you there"
        assert a.events == []


@pytest.mark.clause("relay.token.4")
@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (lambda now: mint("gw-a", "wrong", now + 300), "unauthorized"),
        (lambda now: mint("gw-x", "secret-of-a", now + 300), "unauthorized"),
        (lambda now: mint("gw-b", "secret-of-a", now + 300), "unauthorized"),
        (lambda now: "", "unauthorized"),
        (lambda now: "garbage", "unauthorized"),
        (lambda now: mint("gw-a", "secret-of-a", now - 200), "expired"),
    ],
)
async def test_a_refused_token_closes_4401_and_says_expired_only_for_age(
    tmp_path: Path, token: Any, reason: str
) -> None:
    async with rig(tmp_path) as r:
        gateway = await r.gateway("a").dial(token=token(int(time.time())))
        assert await gateway.ended() == (4401, reason)


@pytest.mark.clause("relay.token.2")
async def test_a_clock_that_is_100_seconds_off_works(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        late = await r.gateway("a").dial(token=mint("gw-a", "secret-of-a", int(time.time()) - 100))
        assert (await late.hello("a"))["type"] == "descriptor"


@pytest.mark.clause("relay.token.5")
async def test_500_bad_upgrades_in_a_second_are_throttled_while_good_gateways_connect(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r:
        host, port = r.base.removeprefix("http://").split(":")
        answers: Counter[str] = Counter()

        async def bad() -> None:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(_UPGRADE)
            answers[(await reader.readline()).split()[1].decode()] += 1
            writer.close()

        async with asyncio.TaskGroup() as group:
            for batch in range(50):
                for _ in range(10):
                    group.create_task(bad())
                if batch % 10 == 5:
                    good = await r.joined("a")
                    send = {"op": "send", "chat_id": "room", "content": "here"}
                    result = await good.result(await good.ask(send, request=f"in-{batch}"))
                    assert result["success"] is True
                await asyncio.sleep(1 / 50)
        # Ten handshakes are completed, to be closed 4401; the others do not get that far.
        assert answers == {"101": 10, "429": 490}
        assert len(r.hub.posts) == 5
        counts = r.connector.state.counts
        assert (counts["refused.unauthorized"], counts["refused.throttled"]) == (10, 490)


@pytest.mark.clause("relay.start.3")
async def test_one_connection_too_many_is_refused_with_words_and_hurts_nobody(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, max_connections=18) as r:
        first = await r.joined("b")
        for _ in range(16):
            await r.gateway("a").dial()
        with pytest.raises(InvalidStatus) as refused:
            await r.gateway("a").dial()
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["retry-after"] == "5"
        assert b"this gateway has 16 connections" in (refused.value.response.body or b"")
        await r.gateway("b").dial()
        with pytest.raises(InvalidStatus) as refused:
            await r.gateway("b").dial()
        assert b"max_connections" in (refused.value.response.body or b"")
        assert (await first.act("send", "room", content="still here"))["success"] is True
        await r.gateways[-2].close()
        await eventually(lambda: len(r.connector.state.links) <= 17, "one gone")
        again = await r.joined("b")
        send = {"op": "send", "chat_id": "room", "content": "back"}
        assert (await again.result(await again.ask(send, request="back")))["success"] is True


@pytest.mark.clause("relay.outbound.1", "relay.outbound.2")
async def test_an_operation_needs_the_right_bot_on_this_very_connection(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a, _ = await r.joined("a"), await r.joined("b")
        for wrong in ("b", "", None, 7, {}, "nobody"):
            result = await a.act("send", "room", content="x", botId=wrong)
            assert result["success"] is False
            assert result["error"].startswith("no usable identity for outbound (botId=")
        assert (await a.act("send", "room", content="x", platform="telegram"))["success"] is False
        assert (await a.act("send", "room", content="ok", botId="a"))["success"] is True
        assert [post["content"] for post in r.hub.posts] == ["ok"]


async def test_before_its_hello_a_connection_can_do_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        gateway = await r.gateway("a").dial()
        assert (await gateway.act("send", "room", content="x"))["success"] is False
        assert (await gateway.act("get_chat_info", "room"))["success"] is False
        assert r.hub.calls["post"] == 0


@pytest.mark.clause("relay.hello.1")
async def test_two_bots_share_a_connection_only_with_one_gateway_and_secret(tmp_path: Path) -> None:
    async with rig(tmp_path, start=False) as r:
        r.rows[1] |= {"gatewayId": "gw-a", "secret": "secret-of-a"}
        await r.start()
        both = await r.gateway("a").join("a", "b")
        assert (await both.act("send", "room", content="who"))["success"] is False
        for bot in ("b", "a"):
            assert (await both.act("send", "room", content=f"as {bot}", botId=bot))["success"]
        assert [post["by"] for post in r.hub.posts] == ["b", "a"]
        await r.hub.say("room", "ada", "@a @b")
        events = await both.got(2)
        assert {event["source"]["profile"] for event in events} == {"a", "b"}


@pytest.mark.clause("relay.hello.4")
async def test_a_connection_without_a_hello_is_closed(tmp_path: Path) -> None:
    async with rig(tmp_path, hello_timeout_ms=200) as r:
        kept = await r.joined("a")
        gateway = await r.gateway("a").dial()
        assert (await gateway.ended())[0] == 1002
        assert (await kept.act("typing", "room"))["success"] is True


@pytest.mark.clause("relay.hello.5")
async def test_the_newest_connection_wins_and_the_old_one_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        old = await r.joined("a")
        new = await r.joined("a")
        assert await old.ended() == (1000, "superseded")
        await r.hub.say("room", "ada", "@a hello")
        assert len(await new.got(1)) == 1
        assert old.events == []


@pytest.mark.clause("relay.identity.5")
async def test_a_removed_identity_is_closed_out_at_once(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a, b = await r.joined("a"), await r.joined("b")
        removed = r.rows.pop(0)
        r.write()
        assert "(0 added, 1 removed)" in await r.connector.reload()
        assert (await a.ended())[0] == 1002
        assert (await b.act("send", "room", content="b stays"))["success"] is True
        r.rows.insert(0, removed)
        r.write()
        await r.connector.reload()
        await r.listening()
        again = await r.joined("a")
        assert (await again.act("send", "room", content="a is back"))["success"] is True


@pytest.mark.clause("relay.identity.3")
async def test_a_secret_is_rotated_without_a_moment_of_downtime(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        old = await r.joined("a")
        r.rows[0]["secrets"] = ["fresh-secret"]
        r.write()
        await r.connector.reload()
        assert (await old.act("typing", "room"))["success"] is True
        new = await r.joined("a", secret="fresh-secret")
        assert await old.ended() == (1000, "superseded")
        r.rows[0] = r.rows[0] | {"secret": "fresh-secret"}
        del r.rows[0]["secrets"]
        r.write()
        await r.connector.reload()
        assert (await new.act("typing", "room"))["success"] is True
        refused = await r.gateway("a").dial()
        assert await refused.ended() == (4401, "unauthorized")


@pytest.mark.clause("relay.identity.5")
async def test_a_rotated_secret_ends_the_connection_that_used_it_also_before_its_hello(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, "a") as r:
        a, waiting = await r.joined("a"), await r.gateway("a").dial()
        r.rows[0]["secret"] = "another-secret"
        r.write()
        await r.connector.reload()
        assert (await a.ended())[0] == 1002
        assert (await waiting.ended())[0] == 1002


@pytest.mark.clause("relay.identity.5")
async def test_a_bad_table_keeps_the_old_one(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a = await r.joined("a")
        r.file.write_text("[{")
        assert "keeping previous identities" in await r.connector.reload()
        assert (await a.act("send", "room", content="ok"))["success"] is True


@pytest.mark.clause("relay.identity.5")
async def test_an_identity_that_is_taken_away_during_an_operation_does_not_act_again(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        r.hub.faults.post_gate = asyncio.Event()
        await a.ask({"op": "send", "chat_id": "room", "content": "in flight"})
        await a.ask({"op": "send", "chat_id": "room", "content": "queued"})
        await r.hub.until(lambda: r.hub.calls["post"] == 1)
        r.rows[0]["gatewayId"] = "gw-other"
        r.write()
        await r.connector.reload()
        r.hub.faults.post_gate.set()
        assert (await a.ended())[0] == 1002
        heir = await r.joined("a", gateway="gw-other")
        send = {"op": "send", "chat_id": "room", "content": "of its new gateway"}
        said = await heir.result(await heir.ask(send, request="heir"))
        assert said["success"] is True, said
        assert [post["content"] for post in r.hub.posts] == ["in flight", "of its new gateway"]


@pytest.mark.clause("relay.identity.4", "relay.health.1")
async def test_no_secret_is_in_health_frames_or_logs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import aiohttp

    with caplog.at_level("DEBUG", logger="hermes_bridge"):
        async with rig(tmp_path) as r:
            a = await r.joined("a")
            await a.act("send", "room", content="my key is tok-a-0123456789 and secret-of-b")
            await r.hub.say("room", "ada", "@a use secret-of-a please")
            await a.got(1)
            async with aiohttp.ClientSession() as http, http.get(r.base + "/health") as answer:
                health = await answer.text()
            ours = [each for each in caplog.records if each.name.startswith("hermes_bridge")]
            assert ours
            seen = health + str(a.frames) + str(r.hub.posts)
            seen += "".join(str(record.__dict__) for record in ours)
            for row in r.rows:
                assert row["secret"] not in seen
                assert row["token"] not in seen
