"""What makes no sense as HTTP gets a 4xx or an end, never more (docs/protocol/mcp.md, issue 2)."""

import asyncio
import contextlib

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Clients, Make, RelayProcess, crowd
from tests.harness.waits import eventually
from tests.harness.wire import Wire, raw, request_bytes

pytestmark = pytest.mark.anyio

TARGETS = [
    "//",
    "///",
    "//x:y",
    "//mcp",
    "/%00",
    "/%",
    "/%zz",
    "/%c3%28",
    "/mcp/",
    "/MCP",
    "/mcp/..",
    "/../../etc/passwd",
    "/health/x",
    "/bridge/connect",
    "http://",
    "http://[",
    "http://x:99999/",
    "http://127.0.0.1:99999/mcp",
    "http:///mcp/x",
    "https://[::1",
    "*",
    "mcp",
    "?",
    "#",
    "\\",
    "/" + "a/" * 4000,
    "/" + "%2f" * 4000,
    "/\xe9\xff",
]


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=crowd(60))


def status(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1."), answer[:60]
    return int(answer[9:12])


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: ascii(target[:20]))
async def test_a_target_that_makes_no_sense_gets_a_4xx(relay: RelayProcess, target: str) -> None:
    kinds = ["GET", "POST", "upgrade", "OPTIONS", "CONNECT", "HEAD"]
    await asyncio.gather(*(is_refused(relay, target, kind) for kind in kinds))


async def is_refused(relay: RelayProcess, target: str, kind: str) -> None:
    headers = {"Host": "x", "Connection": "close", "Authorization": f"Bearer {relay.token('n0')}"}
    method = kind
    if kind == "upgrade":
        method = "GET"
        headers |= {"Connection": "Upgrade", "Upgrade": "websocket"}
        headers |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
        if target == "/bridge/connect":  # this one makes sense
            return
    answer = await raw(relay.port, request_bytes(method, target, headers))
    assert 400 <= status(answer) < 500, (kind, answer[:200])


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,  # a TLS hello
        b"\x00" * 1000,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\n: empty\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nx\x00y: z\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"POST /mcp HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n0\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\nx",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=lambda data: ascii(data[:30]),
)
async def test_what_is_not_http_gets_a_4xx_or_an_end(relay: RelayProcess, data: bytes) -> None:
    answer = await raw(relay.port, data, end=True)
    assert not answer or 400 <= status(answer) < 500, answer[:200]


@pytest.mark.clause("mcp.http.5")
@pytest.mark.parametrize("path", ["/mcp", "/health", "/bridge/connect"])
@pytest.mark.parametrize(
    "what",
    [
        b"X-Long: " + b"a" * 65_536,
        b"\r\n".join(b"X-%d: y" % i for i in range(5_000)),
        b"X-" + b"n" * 65_536 + b": y",
        b"Authorization: Bearer " + b"t" * 65_536,
    ],
    ids=["line", "many", "name", "token"],
)
async def test_a_head_over_the_bound_gets_431(relay: RelayProcess, path: str, what: bytes) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode() + what + b"\r\n\r\n"
    assert status(await raw(relay.port, head)) == 431


