"""One trace through real bots: what they ask, what they answer, and what their plugins see of it."""

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.hermes.conftest import World
from tests.harness.llm import Call, Say
from tests.harness.otlp import Sink, Span
from tests.harness.waits import until

pytestmark = [
    pytest.mark.hermes,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("everything_is_up"),
]

CALLER = "b7ad6b7169203331"


def said(n: int) -> dict[str, str]:
    """The context of a caller, another trace for each n."""
    parent = f"00-{n:032x}-{CALLER}-01"
    return {"traceparent": parent, "tracestate": "vendor=1", "baggage": "team=hr"}


def ask(to: str, message: str) -> Call:
    return Call("ask_agent", {"to": to, "message": message})


@pytest.fixture(scope="module")
def sink(world: World) -> Iterator[Sink]:
    """What the relay exports goes here."""
    opened = Sink()
    world.relay.reload(otlp=[{"endpoint": opened.url}])
    yield opened
    world.relay.reload(otlp=[])
    opened.close()


def of(sink: Sink, n: int, asks: int) -> dict[str, Span]:
    """The spans of a trace by id, once so many exchanges and their replies are there."""
    trace = f"{n:032x}"

    def mine() -> dict[str, Span]:
        return {span.span: span for span in sink.spans if span.trace == trace}

    def done() -> bool:
        names = [span.name for span in mine().values()]
        ended = [name for name in names if name.startswith("invoke_agent")]
        return len(ended) == asks and names.count("tools/call reply") >= asks

    try:
        until(done, f"{asks} exchanges in trace {trace}")
    except AssertionError as error:
        raise AssertionError(
            f"{error}: {[(s.name, s.trace, s.parent) for s in sink.spans]}"
        ) from None
    return mine()


def path(spans: dict[str, Span], span: Span) -> list[str]:
    """The names from a span up to the caller's."""
    names = [span.name]
    while span.parent != CALLER:
        span = spans[span.parent]
        names.append(span.name)
    return names


def invoked(spans: dict[str, Span], agent: str) -> list[Span]:
    return [span for span in spans.values() if span.name == f"invoke_agent {agent}"]


def test_a_plugin_of_the_bot_sees_the_trace_of_the_turn_and_in_the_next_one_none(
    world: World,
) -> None:
    world.llm.when("look around", Call("look"), Say("{result}"))

    def seen(**more: Any) -> tuple[dict[str, Any], str]:
        done = world.ask("b", "look around", **more)
        return json.loads(done["answer"]), done["conversation_id"]

    mine = said(4)
    first, conversation = seen(meta=mine)
    assert first["opentelemetry"] == f"{4:032x}"
    for where in ("tool", "hook", "event"):
        assert first[where] == mine, where
    gate = threading.Event()  # the second turn of the conversation is begun by the end of the first
    world.llm.when("look away", Say("looked", gate=gate))
    same = {"conversation_id": conversation}
    first_one = world.relay.ask_soon("asker", "b", "look away", meta=mine, **same)
    world.llm.wait_for("look away")
    next_one = world.relay.ask_soon("asker", "b", "look around", **same)
    gate.set()
    assert first_one.result(60)["answer"] == "looked"
    found = json.loads(next_one.result(60)["answer"])
    nothing = {"tool": None, "hook": None, "event": None, "opentelemetry": "0" * 32}
    assert found == nothing


