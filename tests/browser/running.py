"""A whole relay in a thread of this process, and bots on real sockets: what the page's tests look at."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

from hermes_bridge import config as config_file
from hermes_bridge.clock import wall_ms
from hermes_bridge.ids import new_id
from hermes_bridge.relay.core.exchange import Exchange, Mark, Status
from hermes_bridge.relay.sql.rows import exchange_row
from hermes_bridge.serve import Service

PASSWORD = "correct horse battery"
_T = TypeVar("_T")


def token(name: str) -> str:
    said = name if name.isascii() else name.encode().hex()
    return f"token-of-{said}-0123456789"


def _agent(agent: str | dict[str, Any]) -> dict[str, Any]:
    given = {"name": agent} if isinstance(agent, str) else agent
    return {"token": token(given["name"]), **given}


class Running:
    """A relay that listens on a free port. `call` runs a function on its event loop."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop, address: str) -> None:
        self.service, self.loop, self.address = service, loop, address
        self.relay = service.relay
        self.host = urlsplit(address).netloc
        self.before_end: list[Callable[[], None]] = []
        """What must be closed before the relay is, such as pages that look at it."""

    def call(self, work: Callable[[], _T]) -> _T:
        async def run() -> _T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)

    def get(self, path: str, method: str = "GET", body: str = "", **headers: str) -> HTTPResponse:
        """One request on a connection of its own; header names in Python's spelling."""
        link = HTTPConnection(self.host, timeout=10)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if body:
            given.setdefault("content-type", "application/x-www-form-urlencoded")
        link.request(method, path, body=body or None, headers=given)
        response = link.getresponse()
        response.content = response.read()  # type: ignore[attr-defined]
        link.close()
        return response

    def json(self, path: str, **headers: str) -> Any:
        response = self.get(path, **headers)
        assert response.status == 200, (response.status, response.content)
        return json.loads(response.content)

    def keep(self, *exchanges: Exchange) -> None:
        """Put rows into the ledger, as an earlier process would have left them."""
        self.run(self.relay.ledger.write([exchange_row(x) for x in exchanges], []))
        self.call(self.service._ui._reads.tallies.forget)

    def drained(self) -> None:
        assert self.run(self.relay.journal.drain(5))


@contextmanager
def relay(
    agents: Sequence[str | dict[str, Any]] = ("asker", "target"),
    *,
    ui: dict[str, Any] | None = None,
    host: str = "127.0.0.1",
    db: Path | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """Run a relay until the block ends."""
    data = {
        "agents": [_agent(agent) for agent in agents],
        "listen": {"host": host, "port": 0},
        "db": {"driver": "sqlite", "path": str(db)} if db else {"driver": "memory"},
        "ui": ui or {},
        **settings,
    }
    told: list[Any] = []
    ready = threading.Event()

    def main() -> None:
        async def serve() -> None:
            def tell(address: str) -> None:
                told.extend((service, asyncio.get_running_loop(), address))
                ready.set()

            service = Service(
                config_file.parse(json.dumps(data, ensure_ascii=False), {}), ready=tell
            )
            await service.run()

        try:
            asyncio.run(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    assert ready.wait(20) and told, "the relay did not start"
    running = Running(*told)
    try:
        yield running
    finally:
        for close in running.before_end:
            close()
        running.loop.call_soon_threadsafe(running.service.stop)
        thread.join(15)
        assert not thread.is_alive(), "the relay did not end"


class Bot:
    """An agent that speaks version 2 over one WebSocket, by hand."""

    def __init__(self, running: Running, name: str) -> None:
        self.name = name
        self._calls = 0
        self.socket: ClientConnection = connect(
            f"ws://{running.host}/bridge/connect",
            additional_headers={"Authorization": f"Bearer {token(name)}"},
        ).__enter__()
        self.send(type="hello", protocol=2, client="bot of the tests/1")
        self.expect("welcome")

    def send(self, **frame: Any) -> None:
        self.socket.send(json.dumps(frame))

    def expect(self, kind: str) -> dict[str, Any]:
        while True:
            frame: dict[str, Any] = json.loads(self.socket.recv(timeout=10))
            if frame.get("type") == kind:
                return frame

    def ask(self, to: str, message: str, **args: Any) -> dict[str, Any]:
        """Ask without waiting for the answer; gives the tool's result."""
        self._calls += 1
        args = {"to": to, "message": message, "wait_ms": 0, **args}
        self.send(type="call", id=self._calls, tool="ask_agent", args=args)
        result: dict[str, Any] = self.expect("result")["result"]
        return result

    def woken(self) -> dict[str, Any]:
        """Take the next wake."""
        wake = self.expect("wake")
        self.send(type="ack", request_id=wake["request_id"])
        return wake

    def beat(self, rid: str, note: str) -> None:
        self.send(type="heartbeat", request_id=rid, note=note)

    def reply(self, rid: str, answer: str, **more: Any) -> None:
        self._calls += 1
        args = {"request_id": rid, "answer": answer, **more}
        self.send(type="call", id=self._calls, tool="reply", args=args)
        self.expect("result")

    def close(self) -> None:
        self.socket.close()


def beaten(x: Exchange, *marks: tuple[Mark, int]) -> Exchange:
    """Give the exchange with what happened to it: kinds and ms after its begin."""
    for kind, after in marks:
        x.mark(x.at + after, kind)
    x.beats = len(x.marked(Mark.BEAT))
    return x


def ended(
    asker: str = "asker",
    target: str = "target",
    message: str = "?",
    *,
    ago: int = 60_000,
    took: int = 1_000,
    status: Status = Status.OK,
    **more: Any,
) -> Exchange:
    """An exchange of the past, `ago` ms old."""
    at = wall_ms() - ago
    given = {"answer": "yes", "sent_at": at + 5, "taken_at": at + 20, "attempt": 1}
    if status is not Status.OK:
        del given["answer"]
    return Exchange(
        rid=more.pop("rid", None) or new_id(at),
        conv=more.pop("conv", None) or new_id(at),
        asker=asker,
        target=target,
        message=message,
        at=at,
        cap=at + 3_600_000,
        window=120_000,
        status=status,
        ended_at=at + took,
        **{**given, **more},
    )
