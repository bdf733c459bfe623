"""What an agent may send on its link, and what it gets when it should not (bridge.md, part 1)."""

import asyncio
import json

import pytest
from tests.harness.bot import Bot
from tests.harness.relay import Clients, Make, RelayProcess, crowd
from tests.harness.waits import eventually
from tests.harness.wire import Json
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

pytestmark = pytest.mark.anyio

LARGEST = 2**20


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=crowd(200), max_message_bytes=1_032_192)


# hello and welcome


@pytest.mark.clause("bridge.link.5")
async def test_hello_is_answered_with_the_terms_of_version_2(relay: RelayProcess) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        assert bot.welcome == {
            "type": "welcome",
            "protocol": 2,
            "agent": bot.name,
            "heartbeat_ms": 5000,
            "window_ms": 120_000,
            "max_message_bytes": 1_032_192,
        }


@pytest.mark.clause("bridge.link.5")
async def test_a_seed_adapter_gets_four_fields_and_nothing_else(
    relay: RelayProcess, mcp: Clients
) -> None:
    async with Bot(relay, relay.agent()) as bot:
        client = mcp(relay.agent())
        pending = await client.start(
            "ask_agent", {"to": bot.name, "message": "é \U0001f600", "data": 1}
        )
        wake = await bot.wake()
        del wake["at"]
        assert set(wake) == {"request_id", "conversation_id", "from", "message"}
        assert (wake["from"], wake["message"]) == (client.agent, "é \U0001f600")
        await bot.reply(wake["request_id"], "!")
        assert (await pending.result())["answer"] == "!"
        assert len(bot.frames) == 1  # no welcome, no cancel, no result


@pytest.mark.clause("bridge.link.5", "bridge.trace.1")
async def test_a_version_2_wake_says_more(relay: RelayProcess, mcp: Clients) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with Bot(relay, relay.agent(), hello=True) as bot:
        client = mcp(relay.agent())
        args = {"to": bot.name, "message": "m", "data": {"a": [1, "\ud83d\ude00"]}, "wait_ms": 0}
        await client.tool("ask_agent", args, meta={"traceparent": trace})
        wake = await bot.wake()
        assert (wake["type"], wake["attempt"], wake["depth"]) == ("wake", 1, 0)
        assert 3_590_000 < wake["deadline_ms"] <= 3_600_000
        assert wake["data"] == {"a": [1, "\U0001f600"]}
        assert wake["trace"] == {"traceparent": trace}


@pytest.mark.parametrize(
    "hello",
    [
        {"protocol": 99},
        {"protocol": 3, "features": ["x"] * 1000},
        {"client": "c" * 10_000, "description": "d" * 100_000},
        {"skills": [1, None, {"a": 1}, "s" * 5000] * 100},
        {"description": "\ud800", "client": "\udfff"},
        {"description": "\0", "skills": ["\0", "\ud800"]},
        {"unknown": {"deep": [[[1]]]}},
    ],
    ids=lambda hello: ascii(hello)[:40],
)
async def test_an_odd_hello_is_taken_within_bounds(
    relay: RelayProcess, mcp: Clients, hello: Json
) -> None:
    async with Bot(relay, relay.agent(), hello=hello) as bot:
        assert bot.welcome["protocol"] == 2
        line = next(x for x in await bot.call("list_agents") if x["name"] == bot.name)
        assert line["online"] is True
        assert len(json.dumps(line)) < 20_000
        assert "\0" not in line.get("description", "")
    assert await mcp(relay.agent()).tool("list_agents")


@pytest.mark.parametrize(
    "hello", [{"protocol": "two"}, {"features": "x"}, {"client": None}, {"skills": {"a": 1}}]
)
async def test_a_hello_of_the_wrong_types_is_ignored(relay: RelayProcess, hello: Json) -> None:
    async with Bot(relay, relay.agent()) as bot:
        await bot.send(**{"type": "hello", "protocol": 2, "client": "x", "features": [], **hello})
        await bot.lives()


