"""What an ask costs: the relay on one core, the load driver on the other.

    python benches/relay.py [--seconds 5] [--runs 3] [--floor] [--json FILE]

Every rule and the SQLite journal are on; replies come over MCP. `--floor` measures, in the same
run, a server that does nothing but carry the same messages (`floor.py`), so that the relay can be
given as a multiple of it. Times are shown, never asserted.
"""

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from load import HOST, Rig, cpu_seconds, rss_mib

AGENTS = 1_000
_PLAIN = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""Installed programs have their bytecode: the first start writes it, the others are measured."""
TARGETS = 8
CONCURRENT = 64
PENDING = 2_000


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {core})


@contextmanager
def _server(command: list[str], port: int, env: dict[str, str]) -> Iterator[tuple[int, float]]:
    """Run a server on core 0; give its pid and the seconds from exec to the first 200."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command,
        env={**_PLAIN, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: _pin(0),
    )
    try:
        while True:
            try:
                with urlopen(f"http://{HOST}:{port}/health", timeout=2) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"the server ended with {process.returncode}") from None
                time.sleep(0.002)
        yield process.pid, time.perf_counter() - begun
    finally:
        process.terminate()
        process.wait(15)


async def sequential(rig: Rig, count: int = 1_000) -> dict[str, float]:
    """One ask at a time."""
    for number in range(100):
        await rig.ask(rig.names[0], rig.names[1], f"warm {number}")
    times = sorted([await rig.ask(rig.names[0], rig.names[1], f"s {n}") for n in range(count)])
    return {"p50_ms": times[count // 2] * 1e3, "p99_ms": times[count * 99 // 100] * 1e3}


async def throughput(rig: Rig, pid: int, seconds: float) -> dict[str, float]:
    """A closed loop of 64 asks over 8 targets."""
    times: list[float] = []
    stop = time.perf_counter() + 1 + seconds
    counting = False

    async def lane(number: int) -> None:
        turn = 0
        while time.perf_counter() < stop:
            target = rig.names[1 + (number + turn) % TARGETS]
            took = await rig.ask(rig.names[0], target, f"{number}-{turn}".ljust(64, "."))
            turn += 1
            if counting:
                times.append(took)

    async with asyncio.TaskGroup() as group:
        for number in range(CONCURRENT):
            group.create_task(lane(number))
        await asyncio.sleep(1)
        counting, cpu, begun = True, cpu_seconds(pid), time.perf_counter()
        await asyncio.sleep(seconds)
        used, wall, done = cpu_seconds(pid) - cpu, time.perf_counter() - begun, len(times)
    times.sort()
    return {
        "asks_per_s": done / wall,
        "cpu_ms_per_ask": used / done * 1e3,
        "server_cpu_share": used / wall,
        "p50_ms": times[done // 2] * 1e3,
        "slowest_over_median": times[-1] / times[done // 2],
    }


async def pending(rig: Rig, pid: int) -> dict[str, float]:
    """Memory of 2,000 asks that wait, then their answers."""
    before = rss_mib(pid)
    rig.held = []
    asks = []
    for number in range(PENDING):
        target = rig.names[1 + number % TARGETS]
        asks.append(asyncio.create_task(rig.ask(rig.names[0], target, f"p{number}".ljust(64, "."))))
        if number % 100 == 99:
            while len(rig.held) <= number:
                await asyncio.sleep(0.005)
    await asyncio.sleep(2)
    during, held, rig.held = rss_mib(pid), rig.held, None
    for name, rid, message in held:
        await rig.reply(name, rid, message)
    for ask in asks:
        await ask
    return {"kib_per_ask": (during - before) * 1024 / PENDING}


async def measure(port: int, tokens: dict[str, str], pid: int, options: Any, *, whole: bool) -> Any:
    rig = Rig(port, tokens)
    out: dict[str, Any] = {"rss_start_mib": rss_mib(pid)}
    await rig.join(rig.names[1 : 1 + TARGETS])
    await asyncio.sleep(0.5)
    out["sequential"] = await sequential(rig)
    runs = [await throughput(rig, pid, options.seconds) for _ in range(options.runs)]
    out["throughput"] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    if whole:
        out["pending"] = await pending(rig, pid)
    rig.leave()
    out["wrong_answers"] = rig.wrong
    return out


async def idle(port: int, tokens: dict[str, str], pid: int) -> dict[str, float]:
    rig = Rig(port, tokens)
    before = rss_mib(pid)
    await rig.join(rig.names)
    await asyncio.sleep(2)
    after = rss_mib(pid)
    rig.leave()
    return {"rss_mib": after, "kib_per_agent": (after - before) * 1024 / len(rig.names)}


def _config(folder: Path, tokens: dict[str, str], port: int) -> Path:
    agents = "".join(f"  - {{name: {name}, token: {token}}}\n" for name, token in tokens.items())
    file = folder / "config.yaml"
    file.write_text(f"agents:\n{agents}listen: {{port: {port}}}\ndb: {{path: {folder}/bench.db}}\n")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--floor", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    import uvloop

    _pin(1)
    tokens = {f"agent-{n:04}": f"bench-token-{n:04}-{os.urandom(8).hex()}" for n in range(AGENTS)}
    out: dict[str, Any] = {"machine": _machine()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.floor:
            (folder / "tokens.json").write_text(json.dumps(tokens))
            port = _free_port()
            command = [sys.executable, "-m", "uvicorn", "floor:app", "--port", str(port)]
            command += ["--ws", "websockets-sansio", "--log-level", "critical", "--no-access-log"]
            env = {"TOKENS": str(folder / "tokens.json"), "PYTHONPATH": str(Path(__file__).parent)}
            with _server(command, port, env) as (pid, _):
                out["floor"] = uvloop.run(measure(port, tokens, pid, options, whole=False))
        port = _free_port()
        command = [sys.executable, "-m", "hermes_bridge", "serve", "--config"]
        command.append(str(_config(folder, tokens, port)))
        with _server(command, port, {}) as (pid, started):
            out["relay"] = uvloop.run(measure(port, tokens, pid, options, whole=True))
            out["relay"]["start_s"] = started
        starts = []
        for _ in range(options.runs):
            with _server(command, port, {}) as (_, started):
                starts.append(started)
        out["relay"]["start_s"] = statistics.median(starts)
        fresh = folder / "fresh"
        fresh.mkdir()
        command[-1] = str(_config(fresh, tokens, port))
        with _server(command, port, {}) as (pid, _):
            out["idle_1000_agents"] = uvloop.run(idle(port, tokens, pid))
    if options.floor:
        ours, floor = out["relay"]["throughput"], out["floor"]["throughput"]
        out["relay_over_floor_cpu"] = ours["cpu_ms_per_ask"] / floor["cpu_ms_per_ask"]
    text = json.dumps(out, indent=1)
    print(text)
    if options.json:
        Path(options.json).write_text(text)


def _machine() -> str:
    cpu = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        "unknown",
    )
    return (
        f"{os.cpu_count()} x {cpu}, Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}"
    )


if __name__ == "__main__":
    main()
