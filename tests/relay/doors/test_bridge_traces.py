"""Where in a trace a bot says that it is, and what the relay makes of it (bridge.md, part 7)."""

import pytest
from tests.harness.bot import Bot
from tests.harness.relay import Clients, Make, RelayProcess, crowd
from tests.harness.wire import Json

pytestmark = pytest.mark.anyio

TRACE = "0af7651916cd43dd8448eb211c80319c"
OURS = f"00-{TRACE}-b7ad6b7169203331-01"
BELOW = f"00-{TRACE}-00f067aa0ba902b7-01"
ELSEWHERE = f"00-{'1' * 32}-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def shared(module_relays: Make) -> RelayProcess:
    return module_relays(agents=crowd(60))


async def carried(relay: RelayProcess, mcp: Clients, trace: object, turn: str | None = "") -> Json:
    """What a wake carries that a bot asks for with this `trace`, in a turn with the trace `OURS`.

    `turn` replaces the exchange that it names; None names none.
    """
    asker, names = mcp(relay.agent()), (relay.agent(), relay.agent())
    async with Bot(relay, names[0], hello=True) as bot, Bot(relay, names[1], hello=True) as below:
        args = {"to": bot.name, "message": "m", "wait_ms": 0}
        meta = {"traceparent": OURS, "tracestate": "v=1", "baggage": "team=hr"}
        await asker.tool("ask_agent", args, meta=meta)
        wake = await bot.wake()
        named = turn if turn != "" else wake["request_id"]
        asked = {"to": below.name, "message": "n", "wait_ms": 0}
        given = await bot.call("ask_agent", asked, turn=named, trace=trace)
        assert given["error"] == "working", given
        assert (await bot.reply(wake["request_id"], "!", trace=trace))["ok"]
        found: Json = (await below.wake()).get("trace") or {}
        return found


@pytest.mark.clause("bridge.trace.1", "bridge.trace.2")
@pytest.mark.parametrize(
    ("said", "counts"),
    [
        (None, {}),
        ({"traceparent": BELOW}, {"traceparent": BELOW}),
        ({"traceparent": BELOW, "baggage": "k=v"}, {"traceparent": BELOW, "baggage": "k=v"}),
        ({"traceparent": BELOW, "tracestate": "w=2"}, {"traceparent": BELOW, "tracestate": "w=2"}),
        ({"traceparent": ELSEWHERE, "tracestate": "x=1", "baggage": "who=else"}, {}),
        ({"traceparent": BELOW[:-1] + "0"}, {}),
    ],
)
async def test_a_turns_ask_goes_on_in_the_turns_trace_and_in_no_other(
    relay: RelayProcess, mcp: Clients, said: Json | None, counts: Json
) -> None:
    whole = {"traceparent": OURS, "tracestate": "v=1", "baggage": "team=hr"}
    assert await carried(relay, mcp, said) == whole | counts


@pytest.mark.clause("bridge.trace.3")
@pytest.mark.parametrize("turn", [None, "1c5d3b52-0000-4000-8000-000000000000"])
async def test_outside_a_known_turn_a_trace_is_the_bots_own(
    relay: RelayProcess, mcp: Clients, turn: str | None
) -> None:
    assert await carried(relay, mcp, {"traceparent": ELSEWHERE}, turn) == {"traceparent": ELSEWHERE}


@pytest.mark.clause("bridge.trace.2")
async def test_the_turn_of_another_bot_lends_no_trace(relay: RelayProcess, mcp: Clients) -> None:
    asker = mcp(relay.agent())
    async with (
        Bot(relay, relay.agent(), hello=True) as bot,
        Bot(relay, relay.agent(), hello=True) as stranger,
    ):
        args = {"to": bot.name, "message": "m", "wait_ms": 0}
        await asker.tool("ask_agent", args, meta={"traceparent": OURS})
        wake = await bot.wake()
        args = {"to": bot.name, "message": "n", "wait_ms": 0}
        await stranger.call("ask_agent", args, turn=wake["request_id"])
        assert "trace" not in await bot.wake()


@pytest.mark.clause("bridge.trace.4")
async def test_a_trace_field_that_is_no_context_costs_nothing(
    relay: RelayProcess, mcp: Clients
) -> None:
    asker = mcp(relay.agent())
    async with Bot(relay, relay.agent(), hello=True) as bot:
        odd = (7, True, "x" * 500_000, [[[[]]]], {"traceparent": 1}, {"traceparent": "\ud800"})
        odd += ({"traceparent": OURS, "baggage": "b" * 900_000}, {"traceparent": OURS + "\r\nx: y"})
        for trace in odd * 20:  # more than the bad frames that close a link
            assert await bot.call("list_agents", trace=trace)
        for trace in odd:
            given = await asker.tool("ask_agent", {"to": bot.name, "message": "m", "wait_ms": 0})
            assert (await bot.reply(given["request_id"], "!", trace=trace))["ok"]
        await bot.send(type="heartbeat", request_id=given["request_id"], trace={"a": 1})
        await bot.lives()
