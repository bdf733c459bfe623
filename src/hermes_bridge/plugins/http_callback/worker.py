"""The worker: takes leases, posts, writes verdicts, sleeps until the next row is due.

Runs in one process per Hermes home (a file lock says which), in a thread of its own with its own
event loop: a busy gateway cannot delay a callback, a slow receiver cannot delay the gateway.
"""

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from . import signing
from .breaker import Gate
from .clock import now_ms, wall_seconds
from .config import Endpoint, Settings, SettingsError
from .custody import Custody
from .desk import Desk
from .homelock import HomeLock
from .log_lines import tell
from .outbox import Job, Outbox, Receipt, Result
from .store import OutboxUnavailable
from .transport import Limits, Post, Transport, choose
from .urlguard import BadUrl, read_url
from .verdict import Answer, Failure, Outcome, Verdict, judge

logger = logging.getLogger(__name__)
T = TypeVar("T")

AGENT = "hermes-http-callback/1.0"
LEASE_MARGIN_MS = 30_000
PURGE_MS, RESCAN_MS, POLL_MS = 60_000, 30_000, 1_000
DRAIN_S = 5.0
GATHER_S, GATHER_MOST = 0.003, 16


@dataclass
class _Step:
    """One transaction of the worker: results in, leases out. Runs on the desk's thread."""

    results: list[Result]
    wanted: list[tuple[str, int, int]]
    gates: list[tuple[str, Gate, str]]
    now: int
    jobs: list[Job] = field(default_factory=list)
    due: dict[str, int | None] = field(default_factory=dict)

    def run(self, outbox: Outbox, custody: Custody) -> "_Step":
        """Do it."""
        self.jobs.clear()
        for result in self.results:
            outbox.settle(result, self.now)
        for key, gate, reason in self.gates:
            custody.save_gate(key, gate, reason)
        for key, count, lease in self.wanted:
            self.jobs += outbox.claim(key, count, self.now, lease)
        touched = {result.job.endpoint for result in self.results} | {
            key for key, _, _ in self.wanted
        }
        self.due = {key: outbox.next_due(key) for key in touched}
        return self


