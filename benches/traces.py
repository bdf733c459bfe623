"""What tracing costs an ask: CPU of three spans (the call, the exchange, the reply), written when
they are over, and of putting them together for a target.

    python -m benches.traces [--asks 20000] [--content] [--profile]
    python -m benches.traces --official     # and what OpenTelemetry's own records cost
"""

import argparse
import asyncio
import cProfile
import json
import pstats
import time
from typing import NamedTuple

from benches.sample import MESSAGE, exchange

from hermes_bridge.clock import SystemClock
from hermes_bridge.relay import otlp
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.core.results import Result
from hermes_bridge.relay.core.tally import Tally
from hermes_bridge.relay.export import Exporter, Target
from hermes_bridge.relay.otlp import Fact
from hermes_bridge.relay.traces import Tracer

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
        lambda call: call(
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
        lambda call: call(
            tool="reply", agent="helpdesk-bot", arguments=said, rpc_id="2", given=done, **common
        )
    )
    if len(xs) > 1_000:
        del xs[next(iter(xs))]


class Plain(NamedTuple):
    """What a span says. Ids in bytes, instants in unix milliseconds."""

    name: str
    kind: int
    trace: bytes
    own: bytes
    parent: bytes
    begin: int
    end: int
    facts: list[tuple[str, Fact]]
    events: tuple[tuple[str, int], ...] = ()
    state: str = ""
    error: str = ""
    link: tuple[bytes, bytes] | None = None


def ours(spans: list[Plain]) -> bytes:
    """A request with these spans, by our own encoding."""
    written = []
    for span in spans:
        parts = [otlp.head(span.name, span.kind, span.facts, span.error)]
        parts += [otlp.happened(name.encode(), instant) for name, instant in span.events]
        if span.state:
            parts.append(otlp.state(span.state))
        if span.link is not None:
            parts.append(otlp.link(*span.link))
        written.append(otlp.span(span.trace, span.own, span.parent, span.begin, span.end, parts))
    return otlp.request(written)


def official(spans: list[Plain]) -> bytes:
    """The same, by `opentelemetry-proto` (also the oracle of `tests/relay/test_otlp`)."""
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

    def record(span: Plain) -> Record:
        links = [span.link] if span.link is not None else []
        return Record(
            trace_id=span.trace,
            span_id=span.own,
            parent_span_id=span.parent,
            name=span.name,
            kind=span.kind,
            start_time_unix_nano=span.begin * 1_000_000,
            end_time_unix_nano=max(span.begin, span.end) * 1_000_000,
            trace_state=span.state,
            attributes=[KeyValue(key=key, value=value(fact)) for key, fact in span.facts],
            events=[Record.Event(name=n, time_unix_nano=t * 1_000_000) for n, t in span.events],
            links=[Record.Link(trace_id=trace, span_id=own) for trace, own in links],
            status=End(code=End.STATUS_CODE_ERROR, message=span.error) if span.error else None,
            flags=1,
        )

    scope = ScopeSpans(spans=[record(span) for span in spans])
    request = ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[scope])])
    return request.SerializeToString()


def read(body: bytes) -> list[Plain]:
    """The spans of a request."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    def fact(value: object) -> Fact:
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return tuple(v.string_value for v in value.array_value.values)
        return getattr(value, kind)

    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    return [
        Plain(
            span.name,
            span.kind,
            span.trace_id,
            span.span_id,
            span.parent_span_id,
            span.start_time_unix_nano // 1_000_000,
            span.end_time_unix_nano // 1_000_000,
            [(pair.key, fact(pair.value)) for pair in span.attributes],
            tuple((e.name, e.time_unix_nano // 1_000_000) for e in span.events),
        )
        for scope in resource.scope_spans
        for span in scope.spans
    ]


async def compare(asks: int) -> None:
    """The spans of some asks, written by ours and by the official records: CPU per ask."""
    written: list[bytes] = []
    xs: dict[str, Exchange] = {}
    tracer = Tracer(lambda spans, _: written.extend(spans), xs.get)
    now = SystemClock().now()
    count = min(asks, 2_000)
    began = time.process_time()
    for _ in range(count):
        trace(tracer, xs, now)
    tracer.flush()
    mine = time.process_time() - began
    spans = read(otlp.request(written))
    began = time.process_time()
    official(spans)
    theirs = time.process_time() - began
    per = 1e6 / count
    print(
        json.dumps(
            {
                "ours_us": round(mine * per, 1),
                "ours_includes": "the bench's own ask",
                "official_us": round(theirs * per, 1),
            }
        )
    )


async def run(asks: int, content: bool) -> None:
    now = SystemClock().now()
    exporter = Exporter(Target(url="http://127.0.0.1:1/v1/traces", content=content))
    xs: dict[str, Exchange] = {}
    tracer = Tracer(exporter.put, xs.get, texts=content)
    idle = Tracer(lambda *_: None, xs.get)
    idle.watch = idle.called = lambda *_: None  # type: ignore[method-assign,assignment]
    bare = time.process_time()
    for _ in range(asks):
        trace(idle, xs, now)
    bare = time.process_time() - bare
    noting = sending = size = 0.0
    for _ in range(asks // 100):
        began = time.process_time()
        for _ in range(100):
            trace(tracer, xs, now)
        tracer.flush()
        noting += time.process_time() - began
        began = time.process_time()
        while batch := exporter._take():
            size += len(otlp.request(batch))
        sending += time.process_time() - began
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
                "written_us": round((noting - bare) / asks * 1e6, 1),
                "put_together_us": round(sending / asks * 1e6, 1),
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
