"""When spans are written, and what happens to one that cannot be."""

import asyncio
import logging
from typing import Any

import pytest
from benches.sample import exchange
from benches.traces import PARENT, read

from hermes_bridge.relay import otlp
from hermes_bridge.relay.core import carrier
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.traces import ToolCall, Tracer

pytestmark = pytest.mark.anyio
NOW = 1_764_550_000_000


class Seen:
    """A tracer, and the spans it wrote, decoded."""

    def __init__(self, **more: Any) -> None:
        self.written: list[bytes] = []
        self.full: list[bytes] = []
        self.tracer = Tracer(self._take, lambda rid: None, **more)

    def _take(self, spans: list[bytes], full: list[bytes]) -> None:
        self.written += spans
        self.full += full

    def facts(self, number: int = 0) -> dict[str, Any]:
        return dict(read(otlp.request([self.written[number]]))[0].facts)


def opened(tracer: Tracer, **more: Any) -> Exchange:
    x = exchange(NOW, status=Status.OPENING, **more)
    tracer.watch("opened", x)
    return x


def ended(tracer: Tracer, x: Exchange) -> None:
    x.status, x.ended_at, x.answer = Status.OK, NOW + 5, "yes"
    tracer.watch("ended", x)


def call(make: type[ToolCall], **more: Any) -> ToolCall:
    base = {"tool": "list_agents", "agent": "a", "began": NOW, "ended": NOW, "arguments": b"{}"}
    return make(**{**base, **more})


async def test_what_is_noted_is_written_a_moment_later() -> None:
    seen = Seen()
    ended(seen.tracer, opened(seen.tracer))
    assert not seen.written, "not while an ask waits for it"
    async with asyncio.timeout(30):
        while not seen.written:
            await asyncio.sleep(0.01)
    assert seen.facts()["hermes_bridge.outcome"] == "ok"


async def test_a_crowd_is_written_in_small_pieces_without_waiting() -> None:
    seen = Seen()
    for _ in range(1_000):
        ended(seen.tracer, opened(seen.tracer))
    assert 900 < len(seen.written) < 1_000
    seen.tracer.flush()
    assert len(seen.written) == 1_000


async def test_a_span_that_cannot_be_written_costs_itself_and_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen = Seen()

    def broken(make: type[ToolCall]) -> ToolCall:
        raise RuntimeError("a secret text")

    with caplog.at_level(logging.ERROR, "hermes_bridge.traces"):
        for _ in range(3):
            seen.tracer.called(broken)
        ended(seen.tracer, opened(seen.tracer))
        seen.tracer.flush()
    assert len(seen.written) == 1
    assert [r.getMessage() for r in caplog.records] == ["span.failed"]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("parent", [None, PARENT, PARENT[:-2] + "00", "\n\nuser=1"])
async def test_an_exchange_keeps_its_place_whoever_began_the_trace(parent: str | None) -> None:
    """The span's id comes from the request id alone, so a restarted relay writes the same one."""
    seen = Seen()
    x = opened(seen.tracer, trace=parent)
    text = carrier.parent(x.trace)
    own = x.rid.replace("-", "")
    trace = PARENT[3:35] if parent and parent[0] != "\n" else own
    assert text == f"00-{trace}-{own[16:]}-{parent[-2:] if parent == PARENT[:-2] + '00' else '01'}"
    ended(seen.tracer, x)
    seen.tracer.flush()
    if text.endswith("00"):
        assert not seen.written
        return
    (span,) = read(otlp.request(seen.written))
    assert (span.trace.hex(), span.own.hex()) == (trace, own[16:])


async def test_a_call_tells_where_its_client_is() -> None:
    seen = Seen()
    seen.tracer.called(lambda make: call(make, peer="192.0.2.7", port=40_123, rpc_id="7"))
    seen.tracer.called(call)
    seen.tracer.flush()
    facts = seen.facts()
    assert (facts["client.address"], facts["client.port"]) == ("192.0.2.7", 40_123)
    assert facts["jsonrpc.request.id"] == "7"
    assert not {"client.address", "client.port"} & set(seen.facts(1))


async def test_texts_are_only_in_what_targets_that_want_them_get() -> None:
    secret = "where is the key?"
    plain, wordy = Seen(), Seen(texts=True)
    for seen in (plain, wordy):
        ended(seen.tracer, opened(seen.tracer, message=secret))
        seen.tracer.called(lambda make: call(make, arguments=secret.encode()))
        seen.tracer.flush()
        assert not [span for span in seen.written if secret.encode() in span]
    assert plain.written == plain.full
    assert all(secret.encode() in full for full in wordy.full)
    for written, full in zip(wordy.written, wordy.full, strict=True):
        (span,), (more,) = read(otlp.request([written])), read(otlp.request([full]))
        assert set(span.facts) < set(more.facts)
        assert more._replace(facts=[]) == span._replace(facts=[])


async def test_an_open_ask_is_written_at_once_for_who_wants_it() -> None:
    live: list[bytes] = []
    seen = Seen(live=lambda spans, full: live.extend(spans))
    x = opened(seen.tracer)
    (span,) = read(otlp.request(live))
    assert dict(span.facts)["hermes_bridge.outcome"] == "pending"
    assert (span.begin, span.end) == (x.at, x.at)
    assert not seen.written
