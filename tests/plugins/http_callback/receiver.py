"""A real HTTP receiver in a thread, told how to answer each request."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""A well-formed signing secret, for a plugin and who verifies what it sent."""


@dataclass(frozen=True)
class Reply:
    """How one request is answered. `hang`: seconds before the answer; `cut`: no answer at all."""

    status: int = 200
    body: bytes = b"ok"
    headers: dict[str, str] = field(default_factory=dict)
    hang: float = 0.0
    cut: bool = False
    slow_body: float = 0.0


@dataclass(frozen=True)
class Got:
    """One request, as it came."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def content(self) -> str:
        return str(self.json["content"])


class Receiver:
    """`script(got, n)` says how the n-th request (from 1) is answered; None: 200."""

    def __init__(self, script: Callable[[Got, int], Reply | None] | None = None) -> None:
        self.script = script
        self.got: list[Got] = []
        self.accepted: list[Got] = []
        self._changed = threading.Condition()
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = 0

    def __enter__(self) -> "Receiver":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/cb"

    def wait(
        self,
        count: int,
        seconds: float = 30.0,
        *,
        accepted: bool = False,
        where: Callable[[Got], bool] = lambda got: True,
    ) -> list[Got]:
        """Block until so many requests of a kind came (or were answered with a 2xx)."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                found = [one for one in (self.accepted if accepted else self.got) if where(one)]
                if len(found) >= count:
                    return found
                left = end - time.monotonic()
                assert left > 0, f"{len(found)} of {count} requests came: {self.got}"
                self._changed.wait(left)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._runner.cleanup())
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _serve(self) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        # `raw_path` is the target as it stood on the wire.
        got = Got(request.raw_path, headers, body, time.monotonic())
        with self._changed:
            self.got.append(got)
            count = len(self.got)
            self._changed.notify_all()
        reply = (self.script(got, count) if self.script else None) or Reply()
        if reply.hang:
            await asyncio.sleep(reply.hang)
        if reply.cut:
            assert request.transport is not None
            request.transport.abort()
        if 200 <= reply.status < 300 and not reply.cut:
            with self._changed:
                self.accepted.append(got)
                self._changed.notify_all()
        if reply.slow_body:
            response = web.StreamResponse(status=reply.status, headers=reply.headers)
            await response.prepare(request)
            await response.write(b"x")
            await asyncio.sleep(reply.slow_body)
            return response
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)


def failing(times: int, reply: Reply) -> Callable[[Got, int], Reply | None]:
    """Answer so the first few times, then 200."""
    return lambda got, n: reply if n <= times else None