class Worker:
    """Delivers what the desk's outbox owes, until it is stopped."""

    def __init__(
        self,
        desk: Desk,
        settings: Callable[[], Settings],
        *,
        transport: Callable[[], Transport] = choose,
        on_poll: Callable[[], None] | None = None,
    ) -> None:
        """`settings` is asked at every attempt; `on_poll` is called about once a second."""
        self._desk = desk
        self._settings = settings
        self._make_transport = transport
        self._on_poll = on_poll
        self._lock = HomeLock(desk.path.with_name("worker.lock"))
        self._gates: dict[str, Gate] = {}
        self._due: dict[str, int] = {}
        self._flight: dict[int, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._news: deque[str] = deque()
        self._done: list[Result] = []
        self._changed: dict[str, str] = {}
        self._version = -1
        self._next_poll = self._next_purge = self._next_rescan = 0
        self.stopping = threading.Event()
        self._until_idle = False
        self._last_step = 0.0
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken = threading.Event()
        self.active = False

    # -- from outside -----------------------------------------------------------------------------

    def wake(self) -> None:
        """Look for new rows now. May be called from any thread."""
        loop = self._loop
        if loop is not None and not self._woken.is_set():
            self._woken.set()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake.set)

    def note_change(self, values: list[Any]) -> None:
        """Take note of what was stored (the receipts among `values`). From any thread."""
        for value in values:
            if isinstance(value, Receipt) and value.state in ("pending", "waiting"):
                self._news.append(value.endpoint)
        self.wake()

    def stop(self) -> None:
        """End after the calls in flight, at most a few seconds later. From any thread."""
        self.stopping.set()
        self._woken.clear()
        self.wake()

    async def run(self, *, until_idle: bool = False) -> None:
        """Deliver until stopped; `until_idle`: until nothing is due or another process does it."""
        self._loop = asyncio.get_running_loop()
        self._until_idle = until_idle
        try:
            while not self._lock.take():
                if self.stopping.is_set() or until_idle:
                    return
                await self._sleep(2.0)
            transport = self._make_transport()
            self.active = True
            try:
                await self._deliver(transport)
            finally:
                self.active = False
                await transport.close()
        finally:
            self._lock.give_back()
            self._loop = None

    # -- the loop ---------------------------------------------------------------------------------

    async def _deliver(self, transport: Transport) -> None:
        async with asyncio.TaskGroup() as group:
            started = False
            while not self.stopping.is_set():
                try:
                    if not started:
                        await self._start()
                        started = True
                    await self._round(group, transport)
                except OutboxUnavailable:
                    if self._until_idle:
                        break
                    # Results stay in memory and are written when the outbox works again.
                    await self._sleep(1.0)
                    continue
                if self._until_idle and self._idle():
                    break
                await self._sleep(self._pause())
                await self._gather()
            await self._finish()

    async def _gather(self) -> None:
        """Under load, let a few results come together: a transaction has a price of its own."""
        since = time.monotonic() - self._last_step
        if self._done and len(self._done) < GATHER_MOST and since < GATHER_S:
            await asyncio.sleep(GATHER_S - since)

    async def _start(self) -> None:
        self._flight.clear()
        self._done.clear()

        def take_over(outbox: Outbox, custody: Custody) -> dict[str, int]:
            now = now_ms()
            outbox.reclaim(now, (), takeover=self._lock.exclusive)
            self._gates = custody.gates(self._new_gate, now)
            self._version = outbox.data_version()
            return outbox.due_by_endpoint()

        self._due = await self._ask(take_over)

    async def _ask(self, work: Callable[[Outbox, Custody], T]) -> T:
        return await asyncio.wrap_future(self._desk.submit(work))

    async def _round(self, group: asyncio.TaskGroup, transport: Transport) -> None:
        self._woken.clear()
        now = now_ms()
        while self._news:
            key = self._news.popleft()
            self._due[key] = min(self._due.get(key, now), now)
        if now >= self._next_poll:
            await self._poll(now)
        wanted = self._wanted(now)
        if not wanted and not self._done:
            return
        results, self._done = self._done, []
        changed, self._changed = self._changed, {}
        gates = [(key, self._gates[key], reason) for key, reason in changed.items()]
        self._last_step = time.monotonic()
        try:
            step = await self._ask(_Step(results, wanted, gates, now).run)
        except OutboxUnavailable:
            self._done = results + self._done
            self._changed = changed | self._changed
            raise
        for key, due in step.due.items():
            self._note_due(key, due)
        for job in step.jobs:
            self._flight[job.seq] = job
            task = group.create_task(self._attempt(job, transport))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        for key in {job.endpoint for job in step.jobs}:
            count = sum(job.endpoint == key for job in step.jobs)
            self._gate(key).started(count, now)

    def _note_due(self, key: str, due: int | None) -> None:
        if due is None:
            self._due.pop(key, None)
        else:
            self._due[key] = due

    def _wanted(self, now: int) -> list[tuple[str, int, int]]:
        room = self._settings().concurrency - len(self._flight)
        found = []
        for key, due in sorted(self._due.items(), key=lambda item: item[1]):
            if due > now or room <= 0:
                break
            count = min(room, self._gate(key).slots(now))
            if count:
                room -= count
                timeout = self._settings().of(key).timeout
                found.append((key, count, int(timeout * 1000) + LEASE_MARGIN_MS))
        return found

    def _new_gate(self, key: str) -> Gate:
        endpoint = self._settings().of(key)
        return Gate(concurrency=endpoint.concurrency, rate=endpoint.rate)

    def _gate(self, key: str) -> Gate:
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = self._new_gate(key)
        return gate

    def _idle(self) -> bool:
        now = now_ms()
        return (
            not self._flight and not self._done and not any(at <= now for at in self._due.values())
        )

    def _pause(self) -> float:
        now = now_ms()
        if self._done:
            return 0.0
        next_at = self._next_poll
        if len(self._flight) < self._settings().concurrency:
            for key, due in self._due.items():
                gate = self._gate(key)
                # A full gate opens when one of its calls ends, and that wakes us.
                if gate.in_flight < gate.concurrency and not (gate.open_until and gate.in_flight):
                    next_at = min(next_at, max(due, gate.ready_at()))
        return max(0.0, (next_at - now) / 1000)

    async def _sleep(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
        self._wake.clear()
        self._woken.clear()

    async def _poll(self, now: int) -> None:
        """Once a second: see what other processes wrote, and what nobody wrote back."""
        self._next_poll = now + POLL_MS
        if self._on_poll is not None:
            self._on_poll()
        purge = now >= self._next_purge
        rescan = now >= self._next_rescan
        flight, max_bytes = set(self._flight), self._settings().max_bytes

        def look(outbox: Outbox, custody: Custody) -> tuple[int, dict[str, int] | None, set[str]]:
            version = outbox.data_version()
            lost = outbox.reclaim(now, flight)
            if purge:
                custody.purge(now, max_bytes=max_bytes)
            if version == self._version and not lost and not rescan:
                return version, None, set()
            return version, outbox.due_by_endpoint(), custody.gate_rows()

        version, due, rows = await self._ask(look)
        if purge:
            self._next_purge = now + PURGE_MS
        if due is None:
            return
        if version != self._version:
            self._forget_gates(rows)
        self._version, self._due, self._next_rescan = version, due, now + RESCAN_MS

    def _forget_gates(self, rows: set[str]) -> None:
        for key in set(self._gates) - rows - set(self._changed):
            gate = self._gates[key]
            if gate.open_until or gate.failing_since:
                # `hermes callback resume` removed its row: the operator says it is well.
                gate.open_until = gate.hold_until = gate.failures = gate.failing_since = 0

    async def _finish(self) -> None:
        """Wait a little for the calls in flight, then give the leases back."""
        deadline = now_ms() + int(DRAIN_S * 1000)
        while self._flight and now_ms() < deadline:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, (deadline - now_ms()) / 1000)):
                    await self._wake.wait()
        left = [Result(job, Answer(), _given_up(), now_ms()) for job in self._flight.values()]
        for task in self._tasks:
            task.cancel()
        results, self._done = [*self._done, *left], []
        gates = [(key, self._gates[key], reason) for key, reason in self._changed.items()]
        with contextlib.suppress(OutboxUnavailable):
            await self._ask(_Step(results, [], gates, now_ms()).run)

    # -- one attempt ------------------------------------------------------------------------------

    async def _attempt(self, job: Job, transport: Transport) -> None:
        endpoint = self._settings().of(job.endpoint)
        answer = await self._call(job, endpoint, transport)
        jitter = random.uniform(-1, 1)
        verdict = judge(answer, job.round, endpoint.policy, wall=wall_seconds(), jitter=jitter)
        now = now_ms()
        gate = self._gate(job.endpoint)
        was_failing = bool(gate.failing_since)
        flipped = gate.ended(now, healthy=verdict.healthy, hold_ms=verdict.hold_ms)
        verdict = self._worn_out(gate, verdict, now)
        if flipped or was_failing != bool(gate.failing_since) or gate.open_until:
            self._changed[job.endpoint] = verdict.reason
        tell(job, verdict, gate, flipped=flipped)
        self._flight.pop(job.seq, None)
        self._done.append(Result(job, answer, verdict, now, endpoint.hold_ms))
        self._wake.set()

    def _worn_out(self, gate: Gate, verdict: Verdict, now: int) -> Verdict:
        limit = self._settings().disable_after
        if limit and gate.failing_since and now - gate.failing_since > limit * 1000:
            days = limit / 86_400
            reason = f"nothing but failures for {days:g} days ({verdict.reason})"
            return Verdict(Outcome.GONE, reason, healthy=verdict.healthy)
        return verdict

    async def _call(self, job: Job, endpoint: Endpoint, transport: Transport) -> Answer:
        settings = self._settings()
        try:
            place = read_url(job.url)
            if refusal := settings.guard.refuses_place(place, named=bool(endpoint.name)):
                return Answer(failure=Failure.BLOCKED, detail=refusal)
            keys = settings.keyring(endpoint, wall_seconds())
        except (BadUrl, SettingsError) as error:
            kind = Failure.BLOCKED if isinstance(error, BadUrl) else Failure.INTERNAL
            return Answer(failure=kind, detail=str(error))
        if endpoint.require_signature and keys.current is None:
            return Answer(
                failure=Failure.INTERNAL, detail="require_signature is set and there is no secret"
            )
        letter = signing.Letter(job.id, job.body, wall_seconds(), job.attempt, job.content_type)
        headers = signing.headers(endpoint.profile, keys, letter, AGENT)
        limits = Limits(
            endpoint.timeout,
            endpoint.connect_timeout,
            endpoint.ca_file,
            endpoint.proxy,
            fresh=endpoint.policy.on_ambiguous == "hold",
        )
        try:
            return await transport.post(Post(place, job.body, headers, limits), settings.guard)
        except Exception as error:
            logger.exception("http_callback: %s: the attempt failed inside", job.id)
            return Answer(failure=Failure.INTERNAL, detail=f"{type(error).__name__}: {error}"[:200])


def _given_up() -> Verdict:
    return Verdict(Outcome.AGAIN, "given up at shutdown; sent again under the same id")
