"""Spans to OTLP/HTTP: one exporter class, a list of targets, Langfuse is one of them.

Each target has a bounded queue and a thread of its own. A target that is slow, down or wrong loses
spans, which are counted, and nothing else: no ask ever waits for it. The thread only posts: one that
made spans would fight with the loop for the interpreter (benches/README.md).
"""

import asyncio
import base64
import logging
import threading
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from hermes_bridge import __version__
from hermes_bridge.errors import ConfigError
from hermes_bridge.log import event
from hermes_bridge.relay import otlp
from hermes_bridge.relay.config import RelayConfig
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.traces import Tracer

_log = logging.getLogger("hermes_bridge.traces")
_QUEUE = 20_000
_QUEUE_BYTES = 67_108_864
_BATCH, _BATCH_BYTES = 2_048, 2_097_152
"""What goes in one request at most; a longer queue is sent before the second is over."""
_EVERY_S = 1.0
_POST_S = 10.0
_TRIES = 5
_LONGEST_WAIT_S = 30.0
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_TOO_LARGE = 413


class Outcome(NamedTuple):
    """What came of a request: the spans refused, and the cause if it failed as a whole."""

    refused: int = 0
    cause: str = ""
    pause: float | None = None
    """The least pause in seconds before another try, or None if that would not help."""
    too_large: bool = False


_UNENDING = Outcome(cause="its answer does not end", pause=_LONGEST_WAIT_S)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where spans go. `content`: with message texts; `live`: open asks too."""

    url: str
    headers: dict[str, str] = {}
    content: bool = False
    live: bool = False

    @property
    def name(self) -> str:
        """Give the name for logs and metrics: the host, never a secret."""
        return urlsplit(self.url).netloc.rpartition("@")[2]


def targets(config: RelayConfig) -> list[Target]:
    """Give the targets of a configuration. Raises `ConfigError` for an address that is none."""
    found = [
        Target(
            url=_traces_url(t.endpoint, f"otlp[{n}].endpoint"),
            headers=t.headers,
            content=t.content,
            live=t.live,
        )
        for n, t in enumerate(config.otlp)
    ]
    langfuse = config.langfuse
    if langfuse is not None:
        pair = f"{langfuse.public_key}:{langfuse.secret_key}".encode()
        base = langfuse.base_url.rstrip("/") + "/api/public/otel"
        headers = {
            "Authorization": "Basic " + base64.b64encode(pair).decode(),
            "x-langfuse-ingestion-version": "4",
        }
        url = _traces_url(base, "langfuse.base_url")
        found.append(Target(url=url, headers=headers, content=langfuse.content))
    return found


def _traces_url(endpoint: str, key: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{key} is not an address for traces.",
            hint="OTLP over HTTP is spoken: http(s)://host:4318. There is no gRPC.",
        )
    path = parts.path.rstrip("/")
    if not path.endswith("/v1/traces"):
        path += "/v1/traces"
    return parts._replace(path=path).geturl()


class Exports:
    """All targets together; they may be others later."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.each = [Exporter(target) for target in targets]
        self._tracer: Tracer | None = None
        self._started: list[Exporter] = []
        self._changed = asyncio.Event()
        self._closing = False

    def replace(self, targets: Sequence[Target]) -> None:
        """Send to these from now on. A target that stays keeps its queue; one that goes is emptied."""
        self._written()
        before = list(self.each)
        self.each = []
        for target in targets:
            same = next((e for e in before if e.target == target), None)
            if same is not None:
                before.remove(same)
            self.each.append(same or Exporter(target))
        self._changed.set()

    def tracer(self, find: Callable[[str], Exchange | None]) -> Tracer | None:
        """Give what has to watch the relay and its doors, or None when nobody wants spans.

        Another one is wanted after `replace`.
        """
        if not self.each:
            self._tracer = None
            return None
        live = [exporter for exporter in self.each if exporter.target.live]

        def put_live(spans: list[bytes], full: list[bytes]) -> None:
            for exporter in live:
                exporter.put(spans, full)

        self._tracer = Tracer(
            self.put,
            find,
            texts=any(exporter.target.content for exporter in self.each),
            live=put_live if live else None,
        )
        return self._tracer

    def _written(self) -> None:
        if self._tracer is not None:
            self._tracer.flush()

    def numbered(self) -> list[tuple[int, "Exporter"]]:
        """Give the targets, those of one host numbered from 1."""
        seen: Counter[str] = Counter()
        out = []
        for exporter in self.each:
            seen[exporter.target.name] += 1
            out.append((seen[exporter.target.name], exporter))
        return out

    def put(self, spans: list[bytes], full: list[bytes]) -> None:
        """Take spans for every target, without their texts and with them."""
        for exporter in self.each:
            exporter.put(spans, full)

    async def run(self) -> None:
        """Send, until `close`."""
        async with asyncio.TaskGroup() as group:
            while not self._closing:
                for exporter in self.each:
                    if exporter not in self._started:
                        self._started.append(exporter)
                        group.create_task(exporter.run())
                for exporter in [e for e in self._started if e not in self.each]:
                    self._started.remove(exporter)
                    group.create_task(exporter.close(_POST_S))
                await self._changed.wait()
                self._changed.clear()

    async def close(self, seconds: float) -> None:
        """Send what is left, as far as it goes in this time, and let `run` end."""
        self._written()
        self._closing = True
        self._changed.set()
        async with asyncio.TaskGroup() as group:
            for exporter in self._started:
                group.create_task(exporter.close(seconds))


