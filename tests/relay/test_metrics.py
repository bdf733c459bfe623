"""`/metrics`: it parses, its names are the documented ones, its size is bounded by configuration."""

import re
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from benches.core import TARGETS, Rig
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, RelayProcess
from tests.harness.waits import eventually

from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.core.tally import Histogram, Tally
from hermes_bridge.relay.doors import metrics
from hermes_bridge.relay.verbs import spell

pytestmark = pytest.mark.anyio

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def scrape(relay: RelayProcess, **headers: str) -> tuple[str, str]:
    request = urllib.request.Request(relay.url + "/metrics", headers=headers)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode(), answer.headers["content-type"]


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    found = {}
    for family in prometheus(text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, f"twice: {key}"
            found[key] = sample.value
    return found


def of(text: str, name: str, **labels: str) -> float | None:
    return samples(text).get((name, tuple(sorted(labels.items()))))


async def a_little_of_everything(relay: RelayProcess) -> None:
    """Two answered asks over two links, one refused, one queued, and calls that make no sense."""
    async with Mcp(relay, "a") as a:
        for _ in range(2):
            async with Bot(relay, "b", hello=True) as b:
                assert (await a.ask("b", "x", wait_ms=0))["request_id"]
                rid = (await b.wake())["request_id"]
                await b.beat(rid)
                await b.beat(rid)
                await b.reply(rid, "y")
        await a.ask("nobody-at-all", "x")
        await a.rpc("tools/list")
        await a.rpc("tools/call", {"name": "made-up", "arguments": {}})
        await a.rpc("made/up", {})
        await eventually(lambda: relay.health()["agents_online"] == 0, "gone")
        await a.ask("b", "waits", wait_ms=0, if_offline="queue")


async def test_asks_links_and_heartbeats_are_counted(relays: Make) -> None:
    relay = relays()
    await a_little_of_everything(relay)
    text, kind = await anyio.to_thread.run_sync(scrape, relay)
    assert kind.startswith("text/plain")
    assert of(text, "hermes_bridge_asks_total", to="b", outcome="ok") == 2
    assert of(text, "hermes_bridge_asks_total", to="(unknown)", outcome="unknown_agent") == 1
    for agent, outcome in (("b", "timeout"), ("c", "ok"), ("c", "agent_disconnected")):
        zero = of(text, "hermes_bridge_asks_total", to=agent, outcome=outcome)
        assert zero == 0, "a rate over the first event needs a zero before it"
    assert of(text, "hermes_bridge_ask_duration_seconds_count", to="b", outcome="ok") == 2
    assert of(text, "hermes_bridge_asks_pending", to="b") == 1
    assert of(text, "hermes_bridge_queue_depth", to="b") == 1
    assert of(text, "hermes_bridge_heartbeats_total", agent="b") == 4
    assert of(text, "hermes_bridge_ws_reconnects_total", agent="b") == 1
    assert of(text, "hermes_bridge_ws_reconnects_total", agent="c") == 0
    assert of(text, "hermes_bridge_agents_online") == 0
    assert of(text, "hermes_bridge_wake_delivery_seconds_count") == 2
    assert of(text, "hermes_bridge_store_up") == 1
    assert of(text, "hermes_bridge_audit_dropped_total") == 0
    calls = "mcp_server_operation_duration_seconds_count"
    call = {"mcp_method_name": "tools/call", "error_type": ""}
    assert of(text, calls, gen_ai_tool_name="ask_agent", **call) == 4
    refused = {**call, "error_type": "-32602"}
    assert of(text, calls, gen_ai_tool_name="(unknown)", **refused) == 1
    for method, error in (("tools/list", ""), ("(other)", "-32601")):
        labels = {"mcp_method_name": method, "gen_ai_tool_name": "", "error_type": error}
        assert of(text, calls, **labels) == 1
    invoked = {"gen_ai_operation_name": "invoke_agent", "gen_ai_provider_name": "hermes_bridge"}
    name = "gen_ai_client_operation_duration_seconds_count"
    assert of(text, name, error_type="", **invoked) == 2


async def test_both_text_formats_parse(relays: Make) -> None:
    relay = relays()
    text, _ = await anyio.to_thread.run_sync(scrape, relay)
    assert text.endswith("\n")
    assert len(samples(text)) > 20
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) .+|[a-z_]+(\{.*\})? \S+", line), line

    def other() -> tuple[str, str]:
        return scrape(relay, Accept="application/openmetrics-text; version=1.0.0")

    text, kind = await anyio.to_thread.run_sync(other)
    assert kind.startswith("application/openmetrics-text")
    assert len(list(openmetrics(text))) > 10


async def test_ten_thousand_conversations_and_names_add_no_series() -> None:
    """Through the relay and its verbs, without sockets (`benches/core.py` drives the same rig)."""
    rig = Rig()

    def series() -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        text, _ = metrics._spell(list(metrics._relay(rig.relay)), "")
        return set(samples(text.decode()))

    def asked(count: int) -> set[str]:
        conversations = set()
        for _ in range(count):
            target, rid = rig.ask()
            found = rig.relay.book.get(rid)
            assert found is not None
            conversations.add(found.conv)
            rig.reply(target, rid)
        return conversations

    asked(TARGETS)
    before = series()
    assert len(asked(10_000)) == 10_000
    assert series() == before
    for n in range(10_000):
        args = msgspec.json.encode({"to": f"made-up-{n}", "message": "x"})
        spell(rig.verbs.call("ask_agent", rig.caller, args))
    new = {dict(labels)["to"] for _, labels in series() - before}
    assert new == {"(unknown)"}
    assert len(series() - before) <= 2  # unknown, and too many a minute
    assert sum(sum(h.counts) for h in rig.relay.tally.asks.values()) == 10_000 + TARGETS
    await rig.relay.ledger.database.close()


