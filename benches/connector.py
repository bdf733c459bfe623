"""The connector's cost: CPU per operation, throughput, fan-out, memory. Loopback, real sockets.

    python benches/connector.py [--seconds 3] [--many 200]      # about a minute

The hub and the gateways run in this process, the connector is a child whose CPU time and memory
are read from /proc. `plain` is the yardstick: the same POST through a bare aiohttp client. Wall
times mean little on a shared machine; trust CPU time and the ratio to the yardstick.
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.connector.hub import Hub
from tests.connector.probe import Gateway
from tests.connector.test_kills import Child, rows_of


class Quick(Gateway):
    """A gateway that acknowledges and counts, and keeps nothing."""

    def __init__(self, url: str, bot: str) -> None:
        super().__init__(url, f"gw-{bot}", f"secret-of-{bot}")
        self.count = 0
        self.last = 0.0

    async def _heard(self, frame: dict[str, Any]) -> None:
        if frame["type"] != "inbound":
            await super()._heard(frame)
            self.frames.clear() if frame["type"] == "outbound_result" else None
            return
        self.count += 1
        self.last = time.perf_counter()
        if "bufferId" in frame:
            await self.ack(frame["bufferId"])


class Rig:
    """A hub, a connector child, and gateways for `n` bots."""

    def __init__(self, n: int, directory: Path) -> None:
        self.bots = [f"agent-{i}" for i in range(n)]
        self.hub, self.directory = Hub(), directory
        for row in rows_of(*self.bots):
            self.hub.account(row["botId"], row["token"])
            self.hub.room(f"dm-{row['botId']}", "ada", row["botId"])
        self.hub.room("room", "ada", *self.bots)
        self.gateways: list[Quick] = []

    async def up(self) -> None:
        self.child = Child(self.directory, self.hub, rows_of(*self.bots))
        self.child.env["HERMES_BRIDGE_CONNECTOR_BUSY_HOLD_MS"] = "0"
        await self.child.start()
        await self.hub.until(lambda: all(self.hub.listens(b, "room") for b in self.bots), 60)
        for bot in self.bots:
            self.gateways.append(await Quick(self.child.url, bot).join(bot))  # type: ignore[arg-type]
        await asyncio.sleep(1)

    async def down(self) -> None:
        for gateway in self.gateways:
            await gateway.close()
        await self.child.end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        assert self.child.process is not None
        return self.child.process.pid

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return round(int(status.partition("VmRSS:")[2].split()[0]) / 1024, 1)


async def plain(hub: Hub, seconds: float, at_once: int) -> dict[str, float]:
    """The yardstick: the same POST by a bare client."""
    body = json.dumps({"sender_id": "agent-0", "content": "x" * 120}).encode()
    headers = {"Authorization": "Bearer tok-agent-0-0123456789", "Content-Type": "application/json"}
    url = f"http://127.0.0.1:{hub.port}/api/channels/dm-agent-0/messages"
    script = (
        "import asyncio,aiohttp,time,json,sys,uvloop\n"
        "async def main(url,headers,body,seconds,k):\n"
        " async with aiohttp.ClientSession() as http:\n"
        "  n=0; end=time.perf_counter()+seconds; c=time.process_time(); t=time.perf_counter()\n"
        "  async def one():\n"
        "   nonlocal n\n"
        "   while time.perf_counter()<end:\n"
        "    async with http.post(url,data=body,headers=headers) as a: await a.read()\n"
        "    n+=1\n"
        "  async with asyncio.TaskGroup() as g:\n"
        "   for _ in range(k): g.create_task(one())\n"
        "  print(n/(time.perf_counter()-t), 1e6*(time.process_time()-c)/n)\n"
        "a=json.loads(sys.argv[1])\n"
        "with asyncio.Runner(loop_factory=uvloop.new_event_loop) as r: r.run(main(*a))\n"
    )
    given = json.dumps([url, headers, body.decode(), seconds, at_once])
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, given, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await child.communicate()
    rate, cpu = map(float, out.split())
    return {"per_s": round(rate, 1), "cpu_us": round(cpu, 1)}


def ratios(found: dict[str, float], measure: dict[str, float]) -> dict[str, float]:
    """CPU and rate as multiples of the yardstick's in the same run."""
    return {
        f"{key.split('_')[0]}_to_plain": round(found[key] / measure[key], 2)
        for key in ("cpu_us", "per_s")
    }