@pytest.mark.clause("mcp.http.5")
async def test_a_request_line_over_the_bound_gets_a_4xx(relay: RelayProcess) -> None:
    answer = await raw(relay.port, b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
    assert 400 <= status(answer) < 500


async def test_a_head_that_comes_byte_by_byte_is_served(relay: RelayProcess) -> None:
    wire = await Wire.open(relay.port)
    for byte in b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n":
        await wire.send(bytes([byte]))
    assert (await wire.rest(await wire.head())).status == 200
    await wire.close()


@pytest.mark.parametrize("reset", [True, False])
async def test_half_a_body_and_then_the_end_hurts_nobody(
    relay: RelayProcess, mcp: Clients, reset: bool
) -> None:
    client = mcp(relay.agent())
    body, headers = client.message("tools/list")
    whole = request_bytes("POST", "/mcp", headers, b"x" * 4000)
    for cut in (20, 200, len(whole) - 1000):
        wire = await Wire.open(relay.port)
        await wire.send(whole[:cut])
        if reset:
            wire.reset()
        else:
            await wire.close()
    assert (await client.post(body, headers)).status == 200


async def test_a_client_that_hangs_up_at_once_hurts_nobody(
    relay: RelayProcess, mcp: Clients
) -> None:
    client = mcp(relay.agent())
    body, headers = client.message("tools/list")
    for _ in range(50):
        pending = await client.begin(body, headers)
        await pending.hang_up(reset=True)
        client._idle.clear()
    assert (await client.post(body, headers)).status == 200


async def test_requests_sent_ahead_are_answered_in_order_or_ended(relay: RelayProcess) -> None:
    health = request_bytes("GET", "/health", {"Host": "x"})
    answer = await raw(relay.port, health * 3)
    assert answer.count(b"HTTP/1.1 200") in (1, 3)
    client = Mcp(relay, "n0")
    _, headers = client.message("ping")
    one = request_bytes("POST", "/mcp", headers, b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    answer = await raw(relay.port, one + one)
    assert answer.count(b'"result":{}') in (1, 2)
    answer = await raw(relay.port, one + health)
    assert answer.startswith(b"HTTP/1.1 200")


async def test_a_request_behind_a_held_ask_ends_the_connection_after_the_answer(
    relay: RelayProcess,
) -> None:
    one, two = relay.agent(), relay.agent()
    async with Bot(relay, two, hello=True) as bot, Mcp(relay, one) as client:
        pending = await client.start("ask_agent", {"to": two, "message": "?"})
        wake = await bot.wake()
        await pending.wire.send(request_bytes("GET", "/health", {"Host": "x"}))
        await bot.reply(wake["request_id"], "!")
        reply = await pending.done()
        assert reply.result["answer"] == "!"


async def test_http_1_0_is_served_and_ended(relay: RelayProcess) -> None:
    wire = await Wire.open(relay.port)
    await wire.send(b"GET /health HTTP/1.0\r\n\r\n")
    assert (await wire.rest(await wire.head())).status == 200
    assert await wire.reader.read() == b""
    await wire.close()
    client = Mcp(relay, "n0")
    sent = request_bytes(
        "POST", "/mcp", client.message("ping")[1], b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    )
    answer = await raw(relay.port, sent.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert answer.endswith(b'"result":{}}')


@pytest.mark.clause("bridge.link.2")
async def test_an_upgrade_without_a_token_is_refused_with_401(relay: RelayProcess) -> None:
    for token in (None, "Bearer wrong-token-0123456789", "Bearer ", "Basic x"):
        headers = {"Host": "x", "Connection": "Upgrade", "Upgrade": "websocket"}
        headers |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
        if token is not None:
            headers["Authorization"] = token
        answer = await raw(relay.port, request_bytes("GET", "/bridge/connect", headers))
        assert status(answer) == 401
        assert b"www-authenticate: Bearer" in answer


@pytest.mark.parametrize(
    "changes",
    [
        {"Sec-WebSocket-Version": "8"},
        {"Sec-WebSocket-Key": "short"},
        {"Sec-WebSocket-Key": None},
        {"Sec-WebSocket-Version": None},
    ],
)
async def test_a_broken_handshake_gets_a_4xx(
    relay: RelayProcess, changes: dict[str, str | None]
) -> None:
    headers = {"Host": "x", "Connection": "Upgrade", "Upgrade": "websocket"}
    headers |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version": "13"}
    headers |= {"Authorization": f"Bearer {relay.token('n0')}"}
    for name, value in changes.items():
        del headers[name]
        if value is not None:
            headers[name] = value
    answer = await raw(relay.port, request_bytes("GET", "/bridge/connect", headers))
    assert 400 <= status(answer) < 500


async def test_many_connections_that_say_nothing_hurt_nobody(
    relay: RelayProcess, mcp: Clients
) -> None:
    wires = [await Wire.open(relay.port) for _ in range(200)]
    assert (await mcp(relay.agent()).rpc("ping")).status == 200
    for wire in wires:
        wire.reset()
    await eventually(lambda: relay.get("/health")[0] == 200, "healthy")


async def test_a_response_that_is_not_read_holds_up_nobody(
    relay: RelayProcess, mcp: Clients
) -> None:
    """A client that asks for lists without end and never reads its socket."""
    client = mcp(relay.agent())
    _, headers = client.message("tools/list")
    one = request_bytes("POST", "/mcp", headers, b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    wire = await Wire.open(relay.port)
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]
    with contextlib.suppress(TimeoutError, ConnectionError):
        async with asyncio.timeout(1):
            while True:
                await wire.send(one)
                await asyncio.sleep(0)
    assert (await client.rpc("ping")).status == 200
    assert relay.rss_kib() < 150_000
    wire.reset()


def test_the_log_has_one_line_a_cause_after_all_this(shared: RelayProcess) -> None:
    shared.one_line_a_cause()
    assert len(shared.log_lines()) < 60
