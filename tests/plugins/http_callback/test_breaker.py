"""One endpoint's gate: when it shuts, when it opens, and how many calls it lets through."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hermes_bridge.plugins.http_callback.breaker import (
    FAILURES_IN_A_ROW,
    FIRST_PAUSE_MS,
    LONGEST_PAUSE_MS,
    Gate,
)
from hermes_bridge.plugins.http_callback.pace import Pace


def fail(gate: Gate, now: int, times: int = 1) -> None:
    for _ in range(times):
        gate.started(1, now)
        gate.ended(now, healthy=False)


@pytest.mark.clause("callback.breaker.1")
def test_five_failures_in_a_row_shut_the_gate_for_thirty_seconds() -> None:
    gate = Gate()
    fail(gate, 0, FAILURES_IN_A_ROW - 1)
    assert gate.slots(0) == 4
    fail(gate, 0)
    assert gate.slots(FIRST_PAUSE_MS - 1) == 0
    assert gate.slots(FIRST_PAUSE_MS) == 1


@pytest.mark.clause("callback.breaker.1")
def test_half_of_ten_calls_in_a_minute_shut_the_gate() -> None:
    gate = Gate()
    for n in range(5):
        gate.ended(n, healthy=True)
        fail(gate, n)
    assert gate.slots(10) == 0


@pytest.mark.clause("callback.breaker.2")
def test_a_failed_probe_doubles_the_pause_up_to_five_minutes() -> None:
    gate, now = Gate(), 0
    fail(gate, now, FAILURES_IN_A_ROW)
    pauses = []
    for _ in range(6):
        pauses.append(gate.open_until - now)
        now = gate.open_until
        assert gate.slots(now) == 1
        fail(gate, now)
    assert pauses == [30_000, 60_000, 120_000, 240_000, LONGEST_PAUSE_MS, LONGEST_PAUSE_MS]


@pytest.mark.clause("callback.breaker.2")
def test_one_good_probe_opens_the_gate_wide() -> None:
    gate = Gate()
    fail(gate, 0, FAILURES_IN_A_ROW)
    gate.started(1, FIRST_PAUSE_MS)
    assert gate.slots(FIRST_PAUSE_MS) == 0
    assert gate.ended(FIRST_PAUSE_MS, healthy=True)
    assert gate.slots(FIRST_PAUSE_MS) == 4


@pytest.mark.clause("callback.retry.3")
def test_a_receiver_that_asks_for_time_gets_it() -> None:
    gate = Gate()
    gate.started(1, 0)
    gate.ended(0, healthy=None, hold_ms=5_000)
    assert (gate.slots(4_999), gate.slots(5_000)) == (0, 4)


def test_a_rate_spreads_the_calls() -> None:
    gate, now, started = Gate(Pace(100), rate=10), 0, 0
    while now < 10_000:
        count = gate.slots(now)
        gate.started(count, now)
        started += count
        gate.in_flight = 0
        now += 50
    assert 90 <= started <= 110


class GateMachine(RuleBasedStateMachine):
    """Calls begin and end in any order while the clock moves."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate(Pace(3))
        self.now = 0
        self.flying = 0

    @rule()
    def start(self) -> None:
        count = self.gate.slots(self.now)
        self.gate.started(count, self.now)
        self.flying += count

    @precondition(lambda self: self.flying)
    @rule(healthy=st.sampled_from([True, False, None]), hold=st.sampled_from([0, 0, 1_000]))
    def end(self, healthy: bool | None, hold: int) -> None:
        self.gate.ended(self.now, healthy=healthy, hold_ms=hold)
        self.flying -= 1

    @rule(step=st.integers(0, 400_000))
    def pass_time(self, step: int) -> None:
        self.now += step

    @invariant()
    def never_more_calls_than_allowed(self) -> None:
        assert self.flying == self.gate.in_flight <= 3

    @invariant()
    def a_shut_gate_lets_one_through_at_most(self) -> None:
        if self.gate.open_until:
            assert self.gate.slots(self.now) <= (0 if self.flying else 1)

    @invariant()
    def no_gate_is_shut_for_ever(self) -> None:
        assert self.gate.ready_at() <= self.now + LONGEST_PAUSE_MS
        if not self.flying:
            assert self.gate.slots(self.now + LONGEST_PAUSE_MS) > 0


TestGate = GateMachine.TestCase