async def test_a_second_hello_changes_nothing(relay: RelayProcess) -> None:
    async with Bot(relay, relay.agent(), hello={"description": "first"}) as bot:
        await bot.send(type="hello", protocol=2, client="x", features=[], description="second")
        line = next(x for x in await bot.call("list_agents") if x["name"] == bot.name)
        assert line["description"] == "first"


async def test_a_hello_of_version_1_is_welcomed_and_gets_the_seeds_wakes(
    relay: RelayProcess, mcp: Clients
) -> None:
    async with Bot(relay, relay.agent(), hello={"protocol": 1}, ack=False) as bot:
        await mcp(relay.agent()).ask(bot.name, "m", wait_ms=0)
        assert "type" not in await bot.wake()


# Frames that are not understood


@pytest.mark.clause("bridge.link.3", "bridge.link.4")
@pytest.mark.parametrize(
    "frame",
    [
        "",
        "nonsense",
        "null",
        "5",
        '"x"',
        "[]",
        "{}",
        '{"type":5}',
        '{"type":null}',
        '{"type":"heartbeat"}',
        '{"type":"heartbeat","request_id":5}',
        '{"type":"heartbeat","request_id":"nobody"}',
        '{"type":"heartbeat","request_id":"\\ud800"}',
        '{"type":"ack"}',
        '{"type":"ack","request_id":{}}',
        '{"type":"result","id":1,"result":{}}',
        '{"type":"wake","request_id":"x"}',
        '{"type":"bye"}',
        '{"type":"\\ud800"}',
        '{"type":"call"}',
        '{"type":"call","id":{"a":1}}',
        '{"type":"call","id":1.5,"tool":"list_agents"}',
        "[" * 10_000,
        '{"type":"x","a":' + "[" * 10_000 + "]" * 10_000 + "}",
        '{"type":"call","id":1,"tool":"ask_agent","args":' + "[" * 10_000 + "]" * 10_000 + "}",
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        b"",
        b"binary",
        b'{"type":"hello"}',
        bytes(range(128, 256)) * 8,
    ],
    ids=lambda frame: ascii(frame[:30]) + str(len(frame)),
)
async def test_a_frame_that_is_not_understood_is_ignored(
    relay: RelayProcess, frame: str | bytes
) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        await bot.socket.send(frame)
        await bot.lives()


@pytest.mark.clause("bridge.link.3")
async def test_a_bot_that_sends_only_nonsense_is_closed_with_1008(relay: RelayProcess) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        with pytest.raises(ConnectionClosed):
            for _ in range(5000):
                await bot.socket.send("nonsense")
                await asyncio.sleep(0)
        assert (await bot.closed())[0] == 1008


@pytest.mark.clause("bridge.link.4")
async def test_unknown_types_are_ignored_however_many(relay: RelayProcess) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        for _ in range(300):
            await bot.send(type="of-the-future", x=1)
        await bot.lives()


@pytest.mark.clause("bridge.link.3")
async def test_a_text_frame_that_is_not_utf_8_closes_with_1007(relay: RelayProcess) -> None:
    for data in (b"\xff\xfe", b'{"type":"\xc3\x28"}', b'{"type":"\xed\xa0\x80"}'):
        async with Bot(relay, relay.agent(), hello=True) as bot:
            await bot.socket.send(data, text=True)
            assert (await bot.closed())[0] == 1007


@pytest.mark.clause("bridge.link.3")
async def test_a_frame_over_the_bound_closes_with_1009(relay: RelayProcess) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        await bot.socket.send('{"type":"x","a":"' + "a" * (LARGEST - 19) + '"}')
        await bot.lives()
        await bot.socket.send("a" * (LARGEST + 1))
        assert (await bot.closed())[0] == 1009
    async with Bot(relay, bot.name, hello=True) as bot:  # in pieces, too

        async def pieces() -> object:
            for _ in range(40):
                yield "a" * 60_000

        with pytest.raises(ConnectionClosed):
            await bot.socket.send(pieces())
            await bot.socket.wait_closed()
            raise bot.socket.protocol.close_exc
        assert (await bot.closed())[0] == 1009