async def sends(rig: Rig, seconds: float, at_once: int, chats: int) -> dict[str, float]:
    """Outbound sends, `at_once` in flight on one connection, over `chats` chats."""
    gateway = rig.gateways[0]
    for socket in rig.hub.sockets:
        socket.rooms.clear()  # the hub's own fan-out is not what is measured
    for n in range(chats):
        rig.hub.room(f"bench-{n}", "agent-0")
    took: list[float] = []
    end = time.perf_counter() + seconds

    async def one(n: int) -> None:
        count = 0
        while time.perf_counter() < end:
            began = time.perf_counter()
            request = await gateway.ask(
                {
                    "op": "send",
                    "chat_id": f"bench-{n % chats}",
                    "content": "x" * 120,
                    "metadata": {},
                },
                request=f"{n}.{count}.{seconds}.{chats}",
            )
            result = await gateway.result(request)
            assert result["success"], result
            gateway._results.pop(request)
            took.append(time.perf_counter() - began)
            count += 1

    cpu, began = rig.cpu_s(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for n in range(at_once):
            group.create_task(one(n))
    wall = time.perf_counter() - began
    return {
        "per_s": round(len(took) / wall, 1),
        "cpu_us": round(1e6 * (rig.cpu_s() - cpu) / len(took), 1),
        "p50_ms": round(1000 * statistics.median(took), 2),
        "p99_ms": round(1000 * sorted(took)[int(0.99 * len(took))], 2),
    }


async def deliveries(rig: Rig, room: str, text: str, count: int) -> dict[str, float]:
    """Inbound messages, pushed as fast as the hub can; every one acknowledged."""
    gateway = rig.gateways[0]
    gateway.count = 0
    calls = rig.hub.calls["history"]
    cpu, began = rig.cpu_s(), time.perf_counter()
    for n in range(count):
        await rig.hub.say(room, "ada", f"{text} number {n} with a few words in it")
        if n % 32 == 31:
            await asyncio.sleep(0)
    async with asyncio.timeout(120):
        while gateway.count < count:
            await asyncio.sleep(0.02)
    wall = gateway.last - began
    await asyncio.sleep(0.5)
    return {
        "per_s": round(count / wall, 1),
        "cpu_us": round(1e6 * (rig.cpu_s() - cpu) / count, 1),
        "history_calls": rig.hub.calls["history"] - calls,
    }


async def fan_out(rig: Rig) -> dict[str, float]:
    """One message that names every bot."""
    found = []
    for _ in range(5):
        for gateway in rig.gateways:
            gateway.count = 0
        began = time.perf_counter()
        await rig.hub.say("room", "ada", " ".join(f"@{bot}" for bot in rig.bots))
        async with asyncio.timeout(30):
            while not all(gateway.count for gateway in rig.gateways):
                await asyncio.sleep(0.001)
        found.append(1000 * (max(gateway.last for gateway in rig.gateways) - began))
        await asyncio.sleep(0.5)
    return {"first_ms": round(found[0], 1), "median_ms": round(statistics.median(found), 1)}


async def main(seconds: float, many: int, burst: int) -> None:
    """Measure, and print one JSON object a line."""

    def show(name: str, figures: dict[str, Any]) -> None:
        print(json.dumps({"what": name} | figures), flush=True)

    show("load", {"average": round(os.getloadavg()[0], 1)})
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(1, Path(directory))
        async with rig.hub.serve():
            await rig.up()
            show("idle_1", {"rss_mb": rig.rss_mb()})
            show("dm", await deliveries(rig, "dm-agent-0", "hi", burst))
            show("mention", await deliveries(rig, "room", "@agent-0", burst))
            one, many_plain = await plain(rig.hub, seconds, 1), await plain(rig.hub, seconds, 64)
            show("plain_1", one)
            show("plain_64", many_plain)
            # Sends to one chat are serial, so the client with one call in flight is their measure.
            for name, at_once, chats, measure in (
                ("send_64_one_chat", 64, 1, one),
                ("send_64_64_chats", 64, 64, many_plain),
                ("send_1", 1, 1, one),
            ):
                found = await sends(rig, seconds, at_once, chats)
                show(name, found | ratios(found, measure))
            show("after_load", {"rss_mb": rig.rss_mb()})
            await rig.down()
    with tempfile.TemporaryDirectory() as directory:
        rig = Rig(many, Path(directory))
        async with rig.hub.serve():
            await rig.up()
            await asyncio.sleep(3)
            cpu, began = rig.cpu_s(), time.perf_counter()
            await asyncio.sleep(4)
            idle = 100 * (rig.cpu_s() - cpu) / (time.perf_counter() - began)
            show(f"idle_{many}", {"rss_mb": rig.rss_mb(), "cpu_pct": round(idle, 2)})
            show(f"fan_out_{many}", await fan_out(rig))
            show(f"after_fan_out_{many}", {"rss_mb": rig.rss_mb()})
            await rig.down()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=3.0)
    options.add_argument("--many", type=int, default=200)
    options.add_argument("--burst", type=int, default=2000)
    given = options.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(given.seconds, given.many, given.burst))
