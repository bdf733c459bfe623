"""The worker: takes leases, posts, writes verdicts, sleeps until the next row is due.

Runs in one process per Hermes home (a file lock says which), in a thread of its own with its own
event loop: a busy gateway cannot delay a callback, a slow receiver cannot delay the gateway. A row
that is stored while its receiver has a call free comes straight from the outbox's thread, leased.
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

from .attempt import attempt
from .breaker import Gate
from .clock import now_ms, wall_seconds
from .config import Settings
from .custody import Custody
from .desk import Desk
from .homelock import HomeLock
from .log_lines import tell
from .outbox import Job, Outbox, Receipt, Result
from .store import OutboxUnavailable
from .transport import Transport, choose
from .turns import Turns, Wanted
from .verdict import Answer, Outcome, Verdict, judge

logger = logging.getLogger(__name__)
T = TypeVar("T")

PURGE_MS, RESCAN_MS, POLL_MS = 60_000, 30_000, 1_000
DRAIN_S = 5.0
GATHER_S, GATHER_MOST = 0.005, 32


@dataclass
class _Step:
    """One transaction of the worker: results in, leases out. Runs on the desk's thread."""

    results: list[Result]
    back: list[Job]
    wanted: list[Wanted]
    gates: list[tuple[str, Gate, str]]
    now: int
    jobs: list[Job] = field(default_factory=list)
    due: dict[str, int | None] = field(default_factory=dict)

    def run(self, outbox: Outbox, custody: Custody) -> "_Step":
        """Do it."""
        self.jobs.clear()
        for result in self.results:
            outbox.settle(result, self.now)
        for job in self.back:
            outbox.release(job)
        for key, gate, reason in self.gates:
            custody.save_gate(key, gate, reason)
        for key, count, lease in self.wanted:
            self.jobs += outbox.claim(key, count, self.now, lease)
        touched = {result.job.endpoint for result in self.results}
        touched |= {job.endpoint for job in self.back} | {key for key, _, _ in self.wanted}
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
        self.turns = Turns(settings)
        self._flight: dict[int, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup
        self._transport: Transport
        self._news: deque[str] = deque()
        self._handed: deque[Job] = deque()
        self._done: list[Result] = []
        self._back: list[Job] = []
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
        if not self._woken.is_set():
            self._woken.set()
            self._call(self._wake.set)

    def _call(self, what: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(what)

    def note_change(self, values: list[Any]) -> None:
        """Take what a transaction gave: rows that come leased, and news of others. Any thread."""
        receipts = [value for value in values if isinstance(value, Receipt)]
        jobs = [receipt.job for receipt in receipts if receipt.job is not None]
        self.turns.keep_promises(jobs)
        if jobs:
            self._handed.extend(jobs)
            self._call(self._take_handed)
        news = [one.endpoint for one in receipts if one.state in ("pending", "waiting")]
        if news:
            self._news.extend(news)
            self.wake()

    def stop(self) -> None:
        """End after the calls in flight, at most a few seconds later. From any thread."""
        self.stopping.set()
        self._woken.clear()
        self.wake()

    async def run(self, *, until_idle: bool = False) -> None:
        """Deliver until stopped; `until_idle`: until nothing is due or another process does it."""
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()  # of this loop: a worker that fell over runs in another one
        self._until_idle = until_idle
        try:
            while not self._lock.take():
                if self.stopping.is_set() or until_idle:
                    return
                await self._sleep(2.0)
            self._transport = self._make_transport()
            self.active = True
            try:
                await self._deliver()
            finally:
                self.active = self.turns.open = False
                await self._transport.close()
        finally:
            self._lock.give_back()
            self._loop = None

    # -- the loop ---------------------------------------------------------------------------------

    async def _deliver(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            started = False
            while not self.stopping.is_set():
                try:
                    if not started:
                        await self._start()
                        started = True
                    await self._round()
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
        if self._flight and len(self._done) < GATHER_MOST and since < GATHER_S:
            await asyncio.sleep(GATHER_S - since)

    async def _start(self) -> None:
        # Results of a worker that fell over stay: a 2xx counts although its lease was lost.
        self._flight.clear()
        self._back.clear()
        self._handed.clear()

        def take_over(outbox: Outbox, custody: Custody) -> tuple[dict[str, int], dict[str, Gate]]:
            now = now_ms()
            outbox.reclaim(now, (), takeover=self._lock.exclusive)
            self._version = outbox.data_version()
            return outbox.due_by_endpoint(), custody.gates(self.turns.new_gate, now)

        self.turns.begin(*await self._ask(take_over))

    async def _ask(self, work: Callable[[Outbox, Custody], T]) -> T:
        return await asyncio.wrap_future(self._desk.submit(work))

    async def _round(self) -> None:
        self._woken.clear()
        now = now_ms()
        while self._news:
            self.turns.note_new(self._news.popleft(), now)
        if now >= self._next_poll:
            await self._poll(now)
        self._back += self.turns.give_back(now)
        wanted = self.turns.wanted(now)
        if wanted or self._done or self._back:
            await self._write(wanted, now)
        self._fly(self.turns.starts(now))

    async def _write(self, wanted: list[Wanted], now: int) -> None:
        results, self._done = self._done, []
        back, self._back = self._back, []
        changed, self._changed = self._changed, {}
        gates = [(key, self.turns.gate(key), reason) for key, reason in changed.items()]
        try:
            step = await self._ask(_Step(results, back, wanted, gates, now).run)
        except OutboxUnavailable:
            self._done = results + self._done
            self._back = back + self._back
            self._changed = changed | self._changed
            self.turns.took([])
            raise
        finally:
            self._last_step = time.monotonic()
        self.turns.note_due(step.due)
        self.turns.took(step.jobs)

    def _take_handed(self) -> None:
        """Start the rows that came from the outbox's thread; they have their turn already."""
        jobs = [self._handed.popleft() for _ in range(len(self._handed))]
        if self.stopping.is_set() or not self.active:
            # Whoever delivers next takes their leases over.
            self._back += jobs
        else:
            self._fly(jobs)

    def _fly(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._flight[job.seq] = job
            task = self._group.create_task(self._attempt(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _idle(self) -> bool:
        busy = self._flight or self._done or self._back or self._handed
        return not busy and self.turns.is_idle(now_ms())

    def _pause(self) -> float:
        if self._done or self._back:
            return 0.0
        return max(0.0, (self.turns.next_at(self._next_poll) - now_ms()) / 1000)

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
        self.turns.refit()
        purge = now >= self._next_purge
        rescan = now >= self._next_rescan
        ours, max_bytes = {*self._flight, *self.turns.at_hand()}, self._settings().max_bytes

        def look(outbox: Outbox, custody: Custody) -> tuple[int, dict[str, int] | None, set[str]]:
            version = outbox.data_version()
            lost = outbox.reclaim(now, ours)
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
        self.turns.note_due({**due}, whole=True)
        if version != self._version:
            self.turns.forget(rows | set(self._changed))
            # An operator may have dropped or paused what lies at hand.
            self._back += self.turns.give_back(now, everything=True)
        self._version, self._next_rescan = version, now + RESCAN_MS

    async def _finish(self) -> None:
        """Wait a little for the calls in flight, then give the leases back."""
        self.turns.open = False
        self._back += self.turns.give_back(now_ms(), everything=True)
        deadline = now_ms() + int(DRAIN_S * 1000)
        while self._flight and now_ms() < deadline:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.01, (deadline - now_ms()) / 1000)):
                    await self._wake.wait()
        left = [Result(job, Answer(), _given_up(), now_ms()) for job in self._flight.values()]
        for task in self._tasks:
            task.cancel()
        self._done += left
        with contextlib.suppress(OutboxUnavailable):
            await self._write([], now_ms())

    # -- one attempt ------------------------------------------------------------------------------

    async def _attempt(self, job: Job) -> None:
        settings = self._settings()
        endpoint = settings.of(job.endpoint)
        answer = await attempt(job, endpoint, settings, self._transport)
        jitter = random.uniform(-1, 1)
        verdict = judge(answer, job.round, endpoint.policy, wall=wall_seconds(), jitter=jitter)
        now = now_ms()
        gate = self.turns.gate(job.endpoint)
        was_failing = bool(gate.failing_since)
        flipped = self.turns.ended(job.endpoint, verdict, answer.ms, now)
        verdict = self._worn_out(gate, verdict, now)
        if flipped or was_failing != bool(gate.failing_since) or gate.open_until:
            self._changed[job.endpoint] = verdict.reason
        tell(job, verdict, gate, flipped=flipped)
        self._flight.pop(job.seq, None)
        self._done.append(Result(job, answer, verdict, now, endpoint.hold_ms))
        if not self.stopping.is_set():
            self._fly(self.turns.starts(now, (job.endpoint,)))
        self._wake.set()

    def _worn_out(self, gate: Gate, verdict: Verdict, now: int) -> Verdict:
        limit = self._settings().disable_after
        if limit and gate.failing_since and now - gate.failing_since > limit * 1000:
            days = limit / 86_400
            reason = f"nothing but failures for {days:g} days ({verdict.reason})"
            return Verdict(Outcome.GONE, reason, healthy=verdict.healthy)
        return verdict


def _given_up() -> Verdict:
    return Verdict(Outcome.AGAIN, "given up at shutdown; sent again under the same id")
