"""A process that has imported everything and forks children to be killed: a fork costs milliseconds.

Commands on stdin, one a line: `worker HOME URL LOG` or `producer HOME URL LOG`; the answer is the pid.
A child stores callbacks one after another and writes each id to its log once it is acknowledged; a
`worker` child delivers as well. What a killed child had begun is offered again by the next one, as
Hermes' ledger does.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from hermes_bridge.plugins.http_callback import transport
from hermes_bridge.plugins.http_callback.intake import Call, Origin
from hermes_bridge.plugins.http_callback.service import Service

CONVERSATIONS = 5


def unfinished(log: Path) -> tuple[int, str]:
    """Give the number of the last line begun, and its text if it was never acknowledged."""
    begun, acknowledged = "", set[str]()
    count = 0
    for line in log.read_text("utf-8").splitlines() if log.exists() else []:
        word, _, rest = line.partition(" ")
        if word == "begin":
            begun, count = rest, count + 1
        elif word == "ack":
            acknowledged.add(rest.partition(" ")[2])
    return count, "" if begun in acknowledged else begun


async def produce(service: Service, url: str, log: Path) -> None:
    count, again = unfinished(log)
    with log.open("a", buffering=1, encoding="utf-8") as out:
        while True:
            text = again or f"{log.stem}-{count}"
            if not again:
                out.write(f"begin {text}\n")
                count += 1
            again = ""
            conversation = int(text.rpartition("-")[2]) % CONVERSATIONS
            origin = Origin(f"webhook:r:{text}", reply_to=text, notify=True)
            target = f"{url}?c={log.stem}{conversation}"
            receipt = await service.accept(Call(target, text, origin=origin))
            out.write(f"ack {receipt.id} {text}\n")
            await asyncio.sleep(0.002)


def child(kind: str, home: Path, url: str, log: Path) -> None:
    service = Service(home)
    if kind == "worker":
        service.start()
    asyncio.run(produce(service, url, log))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    import aiohttp  # noqa: F401 - before the forks

    transport.choose()
    for line in sys.stdin:
        kind, home, url, log = line.split()
        pid = os.fork()
        if pid == 0:
            try:
                child(kind, Path(home), url, Path(log))
            finally:
                os._exit(1)
        print(pid, flush=True)


if __name__ == "__main__":
    main()