async def test_a_message_may_come_in_many_frames(relay: RelayProcess) -> None:
    text = json.dumps({"type": "call", "id": "split", "tool": "list_agents", "args": {}})

    async def letters() -> object:
        for letter in text:
            yield letter

    async with Bot(relay, relay.agent(), hello=True) as bot:
        await bot.socket.send(letters())
        await eventually(lambda: [f for f in bot.frames if f.get("id") == "split"], "answered")
        # Cut inside a character of several bytes: only the whole must be UTF-8.
        whole = '{"type":"ünknown"}'.encode()
        cut = whole.index(b"\xc3") + 1
        await bot.socket.send(iter_bytes(whole[:cut], whole[cut:]), text=True)
        await bot.lives()


async def iter_bytes(*pieces: bytes) -> object:
    for piece in pieces:
        yield piece


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x81\x05hello", 1002),  # not masked
        (b"\xc1\x85\0\0\0\0hello", 1002),  # reserved bit
        (b"\x83\x80\0\0\0\0", 1002),  # reserved opcode
        (b"\x09\x80\0\0\0\0", 1002),  # a ping in pieces
        (b"\x89\xfe\x00\x80\0\0\0\0" + b"x" * 128, 1002),  # a ping of 128 bytes
        (b"\x80\x80\0\0\0\0", 1002),  # a continuation of nothing
        (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1002),  # 2^64 bytes
        (b"\x81\xff\x00\x00\x00\x00\x7f\xff\xff\xff\0\0\0\0", 1009),  # 2 GiB to come
        (b"\x88\x82\0\0\0\0\x00\x01", 1002),  # close with code 1
        (b"\x88\x81\0\0\0\0\x00", 1002),  # close with half a code
    ],
    ids=lambda value: repr(value[:6]) if isinstance(value, bytes) else str(value),
)
async def test_a_breach_of_the_websocket_protocol_ends_only_that_link(
    relay: RelayProcess, data: bytes, code: int
) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        bot.socket.transport.write(data)
        async with asyncio.timeout(30):
            await bot.socket.wait_closed()
        assert bot.socket.close_code in (code, 1002, 1006, 1007, 1009)
        async with Bot(relay, bot.name, hello=True) as again:
            await again.lives()


async def test_pings_are_answered_and_a_flood_of_them_hurts_nobody(relay: RelayProcess) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        await (await bot.socket.ping())
        ping = Frame(Opcode.PING, b"x" * 100).serialize(mask=True)
        bot.socket.transport.write(ping * 2000)
        await bot.lives()


# Calls


@pytest.mark.clause("bridge.link.1", "bridge.wait.3")
async def test_every_verb_can_be_called_on_the_link(relay: RelayProcess) -> None:
    async with (
        Bot(relay, relay.agent(), hello=True) as a,
        Bot(relay, relay.agent(), hello=True) as b,
    ):
        first = await a.call("ask_agent", {"to": b.name, "message": "1", "wait_ms": 0})
        assert first["error"] == "working"
        wake = await b.wake()
        assert wake["from"] == a.name
        assert await b.call("reply", {"request_id": wake["request_id"], "answer": "one"}) == {
            "ok": True
        }
        found = await a.call("wait_answer", {"request_id": first["request_id"]})
        assert (found["ok"], found["answer"]) == (True, "one")
        second = await a.call("ask_agent", {"to": b.name, "message": "2", "wait_ms": 0})
        assert await a.call("cancel_ask", {"request_id": second["request_id"]}) == {"ok": True}
        assert (await b.cancelled())["request_id"] == second["request_id"]


