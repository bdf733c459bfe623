"""Traces as an OTLP sink sees them (scenario: one trace from the caller to the answer)."""

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
    sink = otlp_sinks()
    relay = relays(otlp=[{"endpoint": sink.url}])
    async with Bot(relay, "b") as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: wake["message"].upper()
        first = await ask(a, "one")
        second = await ask(a, "two", conversation_id=first["conversation_id"])
        assert second["answer"] == "TWO"
        await eventually(lambda: len(sink.spans) == 6, "exported")
    assert {span.trace for span in sink.spans} == {TRACE}
    assert {s.attributes["session.id"] for s in sink.spans} == {first["conversation_id"]}
    servers, asks = sink.named("tools/call ask_agent"), sink.named("invoke_agent b")
    assert [s.parent for s in servers] == [CALLER] * 2
    assert {s.parent for s in asks} == {s.span for s in servers}
    replies = sink.named("tools/call reply")
    assert {s.parent for s in replies} == {s.span for s in asks}
    assert {s.attributes["network.protocol.name"] for s in replies} == {"http"}
    assert all(s.start <= s.end for s in sink.spans)
    inside = {s.span: (s.start, s.end) for s in sink.spans}
    for span in (*asks, *replies):
        assert inside[span.parent][0] <= span.start, span.name


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
        args = {"to": "b", "message": "x", "wait_ms": 0}
        more = {"tracestate": "v=1", "baggage": "team=hr"}
        given = await a.tool("ask_agent", args, meta={"traceparent": PARENT, **more})
        wake = await b.wake()
    rid, carried = wake["request_id"], wake["trace"]
    assert {name: carried[name] for name in more} == more
    _, trace, span, _ = carried["traceparent"].split("-")
    assert (trace, rid) == (TRACE, given["request_id"])
    if forgets:
        path = str(relay.folder / "new.db")
        relay.write({**relay.config, "db": {"driver": "sqlite", "path": path}})
    await anyio.to_thread.run_sync(relay.restart)
    before = len(sink.spans)
    async with Bot(relay, "b", hello=True) as b, Bot(relay, "c", hello=True) as c:
        wakes: list[dict[str, Any]] = []
        c.on_wake = lambda wake: wakes.append(wake) or "deep"
        below = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        asked = {"to": "c", "message": "?"}
        said = carried | below if forgets else below
        nested = await b.call("ask_agent", asked, turn=rid, trace=said)
        assert nested["answer"] == "deep"
        assert {name: wakes[0]["trace"][name] for name in more} == more
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
