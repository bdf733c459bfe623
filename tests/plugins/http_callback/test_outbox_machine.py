"""The outbox under every order of events: nothing lost, order kept, leases fenced."""

import tempfile
from pathlib import Path

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hermes_bridge.plugins.http_callback.custody import Custody, NotFound
from hermes_bridge.plugins.http_callback.outbox import Draft, Job, Outbox, Result
from hermes_bridge.plugins.http_callback.store import Store
from hermes_bridge.plugins.http_callback.verdict import Answer, Outcome, Verdict

LEASE, HOLD, AGE = 1_000, 500, 50_000
ENDPOINTS = ("@a", "@b")
LANES = ("one", "two", "three")
OUTCOMES = (*[Outcome.AGAIN] * 4, Outcome.DELIVERED, Outcome.DEAD, Outcome.GONE)


class OutboxMachine(RuleBasedStateMachine):
    """Store, claim, end, crash, park, replay, drop, and let time pass."""

    @initialize(strict=st.booleans())
    def open(self, strict: bool) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.store = Store(Path(self.folder.name) / "outbox.db")
        self.generation = 0
        self.promise = False
        self.outbox = Outbox(self.store, "owner-0", self.offer)
        self.now, self.count = 1_000, 0
        self.hold = None if strict else HOLD
        self.flying: list[Job] = []
        self.stale: list[Job] = []
        self.acknowledged: dict[str, bytes] = {}
        self.touched: set[str] = set()
        self.delivered: list[str] = []
        self.origins: dict[str, str] = {}

    def offer(self, endpoint: str, now: int) -> int:
        return LEASE if self.promise else 0

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            self.folder.cleanup()

    @rule(
        lane=st.sampled_from(LANES),
        endpoint=st.sampled_from(ENDPOINTS),
        origin=st.sampled_from([None, None, "x", "y"]),
        promise=st.booleans(),
    )
    def store_one(self, lane: str, endpoint: str, origin: str | None, promise: bool) -> None:
        self.count += 1
        self.promise = promise
        id = f"m{self.count}"
        body = f"body {self.count}".encode()
        draft = Draft(
            id, "final", endpoint, "u", f"{endpoint} {lane}", lambda seq: body, AGE, origin=origin
        )
        with self.store.transaction(durable=False):
            receipt = self.outbox.enqueue(draft, self.now)
        if origin is not None:
            known = self.origins.setdefault(f"{endpoint} {origin}", receipt.id)
            assert receipt.id == known
            assert receipt.duplicate == (known != id)
        if not receipt.duplicate:
            self.acknowledged[id] = body
        if receipt.job is not None:
            assert (receipt.state, receipt.job.body) == ("sending", body)
            self.may_go(receipt.job)
            self.flying.append(receipt.job)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        """A lease that was not used: the attempt does not count."""
        job = data.draw(st.sampled_from(self.flying))
        self.flying.remove(job)
        before = self.row(job.id)
        with self.store.transaction(durable=False):
            self.outbox.release(job)
        if before[0] == "sending":
            assert self.row(job.id)[:2] in (
                ("pending", job.attempt - 1),
                ("parked", job.attempt - 1),
            )
        else:
            assert self.row(job.id) == before

    @rule(endpoint=st.sampled_from(ENDPOINTS), limit=st.integers(1, 4))
    def claim(self, endpoint: str, limit: int) -> None:
        with self.store.transaction(durable=False):
            jobs = self.outbox.claim(endpoint, limit, self.now, LEASE)
        for job in jobs:
            assert job.body == self.acknowledged[job.id]
            assert job.seq not in {flying.seq for flying in self.flying}
            self.may_go(job)
        self.flying += jobs

    @rule(
        endpoint=st.sampled_from(ENDPOINTS),
        outcomes=st.lists(st.sampled_from(OUTCOMES[:-1]), min_size=1, max_size=4),
        delay=st.integers(0, 600),
    )
    def work(self, endpoint: str, outcomes: list[Outcome], delay: int) -> None:
        """Claim and end at once: how most of a worker's life is."""
        before = len(self.flying)
        self.claim(endpoint, len(outcomes))
        for job, outcome in zip(self.flying[before:], outcomes, strict=False):
            self.flying.remove(job)
            self.stale.append(job)
            self.settle(job, outcome, delay)

    def may_go(self, job: Job) -> None:
        """Nothing earlier of the lane is open, or it has failed and its hold is over."""
        rows = self.store.db.execute(
            "SELECT id, hold_until FROM deliveries"
            " WHERE lane=(SELECT lane FROM deliveries WHERE seq=?) AND seq<?"
            " AND state IN ('waiting','pending','sending')",
            (job.seq, job.seq),
        ).fetchall()
        for id, hold_until in rows:
            if id in self.touched or job.id in self.touched:
                continue  # an operator's replay steps out of the order
            assert hold_until is not None, f"{job.id} overtook {id}"
            assert hold_until <= self.now, f"{job.id} overtook {id} within its hold"

    @precondition(lambda self: self.flying)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(OUTCOMES),
        delay=st.integers(0, 2_000),
    )
    def end(self, data: st.DataObject, outcome: Outcome, delay: int) -> None:
        job = data.draw(st.sampled_from(self.flying))
        self.flying.remove(job)
        self.stale.append(job)
        self.settle(job, outcome, delay)

    @precondition(lambda self: self.stale)
    @rule(data=st.data(), outcome=st.sampled_from([Outcome.AGAIN, Outcome.DEAD]))
    def late_frame(self, data: st.DataObject, outcome: Outcome) -> None:
        """The end of a lease that is no longer held, again: it must change nothing."""
        held = {job.seq: job.attempt for job in self.flying}
        # Most telling are those whose row is being sent under a newer lease.
        again = [job for job in self.stale if held.get(job.seq, job.attempt) != job.attempt]
        job = data.draw(st.sampled_from(again or self.stale))
        if held.get(job.seq) == job.attempt:
            return
        before = self.row(job.id)
        self.settle(job, outcome, 0)
        assert self.row(job.id) == before

    def settle(self, job: Job, outcome: Outcome, delay: int) -> None:
        verdict = Verdict(outcome, "" if outcome is Outcome.DELIVERED else "why", delay)
        answer = Answer(status=200 if outcome is Outcome.DELIVERED else 503)
        with self.store.transaction(durable=False):
            self.outbox.settle(Result(job, answer, verdict, self.now, self.hold), self.now)
        if outcome is Outcome.DELIVERED:
            self.delivered.append(job.id)

    def row(self, id: str) -> tuple[object, ...]:
        return tuple(
            self.store.db.execute(
                "SELECT state, attempts, round, due, hold_until, lease_owner"
                " FROM deliveries WHERE id=?",
                (id,),
            ).fetchone()
        )

    @rule()
    def crash(self) -> None:
        """The process dies; the next one opens the file and takes over."""
        self.generation += 1
        lost = len(self.flying_rows())
        self.store.close()
        self.store = Store(Path(self.folder.name) / "outbox.db")
        self.outbox = Outbox(self.store, f"owner-{self.generation}", self.offer)
        with self.store.transaction(durable=False):
            assert self.outbox.reclaim(self.now, (), takeover=True) == lost
        self.stale += self.flying
        self.flying = []

    def flying_rows(self) -> list[Job]:
        dropped = {
            row[0]
            for row in self.store.db.execute("SELECT id FROM deliveries WHERE state='dropped'")
        }
        done = set(self.delivered)
        return [job for job in self.flying if job.id not in dropped and job.id not in done]

    @rule(step=st.integers(1, 3_000))
    def pass_time(self, step: int) -> None:
        self.now += step
        with self.store.transaction(durable=False):
            self.outbox.reclaim(self.now, {job.seq for job in self.flying})

    @precondition(lambda self: not self.blocked() and self.count > 4)
    @rule(endpoint=st.sampled_from(ENDPOINTS))
    def pause(self, endpoint: str) -> None:
        with self.store.transaction(durable=False):
            self.outbox.block(endpoint, "paused", "x", self.now)

    @precondition(lambda self: self.blocked())
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        with self.store.transaction(durable=False):
            Custody(self.outbox).resume(data.draw(st.sampled_from(self.blocked())), self.now)

    def blocked(self) -> list[str]:
        return [key for (key,) in self.store.db.execute("SELECT key FROM endpoints ORDER BY key")]

    @precondition(lambda self: self.acknowledged)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.acknowledged)))
        if self.row(id)[0] == "sending":
            return
        self.touched.add(id)
        self.delivered = [other for other in self.delivered if other != id]
        with self.store.transaction(durable=False):
            Custody(self.outbox).replay(id, self.now)

    @precondition(lambda self: self.count > 6)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.acknowledged)))
        self.touched.add(id)
        with self.store.transaction(durable=False):
            try:
                Custody(self.outbox).drop(id, self.now)
            except NotFound:
                assert self.row(id)[0] == "delivered"

    @invariant()
    def nothing_acknowledged_is_missing(self) -> None:
        if not hasattr(self, "store"):
            return
        rows = dict(
            self.store.db.execute("SELECT id, body FROM deliveries JOIN bodies ON delivery=seq")
        )
        assert rows == self.acknowledged

    @invariant()
    def every_lane_with_open_rows_can_move(self) -> None:
        if not hasattr(self, "store"):
            return
        rows = self.store.db.execute(
            "SELECT lane, SUM(state='waiting'), SUM(state IN ('pending','sending')) FROM deliveries"
            " WHERE state IN ('waiting','pending','sending') GROUP BY lane"
        )
        for lane, waiting, moving in rows:
            assert moving or not waiting, f"{lane} is stuck"

    @invariant()
    def a_blocked_endpoint_owes_nothing_now(self) -> None:
        if not hasattr(self, "store"):
            return
        for (endpoint,) in self.store.db.execute("SELECT key FROM endpoints WHERE state='paused'"):
            due = self.outbox.next_due(endpoint)
            replayed = self.touched or due is None
            assert replayed


OutboxMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestOutbox = OutboxMachine.TestCase
