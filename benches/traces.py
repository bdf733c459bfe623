"""What tracing costs an ask: CPU of three spans (the call, the exchange, the reply), made, encoded
and compressed, and the part of it that is spent on the event loop.

    python -m benches.traces [--asks 20000] [--content] [--profile]
"""

import argparse
import asyncio
import cProfile
import json
import pstats
import time

from hermes_bridge.clock import SystemClock
from hermes_bridge.ids import new_id
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.core.results import Result
from hermes_bridge.relay.core.tally import Tally
from hermes_bridge.relay.export import Exporter, Target, encoded
from hermes_bridge.relay.traces import ToolCall, Tracer

MESSAGE = "How many days of leave does somebody have in their first year? " * 2
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def exchange(now: int) -> Exchange:
    return Exchange(
        rid=new_id(now),
        conv=new_id(now),
        asker="daniel-bot",
        target="helpdesk-bot",
        message=MESSAGE,
        at=now,
        cap=now + 1,
        window=1,
        trace=PARENT,
    )


def trace(tracer: Tracer, xs: dict[str, Exchange], now: int) -> None:
    x = exchange(now)
    xs[x.rid] = x
    tracer.watch("opened", x)
    tracer.watch("sent", x)
    x.sent_at = x.taken_at = now
    tracer.watch("changed", x)
    x.status, x.ended_at, x.answer = Status.OK, now + 5, MESSAGE
    tracer.watch("ended", x)
    common = {"began": now, "ended": now + 5, "peer": "127.0.0.1", "version": "2025-11-25"}
    given = Result(ok=True, request_id=x.rid, conversation_id=x.conv, answer=MESSAGE)
    asked = json.dumps({"to": "helpdesk-bot", "message": MESSAGE}).encode()
    tracer.called(
        ToolCall(
            tool="ask_agent",
            agent="daniel-bot",
            arguments=asked,
            parent=PARENT,
            rpc_id="1",
            given=given,
            exchange=x,
            **common,
        )
    )
    said = b'{"request_id":"%s","answer":"yes"}' % x.rid.encode()
    done = Result(ok=True)
    tracer.called(
        ToolCall(
            tool="reply", agent="helpdesk-bot", arguments=said, rpc_id="2", given=done, **common
        )
    )
    del xs[x.rid]


async def run(asks: int, content: bool) -> None:
    now = SystemClock().now()
    exporter = Exporter(Target(url="http://127.0.0.1:1/v1/traces", content=content))
    xs: dict[str, Exchange] = {}
    tracer = Tracer(exporter.put, xs.get)
    bare = time.process_time()
    for _ in range(asks):
        exchange(now)
    bare = time.process_time() - bare
    loop = encode = size = 0.0
    for _ in range(asks // 100):
        began = time.process_time()
        for _ in range(100):
            trace(tracer, xs, now)
        loop += time.process_time() - began
        began = time.process_time()
        while batch := exporter._take():
            size += len(encoded(batch, exporter.target))
        encode += time.process_time() - began
    tally, x = Tally(), exchange(now)
    x.status, x.ended_at = Status.OK, now + 100
    began = time.process_time()
    for _ in range(asks):
        tally.ended(x)
        tally.called("tools/call", "ask_agent", "", 0.1)
    counted = time.process_time() - began
    print(
        json.dumps(
            {
                "asks": asks,
                "on_the_loop_us": round((loop - bare) / asks * 1e6, 1),
                "on_the_thread_us": round(encode / asks * 1e6, 1),
                "bytes_per_ask": round(size / asks),
                "metrics_us": round(counted / asks * 1e6, 2),
            }
        )
    )
    await exporter.close(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--asks", type=int, default=20_000)
    parser.add_argument("--content", action="store_true")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    if not given.profile:
        for _ in range(3):
            asyncio.run(run(given.asks, given.content))
        return
    profile = cProfile.Profile()
    profile.runcall(asyncio.run, run(given.asks, given.content))
    pstats.Stats(profile).sort_stats("tottime").print_stats(25)


if __name__ == "__main__":
    main()
