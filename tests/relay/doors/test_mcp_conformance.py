"""What the MCP endpoint says, rule by rule, in both protocol eras (docs/protocol/mcp.md)."""

import json

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import LEGACY, MODERN, Mcp
from tests.harness.relay import Clients, Make, RelayProcess, crowd

pytestmark = pytest.mark.anyio

TOOLS = ["ask_agent", "wait_answer", "reply", "list_agents", "cancel_ask"]


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=crowd(250))


# Bodies


@pytest.mark.clause("mcp.rpc.1")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b'{"jsonrpc":"2.0",}', b"\xff\xfe", b'{"a":"\xff"}', b"[" * 10_000,
     b'{"a":' * 10_000 + b"1" + b"}" * 10_000, b'{"jsonrpc":"2.0"} {}'],
    ids=lambda body: f"{body[:12]!r}x{len(body)}",
)  # fmt: skip
async def test_what_is_not_json_is_a_parse_error(mcp: Clients, era: str, body: bytes) -> None:
    client = mcp("n0", era=era)
    _, headers = client.message("ping")
    reply = await client.post(body, headers)
    assert (reply.status, reply.error["code"], reply.message["id"]) == (400, -32700, None)


@pytest.mark.clause("mcp.rpc.1")
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize(
    "body",
    [
        5,
        "x",
        None,
        True,
        {},
        {"jsonrpc": "1.0", "method": "ping", "id": 1},
        {"method": "ping", "id": 1},
        {"jsonrpc": "2.0", "method": 7, "id": 1},
        {"jsonrpc": "2.0", "method": "ping", "id": None},
        {"jsonrpc": "2.0", "method": "ping", "id": 1.5},
        {"jsonrpc": "2.0", "method": "ping", "id": {}},
        {"jsonrpc": "2.0", "method": "ping", "id": [1]},
        {"jsonrpc": "2.0", "method": "ping", "id": True},
    ],
    ids=json.dumps,
)
async def test_what_is_no_request_is_an_invalid_request(
    mcp: Clients, era: str, body: object
) -> None:
    client = mcp("n0", era=era)
    _, headers = client.message("ping")
    reply = await client.post(body, headers)
    assert (reply.status, reply.error["code"]) == (400, -32600)


@pytest.mark.parametrize("rid", [0, -1, 2**53, 10**30, "x", "", "é" * 200])
async def test_an_id_comes_back_as_it_was_sent(old: Mcp, rid: int | str) -> None:
    reply = await old.rpc("ping", rid=rid)
    assert reply.message == {"jsonrpc": "2.0", "id": rid, "result": {}}


@pytest.mark.clause("mcp.rpc.1")
async def test_a_notification_or_a_response_gets_202_without_a_body(old: Mcp, new: Mcp) -> None:
    for client in (old, new):
        reply = await client.rpc("notifications/initialized", rid="notification")
        assert (reply.status, reply.body) == (202, b"")
        reply = await client.rpc("notifications/nonsense", rid="notification")
        assert (reply.status, reply.body) == (202, b"")
    reply = await old.post({"jsonrpc": "2.0", "id": 5, "result": {}})
    assert (reply.status, reply.body) == (202, b"")


# Batches


@pytest.mark.clause("mcp.rpc.2")
async def test_an_old_client_may_send_a_batch(old: Mcp) -> None:
    batch = [
        old.message("ping", rid=1)[0],
        old.message("notifications/initialized", rid="notification")[0],
        old.message("tools/call", {"name": "list_agents", "arguments": {}}, rid="two")[0],
        old.message("nonsense", rid=3)[0],
        {"jsonrpc": "1.0"},
    ]
    reply = await old.post(batch)
    assert reply.status == 200
    answers = {answer["id"]: answer for answer in reply.message}
    assert answers[1]["result"] == {}
    assert json.loads(answers["two"]["result"]["content"][0]["text"])
    assert answers[3]["error"]["code"] == -32601
    assert answers[None]["error"]["code"] == -32600
    assert len(reply.message) == 4


async def test_a_batch_of_notifications_gets_202(old: Mcp) -> None:
    one = old.message("notifications/initialized", rid="notification")[0]
    reply = await old.post([one, one])
    assert (reply.status, reply.body) == (202, b"")


@pytest.mark.clause("mcp.rpc.2")
async def test_a_batch_that_is_empty_too_long_or_modern_is_refused(old: Mcp, new: Mcp) -> None:
    one = old.message("ping")[0]
    for batch in ([], [one] * 65):
        reply = await old.post(batch)
        assert (reply.status, reply.error["code"]) == (400, -32600)
    body, headers = new.message("tools/list")
    reply = await new.post([body], headers)
    assert (reply.status, reply.error["code"]) == (400, -32600)


