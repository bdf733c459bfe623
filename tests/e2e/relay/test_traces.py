"""Traces as an OTLP sink sees them (scenario: one trace from the caller to the answer)."""

import base64
import json
from typing import Any

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.otlp import Sinks, Span, asked_for
from tests.harness.relay import Make
from tests.harness.waits import eventually

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"


def of(span: Span, *names: str) -> tuple[Any, ...]:
    return tuple(span.attributes.get(name) for name in names)


async def ask(a: Mcp, message: str, trace: str | None = PARENT, **more: Any) -> dict[str, Any]:
    return await asked_for(a, message, trace, **more)


async def test_a_conversation_is_one_trace_under_the_callers(
    relays: Make, otlp_sinks: Sinks
) -> None:
    plain, langfuse = otlp_sinks(), otlp_sinks()
    relay = relays(
        otlp=[{"endpoint": plain.url, "headers": {"x-team": "bots"}}],
        langfuse={"public_key": "pk-1", "secret_key": "sk-1", "base_url": langfuse.url},
    )
    async with Bot(relay, "b") as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: wake["message"].upper()
        first = await ask(a, "one")
        second = await ask(a, "two", conversation_id=first["conversation_id"])
        assert second["answer"] == "TWO"
        await eventually(lambda: len(plain.spans) == 6 and len(langfuse.spans) == 6, "exported")
    for sink in (plain, langfuse):
        assert {span.trace for span in sink.spans} == {TRACE}
        for span in sink.spans:
            conversation = of(span, "gen_ai.conversation.id", "session.id")
            assert conversation == (first["conversation_id"],) * 2, span.name
            assert span.resource["service.name"] == "hermes-bridge"
            assert span.status == 0
        servers, asks = sink.named("tools/call ask_agent"), sink.named("invoke_agent b")
        assert [(s.kind, s.parent) for s in servers] == [(2, CALLER)] * 2
        assert [s.kind for s in asks] == [3, 3]
        assert {s.parent for s in asks} == {s.span for s in servers}
        assert {s.parent for s in sink.named("tools/call reply")} == {s.span for s in asks}
        assert of(
            asks[0],
            "gen_ai.operation.name",
            "gen_ai.provider.name",
            "gen_ai.agent.name",
            "user.id",
            "langfuse.trace.name",
            "langfuse.trace.tags",
            "error.type",
        ) == ("invoke_agent", "hermes_bridge", "b", "a", "a \N{RIGHTWARDS ARROW} b", ["ok"], None)
        assert of(
            servers[0],
            "mcp.method.name",
            "gen_ai.tool.name",
            "gen_ai.operation.name",
            "network.transport",
            "network.protocol.name",
            "client.address",
        ) == ("tools/call", "ask_agent", "execute_tool", "tcp", "http", "127.0.0.1")
        assert all(s.start <= s.end for s in sink.spans)
        assert "sent" in asks[0].events
    texts = ("langfuse.observation.input", "langfuse.observation.output", "gen_ai.input.messages")
    assert all(of(s, *texts) == (None,) * 3 for s in plain.spans)
    with_text = {of(s, *texts)[:2] for s in langfuse.named("invoke_agent b")}
    assert with_text == {("one", "ONE"), ("two", "TWO")}
    messages = json.loads(langfuse.named("invoke_agent b")[0].attributes["gen_ai.input.messages"])
    assert messages[0]["role"] == "user"
    path, headers = langfuse.requests[0]
    assert path == "/api/public/otel/v1/traces"
    assert headers["authorization"] == "Basic " + base64.b64encode(b"pk-1:sk-1").decode()
    assert headers["x-langfuse-ingestion-version"] == "4"
    path, headers = plain.requests[0]
    assert (path, headers["x-team"]) == ("/v1/traces", "bots")
    assert headers["content-type"] == "application/x-protobuf"
    assert "detach" not in relay.log()


async def test_the_wake_carries_the_context_of_the_ask(relays: Make, otlp_sinks: Sinks) -> None:
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url + "/v1/traces"}])
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: wake["trace"]["traceparent"]
        answer = (await ask(a, "x"))["answer"]
        rootless = (await ask(a, "y", trace=None))["answer"]
        await eventually(lambda: len(sink.named("invoke_agent b")) == 2, "exported")
    one, other = sink.named("invoke_agent b")
    assert answer == f"00-{TRACE}-{one.span}-01"
    assert rootless == f"00-{other.trace}-{other.span}-01"
    assert other.trace == other.attributes["hermes_bridge.request_id"].replace("-", "")
    assert {s.parent for s in sink.named("tools/call ask_agent")} == {CALLER, ""}


