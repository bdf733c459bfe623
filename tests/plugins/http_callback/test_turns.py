"""Whose turn it is, under every order of storing, leasing, starting and ending."""

import dataclasses

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_bridge.plugins.http_callback.config import Endpoint, Settings
from hermes_bridge.plugins.http_callback.outbox import Job
from hermes_bridge.plugins.http_callback.turns import Turns, Wanted
from hermes_bridge.plugins.http_callback.verdict import Outcome, Verdict

ENDPOINTS = ("@a", "@b", "@c")
TOTAL = 6
VERDICTS = (
    *[Verdict(Outcome.DELIVERED, healthy=True)] * 4,
    Verdict(Outcome.AGAIN, "HTTP 500", 1_000, healthy=False),
    Verdict(Outcome.AGAIN, "HTTP 429", 1_000, hold_ms=5_000),
)


def settings_of(total: int = TOTAL, **changes: int) -> Settings:
    return Settings(default=dataclasses.replace(Endpoint(), **changes), concurrency=total)


def job(seq: int, endpoint: str) -> Job:
    return Job(seq, f"m{seq}", "final", endpoint, "u", "t", b"", 1, 1, 0, f"lane {seq}")


class TurnsMachine(RuleBasedStateMachine):
    """`stored` are rows that nobody leases; `flying` those whose calls run."""

    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns(settings_of)
        self.turns.begin({}, {})
        self.now, self.count = 1_000, 0
        self.stored: dict[str, list[Job]] = {key: [] for key in ENDPOINTS}
        self.flying: list[Job] = []
        self.asked: list[Wanted] | None = None

    def made(self, endpoint: str) -> Job:
        self.count += 1
        return job(self.count, endpoint)

    @rule(endpoint=st.sampled_from(ENDPOINTS), committed=st.booleans())
    def store(self, endpoint: str, committed: bool) -> None:
        new = self.made(endpoint)
        lease = self.turns.offer(endpoint, self.now)
        assert not (lease and self.asked), "a promise while rows are being leased"
        self.turns.keep_promises([new] if lease and committed else [])
        if not committed:
            return
        if lease:
            self.flying.append(new)
        else:
            self.stored[endpoint].append(new)
            self.turns.note_new(endpoint, self.now)

    @precondition(lambda self: self.asked is None)
    @rule()
    def ask(self) -> None:
        self.asked = self.turns.wanted(self.now) or None

    @precondition(lambda self: self.asked is not None)
    @rule(works=st.booleans())
    def lease(self, works: bool) -> None:
        taken: list[Job] = []
        for key, count, _ in (self.asked or []) if works else []:
            taken += self.stored[key][:count]
            del self.stored[key][:count]
            self.turns.note_due({key: self.now if self.stored[key] else None})
        self.turns.took(taken)
        self.asked = None
        self.flying += self.turns.starts(self.now)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), verdict=st.sampled_from(VERDICTS), ms=st.integers(0, 300))
    def end(self, data: st.DataObject, verdict: Verdict, ms: int) -> None:
        done = data.draw(st.sampled_from(self.flying))
        self.flying.remove(done)
        self.turns.ended(done.endpoint, verdict, ms, self.now)
        self.flying += self.turns.starts(self.now, [done.endpoint])

    @rule(everything=st.booleans())
    def give_back(self, everything: bool) -> None:
        for one in self.turns.give_back(self.now, everything=everything):
            self.stored[one.endpoint].insert(0, one)
            self.turns.note_new(one.endpoint, self.now)

    @rule(step=st.integers(1, 60_000))
    def pass_time(self, step: int) -> None:
        self.now += step

    @invariant()
    def never_more_calls_than_allowed(self) -> None:
        assert len(self.flying) == self.turns._running <= TOTAL
        for key in ENDPOINTS:
            gate = self.turns.gate(key)
            mine = sum(one.endpoint == key for one in self.flying)
            assert mine == gate.in_flight

    @invariant()
    def no_row_is_lost_or_doubled(self) -> None:
        waiting = {one.seq for rows in self.stored.values() for one in rows}
        flying = {one.seq for one in self.flying}
        assert len(flying) == len(self.flying)
        assert not waiting & flying
        assert not self.turns.at_hand() & (waiting | flying)

    def teardown(self) -> None:
        """From any state all rows get their turn."""
        if self.asked is not None:
            self.lease(True)
        for _ in range(4 * self.count + 8):
            self.now += 400_000
            for key in ENDPOINTS:
                self.turns.note_due({key: self.now if self.stored[key] else None})
            self.ask()
            if self.asked is not None:
                self.lease(True)
            self.flying += self.turns.starts(self.now)
            for done in list(self.flying):
                self.flying.remove(done)
                self.turns.ended(done.endpoint, VERDICTS[0], 5, self.now)
        assert not any(self.stored.values())
        assert not self.turns.at_hand()
        assert self.turns.is_idle(self.now)


TurnsMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestTurns = TurnsMachine.TestCase


def test_a_row_is_promised_no_turn_before_the_worker_is_there_or_while_others_wait() -> None:
    turns = Turns(settings_of)
    assert turns.offer("@a", 0) == 0
    turns.begin({"@b": 0}, {})
    assert turns.offer("@b", 0) == 0
    assert turns.offer("@a", 0) > 0


def test_new_limits_in_the_settings_reach_the_gates_that_exist() -> None:
    known = [settings_of(concurrency=2)]
    turns = Turns(lambda: known[0])
    turns.begin({}, {})
    turns.refit()
    assert turns.gate("@a").slots(0) == 2
    known[0] = settings_of(concurrency=5, rate=3)
    turns.refit()
    assert (turns.gate("@a").pace.calls, turns.gate("@a").rate) == (5, 3)