async def test_a_batch_with_a_held_ask_is_answered_as_a_whole(relay: RelayProcess) -> None:
    one, two = relay.agent(), relay.agent()
    async with Bot(relay, two, hello=True) as bot, Mcp(relay, one) as client:
        ask = {"name": "ask_agent", "arguments": {"to": two, "message": "?"}}
        batch = [
            client.message("tools/call", ask, rid="ask")[0],
            client.message("ping", rid="p")[0],
        ]
        pending = await client.begin(batch)
        wake = await bot.wake()
        assert not pending.reading.done()
        await bot.reply(wake["request_id"], "!")
        answers = {answer["id"]: answer for answer in (await pending.done()).message}
        assert json.loads(answers["ask"]["result"]["content"][0]["text"])["answer"] == "!"
        assert answers["p"]["result"] == {}


# Versions and methods


@pytest.mark.clause("mcp.era.1")
@pytest.mark.parametrize(
    "version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2024-10-07"]
)
async def test_initialize_answers_the_version_that_was_offered(mcp: Clients, version: str) -> None:
    client = mcp("n0", era="none")
    info = {
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    reply = await client.rpc("initialize", info)
    result = reply.message["result"]
    assert result["protocolVersion"] == version
    assert result["serverInfo"]["name"] == "hermes-bridge"
    assert result["capabilities"] == {"tools": {}}
    assert result["instructions"]
    assert "mcp-session-id" not in reply.headers


@pytest.mark.clause("mcp.era.1")
async def test_initialize_with_an_unknown_version_answers_the_newest_old_one(
    mcp: Clients,
) -> None:
    reply = await mcp("n0", era="none").rpc("initialize", {"protocolVersion": "1999-01-01"})
    assert reply.message["result"]["protocolVersion"] == LEGACY


@pytest.mark.clause("mcp.http.1")
async def test_a_session_id_is_neither_given_nor_needed_nor_refused(mcp: Clients) -> None:
    client = mcp("n0", headers={"Mcp-Session-Id": "of-another-life", "Last-Event-ID": "7"})
    reply = await client.rpc("tools/list")
    assert reply.status == 200
    assert "mcp-session-id" not in reply.headers


@pytest.mark.clause("mcp.era.3")
@pytest.mark.parametrize("era", ["legacy", "modern", "none"])
async def test_an_unknown_protocol_version_is_refused_with_the_known_ones(
    mcp: Clients, era: str
) -> None:
    client = mcp("n0", era=era)
    meta = {"io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    body, headers = client.message("tools/list", {"_meta": meta} if era == "modern" else None)
    reply = await client.post(body, {**headers, "MCP-Protocol-Version": "2099-01-01"})
    assert (reply.status, reply.error["code"]) == (400, -32022)
    assert reply.error["data"]["requested"] == "2099-01-01"
    assert {MODERN, LEGACY} <= set(reply.error["data"]["supported"])


@pytest.mark.clause("mcp.era.1", "mcp.era.2")
@pytest.mark.parametrize("era", ["legacy", "modern", "none"])
async def test_tools_are_listed_to_both_eras(mcp: Clients, era: str) -> None:
    result = (await mcp("n0", era=era).rpc("tools/list")).message["result"]
    tools = {tool["name"]: tool for tool in result["tools"]}
    assert sorted(tools) == sorted(TOOLS)
    assert tools["ask_agent"]["inputSchema"]["required"] == ["to", "message"]
    assert tools["reply"]["inputSchema"]["required"] == ["request_id", "answer"]
    assert tools["list_agents"]["annotations"]["readOnlyHint"] is True
    assert "outputSchema" not in tools["ask_agent"]
    modern = era == "modern"
    assert ("resultType" in result, "ttlMs" in result, "cacheScope" in result) == (modern,) * 3


@pytest.mark.clause("mcp.era.4")
async def test_a_modern_client_discovers_the_server(new: Mcp) -> None:
    result = (await new.rpc("server/discover")).message["result"]
    assert result["resultType"] == "complete"
    assert MODERN in result["supportedVersions"]
    assert result["capabilities"] == {"tools": {}}
    assert {"ttlMs", "cacheScope", "instructions"} <= result.keys()
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "hermes-bridge"


@pytest.mark.clause("mcp.era.4")
async def test_ping_is_answered_to_old_clients_only(old: Mcp, new: Mcp) -> None:
    assert (await old.rpc("ping")).message["result"] == {}
    reply = await new.rpc("ping")
    assert (reply.status, reply.error["code"]) == (404, -32601)


@pytest.mark.clause("mcp.rpc.1")
@pytest.mark.parametrize(
    "method", ["prompts/list", "resources/list", "logging/setLevel", "x" * 9000]
)
async def test_an_unknown_method_is_not_found(old: Mcp, new: Mcp, method: str) -> None:
    reply = await old.rpc(method)
    assert (reply.status, reply.error["code"]) == (200, -32601)
    reply = await new.rpc(method)
    assert (reply.status, reply.error["code"]) == (404, -32601)


@pytest.mark.clause("mcp.rpc.1")
async def test_an_unknown_tool_is_invalid_params(old: Mcp, new: Mcp) -> None:
    for client, status in ((old, 200), (new, 400)):
        reply = await client.call("no_such_tool")
        assert (reply.status, reply.error["code"]) == (status, -32602)


@pytest.mark.parametrize("params", [[], 5, "x", {"name": 5}, {}, {"name": None}])
async def test_params_of_the_wrong_shape_are_invalid_params(mcp: Clients, params: object) -> None:
    for era, status in (("legacy", 200), ("modern", 400)):
        client = mcp("n0", era=era)
        body, headers = client.message("tools/call", {"name": "list_agents"})
        body["params"] = params
        reply = await client.post(body, headers)
        assert (reply.status, reply.error["code"]) == (status, -32602)


@pytest.mark.clause("mcp.rpc.3")
@pytest.mark.parametrize(
    "args",
    [{}, {"to": "n1"}, {"to": 5, "message": "x"}, {"to": "n1", "message": ["x"]}, [], "x", 5,
     {"to": "n1", "message": "x", "wait_ms": "soon"}, {"to": "n1", "message": "x", "if_offline": "?"},
     {"to": "n1", "message": "x", "idempotency_key": "k" * 1000}],
)  # fmt: skip
async def test_arguments_that_do_not_fit_are_the_only_tool_errors(
    old: Mcp, new: Mcp, args: object
) -> None:
    for client in (old, new):
        body, headers = client.message("tools/call", {"name": "ask_agent", "arguments": args})
        reply = await client.post(body, headers)
        assert reply.status == 200
        assert reply.tool_result["isError"] is True
        assert (reply.result["ok"], reply.result["error"]) == (False, "invalid_arguments")
        assert reply.result["hint"] and reply.result["reason"]


@pytest.mark.clause("mcp.rpc.3")
async def test_a_result_is_one_text_block_and_nothing_else(old: Mcp, new: Mcp) -> None:
    reply = await old.call("list_agents")
    assert set(reply.tool_result) == {"content"}
    reply = await new.call("list_agents")
    assert set(reply.tool_result) == {"content", "resultType", "_meta"}
    assert reply.tool_result["resultType"] == "complete"


async def test_null_arguments_are_no_arguments(old: Mcp) -> None:
    body, headers = old.message("tools/call", {"name": "list_agents", "arguments": None})
    assert (await old.post(body, headers)).tool_result["content"]


# What modern headers must say


@pytest.mark.clause("mcp.era.2")
@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("MCP-Protocol-Version", None),
        ("MCP-Protocol-Version", LEGACY),
        ("Mcp-Method", None),
        ("Mcp-Method", "tools/list"),
        ("Mcp-Name", None),
        ("Mcp-Name", "reply"),
        ("Mcp-Name", "LIST_AGENTS"),
        ("Mcp-Name", "=?base64?!!!?="),
    ],
)
async def test_headers_that_do_not_match_the_body_are_refused(
    new: Mcp, header: str, value: str | None
) -> None:
    body, headers = new.message("tools/call", {"name": "list_agents", "arguments": {}})
    del headers[header]
    if value is not None:
        headers[header] = value
    reply = await new.post(body, headers)
    assert (reply.status, reply.error["code"]) == (400, -32020)