async def test_what_is_asked_within_a_turn_joins_the_trace(relays: Make, otlp_sinks: Sinks) -> None:
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url}])
    async with (
        Bot(relay, "b", hello=True) as b,
        Bot(relay, "c", hello=True) as c,
        Mcp(relay, "a") as a,
    ):

        async def nested(wake: dict[str, Any]) -> str:
            got = await b.call("ask_agent", {"to": "c", "message": "?"}, turn=wake["request_id"])
            return str(got["answer"])

        b.on_wake = nested
        c.on_wake = lambda wake: "deep"
        assert (await ask(a, "x"))["answer"] == "deep"
        await eventually(lambda: len(sink.spans) == 6, "exported")
    assert {s.trace for s in sink.spans} == {TRACE}
    outer, inner = sink.named("invoke_agent b")[0], sink.named("invoke_agent c")[0]
    by_id = {s.span: s for s in sink.spans}
    assert len(by_id) == 6
    assert by_id[inner.parent].parent == outer.span
    assert by_id[inner.parent].attributes["network.protocol.name"] == "websocket"


async def test_ends_that_are_errors_are_told(relays: Make, otlp_sinks: Sinks) -> None:
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url, "content": True}])
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        given = await ask(a, "x", wait_ms=0)
        await b.reply(given["request_id"], "no idea", kind="failure")
        assert (await ask(a, "x", to="nobody"))["error"] == "unknown_agent"
        await a.rpc("tools/call", {"name": "ask_agent", "arguments": {"to": 1}})
        await a.rpc("tools/call", {"name": "no_such_tool", "arguments": {}})
        await eventually(lambda: len(sink.spans) == 6, "exported")
    (failed,) = sink.named("invoke_agent b")
    assert (failed.status, failed.attributes["error.type"]) == (2, "failed")
    assert of(failed, "langfuse.observation.level", "langfuse.observation.status_message") == (
        "ERROR",
        "no idea",
    )
    assert failed.attributes["langfuse.observation.output"] == "no idea"
    calls = sink.named("tools/call ask_agent") + sink.named("tools/call (unknown)")
    outcomes = {(of(s, "hermes_bridge.outcome", "error.type"), s.status) for s in calls}
    assert outcomes == {
        (("working", None), 0),
        (("unknown_agent", None), 0),
        (("invalid_arguments", "tool_error"), 2),
        (("unknown_tool", "-32602"), 2),
    }


async def test_a_caller_that_does_not_sample_is_passed_on_and_not_exported(
    relays: Make, otlp_sinks: Sinks
) -> None:
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url}])
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: wake["trace"]["traceparent"]
        assert (await ask(a, "x", trace=f"00-{TRACE}-{CALLER}-00"))["answer"].startswith(
            f"00-{TRACE}-"
        )
        assert (await ask(a, "y", trace=None))["ok"]
    assert await anyio.to_thread.run_sync(relay.stop) == 0  # and all that waits is sent
    assert len(sink.spans) == 3
    assert TRACE not in {s.trace for s in sink.spans}


async def test_an_open_ask_is_seen_where_the_target_wants_it(
    relays: Make, otlp_sinks: Sinks
) -> None:
    live, other = otlp_sinks(), otlp_sinks()
    relay = relays(otlp=[{"endpoint": live.url, "live": True}, {"endpoint": other.url}])
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        given = await ask(a, "x", wait_ms=0)
        await eventually(lambda: live.named("invoke_agent b"), "seen while open")
        (open_one,) = live.named("invoke_agent b")
        assert open_one.attributes["hermes_bridge.outcome"] == "pending"
        await b.reply(given["request_id"], "done")
        await eventually(lambda: len(live.named("invoke_agent b")) == 2, "seen when ended")
        await eventually(lambda: other.named("invoke_agent b"), "seen by the other")
    assert len({s.span for s in live.named("invoke_agent b")}) == 1
    ended = [s.attributes["hermes_bridge.outcome"] for s in other.named("invoke_agent b")]
    assert ended == ["ok"]


