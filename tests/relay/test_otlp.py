"""Our encoding of spans, read by OpenTelemetry's own records: nothing is lost, nothing is added."""

import pytest
from benches.traces import official
from hypothesis import given, settings, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from hermes_bridge import __version__
from hermes_bridge.relay import otlp
from hermes_bridge.relay.traces import Context, Span

TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["", "\N{PILE OF POO}", "x" * 127, "x" * 128, "é" * 16_384, "\0", '"\\']),
)
IDS = st.binary(min_size=8, max_size=8).map(bytes.hex)
CONTEXTS = st.builds(Context, st.binary(min_size=16, max_size=16).map(bytes.hex), IDS)
INSTANTS = st.integers(0, 4_102_444_800_000)
FACTS = st.one_of(TEXTS, st.integers(-(2**63), 2**63 - 1), st.lists(TEXTS, max_size=3).map(tuple))
PAIRS = st.tuples(st.text(min_size=1, max_size=20), TEXTS)
SPANS = st.builds(
    Span,
    name=TEXTS,
    kind=st.sampled_from([2, 3]),
    at=CONTEXTS,
    parent=st.none() | IDS,
    begin=INSTANTS,
    end=INSTANTS,
    conversation=TEXTS,
    facts=st.lists(st.tuples(st.text(min_size=1, max_size=20), FACTS), max_size=4).map(tuple),
    own=st.lists(PAIRS, max_size=3),
    content=st.lists(PAIRS, max_size=3).map(lambda pairs: lambda: pairs),
    state=TEXTS,
    error=TEXTS,
    events=st.lists(st.tuples(st.sampled_from(["sent", "taken"]), INSTANTS), max_size=2),
    link=st.none() | CONTEXTS,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(SPANS, max_size=4), st.booleans())
def test_what_is_written_by_hand_is_what_the_official_records_hold(
    spans: list[Span], content: bool
) -> None:
    read = ExportTraceServiceRequest.FromString(otlp.request(spans, content=content))
    written = ExportTraceServiceRequest.FromString(official(spans, content=content))
    (resource,) = read.resource_spans
    named = {pair.key: pair.value.string_value for pair in resource.resource.attributes}
    assert named["service.name"] == "hermes-bridge"
    assert named["service.version"] == __version__
    (scope,) = resource.scope_spans
    assert scope.scope.name == "hermes_bridge"
    assert list(scope.spans) == list(written.resource_spans[0].scope_spans[0].spans)


@given(st.integers(0, 2**63 - 1), st.text(max_size=20))
def test_what_a_target_refused_is_read(count: int, why: str) -> None:
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = count
    answer.partial_success.error_message = why
    assert otlp.refused(answer.SerializeToString()) == count


@pytest.mark.parametrize("answer", [b"", b"{}", b"\n", b"\xff" * 40, b"\x0a\x02\x08", b"ok"])
def test_an_answer_that_is_none_refuses_nothing_and_hurts_nobody(answer: bytes) -> None:
    assert otlp.refused(answer) >= 0
