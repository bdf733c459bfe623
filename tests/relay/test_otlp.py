"""Our encoding of spans, read by OpenTelemetry's own records: nothing is lost, nothing is added."""

import pytest
from benches.traces import Plain, official, ours
from hypothesis import given, settings, strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from hermes_bridge import __version__
from hermes_bridge.relay import otlp

TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["", "\N{PILE OF POO}", "x" * 127, "x" * 128, "é" * 16_384, "\0", '"\\']),
)
IDS, TRACES = st.binary(min_size=8, max_size=8), st.binary(min_size=16, max_size=16)
INSTANTS = st.integers(0, 4_102_444_800_000)
FACTS = st.one_of(TEXTS, st.integers(-(2**63), 2**63 - 1), st.lists(TEXTS, max_size=3).map(tuple))
SPANS = st.builds(
    Plain,
    name=TEXTS,
    kind=st.sampled_from([2, 3]),
    trace=TRACES,
    own=IDS,
    parent=st.just(b"") | IDS,
    begin=INSTANTS,
    end=INSTANTS,
    facts=st.lists(st.tuples(st.text(min_size=1, max_size=20), FACTS), max_size=4),
    events=st.lists(st.tuples(st.sampled_from(["sent", "taken"]), INSTANTS), max_size=2).map(tuple),
    state=TEXTS,
    error=TEXTS,
    link=st.none() | st.tuples(TRACES, IDS),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(SPANS, max_size=4))
def test_what_is_written_by_hand_is_what_the_official_records_hold(spans: list[Plain]) -> None:
    read = ExportTraceServiceRequest.FromString(ours(spans))
    written = ExportTraceServiceRequest.FromString(official(spans))
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
