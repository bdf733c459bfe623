"""How large a message, an answer and their data may be on a link (bridge.md, part 1)."""

import asyncio
import json

import pytest
from tests.harness.bot import Bot
from tests.harness.relay import Clients, Make, RelayProcess, crowd

pytestmark = pytest.mark.anyio

LARGEST = 2**20
"""The longest frame that the `websockets` library takes unless it is told otherwise."""


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=crowd(60), max_message_bytes=1_032_192)


@pytest.mark.clause("bridge.ask.1")
async def test_a_message_of_a_megabyte_reaches_a_client_with_a_limit_of_1_mib(
    relay: RelayProcess, mcp: Clients
) -> None:
    text = "m" * 1_000_000
    for hello in (True, False):
        async with Bot(relay, relay.agent(), hello=hello, max_size=LARGEST) as bot:
            bot.on_wake = lambda wake: wake["message"]
            assert (await mcp(relay.agent()).ask(bot.name, text))["answer"] == text


@pytest.mark.clause("bridge.ask.1")
@pytest.mark.parametrize(
    ("message", "data"),
    [
        ("\x01" * 200_000, None),
        ("\x01" * 170_000, "d" * 90_000),
        ('"' * 520_000, "d" * 500_000),
        ("m", "d" * 1_040_000),
        ("m" * 1_100_000, None),
        ("é" * 600_000, None),
    ],
    ids=["control", "control and data", "quotes and data", "data", "text", "umlauts"],
)
async def test_what_would_not_fit_into_a_frame_is_refused_before_it_is_sent(
    relay: RelayProcess, mcp: Clients, message: str, data: str | None
) -> None:
    async with Bot(relay, relay.agent(), hello=True, max_size=LARGEST) as bot:
        client = mcp(relay.agent())
        result = await client.ask(bot.name, message, wait_ms=0, data=data)
        assert (result["ok"], result["error"]) == (False, "message_too_large")
        assert result["hint"]
        await bot.lives()


@pytest.mark.clause("bridge.ask.1")
@pytest.mark.parametrize(
    ("answer", "data"),
    [
        ("\x01" * 200_000, None),
        ("\x01" * 170_000, "d" * 90_000),
        ("a", "d" * 1_040_000),
        ("\n" * 500_000 + "x", "d" * 500_000),
    ],
    ids=["control", "control and data", "data", "newlines"],
)
async def test_an_answer_that_would_not_fit_into_a_frame_is_refused(
    relay: RelayProcess, mcp: Clients, answer: str, data: str | None
) -> None:
    async with (
        Bot(relay, relay.agent(), hello=True, max_size=LARGEST) as a,
        Bot(relay, relay.agent(), hello=True, max_size=LARGEST) as b,
    ):
        asking = asyncio.create_task(a.call("ask_agent", {"to": b.name, "message": "?"}))
        rid = (await b.wake())["request_id"]
        said = await mcp(b.name).tool("reply", {"request_id": rid, "answer": answer, "data": data})
        assert (said["ok"], said["error"]) == (False, "message_too_large")
        await b.reply(rid, "short")
        assert (await asking)["answer"] == "short"


@pytest.mark.clause("bridge.reply.4", "bridge.ask.1")
async def test_a_failure_may_have_a_long_reason_but_not_too_long(
    relay: RelayProcess, mcp: Clients
) -> None:
    async with (
        Bot(relay, relay.agent(), hello=True, max_size=LARGEST) as a,
        Bot(relay, relay.agent(), hello=True, max_size=LARGEST) as b,
    ):
        asking = asyncio.create_task(a.call("ask_agent", {"to": b.name, "message": "?"}))
        rid = (await b.wake())["request_id"]
        too_long = {"request_id": rid, "answer": "\x01" * 300_000, "kind": "failure"}
        assert (await mcp(b.name).tool("reply", too_long))["error"] == "message_too_large"
        await b.reply(rid, "out of cheese", kind="failure")
        result = await asking
        assert (result["ok"], result["error"], result["reason"]) == (
            False,
            "failed",
            "out of cheese",
        )


async def test_a_trace_that_is_none_goes_nowhere(relay: RelayProcess, mcp: Clients) -> None:
    async with Bot(relay, relay.agent(), hello=True, max_size=LARGEST) as bot:
        client = mcp(relay.agent())
        for trace in ("t" * 1_200_000, "\0", "nonsense", "00-zz-zz-01", "\ud800"):
            args = {"to": bot.name, "message": "m", "wait_ms": 0}
            await client.call("ask_agent", args, meta={"traceparent": trace})
        await client.ask(bot.name, "last", wait_ms=0)
        wakes = []
        while not wakes or wakes[-1]["message"] != "last":
            wakes.append(await bot.wake())
        assert not any("trace" in wake for wake in wakes)


async def test_data_of_any_json_arrives_as_it_was_sent(relay: RelayProcess, mcp: Clients) -> None:
    values = [0, "", [], {}, False, 1.5, {"a": None}, "é\U0001f600", [[[[1]]]], 10**40]
    async with Bot(relay, relay.agent(), hello=True) as bot:
        client = mcp(relay.agent())
        for value in values:
            pending = await client.start(
                "ask_agent", {"to": bot.name, "message": "m", "data": value}
            )
            wake = await bot.wake()
            assert wake["data"] == value
            await bot.reply(wake["request_id"], "ok", data=value)
            assert (await pending.result())["data"] == value


async def test_data_that_a_reader_could_not_take_in_is_refused(
    relay: RelayProcess, mcp: Clients
) -> None:
    """Python's own reader gives up at about a thousand levels: such data would kill links."""
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        deep = b"[" * 5000 + b"]" * 5000
        body, headers = client.message(
            "tools/call",
            {
                "name": "ask_agent",
                "arguments": {"to": bot.name, "message": "m", "wait_ms": 0, "data": "@"},
            },
        )
        reply = await client.post(json.dumps(body).encode().replace(b'"@"', deep), headers)
        assert reply.status in (200, 400)
        assert "error" in (reply.message if reply.status == 400 else reply.result)
        broken = json.dumps(body).encode().replace(b'"@"', b'"\xff\xfe"')
        assert (await client.post(broken, headers)).error["code"] == -32700
        await bot.lives()
