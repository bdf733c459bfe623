"""The MCP endpoint as HTTP: methods, identity, headers and bodies (docs/protocol/mcp.md)."""

import json

import pytest
from tests.harness.mcp import Mcp
from tests.harness.relay import Clients, Make, RelayProcess, crowd
from tests.harness.wire import Wire, raw

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=crowd(60), allowed_origins=["https://ops.example"])


@pytest.mark.clause("mcp.http.2")
@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "OPTIONS", "PATCH"])
async def test_only_post_is_served(relay: RelayProcess, old: Mcp, method: str) -> None:
    reply = await old.post(b"", old.base, method=method)
    assert (reply.status, reply.headers["allow"]) == (405, "POST")


@pytest.mark.clause("mcp.http.2")
async def test_head_is_harmless_and_leaves_the_connection_usable(old: Mcp) -> None:
    wire = await Wire.open(old.relay.port)
    reply = await wire.request("HEAD", "/mcp", old.base)
    assert (reply.status, reply.body) == (405, b"")
    body, headers = old.message("ping")
    reply = await wire.request("POST", "/mcp", headers, json.dumps(body).encode())
    assert reply.message["result"] == {}
    await wire.close()


@pytest.mark.clause("mcp.http.3")
@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong-token-0123456789",
        "Basic dTpw",
        "token-of-n0-0123456789",
    ],
)
async def test_a_request_without_a_good_token_gets_401_and_a_challenge(
    mcp: Clients, authorization: str | None
) -> None:
    client = mcp("n0")
    del client.base["Authorization"]
    if authorization is not None:
        client.base["Authorization"] = authorization
    reply = await client.rpc("tools/list")
    assert reply.status == 401
    assert reply.headers["www-authenticate"].startswith("Bearer ")
    assert reply.message["error"] == "unauthorized"
    assert "hint" in reply.message


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER   "])
async def test_the_scheme_of_a_token_has_any_case_and_any_blanks(
    relay: RelayProcess, mcp: Clients, scheme: str
) -> None:
    client = mcp("n0", headers={"Authorization": scheme + relay.token("n0")})
    assert (await client.rpc("ping")).status == 200


@pytest.mark.clause("mcp.http.4")
@pytest.mark.parametrize(
    ("origin", "host", "status"),
    [
        ("https://evil.example", None, 403),
        ("http://evil.example:{port}", "evil.example:{port}", 403),  # DNS rebinding
        ("null", None, 403),
        ("http://[", None, 403),
        ("", None, 403),
        ("http://127.0.0.1:{port}", None, 200),
        ("http://localhost:{port}", "localhost:{port}", 200),
        ("https://ops.example", None, 200),
    ],
)
async def test_a_page_of_a_foreign_origin_is_refused(
    relay: RelayProcess, mcp: Clients, origin: str, host: str | None, status: int
) -> None:
    client = mcp("n0", headers={"Origin": origin.format(port=relay.port)})
    if host:
        client.base["Host"] = host.format(port=relay.port)
    assert (await client.rpc("ping")).status == status


@pytest.mark.clause("mcp.http.5")
@pytest.mark.parametrize("kind", ["text/plain", "", None, "application/x-www-form-urlencoded"])
async def test_a_body_that_is_not_json_by_name_gets_415(old: Mcp, kind: str | None) -> None:
    del old.base["Content-Type"]
    if kind is not None:
        old.base["Content-Type"] = kind
    assert (await old.rpc("ping")).status == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
async def test_a_content_type_may_have_parameters_and_any_case(old: Mcp, kind: str) -> None:
    old.base["Content-Type"] = kind
    assert (await old.rpc("ping")).status == 200


@pytest.mark.clause("mcp.http.5")
@pytest.mark.parametrize("accept", ["text/html", "image/png, text/plain"])
async def test_a_client_that_takes_neither_json_nor_streams_gets_406(old: Mcp, accept: str) -> None:
    old.base["Accept"] = accept
    assert (await old.rpc("ping")).status == 406


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/*;q=0.9"])
async def test_quick_results_are_plain_json(old: Mcp, accept: str | None) -> None:
    del old.base["Accept"]
    if accept:
        old.base["Accept"] = accept
    reply = await old.rpc("ping")
    assert reply.headers["content-type"] == "application/json"
    assert reply.message == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_a_client_that_takes_only_streams_gets_a_stream(old: Mcp) -> None:
    old.base["Accept"] = "text/event-stream"
    reply = await old.rpc("ping")
    assert reply.streamed
    assert reply.message["result"] == {}


@pytest.mark.parametrize("path", ["/mcp?x=1", "http://127.0.0.1/mcp"])
async def test_the_path_may_carry_a_query_or_be_absolute(old: Mcp, path: str) -> None:
    wire = await Wire.open(old.relay.port)
    body, headers = old.message("ping")
    reply = await wire.request("POST", path, headers, json.dumps(body).encode())
    assert (reply.status, reply.message["result"]) == (200, {})
    await wire.close()


async def test_an_offer_to_upgrade_to_http_2_is_ignored(old: Mcp) -> None:
    offer = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAMAAABk",
    }
    body, headers = old.message("ping")
    reply = await old.post(body, {**headers, **offer})
    assert (reply.status, reply.message["result"]) == (200, {})


@pytest.mark.clause("mcp.http.5")
async def test_a_body_over_the_bound_gets_413(old: Mcp) -> None:
    head = request_head(old, "Content-Length: 5000000")
    assert (await raw(old.relay.port, head + b"x" * 5_000_000)).startswith(b"HTTP/1.1 413 ")
    head = request_head(old, "Transfer-Encoding: chunked")
    chunk = b"40000\r\n" + b"x" * 0x40000 + b"\r\n"
    assert (await raw(old.relay.port, head + chunk * 20)).startswith(b"HTTP/1.1 413 ")


async def test_a_body_may_come_in_chunks_and_in_pieces(old: Mcp) -> None:
    body = json.dumps(old.message("ping")[0]).encode()
    wire = await Wire.open(old.relay.port)
    await wire.send(request_head(old, "Transfer-Encoding: chunked"))
    for start in range(0, len(body), 7):
        piece = body[start : start + 7]
        await wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
    await wire.send(b"0\r\n\r\n")
    assert (await wire.rest(await wire.head())).message["result"] == {}
    await wire.close()


async def test_a_client_that_asks_before_it_sends_is_told_to_go_on(old: Mcp) -> None:
    body = json.dumps(old.message("ping")[0]).encode()
    wire = await Wire.open(old.relay.port)
    await wire.send(request_head(old, f"Content-Length: {len(body)}", "Expect: 100-continue"))
    assert (await wire.head()).status == 100
    await wire.send(body)
    assert (await wire.rest(await wire.head())).message["result"] == {}
    await wire.close()


def request_head(client: Mcp, *more: str) -> bytes:
    lines = [f"{k}: {v}" for k, v in client.base.items()]
    return "\r\n".join(["POST /mcp HTTP/1.1", *lines, *more, "", ""]).encode()
