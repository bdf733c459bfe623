"""What the plugin makes of a wake's trace: kept, given back, and joined where spans are made."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.harness.venvs import Venv

from hermes_bridge.plugins.bridge import trace

TRACE = "0af7651916cd43dd8448eb211c80319c"
OWN = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01", "tracestate": "v=1", "baggage": "a=1"}
BELOW = f"00-{TRACE}-00f067aa0ba902b7-01"
ELSEWHERE = f"00-{'1' * 32}-00f067aa0ba902b7-01"
FOLDER = Path(trace.__file__).parent


@pytest.mark.parametrize(
    "raw",
    [
        None,
        7,
        "00",
        [],
        {},
        {"traceparent": None},
        {"traceparent": "x" * 56},
        {"traceparent": "a\r\nb"},
        {"baggage": "b" * 8_193},
        {"tracestate": "\ud800"},
        {"tracestate": "é"},
        {"other": "x"},
    ],
    ids=lambda raw: ascii(raw)[:30],
)
def test_what_could_be_no_header_is_left_out(raw: Any) -> None:
    assert trace.taken(raw) is None
    mixed = {**OWN, **raw} if isinstance(raw, dict) else OWN
    assert trace.taken(mixed) == {k: v for k, v in OWN.items() if mixed[k] == v}


def test_a_place_counts_within_its_trace_only() -> None:
    assert trace.within(OWN, {"traceparent": BELOW}) == OWN | {"traceparent": BELOW}
    assert trace.within(OWN, {"traceparent": ELSEWHERE}) == OWN
    assert trace.within({"baggage": "a=1"}, {"traceparent": BELOW}) == {
        "baggage": "a=1",
        "traceparent": BELOW,
    }
    assert trace.within(None, {"traceparent": ELSEWHERE}) == {"traceparent": ELSEWHERE}
    assert trace.within(OWN, None) == OWN
    assert trace.within(None, None) is None


def test_where_nobody_makes_spans_nothing_is_loaded_for_it() -> None:
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import trace\n"
        "with trace.joined({'traceparent': 'x'}): assert trace.ambient() is None\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", script, str(FOLDER)], check=True, timeout=60)


IN_HERMES = """
import asyncio, json, sys
sys.path.insert(0, sys.argv[1])
import trace as ours
from opentelemetry import baggage, trace

OWN, OTHER = json.loads(sys.argv[2]), {"traceparent": sys.argv[3]}
seen = []

async def turn(over):
    await over.wait()
    span = trace.get_current_span().get_span_context()
    seen.append([format(span.trace_id, "032x"), baggage.get_all().get("a"), ours.ambient()])

async def begin(carried):
    over = asyncio.Event()
    with ours.joined(carried):
        task = asyncio.create_task(turn(over))
    return over, task

async def one_after_the_other():
    for carried in (OWN, None, OTHER):
        over, task = await begin(carried)
        over.set()
        await task

async def main():
    first, one = await begin(OWN)
    second, two = await begin(OTHER)
    second.set()
    await two
    first.set()
    await one
    with ours.joined(OWN):  # the end of a turn begins the next one
        await one_after_the_other()
    with ours.joined({"traceparent": "nonsense", "baggage": "=;,"}):
        seen.append(ours.ambient())
    seen.append(ours.ambient())

asyncio.run(main())
print(json.dumps(seen))
"""


@pytest.mark.hermes
def test_with_the_opentelemetry_of_a_hermes_a_turn_joins_the_trace_and_the_next_one_does_not(
    hermes: Venv,
) -> None:
    command = [str(hermes.python), "-c", IN_HERMES, str(FOLDER), json.dumps(OWN), ELSEWHERE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "detach" not in done.stderr
    mine = [TRACE, "1", OWN]
    other = ["1" * 32, None, {"traceparent": ELSEWHERE}]
    assert json.loads(done.stdout) == [other, mine, mine, ["0" * 32, None, None], other, None, None]
