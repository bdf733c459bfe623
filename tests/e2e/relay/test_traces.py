"""Traces as an OTLP sink sees them (scenario: one trace from the caller to the answer)."""

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.otlp import Sink, Span
from tests.harness.relay import Make
from tests.harness.waits import eventually

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER}-01"
Sinks = Callable[[], Sink]
WHAT_TRACES_LOAD = ("relay.export", "relay.otlp", "relay.traces", "urllib.request")


def of(span: Span, *names: str) -> tuple[Any, ...]:
    return tuple(span.attributes.get(name) for name in names)


async def ask(a: Mcp, message: str, trace: str | None = PARENT, **more: Any) -> dict[str, Any]:
    meta = {"traceparent": trace} if trace else {}
    reply = await a.rpc(
        "tools/call",
        {"name": "ask_agent", "arguments": {"to": "b", "message": message, **more}, "_meta": meta},
    )
    found: dict[str, Any] = reply.result
    return found


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
        await ask(a, "y", trace=None)
        await eventually(lambda: sink.named("invoke_agent b"), "exported")
        await asyncio.sleep(1.2)
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


@pytest.mark.parametrize("trouble", ["down", "slow", "429", "500", "401"])
async def test_a_target_in_trouble_costs_no_ask_and_is_counted(
    relays: Make, otlp_sinks: Sinks, trouble: str
) -> None:
    bad, good = otlp_sinks(), otlp_sinks()
    url = bad.url
    if trouble == "down":
        bad.close()
    elif trouble == "slow":
        bad.delay_s = 3
    else:
        bad.status = int(trouble)
        bad.answer_headers = {"retry-after": "1"} if trouble == "429" else {}
    relay = relays(otlp=[{"endpoint": url}, {"endpoint": good.url}], chatty=True)
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "yes"
        took: list[float] = []
        for _ in range(20):
            began = time.monotonic()
            assert (await ask(a, "x"))["answer"] == "yes"
            took.append(time.monotonic() - began)
            await asyncio.sleep(0.1)
        assert sorted(took)[10] < 2, "asks wait for the sink"
        await eventually(lambda: len(good.named("invoke_agent b")) == 20, "all at the good one")
        if trouble in ("429", "500"):
            bad.status = 200
            await eventually(lambda: len(bad.named("invoke_agent b")) == 20, "all later", 20)
        if trouble == "401":
            await eventually(lambda: _metric(relay, "spans_dropped", url) >= 40, "counted")
        if trouble != "slow":
            assert relay.events("traces.down")
            assert _metric(relay, "export_failures", url) > 0
        assert _metric(relay, "spans_exported", good.url) >= 40
    assert relay.stop() == 0


def _metric(relay: Any, name: str, url: str) -> float:
    host = url.removeprefix("http://")
    wanted = f'hermes_bridge_otlp_{name}_total{{target="{host}"}} '
    text = relay.get("/metrics")[1].decode()
    return next(float(line[len(wanted) :]) for line in text.splitlines() if line.startswith(wanted))


async def test_the_environment_names_a_target_too(relays: Make, otlp_sinks: Sinks) -> None:
    sink = otlp_sinks()
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": sink.url + "/otlp",
        "OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%20b,x=1",
    }
    relay = relays(env=env)
    async with Mcp(relay, "a") as a:
        await a.tool("list_agents", {})
        await eventually(lambda: sink.named("tools/call list_agents"), "exported")
    path, headers = sink.requests[0]
    assert (path, headers["api-key"], headers["x"]) == ("/otlp/v1/traces", "a b", "1")


async def test_without_a_target_nothing_of_it_is_loaded_until_a_reload_names_one(
    relays: Make, otlp_sinks: Sinks
) -> None:
    sink = otlp_sinks()
    relay = relays(env={"PYTHONPROFILEIMPORTTIME": "1"})

    def loaded() -> set[str]:
        return set(re.findall(r"\| +([a-z_.]+)$", relay.log(), re.MULTILINE))

    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: wake["trace"]["traceparent"]
        assert (await ask(a, "x"))["answer"] == PARENT
        assert "hermes_bridge.relay.verbs" in loaded()
        assert not {name for name in loaded() if name.endswith(WHAT_TRACES_LOAD)}
        relay.reload(otlp=[{"endpoint": sink.url}])
        assert (await ask(a, "y"))["answer"] != PARENT
        await eventually(lambda: sink.named("invoke_agent b"), "exported")
    assert {name for name in loaded() if name.endswith("relay.otlp")}
    assert not {name for name in loaded() if name.startswith(("google.", "opentelemetry"))}


async def test_targets_change_with_a_reload_and_what_waits_is_sent(
    relays: Make, otlp_sinks: Sinks
) -> None:
    goes, stays, comes = otlp_sinks(), otlp_sinks(), otlp_sinks()
    stays.status = 503
    first = [{"endpoint": goes.url}, {"endpoint": stays.url}]
    relay = relays(otlp=first, chatty=True)
    async with Bot(relay, "b") as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "yes"
        await ask(a, "one")
        await eventually(lambda: relay.events("traces.down"), "tried and kept")
        relay.reload(otlp=[{"endpoint": "nonsense"}])
        assert "otlp[0].endpoint" in relay.events("reload.refused")[0]["reason"]
        await ask(a, "two")
        relay.reload(otlp=[first[1], {"endpoint": comes.url}])
        await ask(a, "three")
        stays.status = 200
        await eventually(lambda: len(stays.named("invoke_agent b")) == 3, "kept over both", 30)
        await eventually(lambda: len(goes.named("invoke_agent b")) == 2, "emptied")
        await eventually(lambda: len(comes.named("invoke_agent b")) == 1, "begun")
        relay.reload(otlp=[])
        assert (await ask(a, "four"))["answer"] == "yes"
        assert "target=" not in relay.get("/metrics")[1].decode()
    assert relay.stop() == 0
    assert {len(s.named("invoke_agent b")) for s in (goes, stays, comes)} == {1, 2, 3}


async def test_what_waits_when_it_is_told_to_stop_is_sent(relays: Make, otlp_sinks: Sinks) -> None:
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url}])
    async with Bot(relay, "b") as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "yes"
        for _ in range(5):
            await ask(a, "x")
    assert relay.stop() == 0
    assert len(sink.named("invoke_agent b")) == 5


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
