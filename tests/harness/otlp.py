"""A local OTLP/HTTP sink: it decodes what comes, and can be slow, refuse, hang up, or be away."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.harness.mcp import Mcp


class Span(NamedTuple):
    """A decoded span: ids in hexadecimal, instants in nanoseconds."""

    name: str
    kind: int
    trace: str
    span: str
    parent: str
    start: int
    end: int
    attributes: dict[str, Any]
    status: int
    events: list[str]
    links: list[str]
    state: str
    resource: dict[str, Any]


class Sink:
    """`spans` grows as requests come; the other attributes say how it answers."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.status = 200
        self.gate: threading.Event | None = None
        """It answers when this is set."""
        self.cut: int | None = None
        """It hangs up after so many bytes of its answer, and takes nothing."""
        self.most: int | None = None
        """It answers 413 to a body of more bytes."""
        self.endless = False
        """It takes nothing, and its answer comes byte by byte and does not end."""
        self.closed = threading.Event()
        self.answer_headers: dict[str, str] = {}
        self.rejected = 0
        sink = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                sink.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                if sink.gate is not None:
                    sink.gate.wait(60)
                if sink.endless:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n")
                    while not sink.closed.wait(0.5):
                        self.wfile.write(b"x")
                large = sink.most is not None and len(body) > sink.most
                takes = sink.status == 200 and sink.cut is None and not large
                if takes:
                    sink.take(body)
                answer = ExportTraceServiceResponse()
                answer.partial_success.rejected_spans = sink.rejected
                content = answer.SerializeToString() if takes else b"no"
                lines = [f"HTTP/1.1 {413 if large else sink.status} As told"]
                lines += [f"{name}: {value}" for name, value in sink.answer_headers.items()]
                lines += [f"content-length: {len(content)}", "", ""]
                whole = "\r\n".join(lines).encode() + content
                self.wfile.write(whole[: sink.cut])
                self.close_connection = self.close_connection or sink.cut is not None

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            of = {a.key: _value(a.value) for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_span(span, of) for span in scope.spans]

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


async def asked_for(a: Mcp, message: str, trace: str | None, **more: Any) -> dict[str, Any]:
    """Ask b through MCP with a trace context; returns what the verb gave."""
    meta = {"traceparent": trace} if trace else {}
    given: dict[str, Any] = await a.tool(
        "ask_agent", {"to": "b", "message": message, **more}, meta=meta
    )
    return given


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        {a.key: _value(a.value) for a in span.attributes},
        span.status.code,
        [e.name for e in span.events],
        [link.trace_id.hex() for link in span.links],
        span.trace_state,
        resource,
    )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(v) for v in value.array_value.values]
    return getattr(value, kind)


Sinks = Callable[[], Sink]


@pytest.fixture
def otlp_sinks() -> Iterator[Sinks]:
    """Return `make()`: a running `Sink`."""
    made: list[Sink] = []

    def make() -> Sink:
        made.append(Sink())
        return made[-1]

    yield make
    for sink in made:
        sink.close()
