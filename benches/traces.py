"""What tracing costs an ask: CPU of three spans (the call, the exchange, the reply), made, encoded
and compressed, and the part of it that is spent on the event loop.

    python -m benches.traces [--asks 20000] [--content] [--profile]
    python -m benches.traces --official     # and what OpenTelemetry's own records cost
"""

import argparse
import asyncio
import cProfile
import json
import pstats
import time

from benches.sample import MESSAGE, exchange

from hermes_bridge.clock import SystemClock
from hermes_bridge.relay import otlp
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.core.results import Result
from hermes_bridge.relay.core.tally import Tally
from hermes_bridge.relay.export import Exporter, Target, encoded
from hermes_bridge.relay.traces import Fact, Span, ToolCall, Tracer

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def trace(tracer: Tracer, xs: dict[str, Exchange], now: int) -> None:
    x = exchange(now, trace=PARENT, status=Status.OPENING)
    xs[x.rid] = x
    tracer.watch("opened", x)
    tracer.watch("sent", x)
    x.sent_at = x.taken_at = now
    tracer.watch("changed", x)
    x.status, x.ended_at, x.answer = Status.OK, now + 5, MESSAGE
    tracer.watch("ended", x)
    common = {"began": now, "ended": now + 5, "peer": "127.0.0.1", "version": "2025-11-25"}
    given = Result(ok=True, request_id=x.rid, conversation_id=x.conv, answer=MESSAGE)
    asked = json.dumps({"to": "helpdesk-bot", "message": MESSAGE}).encode()
    tracer.called(
        ToolCall(
            tool="ask_agent",
            agent="daniel-bot",
            arguments=asked,
            parent=PARENT,
            rpc_id="1",
            given=given,
            exchange=x,
            **common,
        )
    )
    said = b'{"request_id":"%s","answer":"yes"}' % x.rid.encode()
    done = Result(ok=True)
    tracer.called(
        ToolCall(
            tool="reply", agent="helpdesk-bot", arguments=said, rpc_id="2", given=done, **common
        )
    )
    del xs[x.rid]


def official(spans: list[Span], *, content: bool = False) -> bytes:
    """The same spans, encoded by `opentelemetry-proto` (also the oracle of `tests/relay/test_otlp`)."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import (
        ResourceSpans,
        ScopeSpans,
        Span as Record,
        Status as End,
    )

    def value(fact: Fact) -> AnyValue:
        if isinstance(fact, str):
            return AnyValue(string_value=fact)
        if isinstance(fact, int):
            return AnyValue(int_value=fact)
        return AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=t) for t in fact]))

    def record(span: Span) -> Record:
        talk = span.conversation
        named = (("gen_ai.conversation.id", talk), ("session.id", talk)) if talk else ()
        facts = (*span.facts, *named, *span.own, *(span.content() if content else ()))
        link = span.link
        return Record(
            trace_id=bytes.fromhex(span.at.trace),
            span_id=bytes.fromhex(span.at.span),
            parent_span_id=bytes.fromhex(span.parent or ""),
            name=span.name,
            kind=span.kind,
            start_time_unix_nano=span.begin * 1_000_000,
            end_time_unix_nano=max(span.begin, span.end) * 1_000_000,
            trace_state=span.state,
            attributes=[KeyValue(key=key, value=value(fact)) for key, fact in facts],
            events=[Record.Event(name=n, time_unix_nano=t * 1_000_000) for n, t in span.events],
            links=[
                Record.Link(trace_id=bytes.fromhex(link.trace), span_id=bytes.fromhex(link.span))
            ]
            if link is not None
            else [],
            status=End(code=End.STATUS_CODE_ERROR, message=span.error) if span.error else None,
            flags=1,
        )

    scope = ScopeSpans(spans=[record(span) for span in spans])
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[scope])])
    return request.SerializeToString()


async def compare(asks: int) -> None:
    """Encode the same spans in both ways: CPU of the encoding alone, per ask."""
    exporter = Exporter(Target(url="http://127.0.0.1:1/v1/traces"))
    xs: dict[str, Exchange] = {}
    tracer, now = Tracer(exporter.put, xs.get), SystemClock().now()
    ours = theirs = 0.0
    for _ in range(asks // 100):
        for _ in range(100):
            trace(tracer, xs, now)
        while batch := exporter._take():
            spans = [make() for make, _ in batch]
            began = time.process_time()
            otlp.request(spans, content=False)
            between = time.process_time()
            official(spans)
            ours += between - began
            theirs += time.process_time() - between
    print(
        json.dumps(
            {"ours_us": round(ours / asks * 1e6, 1), "official_us": round(theirs / asks * 1e6, 1)}
        )
    )
    await exporter.close(0)


async def run(asks: int, content: bool) -> None:
    now = SystemClock().now()
    exporter = Exporter(Target(url="http://127.0.0.1:1/v1/traces", content=content))
    xs: dict[str, Exchange] = {}
    tracer = Tracer(exporter.put, xs.get)
    bare = time.process_time()
    for _ in range(asks):
        exchange(now)
    bare = time.process_time() - bare
    loop = encode = size = 0.0
    for _ in range(asks // 100):
        began = time.process_time()
        for _ in range(100):
            trace(tracer, xs, now)
        loop += time.process_time() - began
        began = time.process_time()
        while batch := exporter._take():
            size += len(await encoded(batch, content=content))
        encode += time.process_time() - began
    tally, x = Tally(), exchange(now)
    x.status, x.ended_at = Status.OK, now + 100
    began = time.process_time()
    for _ in range(asks):
        tally.ended(x)
        tally.called("tools/call", "ask_agent", "", 0.1)
    counted = time.process_time() - began
    print(
        json.dumps(
            {
                "asks": asks,
                "on_the_loop_us": round((loop - bare) / asks * 1e6, 1),
                "making_us": round(encode / asks * 1e6, 1),
                "bytes_per_ask": round(size / asks),
                "metrics_us": round(counted / asks * 1e6, 2),
            }
        )
    )
    await exporter.close(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--asks", type=int, default=20_000)
    parser.add_argument("--content", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--official", action="store_true")
    given = parser.parse_args()
    if given.official:
        asyncio.run(compare(given.asks))
        return
    if not given.profile:
        for _ in range(3):
            asyncio.run(run(given.asks, given.content))
        return
    profile = cProfile.Profile()
    profile.runcall(asyncio.run, run(given.asks, given.content))
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