async def test_tracestate_and_baggage_go_with_the_trace(relays: Make, otlp_sinks: Sinks) -> None:
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url}])
    said = {
        "traceparent": PARENT,
        "tracestate": 'vendor=a"b,other=1',
        "baggage": "team=hr,user=1;x",
    }
    wakes = []
    async with (
        Bot(relay, "b", hello=True) as b,
        Bot(relay, "c", hello=True) as c,
        Mcp(relay, "a") as a,
    ):

        async def nested(wake: dict[str, Any]) -> str:
            wakes.append(wake["trace"])
            got = await b.call("ask_agent", {"to": "c", "message": "?"}, turn=wake["request_id"])
            return str(got["answer"])

        def deep(wake: dict[str, Any]) -> str:
            wakes.append(wake.get("trace"))
            return "deep"

        b.on_wake = nested
        c.on_wake = deep
        call = {"name": "ask_agent", "arguments": {"to": "b", "message": "x"}}
        assert (await a.rpc("tools/call", {**call, "_meta": said})).result["answer"] == "deep"
        await eventually(lambda: len(sink.spans) == 6, "exported")
        call["arguments"] = {"to": "c", "message": "x"}
        for odd in (
            {"traceparent": 7, "tracestate": [1], "baggage": {"a": 1}},
            {"tracestate": "a=1", "baggage": 'a="b"'},
            {"baggage": "a=1\nb: c"},
            {"baggage": "a=" + "x" * 8_191},
        ):
            assert (await a.rpc("tools/call", {**call, "_meta": odd})).result["answer"] == "deep"
        alone = {"_meta": {"baggage": "a=1"}}
        assert (await a.rpc("tools/call", {**call, **alone})).result["answer"] == "deep"
    outer, inner, *odd_ones, last = wakes
    for carried in (outer, inner):
        assert {k: v for k, v in carried.items() if k != "traceparent"} == {
            "tracestate": said["tracestate"],
            "baggage": said["baggage"],
        }
        assert TRACE in carried["traceparent"]
    assert [set(trace) for trace in odd_ones] == [{"traceparent"}] * 4
    assert last["baggage"] == "a=1"
    assert {s.state for s in sink.spans if s.trace == TRACE} == {said["tracestate"]}
    assert not any(s.state for s in sink.spans if s.trace != TRACE)


async def test_the_http_headers_stand_in_for_what_the_message_does_not_say(relays: Make) -> None:
    relay = relays()
    headers = {"traceparent": PARENT, "tracestate": "v=1", "baggage": "team=hr"}
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: json.dumps(wake["trace"])
        call = {"name": "ask_agent", "arguments": {"to": "b", "message": "x"}}
        a.base.update(headers)
        reply = await a.rpc("tools/call", call)
    assert json.loads(reply.result["answer"]) == headers


@pytest.mark.clause("bridge.trace.2")
async def test_a_reply_from_another_turn_is_under_the_ask_that_it_answers(
    relays: Make, otlp_sinks: Sinks
) -> None:
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url}])
    other = f"00-{'1' * 32}-{'2' * 16}-01"
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        await ask(a, "one", wait_ms=0)
        one = await b.wake()
        await ask(a, "two", trace=other, wait_ms=0)
        two = await b.wake()
        answered = {"request_id": one["request_id"], "answer": "!"}
        said = two["trace"]  # what a bot in the turn of the second would say
        assert (await b.call("reply", answered, turn=two["request_id"], trace=said))["ok"]
        await b.reply(two["request_id"], "!", trace=one["trace"])
        await eventually(lambda: len(sink.spans) == 6, "exported")
    asks = {s.trace: s for s in sink.named("invoke_agent b")}
    replies = {s.trace: s for s in sink.named("tools/call reply")}
    assert set(asks) == set(replies) == {TRACE, "1" * 32}
    assert all(replies[trace].parent == asks[trace].span for trace in asks)


@pytest.mark.clause("bridge.trace.2", "bridge.trace.3")
@pytest.mark.parametrize("forgets", [False, True], ids=["with its store", "with a new one"])
async def test_a_turn_stays_in_its_trace_when_the_relay_is_restarted(
    relays: Make, otlp_sinks: Sinks, forgets: bool
) -> None:
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url}])
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        given = await ask(a, "x", wait_ms=0)
        wake = await b.wake()
    rid, carried = wake["request_id"], wake["trace"]
    _, trace, span, _ = carried["traceparent"].split("-")
    assert (trace, rid) == (TRACE, given["request_id"])
    if forgets:
        path = str(relay.folder / "new.db")
        relay.write({**relay.config, "db": {"driver": "sqlite", "path": path}})
    await anyio.to_thread.run_sync(relay.restart)
    before = len(sink.spans)
    async with Bot(relay, "b", hello=True) as b, Bot(relay, "c", hello=True) as c:
        c.on_wake = lambda wake: "deep"
        below = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        asked = {"to": "c", "message": "?"}
        nested = await b.call("ask_agent", asked, turn=rid, trace=below)
        assert nested["answer"] == "deep"
        done = await b.reply(rid, "!", trace=carried)
        assert done.get("error") == ("unknown_request" if forgets else None)
        count = 4 if forgets else 5
        await eventually(lambda: len(sink.spans) == before + count, "exported")
    spans = sink.spans[before:]
    assert {s.trace for s in spans} == {TRACE}
    parents = {s.name: s.parent for s in spans if s.name.startswith("tools/call")}
    reply = next(
        s for s in spans if s.name == "tools/call reply" and s.attributes["user.id"] == "b"
    )
    assert reply.parent == span
    assert parents["tools/call ask_agent"] == "00f067aa0ba902b7"
    assert [s.span for s in spans if s.name == "invoke_agent b"] == ([] if forgets else [span])
