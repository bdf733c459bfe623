"""Targets of traces: named by configuration, environment and reload, and in every kind of trouble."""

import re
import threading
from typing import Any

import anyio
import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.otlp import Sink, Sinks, asked_for
from tests.harness.relay import Make, RelayProcess
from tests.harness.waits import eventually

pytestmark = pytest.mark.anyio

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
WHAT_TRACES_LOAD = ("relay.export", "relay.otlp", "relay.traces", "urllib.request")
ASKS, SPANS = 20, 60
"""An ask is three spans: its call, the exchange, the reply."""


async def ask(a: Mcp, message: str) -> dict[str, Any]:
    return await asked_for(a, message, PARENT)


def counted(relay: RelayProcess, name: str, sink: Sink) -> float:
    wanted = f'hermes_bridge_otlp_{name}_total{{target="{sink.url.removeprefix("http://")}"}} '
    text = relay.get("/metrics")[1].decode()
    return next(float(line[len(wanted) :]) for line in text.splitlines() if line.startswith(wanted))


def troubled(make: Sinks) -> dict[str, Sink]:
    """Sinks in every kind of trouble; `gate` holds its answers."""
    each = {name: make() for name in ("gate", "hangs up", "half", "429", "500", "503")}
    each |= {name: make() for name in ("401", "413", "307", "small", "down")}
    each["gate"].gate = threading.Event()
    each["hangs up"].cut, each["half"].cut = 0, 9  # in the status line
    for name, sink in each.items():
        sink.status = int(name) if name.isdigit() else 200
    each["429"].answer_headers = {"retry-after": "1"}
    each["small"].most = 3_000  # two spans or three
    each["down"].close()
    return each


async def test_targets_in_trouble_cost_no_ask_and_what_they_lose_is_counted(
    relays: Make, otlp_sinks: Sinks
) -> None:
    """Side by side, since each target has a queue of its own: O10 with a sink that is not well."""
    good, elsewhere, bad = otlp_sinks(), otlp_sinks(), troubled(otlp_sinks)
    bad["307"].answer_headers = {"location": elsewhere.url + "/v1/traces"}
    secret = {"headers": {"authorization": "Bearer secret"}}
    targets = [{"endpoint": sink.url, **secret} for sink in (*bad.values(), good)]
    relay = relays(otlp=targets, chatty=True)
    gate = bad["gate"].gate
    assert gate is not None
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "yes"
        await ask(a, "x")
        told = {
            bad[name].url.removeprefix("http://") for name in bad if name not in ("gate", "small")
        }
        downs = "traces.down"
        await eventually(lambda: {x["to"] for x in relay.events(downs)} == told, "each is told")
        await eventually(lambda: bad["gate"].requests, "a post that is not answered")
        for name in ("hangs up", "half", "429", "500", "503"):  # well before the last try
            bad[name].status, bad[name].cut = 200, None
        for _ in range(ASKS - 1):  # none of them waits for the gate, and for nobody else
            assert (await ask(a, "x"))["answer"] == "yes"
        await eventually(lambda: len(good.spans) == SPANS, "all at the good one")
        assert not bad["gate"].spans
        gate.set()
        for name in ("gate", "hangs up", "half", "429", "500", "503", "small"):
            sink = bad[name]
            await eventually(lambda sink=sink: len(sink.spans) == SPANS, f"{name}: all later", 60)
            assert counted(relay, "spans_dropped", sink) == 0, name
        for name in ("401", "413", "307"):
            sink = bad[name]
            lost = lambda sink=sink: counted(relay, "spans_dropped", sink) == SPANS  # noqa: E731
            await eventually(lost, f"{name}: counted")
            assert counted(relay, "spans_exported", sink) == 0, name
        assert counted(relay, "export_failures", bad["down"]) > 0
        assert counted(relay, "spans_exported", good) == SPANS
    assert not elsewhere.requests, "a redirect was followed, with the secret"
    assert await anyio.to_thread.run_sync(relay.stop) == 0
    assert "secret" not in relay.log()


async def test_a_target_whose_answer_does_not_end_holds_neither_asks_nor_the_stop(
    relays: Make, otlp_sinks: Sinks
) -> None:
    sink = otlp_sinks()
    sink.endless = True
    relay = relays(otlp=[{"endpoint": sink.url}])
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "yes"
        await ask(a, "x")
        await eventually(lambda: sink.requests, "a post that is not answered to its end")
        assert (await ask(a, "x"))["answer"] == "yes"
    assert await anyio.to_thread.run_sync(relay.stop) == 0  # 30 s at most


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
