"""What a receiver's answer means, and when the next attempt is."""

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.plugins.http_callback.verdict import (
    CAPTAIN_SCHEDULE,
    DEFAULT_SCHEDULE,
    Answer,
    Failure,
    Outcome,
    Policy,
    judge,
    retry_after_ms,
)

POLICY = Policy()
WALL = 1_700_000_000


def outcome(answer: Answer, tries: int = 1, policy: Policy = POLICY) -> Outcome:
    return judge(answer, tries, policy, wall=WALL).outcome


@pytest.mark.clause("callback.status.1")
@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_delivery(status: int) -> None:
    assert outcome(Answer(status=status)) is Outcome.DELIVERED


@pytest.mark.clause("callback.status.2")
@pytest.mark.parametrize("status", [400, 413, 414, 415, 422])
def test_a_refusal_of_the_message_is_final_at_once(status: int) -> None:
    assert outcome(Answer(status=status)) is Outcome.DEAD


@pytest.mark.clause("callback.status.3")
@pytest.mark.parametrize("status", [401, 403, 404, 405, 407, 418])
def test_a_refusal_of_the_caller_gets_three_tries(status: int) -> None:
    assert [outcome(Answer(status=status), n) for n in (1, 2, 3)] == [
        Outcome.AGAIN,
        Outcome.AGAIN,
        Outcome.DEAD,
    ]


@pytest.mark.clause("callback.status.4")
@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 599])
def test_trouble_of_the_receiver_gets_the_whole_schedule(status: int) -> None:
    last = len(DEFAULT_SCHEDULE)
    assert outcome(Answer(status=status), last - 1) is Outcome.AGAIN
    assert outcome(Answer(status=status), last) is Outcome.DEAD


@pytest.mark.clause("callback.status.4")
@pytest.mark.parametrize(
    "failure", [Failure.DNS, Failure.CONNECT, Failure.TLS, Failure.TIMEOUT, Failure.BROKEN]
)
def test_trouble_on_the_way_gets_the_whole_schedule_and_tells_the_breaker(failure: Failure) -> None:
    verdict = judge(Answer(failure=failure), 1, POLICY, wall=WALL)
    assert (verdict.outcome, verdict.healthy) == (Outcome.AGAIN, False)


@pytest.mark.clause("callback.status.5")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_names_its_host(status: int) -> None:
    verdict = judge(Answer(status=status, location="http://10.0.0.1"), 1, POLICY, wall=WALL)
    assert verdict.outcome is Outcome.DEAD
    assert "http://10.0.0.1" in verdict.reason


@pytest.mark.clause("callback.status.6")
def test_410_says_that_the_endpoint_is_gone() -> None:
    assert outcome(Answer(status=410)) is Outcome.GONE


@pytest.mark.clause("callback.status.7")
def test_a_receiver_can_stop_the_retries() -> None:
    assert outcome(Answer(status=503, abort=True)) is Outcome.DEAD


def test_an_unverifiable_certificate_gets_three_tries() -> None:
    answer = Answer(failure=Failure.TLS_VERIFY)
    assert [outcome(answer, n) for n in (2, 3)] == [Outcome.AGAIN, Outcome.DEAD]


def test_a_blocked_address_is_rejected_with_the_guards_words() -> None:
    verdict = judge(
        Answer(failure=Failure.BLOCKED, detail="10.0.0.1 is private"), 1, POLICY, wall=WALL
    )
    assert (verdict.outcome, verdict.reason) == (Outcome.REJECTED, "10.0.0.1 is private")


@pytest.mark.clause("callback.ambiguous.1")
@pytest.mark.parametrize("failure", [Failure.TIMEOUT, Failure.BROKEN])
def test_an_ambiguous_end_is_held_when_the_receiver_cannot_deduplicate(failure: Failure) -> None:
    hold = Policy(on_ambiguous="hold")
    assert outcome(Answer(failure=failure), policy=hold) is Outcome.DEAD
    assert outcome(Answer(failure=Failure.CONNECT), policy=hold) is Outcome.AGAIN


@pytest.mark.clause("callback.retry.2")
def test_the_delays_are_those_of_the_schedule_with_a_fifth_of_jitter() -> None:
    answer = Answer(status=503)
    for schedule in (DEFAULT_SCHEDULE, CAPTAIN_SCHEDULE):
        for tries, seconds in enumerate(schedule[1:], start=1):
            for jitter, factor in ((0, 1.0), (1, 1.2), (-1, 0.8)):
                verdict = judge(answer, tries, Policy(schedule), wall=WALL, jitter=jitter)
                assert verdict.delay_ms == pytest.approx(seconds * factor * 1000, abs=1)


@pytest.mark.clause("callback.retry.3")
@pytest.mark.parametrize(
    ("value", "ms"),
    [
        ("120", 120_000),
        ("0", 0),
        ("99999", 3_600_000),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120_000),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("soon", 0),
        ("", 0),
        ("-5", 0),
        ("٣", 0),
        ("9" * 400, 3_600_000),
        ("Tue, 99 Nov 2023", 0),
    ],
)
def test_retry_after_is_read_as_seconds_or_a_date_and_capped(value: str, ms: int) -> None:
    assert retry_after_ms(value, WALL) == ms


@pytest.mark.clause("callback.retry.3")
@pytest.mark.parametrize(("status", "hold"), [(429, 600_000), (503, 600_000), (500, 0)])
def test_retry_after_delays_the_message_and_for_429_and_503_the_endpoint(
    status: int, hold: int
) -> None:
    verdict = judge(Answer(status=status, retry_after="600"), 1, POLICY, wall=WALL, jitter=-1)
    assert (verdict.delay_ms, verdict.hold_ms) == (600_000, hold)


@given(
    st.one_of(
        st.builds(
            Answer,
            status=st.integers(100, 999),
            retry_after=st.text(max_size=12),
            abort=st.booleans(),
        ),
        st.builds(Answer, failure=st.sampled_from(Failure)),
    ),
    st.integers(1, 200),
    st.sampled_from([POLICY, Policy(CAPTAIN_SCHEDULE), Policy((0,)), Policy(on_ambiguous="hold")]),
    st.floats(-1, 1),
)
def test_every_answer_has_a_verdict_and_retries_end(
    answer: Answer, tries: int, policy: Policy, jitter: float
) -> None:
    verdict = judge(answer, tries, policy, wall=WALL, jitter=jitter)
    assert verdict.delay_ms >= 0
    if verdict.outcome is Outcome.AGAIN:
        assert tries < len(policy.schedule)
    if verdict.outcome is not Outcome.DELIVERED:
        assert verdict.reason
