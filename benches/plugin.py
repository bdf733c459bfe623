"""What the bridge plugin adds inside a bot, measured with Hermes' real base class.

    python benches/plugin.py                 # needs Hermes 0.19 and 0.22 in venvs; made on first use

Runs itself inside Hermes' environment: the real `BasePlatformAdapter` with the plugin's adapter on
top, a relay played over a real loopback socket, and a message handler in place of the model.

* frame to handle_message: from the relay writing the wake to Hermes' `handle_message` being called
* final text to frame: from Hermes calling `send(notify)` to the reply being in the socket
* idle: CPU of a linked, idle plugin, a minute's worth, the played relay included
* memory: RSS that importing and linking the plugin adds (websockets being there already), and what
  its own lines hold after all turns (tracemalloc, a run of its own)
"""

import asyncio
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

ROOT = Path(__file__).parents[1]
TURNS = 300
IDLE_S = 20.0
TRACED = tracemalloc.is_tracing()


def outside() -> int:
    """Find Hermes' environment and run the measurements in it."""
    sys.path.insert(0, str(ROOT))
    from tests.harness import venvs

    for version in ("0.19", "0.22"):
        venv = venvs.ready(f"hermes-{version}")
        if isinstance(venv, venvs.Unavailable):
            print(f"hermes-{version}: {venv}")
            continue
        with tempfile.TemporaryDirectory() as home:
            plugins = Path(home) / "hermes_plugins"
            plugins.mkdir()
            source = ROOT / "src" / "hermes_bridge" / "plugins" / "bridge"
            (plugins / "hermes_bridge").symlink_to(source)
            environment = {**os.environ, "HERMES_HOME": home, "PYTHONPATH": home}
            command = [str(venv.python), __file__, "--inside", version]
            for more in ([], ["-X", "tracemalloc"]):
                run = [command[0], *more, *command[1:]]
                done = subprocess.run(run, env=environment, check=False)
                if done.returncode:
                    return done.returncode
    return 0


async def inside(version: str) -> None:
    """Measure."""
    import logging

    from websockets.asyncio.client import ClientConnection
    from websockets.asyncio.server import serve

    logging.disable(logging.CRITICAL)
    from gateway.config import PlatformConfig
    from gateway.platform_registry import PlatformEntry, platform_registry
    from gateway.platforms.base import BasePlatformAdapter
    from hermes_plugins.hermes_bridge.hooks import Turns
    from hermes_plugins.hermes_bridge.wake import request_id_in

    platform_registry.register(
        PlatformEntry(
            name="hermes-bridge", label="b", adapter_factory=lambda c: None, check_fn=lambda: True
        )
    )
    gc.collect()
    before = rss_kib()
    from hermes_plugins.hermes_bridge.adapter import BridgeAdapter

    loop = asyncio.get_running_loop()
    links: asyncio.Queue = asyncio.Queue()
    answered: dict[str, asyncio.Future] = {}

    async def relay(socket) -> None:
        async for text in socket:
            frame = json.loads(text)
            if frame["type"] == "hello":
                welcome = {"type": "welcome", "protocol": 2, "agent": "bot", "window_ms": 120_000}
                welcome |= {"heartbeat_ms": 5_000, "max_message_bytes": 262_144}
                await socket.send(json.dumps(welcome))
                links.put_nowait(socket)
            elif frame["type"] == "call":
                rid = frame["args"]["request_id"]
                answered[rid].set_result(time.perf_counter())
                result = {"type": "result", "id": frame["id"], "result": {"ok": True}}
                await socket.send(json.dumps(result))

    started: dict[str, float] = {}
    finals: dict[str, float] = {}

    async def handler(event):
        return "an answer of a usual length, two lines or so. " * 3

    async with serve(relay, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        url = f"ws://127.0.0.1:{port}/bridge/connect"
        extra = {"relay_url": url, "token": "t" * 20}
        adapter = BridgeAdapter(PlatformConfig(enabled=True, extra=extra), Turns())
        adapter.config.typing_indicator = False
        adapter.set_message_handler(handler)
        real_send, real_take = adapter.send, BasePlatformAdapter.handle_message

        async def timed_take(self, event):
            started[request_id_in(event.text)] = time.perf_counter()
            return await real_take(self, event)

        BasePlatformAdapter.handle_message = timed_take

        async def timed_send(chat_id, content, reply_to=None, metadata=None, **more):
            if (metadata or {}).get("notify"):
                finals[reply_to] = time.perf_counter()
            return await real_send(chat_id, content, reply_to, metadata, **more)

        adapter.send = timed_send
        written: dict[str, float] = {}
        real_write = ClientConnection.send

        async def timed_write(self, text, *more):
            await real_write(self, text, *more)
            if '"tool":"reply"' in text:
                written[json.loads(text)["args"]["request_id"]] = time.perf_counter()

        ClientConnection.send = timed_write
        await adapter.connect()
        socket = await links.get()
        await asyncio.sleep(1.2)
        gc.collect()
        linked = rss_kib() - before
        to_handler: list[float] = []
        to_frame: list[float] = []
        for n in range(TURNS):
            rid = f"r{os.getpid()}-{n}"
            answered[rid] = loop.create_future()
            wake = {"type": "wake", "request_id": rid, "conversation_id": f"c{n}", "from": "ann"}
            text = json.dumps({**wake, "message": "How are you? " * 20, "deadline_ms": 3_600_000})
            sent = time.perf_counter()
            await socket.send(text)
            await answered[rid]
            to_handler.append(started[rid] - sent)
            to_frame.append(written[rid] - (finals.get(rid) or finals[None]))
            finals.clear()
            await asyncio.sleep(0.03)  # Hermes closes the turn behind the answer
        await asyncio.sleep(1.0)
        held = plugin_bytes() if TRACED else 0
        cpu = cpu_s()
        await asyncio.sleep(0 if TRACED else IDLE_S)
        idle = (cpu_s() - cpu) * 60 / IDLE_S
        await adapter.disconnect()
    if TRACED:
        print(
            f"hermes {version}: the plugin's lines hold {held / 1024:.0f} KiB after {TURNS} turns"
        )
        return
    print(
        f"hermes {version}: frame to handle_message {show(to_handler)}, "
        f"final text to frame {show(to_frame)}, idle {idle * 1000:.1f} ms CPU a minute, "
        f"linked +{linked / 1024:.1f} MiB"
    )


def plugin_bytes() -> int:
    """What was allocated by the plugin's own lines and is still held."""
    here = tracemalloc.Filter(True, "*hermes_bridge/*")
    snapshot = tracemalloc.take_snapshot().filter_traces([here])
    return sum(entry.size for entry in snapshot.statistics("filename"))


def show(seconds: list[float]) -> str:
    """Give the median and the 99th percentile."""
    ordered = sorted(seconds)
    middle, worst = statistics.median(ordered), ordered[int(len(ordered) * 0.99)]
    return f"{middle * 1000:.2f} ms (p99 {worst * 1000:.2f})"


def rss_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    if "--inside" in sys.argv:
        asyncio.run(inside(sys.argv[-1]))
    else:
        sys.exit(outside())
