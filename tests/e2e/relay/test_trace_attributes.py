"""Every attribute of every kind of span, with and without message texts (scenario O10).

The names are those of OpenTelemetry's conventions for MCP and for agents, and Langfuse's.
"""

import base64
import json
from typing import Any

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.otlp import Sink, Sinks, Span
from tests.harness.relay import Make

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
META = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "v=1"}
ARROW = "a \N{RIGHTWARDS ARROW} b"
QUESTION, ANSWER = "Wie spät? \U0001f552", "zehn"


VARY = ("client.port", "jsonrpc.request.id", "mcp.protocol.version")
"""Of a call: there, or not, by its door and its client."""


def one(sink: Sink, name: str) -> Span:
    (span,) = sink.named(name)
    return span


def fixed(span: Span) -> dict[str, Any]:
    return {name: value for name, value in span.attributes.items() if name not in VARY}


def of_all(given: dict[str, Any], user: str) -> dict[str, Any]:
    """What every span of the conversation carries."""
    return {
        "session.id": given["conversation_id"],
        "gen_ai.conversation.id": given["conversation_id"],
        "user.id": user,
        "langfuse.trace.name": "a \N{RIGHTWARDS ARROW} b",
        "langfuse.trace.tags": ["ok"],
        "hermes_bridge.request_id": given["request_id"],
    }


def of_call(tool: str, door: str) -> dict[str, Any]:
    return {
        "mcp.method.name": "tools/call",
        "gen_ai.tool.name": tool,
        "gen_ai.operation.name": "execute_tool",
        "network.transport": "tcp",
        "network.protocol.name": door,
        "client.address": "127.0.0.1",
        "langfuse.observation.type": "tool",
    }


OF_ASK = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.provider.name": "hermes_bridge",
    "gen_ai.agent.name": "b",
    "gen_ai.agent.id": "b",
    "langfuse.observation.type": "agent",
    "hermes_bridge.outcome": "ok",
    "hermes_bridge.attempts": 1,
    "hermes_bridge.heartbeats": 0,
    "hermes_bridge.depth": 0,
}


def in_words(arguments: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """The texts of a call: JSON, the arguments as they came."""
    said, got = json.dumps(arguments), json.dumps(result, separators=(",", ":"))
    return {
        "gen_ai.tool.call.arguments": said,
        "gen_ai.tool.call.result": got,
        "langfuse.observation.input": said,
        "langfuse.observation.output": got,
    }


def message(role: str, text: str, **more: str) -> str:
    parts = [{"role": role, "parts": [{"type": "text", "content": text}], **more}]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


SPOKEN = {
    "gen_ai.input.messages": message("user", QUESTION),
    "gen_ai.output.messages": message("assistant", ANSWER, finish_reason="stop"),
    "langfuse.observation.input": QUESTION,
    "langfuse.observation.output": ANSWER,
    "langfuse.trace.input": QUESTION,
    "langfuse.trace.output": ANSWER,
}


async def test_the_spans_of_an_ask_have_every_attribute_and_texts_only_where_they_are_wanted(
    relays: Make, otlp_sinks: Sinks
) -> None:
    plain, texts, langfuse, silent = (otlp_sinks() for _ in range(4))
    keys = {"public_key": "pk-1", "secret_key": "sk-1"}
    relay = relays(
        otlp=[
            {"endpoint": plain.url, "headers": {"x-team": "bots"}},
            {"endpoint": texts.url, "content": True},
        ],
        langfuse={**keys, "base_url": langfuse.url + "/"},
    )
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: ANSWER
        args = {"to": "b", "message": QUESTION}
        given = await a.tool("ask_agent", args, meta=META)
        without = {**keys, "base_url": silent.url, "content": False}
        await anyio.to_thread.run_sync(lambda: relay.reload(otlp=[], langfuse=without))
        other = await a.tool("ask_agent", args, meta=META)
    assert await anyio.to_thread.run_sync(relay.stop) == 0

    for sink, this in ((plain, given), (texts, given), (langfuse, given), (silent, other)):
        called, invoked = one(sink, "tools/call ask_agent"), one(sink, "invoke_agent b")
        replied = one(sink, "tools/call reply")
        assert len(sink.spans) == 3
        assert {(s.trace, s.state, s.status) for s in sink.spans} == {(TRACE, "v=1", 0)}
        assert {s.resource["service.name"] for s in sink.spans} == {"hermes-bridge"}
        assert [s.kind for s in (called, invoked, replied)] == [2, 3, 2]
        assert "sent" in invoked.events
        assert all(s.attributes["jsonrpc.request.id"] for s in (called, replied))
        assert called.attributes["mcp.protocol.version"]
        spoken: list[dict[str, Any]] = [{}, {}, {}]
        if sink in (texts, langfuse):
            reply = {"request_id": this["request_id"], "answer": ANSWER}
            spoken = [in_words(args, this), SPOKEN, in_words(reply, {"ok": True})]
        assert all(s.attributes["client.port"] > 1_023 for s in (called, replied))
        assert fixed(called) == of_all(this, "a") | of_call("ask_agent", "http") | spoken[0]
        assert fixed(invoked) == of_all(this, "a") | OF_ASK | spoken[1]
        assert fixed(replied) == of_all(this, "b") | of_call("reply", "websocket") | spoken[2]

    path, headers = plain.requests[0]
    assert (path, headers["x-team"]) == ("/v1/traces", "bots")
    assert headers["content-type"] == "application/x-protobuf"
    assert "authorization" not in headers
    for sink in (langfuse, silent):
        path, headers = sink.requests[0]
        assert path == "/api/public/otel/v1/traces"
        assert headers["authorization"] == "Basic " + base64.b64encode(b"pk-1:sk-1").decode()
        assert headers["x-langfuse-ingestion-version"] == "4"
        assert headers["content-type"] == "application/x-protobuf"
    assert "sk-1" not in relay.log() and "detach" not in relay.log()
