"""`/metrics` for Prometheus (docs/reference/metrics.md). Asks only move plain numbers (`core/tally`);
all that costs anything is done when somebody scrapes, and off the event loop.

Who may scrape is decided as for the page: the password goes in as a bearer token.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from hermes_bridge import __version__
from hermes_bridge.relay.core.exchange import ENDS, Status
from hermes_bridge.relay.core.tally import ASK_BUCKETS, Histogram
from hermes_bridge.relay.doors.ui_access import Access
from hermes_bridge.relay.doors.ui_request import FRESH, Receive, Request, Scope, Send
from hermes_bridge.relay.relay import Relay

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from hermes_bridge.relay.export import Exporter, Exports

_Labels = tuple[str, ...]
_WHY = "Set ui.password and scrape with it as a bearer token, or set ui.auth: none."


class Series(NamedTuple):
    """One metric with its samples, as plain data."""

    kind: str
    """`counter`, `gauge` or `histogram`."""
    name: str
    help: str
    labels: _Labels
    samples: list[tuple[_Labels, "float | Histogram"]]


Source = Callable[[], Iterable[Series]]
"""What else the process has to tell (the connector, the exporter of traces)."""


class MetricsDoor:
    """Serves `/metrics`."""

    def __init__(self, relay: Relay, access: Access, sources: Iterable[Source] = ()) -> None:
        self._relay, self._access = relay, access
        self._sources = list(sources)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive, send)
        if not request.reads:
            await request.not_so(b"GET, HEAD")
            return
        visitor = self._access.visitor(request.headers, request.peer)
        if not visitor.may_read:
            status = 401 if visitor.why_not == "login" else 403
            await request.fail(status, "the metrics are not open to you", _WHY)
            return
        series = [_relay(self._relay), *(list(source()) for source in self._sources)]
        accept = request.headers.get(b"accept", b"").decode("latin-1")
        content, kind = await asyncio.to_thread(_spell, chain.from_iterable(series), accept)
        await request.answer(200, kind.encode(), content, FRESH)


def of_traces(now: "Callable[[], Exports | None]") -> Source:
    """Tell how the export of traces goes, by target; `now` gives the exporter, if there is one."""

    def tell() -> Iterator[Series]:
        exports = now()
        if exports is None:
            return
        told: tuple[tuple[str, str, Callable[[Exporter], int]], ...] = (
            ("spans_exported", "Spans that a target took.", lambda e: e.sent),
            ("spans_dropped", "Spans that a target will never get.", lambda e: e.dropped),
            ("export_failures", "Requests that a target did not take.", lambda e: e.failures),
        )
        for name, words, value in told:
            samples: list[tuple[_Labels, float | Histogram]]
            samples = [
                ((e.target.name if n == 1 else f"{e.target.name}#{n}",), value(e))
                for n, e in exports.numbered()
            ]
            yield Series("counter", f"hermes_bridge_otlp_{name}", words, ("target",), samples)

    return tell


def _relay(relay: Relay) -> Iterator[Series]:
    """Take what the relay has counted, and how it stands, now; what follows from it is worked out
    when the result is read, on another thread."""
    tally = relay.tally
    asks = {key: h.copy() for key, h in tally.asks.items()}
    version: list[tuple[_Labels, float | Histogram]] = [((__version__,), 1)]
    now = [
        Series("gauge", "hermes_bridge_build_info", "The version.", ("version",), version),
        *_agents(relay),
        *_calls(relay),
        *_store(relay),
    ]
    return chain(_asks(relay.roster.names(), asks, tally.refused.copy()), now)


def _asks(
    names: Iterable[str], asks: dict[tuple[str, str], Histogram], refused: Counter[tuple[str, str]]
) -> Iterator[Series]:
    both = ("to", "outcome")
    # A series that begins with its first event hides that event from `rate` and `increase`.
    counts = Counter({(name, str(end)): 0 for name in names for end in ENDS})
    counts.update({key: sum(h.counts) for key, h in asks.items()})
    counts.update(refused)
    yield Series(
        "counter",
        "hermes_bridge_asks",
        "Asks by the agent asked and the outcome, refusals included.",
        both,
        sorted(counts.items()),
    )
    yield Series(
        "histogram",
        "hermes_bridge_ask_duration_seconds",
        "From the acceptance of an ask to its outcome.",
        both,
        list(asks.items()),
    )
    whole: dict[_Labels, Histogram] = {}
    for (_, outcome), h in asks.items():
        error = "" if outcome == Status.OK else str(outcome)
        key = ("invoke_agent", "hermes_bridge", error)
        whole.setdefault(key, Histogram(ASK_BUCKETS)).merge(h)
    yield Series(
        "histogram",
        "gen_ai_client_operation_duration_seconds",
        "The same under the name of OpenTelemetry's conventions, for all agents together.",
        ("gen_ai_operation_name", "gen_ai_provider_name", "error_type"),
        list(whole.items()),
    )


def _agents(relay: Relay) -> Iterator[Series]:
    names, tally, book = relay.roster.names(), relay.tally, relay.book
    beats, queued = Counter(tally.beats), Counter[str]()
    for x in book.open_exchanges():
        beats[x.target] += x.beats
        queued[x.target] += not x.attempt
    per_agent: list[tuple[str, str, str, str, Callable[[str], int]]] = [
        ("gauge", "asks_pending", "Open asks by the agent asked.", "to", book.pending),
        (
            "gauge",
            "queue_depth",
            "Open asks whose wake was never sent.",
            "to",
            lambda name: queued[name],
        ),
        ("counter", "heartbeats", "Heartbeats by agent.", "agent", lambda name: beats[name]),
        (
            "counter",
            "ws_reconnects",
            "Links after an agent's first.",
            "agent",
            lambda name: max(0, tally.links[name] - 1),
        ),
        (
            "gauge",
            "agent_online",
            "Whether the agent has a link.",
            "agent",
            lambda name: int(relay.roster.link(name) is not None),
        ),
    ]
    for kind, name, words, label, value in per_agent:
        samples: list[tuple[_Labels, float | Histogram]] = [((n,), value(n)) for n in names]
        yield Series(kind, f"hermes_bridge_{name}", words, (label,), samples)
    yield _one("gauge", "hermes_bridge_agents_online", "Agents with a link.", relay.roster.online())
    yield _one("gauge", "hermes_bridge_agents", "Agents in the configuration.", len(names))


def _calls(relay: Relay) -> Iterator[Series]:
    yield Series(
        "histogram",
        "hermes_bridge_wake_delivery_seconds",
        "From a wake's (last) sending to the moment the agent took it.",
        (),
        [((), relay.tally.wakes.copy())],
    )
    yield Series(
        "histogram",
        "mcp_server_operation_duration_seconds",
        "Calls of the MCP endpoint, held ones included.",
        ("mcp_method_name", "gen_ai_tool_name", "error_type"),
        [(key, h.copy()) for key, h in relay.tally.calls.items()],
    )


def _store(relay: Relay) -> Iterator[Series]:
    journal = relay.journal
    up = journal.down_since is None and relay.loaded
    yield _one("gauge", "hermes_bridge_store_up", "Whether the store answers.", int(up))
    yield _one(
        "gauge", "hermes_bridge_audit_waiting", "Exchanges that wait to be stored.", len(journal)
    )
    yield _one(
        "gauge",
        "hermes_bridge_audit_lag_seconds",
        "How long the oldest of them has waited.",
        journal.lag() / 1000,
    )
    yield _one("counter", "hermes_bridge_audit_written", "Rows that were stored.", journal.written)
    yield _one(
        "counter",
        "hermes_bridge_audit_dropped",
        "Exchanges whose history is lost: too many waited, or the store refused them.",
        journal.lost,
    )


def _one(kind: str, name: str, words: str, value: float) -> Series:
    return Series(kind, name, words, (), [((), value)])


def _spell(series: Iterable[Series], accept: str) -> tuple[bytes, str]:
    """Give the text and its type; the library is loaded on the first scrape."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    class Collected:
        def collect(self) -> "Iterator[Metric]":
            return map(_metric, series)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collected())
    ProcessCollector(registry=registry)
    encoder, kind = choose_encoder(accept)
    text: bytes = encoder(registry)
    return text, kind


def _metric(series: Series) -> "Metric":
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    if series.kind == "histogram":
        family = HistogramMetricFamily(series.name, series.help, labels=series.labels)
        for labels, value in series.samples:
            if isinstance(value, Histogram):
                family.add_metric(labels, _buckets(value), sum_value=value.total)
        return family
    make = CounterMetricFamily if series.kind == "counter" else GaugeMetricFamily
    plain = make(series.name, series.help, labels=series.labels)
    for labels, value in series.samples:
        if not isinstance(value, Histogram):
            plain.add_metric(labels, value)
    return plain


def _buckets(h: Histogram) -> list[tuple[str, float]]:
    out, running = [], 0
    for bound, count in zip((*map(_spelt, h.bounds), "+Inf"), h.counts, strict=True):
        running += count
        out.append((bound, float(running)))
    return out


def _spelt(bound: float) -> str:
    return repr(float(bound))