class Exporter:
    """One target: its queue, its thread, its counters."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._most = _BATCH_BYTES
        self._full = asyncio.Event()
        self._posting: asyncio.Future[Outcome] | None = None
        self._cause = ""
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._flying = 0
        self.sent = self.dropped = self.failures = 0

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, spans: list[bytes], full: list[bytes]) -> None:
        """Take spans, or those with their texts. Over the bound they are dropped and counted."""
        if len(self._queue) >= _QUEUE or self._bytes >= _QUEUE_BYTES:
            self.dropped += len(spans)
            return
        wanted = full if self.target.content else spans
        self._queue.extend(wanted)
        self._bytes += sum(map(len, wanted))
        if self._is_much() and not self._full.is_set():
            self._full.set()

    def _is_much(self) -> bool:
        return len(self._queue) >= _BATCH or self._bytes >= self._most

    async def run(self) -> None:
        """Send what is there once a second, or when there is much, until `close`."""
        self._task = asyncio.current_task()
        while not self._stop.is_set():
            await _pause(_EVERY_S, self._full)
            self._full.clear()
            while self._queue:
                await self._send(self._take())
                if not (self._is_much() or self._stop.is_set()):
                    break  # what came meanwhile waits for more: a request has its price

    async def close(self, seconds: float) -> None:
        """Send what is left, as far as it goes in this time; what does not is counted."""
        self._stop.set()
        self._full.set()
        if self._task is not None:
            _, late = await asyncio.wait({self._task}, timeout=seconds)
            for task in late:
                task.cancel()
        self.dropped += len(self._queue) + self._flying
        self._queue.clear()

    def _take(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        queue = self._queue
        while queue and len(batch) < _BATCH and (not batch or size + len(queue[0]) <= self._most):
            size += len(queue[0])
            batch.append(queue.popleft())
        self._bytes -= size
        return batch

    async def _send(self, batch: list[bytes]) -> None:
        """Post one batch; again, after a pause, what may succeed later. Once only while it ends."""
        self._flying = len(batch)
        body, wait = otlp.request(batch), 1.0
        for left in reversed(range(_TRIES)):
            outcome = await self._posted(body)
            if not outcome.cause:
                self.sent += len(batch) - outcome.refused
                self.dropped += outcome.refused
                self._flying = 0
                self._up()
                return
            self.failures += 1
            if outcome.too_large and len(batch) > 1:
                self._halve(batch)
                return
            self._down(outcome.cause)
            if outcome.pause is None or not left or self._stop.is_set():
                break
            await _pause(min(_LONGEST_WAIT_S, max(wait, outcome.pause)), self._stop)
            wait *= 2
        self._flying = 0
        self.dropped += len(batch)

    def _halve(self, batch: list[bytes]) -> None:
        """The target takes no request of this size: send smaller ones from now on, these first."""
        size = sum(map(len, batch))
        self._most = max(1, size // 2)
        self._queue.extendleft(reversed(batch))
        self._bytes += size
        self._flying = 0

    async def _posted(self, body: bytes) -> Outcome:
        """Post on a thread that nobody waits for, neither here for long nor when the process ends."""
        if self._posting is not None and not self._posting.done():
            return _UNENDING
        loop = asyncio.get_running_loop()
        found = self._posting = loop.create_future()

        def tell(outcome: Outcome) -> None:
            if not found.done():
                found.set_result(outcome)

        def post() -> None:
            outcome = _post(self.target, body)
            with suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(tell, outcome)

        threading.Thread(target=post, name="hb-traces", daemon=True).start()
        try:
            async with asyncio.timeout(2 * _POST_S):
                return await asyncio.shield(found)
        except TimeoutError:
            return _UNENDING

    def _down(self, cause: str) -> None:
        if cause != self._cause:
            self._cause = cause
            effect = "asks go on, spans may be dropped"
            event(
                _log,
                "traces.down",
                logging.WARNING,
                to=self.target.name,
                cause=cause,
                effect=effect,
            )

    def _up(self) -> None:
        if self._cause:
            self._cause = ""
            event(_log, "traces.up", to=self.target.name, dropped=self.dropped)


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    """Wait for so long, or until the event."""
    try:
        async with asyncio.timeout(seconds):
            await unless.wait()
    except TimeoutError:
        pass


def _post(target: Target, body: bytes) -> Outcome:
    """Post, on a thread."""
    headers = {
        **target.headers,
        "Content-Type": "application/x-protobuf",
        "User-Agent": f"hermes-bridge/{__version__}",
    }
    request = urllib.request.Request(target.url, body, headers, method="POST")  # noqa: S310
    try:
        with _opener().open(request, timeout=_POST_S) as answer:
            return Outcome(otlp.refused(answer.read(65_536)))
    except urllib.error.HTTPError as error:
        with error:
            cause = f"it answers {error.code}"
            if error.code in (401, 403):
                cause += ": check the keys or headers"
            if error.code not in _PASSING:
                return Outcome(cause=cause, too_large=error.code == _TOO_LARGE)
            return Outcome(cause=cause, pause=_seconds(error.headers.get("Retry-After")))
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        return Outcome(cause=f"{type(reason).__name__}: {reason}"[:200], pause=0.0)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Headers hold secrets: they are sent to the configured place and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow nothing."""


@lru_cache(maxsize=1)
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirect)


def _seconds(text: str | None) -> float:
    return float(text) if text and text.isdigit() else 0.0