@pytest.mark.clause("bridge.trace.5")
def test_what_a_bot_is_asked_and_asks_itself_is_one_trace(world: World, sink: Sink) -> None:
    world.llm.when("plant a tree", ask("b", "grow a branch"), Say("a: {answer}"), model="model-a")
    world.llm.when("grow a branch", ask("a", "grow a leaf"), Say("b: {answer}"), model="model-b")
    world.llm.when("grow a leaf", Say("green"), model="model-a")
    assert world.ask("a", "plant a tree", meta=said(1))["answer"] == "a: b: green"
    spans = of(sink, 1, 3)
    up = ["tools/call ask_agent", "invoke_agent a"]
    (branch,) = invoked(spans, "b")
    assert path(spans, branch) == ["invoke_agent b", *up, "tools/call ask_agent"]
    trunk, leaf = sorted(invoked(spans, "a"), key=lambda span: len(path(spans, span)))
    assert path(spans, trunk) == ["invoke_agent a", "tools/call ask_agent"]
    assert path(spans, leaf) == ["invoke_agent a", *up[:1], *path(spans, branch)]
    replies = [span for span in spans.values() if span.name == "tools/call reply"]
    assert {r.parent for r in replies} == {trunk.span, branch.span, leaf.span}
    assert all(
        span.attributes["session.id"] and span.state == "vendor=1" for span in spans.values()
    )
    sessions = {span.attributes["session.id"] for span in spans.values()}
    assert len(sessions) == 3


def test_an_ask_through_an_mcp_entry_of_the_bot_is_taken_as_its_client_sends_it(
    world: World, sink: Sink
) -> None:
    """Hermes 0.22 sends the turn's context in `_meta`; 0.19 sends none, and a trace begins there."""
    by_mcp = Call("mcp__bridge_ask__ask_agent", {"to": "b", "message": "over the wall"})
    reply = Call("mcp__bridge_reply__reply", {"request_id": "{rid}", "answer": "over"})
    rid = r"request_id=(?P<rid>[\w-]+).*"
    world.llm.when("climb a wall", by_mcp, Say("a: {result}"), model="model-a")
    world.llm.when(rid + "over the wall", reply, Say("said it"), model="model-b")
    answer = world.ask("a", "climb a wall", meta=said(2))["answer"]
    asked = re.search(r"request_id[\\\":]+(?P<rid>[\w-]+)", answer)
    assert asked, answer
    sends = world.a.venv.version != "0.19"
    spans = of(sink, 2, 2 if sends else 1)
    (wall,) = until(lambda: _about(sink, asked["rid"]), "the ask exported")
    if sends:
        (outer,) = invoked(spans, "a")
        up = ["invoke_agent b", "tools/call ask_agent"]
        assert path(spans, wall) == [*up, *path(spans, outer)]
        answered = next(span for span in spans.values() if span.parent == wall.span)
        assert answered.attributes["network.protocol.name"] == "http"
    else:
        assert wall.trace == asked["rid"].replace("-", "")
    assert all(span.state == "vendor=1" for span in spans.values())


@pytest.mark.clause("bridge.trace.2")
def test_a_turn_goes_on_in_its_trace_when_the_relay_is_restarted(world: World, sink: Sink) -> None:
    gate = threading.Event()
    late = Call("ask_agent", {"to": "a", "message": "still the same"}, gate=gate)
    world.llm.when("over a restart", late, Say("b: {answer}"), model="model-b")
    world.llm.when("still the same", Say("yes"), model="model-a")
    asked = world.relay.call(
        "asker", "ask_agent", to="b", message="over a restart", wait_ms=0, meta=said(3)
    )
    world.llm.wait_for("over a restart")
    assert world.relay.stop() == 0
    world.relay.start()
    world.relay.wait_online("a", "b")
    gate.set()
    assert world.relay.follow("asker", asked)["answer"] == "b: yes"
    spans = of(sink, 3, 2)
    (inner,) = invoked(spans, "a")
    assert path(spans, inner)[1:] == [
        "tools/call ask_agent",
        "invoke_agent b",
        "tools/call ask_agent",
    ]
    replies = {span.parent for span in spans.values() if span.name == "tools/call reply"}
    assert replies == {inner.span, invoked(spans, "b")[0].span}


def _about(sink: Sink, rid: str) -> list[Span]:
    asks = sink.named("invoke_agent b")
    return [span for span in asks if span.attributes["hermes_bridge.request_id"] == rid]
