"""What stores and traces add to an ask: relays side by side, loaded in turn.

    python benches/variants.py [--seconds 4] [--rounds 3]

One relay each: SQLite, the same with traces to a sink on this machine, PostgreSQL (from its wheel).
Every round loads one after the other, so that what else the machine does falls on all of them. Shown:
CPU of the relay per ask (`relay.py`'s closed loop), and how much more than on SQLite without traces,
as the median of the rounds' ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from load import Rig

import relay as bench

ROOT = Path(__file__).parents[1]
_SINK = """
import http.server, sys
class Sink(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200); self.send_header("content-length", "0"); self.end_headers()
    def log_message(self, *_): pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Sink).serve_forever()
"""


def config(folder: Path, tokens: dict[str, str], port: int, more: str) -> Path:
    folder.mkdir()
    agents = "".join(f"  - {{name: {name}, token: {token}}}\n" for name, token in tokens.items())
    file = folder / "config.yaml"
    file.write_text(f"agents:\n{agents}listen: {{port: {port}}}\n{more}\n")
    return file


async def turn(port: int, tokens: dict[str, str], pid: int, seconds: float) -> dict[str, float]:
    rig = Rig(port, tokens)
    await rig.join(rig.names[1 : 1 + bench.TARGETS])
    found = await bench.throughput(rig, pid, seconds)
    rig.leave()
    assert not rig.wrong
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    import uvloop

    sys.path.append(str(ROOT))
    from benches import sample

    bench._pin(1)
    tokens = {f"agent-{n}": f"bench-token-{n}-{os.urandom(8).hex()}" for n in range(12)}
    with ExitStack() as stack:
        folder = stack.enter_context(sample.folder())
        server = stack.enter_context(sample.postgres(folder))
        sink = bench._free_port()
        process = subprocess.Popen([sys.executable, "-c", _SINK, str(sink)])
        stack.callback(process.wait)
        stack.callback(process.terminate)
        variants = {
            "sqlite": f"db: {{path: {folder}/plain.db}}",
            "sqlite and traces": f"db: {{path: {folder}/traced.db}}\n"
            f"otlp: [{{endpoint: 'http://127.0.0.1:{sink}'}}]",
            "postgres": f"db: {{driver: postgres, connection_string: '{server.create()}'}}",
        }
        running: dict[str, tuple[int, int]] = {}
        for number, (name, more) in enumerate(variants.items()):
            port = bench._free_port()
            file = config(folder / str(number), tokens, port, more)
            command = [sys.executable, "-m", "hermes_bridge", "serve", "--config", str(file)]
            pid, _ = stack.enter_context(bench._server(command, port, {}))
            running[name] = port, pid
        found: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(options.rounds):
            for name, (port, pid) in running.items():
                got: Any = uvloop.run(turn(port, tokens, pid, options.seconds))
                found[name].append(got["cpu_ms_per_ask"])
        for name, costs in found.items():
            more = [cost / base for cost, base in zip(costs, found["sqlite"], strict=True)]
            print(
                json.dumps(
                    {
                        "variant": name,
                        "cpu_ms_per_ask": round(statistics.median(costs), 3),
                        "more": f"{(statistics.median(more) - 1) * 100:+.0f} %",
                        "rounds": [round(c, 3) for c in costs],
                    }
                )
            )
        print(bench._machine())


if __name__ == "__main__":
    main()