@pytest.mark.parametrize(
    ("tool", "args", "code"),
    [
        ("no_such_tool", {}, "unknown_tool"),
        ("", {}, "unknown_tool"),
        ("\ud800", {}, "unknown_tool"),
        ("t" * 5000, {}, "unknown_tool"),
        ("ask_agent", {}, "invalid_arguments"),
        ("ask_agent", [], "invalid_arguments"),
        ("ask_agent", None, "invalid_arguments"),
        ("ask_agent", {"to": 1, "message": "x"}, "invalid_arguments"),
        ("reply", {"request_id": ["x"], "answer": "x"}, "invalid_arguments"),
        ("wait_answer", {"request_id": "r" * 300}, "invalid_arguments"),
        ("wait_answer", {"request_id": "nobody's"}, "unknown_request"),
        ("wait_answer", {"request_id": ""}, "unknown_request"),
        ("wait_answer", {"request_id": "\0"}, "unknown_request"),
        ("reply", {"request_id": "nobody's", "answer": "x"}, "unknown_request"),
        ("cancel_ask", {"request_id": "nobody's"}, "unknown_request"),
    ],
    ids=lambda value: ascii(value)[:30],
)
async def test_a_call_that_cannot_be_done_says_why(
    relay: RelayProcess, tool: str, args: Json, code: str
) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        await bot.send(type="call", id="c", tool=tool, args=args)
        frame = await eventually(lambda: [f for f in bot.frames if f.get("id") == "c"], "a result")
        result = frame[0]["result"]
        assert (result["ok"], result["error"]) == (False, code)
        assert result["hint"]
        assert len(json.dumps(result)) < 2000


@pytest.mark.parametrize("key", ["request_id", "conversation_id", "idempotency_key", "to"])
async def test_half_a_surrogate_pair_is_refused_wherever_it_stands(
    relay: RelayProcess, mcp: Clients, key: str
) -> None:
    """It can neither be stored nor sent on; no place where it can come in may break."""
    client = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        for value in ("\ud800", "x\udfffy"):
            for tool in ("wait_answer", "reply", "cancel_ask", "ask_agent"):
                args = {
                    "to": bot.name,
                    "message": "m",
                    "wait_ms": 0,
                    "answer": "a",
                    "request_id": "r",
                    key: value,
                }
                for result in (await client.tool(tool, args), await bot.call(tool, {**args})):
                    assert isinstance(result, dict)
        await bot.lives()


@pytest.mark.parametrize("call_id", [0, "", "é", 2**53, None, -5])
async def test_a_result_carries_the_id_of_its_call(
    relay: RelayProcess, call_id: int | str | None
) -> None:
    async with Bot(relay, relay.agent(), hello=True) as bot:
        await bot.send(type="call", id=call_id, tool="list_agents", args={})
        frame = await eventually(lambda: bot.frames, "a result")
        assert frame[0]["id"] == call_id


async def test_too_many_unanswered_calls_are_refused(relay: RelayProcess) -> None:
    async with (
        Bot(relay, relay.agent(), hello=True) as a,
        Bot(relay, relay.agent(), hello=True) as b,
    ):
        for number in range(260):
            await a.send(
                type="call", id=number, tool="ask_agent", args={"to": b.name, "message": "x"}
            )
        refused = await eventually(lambda: a.frames, "a result")
        assert refused[0]["result"]["error"] == "too_many_calls"
        await b.lives()


async def test_calls_of_a_seed_adapter_are_served_too(relay: RelayProcess) -> None:
    async with Bot(relay, relay.agent()) as bot:
        assert await bot.call("list_agents")


def test_the_log_has_one_line_a_cause_after_all_this(shared: RelayProcess) -> None:
    warnings = [line for line in shared.log_lines() if line["level"] != "INFO"]
    assert len(warnings) < 120, warnings