async def test_what_strangers_make_up_adds_no_series_and_no_text(relays: Make) -> None:
    relay = relays()
    async with Bot(relay, "b", hello=True) as b, Mcp(relay, "a") as a:
        b.on_wake = lambda wake: "y"
        await a.ask("b", "first")
        before, _ = await anyio.to_thread.run_sync(scrape, relay)
        for n in range(60):
            await a.ask("b", f"secret text {n}")
            await a.ask(f"made-up-{n}", "x")
            await a.rpc("tools/call", {"name": f"made-up-{n}", "arguments": {}})
            await a.rpc(f"made-up/{n}", {})
    after, _ = await anyio.to_thread.run_sync(scrape, relay)
    assert of(after, "hermes_bridge_asks_total", to="b", outcome="ok") == 61
    assert len(samples(after)) - len(samples(before)) < 60
    assert "secret" not in after
    assert "made-up" not in after


async def test_who_may_scrape_is_decided_as_for_the_page(relays: Make) -> None:
    relay = relays(ui={"password": "correct-horse"})

    def code(**headers: str) -> int:
        try:
            scrape(relay, **headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        return 200

    def ask() -> tuple[int, int, int]:
        return (
            code(),
            code(Authorization="Bearer correct-horse"),
            code(Authorization="Bearer wrong"),
        )

    assert await anyio.to_thread.run_sync(ask) == (401, 200, 401)


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    from hermes_bridge.relay.export import Exports, Target

    told = _told(Exports([Target(url="http://x:1/v1/traces")]))
    rows = re.findall(
        r"^\| `([a-z_]+)` \| (\w+) \| (.*?) \|", DOCS.read_text("utf-8"), re.MULTILINE
    )
    written = {
        name: (kind, tuple(re.findall(r"`([a-z_]+)`", labels))) for name, kind, labels in rows
    }
    assert told == written


def _told(exports: Any) -> dict[str, tuple[str, tuple[str, ...]]]:
    from hermes_bridge.clock import SystemClock
    from hermes_bridge.connector.config import configure
    from hermes_bridge.connector.process import Inside
    from hermes_bridge.db.sqlite import MEMORY, SqliteDatabase
    from hermes_bridge.relay.core.policy import Limits
    from hermes_bridge.relay.core.roster import Agent
    from hermes_bridge.relay.ledger import Ledger
    from hermes_bridge.relay.relay import Relay

    async def make() -> dict[str, tuple[str, tuple[str, ...]]]:
        ledger = Ledger(SqliteDatabase(MEMORY))
        relay = Relay([Agent(name="a")], Limits(), clock=SystemClock(), ledger=ledger)
        series = [*metrics._relay(relay), *metrics.of_traces(lambda: exports)()]
        row = {"botId": "b", "token": "t", "gatewayId": "g", "secret": "s", "platform": "echo"}
        inside = Inside(configure({"identities": [row], "state_dir": "/nowhere"}, {}))
        series += [metrics.Series(*each) for each in inside.figures()]
        await ledger.database.close()
        return {
            s.name + ("_total" if s.kind == "counter" else ""): (s.kind, s.labels) for s in series
        }

    return anyio.run(make)


def test_a_histogram_counts_each_duration_once() -> None:
    h = Histogram((1, 2))
    for seconds in (0.5, 1, 1.5, 2, 99):
        h.add(seconds)
    assert (h.counts, h.total) == ([2, 2, 1], 104)


@pytest.mark.parametrize(
    ("woken", "taken", "delivered"),
    [
        (2_000, 2_500, [0.5]),
        (
            60_000,
            60_100,
            [0.1],
        ),  # sent again after the link was lost: the first turn is no delivery
        (60_000, 2_500, []),  # taken before it was sent again, and not since
        (0, 2_500, []),  # taken before this process began
        (2_000, 0, []),  # never taken: the answer came at once
    ],
)
def test_a_wake_was_delivered_when_its_last_sending_was_taken(
    woken: int, taken: int, delivered: list[float]
) -> None:
    tally = Tally()
    x = Exchange(rid="r", conv="c", asker="a", target="b", message="?", at=1_000, cap=0, window=0)
    x.sent_at, x.woken_at, x.taken_at, x.ended_at, x.status = 2_000, woken, taken, 70_000, Status.OK
    tally.ended(x)
    assert sum(tally.wakes.counts) == len(delivered)
    assert tally.wakes.total == pytest.approx(sum(delivered))


def test_strangers_share_one_name() -> None:
    tally = Tally()
    for n in range(100):
        tally.was_refused(f"x{n}", "unknown_agent", known=False)
    tally.was_refused("a", "not_allowed", known=True)
    assert dict(tally.refused) == {("(unknown)", "unknown_agent"): 100, ("a", "not_allowed"): 1}