async def test_a_header_sent_twice_agrees_with_nothing(new: Mcp) -> None:
    body, headers = new.message("tools/call", {"name": "list_agents", "arguments": {}})
    reply = await new.post(body, {**headers, "mcp-name": "list_agents"})
    assert (reply.status, reply.error["code"]) == (400, -32020)


async def test_a_name_may_be_sent_in_base64(new: Mcp) -> None:
    body, headers = new.message("tools/call", {"name": "list_agents", "arguments": {}})
    reply = await new.post(body, {**headers, "Mcp-Name": "=?base64?bGlzdF9hZ2VudHM=?="})
    assert reply.status == 200


@pytest.mark.clause("mcp.era.2")
@pytest.mark.parametrize("key", ["protocolVersion", "clientCapabilities"])
async def test_a_modern_request_must_carry_its_meta(new: Mcp, key: str) -> None:
    body, headers = new.message("tools/list")
    del body["params"]["_meta"]["io.modelcontextprotocol/" + key]
    reply = await new.post(body, headers)
    assert (reply.status, reply.error["code"]) == (400, -32602)


# Speed that clients rely on


@pytest.mark.clause("mcp.era.4")
async def test_ping_and_lists_answer_at_once_while_asks_are_held(relay: RelayProcess) -> None:
    one, two = relay.agent(), relay.agent()
    async with Bot(relay, two, hello=True) as bot, Mcp(relay, one) as client:
        held = [await client.start("ask_agent", {"to": two, "message": str(i)}) for i in range(20)]
        wakes = [await bot.wake() for _ in held]
        assert (await client.rpc("ping")).message["result"] == {}
        assert len((await client.rpc("tools/list")).message["result"]["tools"]) == 5
        assert await client.tool("list_agents")
        assert not any(pending.reading.done() for pending in held)
        for wake in wakes:
            await bot.reply(wake["request_id"], "done")
        assert {(await pending.result())["answer"] for pending in held} == {"done"}
