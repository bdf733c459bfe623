"""The outbox's rules, one by one: order, leases, parking, replay, retention."""

import pytest
from tests.plugins.http_callback.outbox_steps import LEASE, MIN, end, ids, put, state, take

from hermes_bridge.plugins.http_callback.custody import DAY_MS, Custody, Filter, NotFound
from hermes_bridge.plugins.http_callback.outbox import Outbox
from hermes_bridge.plugins.http_callback.verdict import Outcome


@pytest.mark.clause("callback.order.2")
def test_a_follower_waits_until_the_first_is_delivered(outbox: Outbox) -> None:
    put(outbox, "m1")
    put(outbox, "m2")
    [first] = take(outbox)
    assert (first.id, state(outbox, "m2")) == ("m1", "waiting")
    end(outbox, first, Outcome.AGAIN, delay=2_000)
    assert take(outbox, now=1_999) == []
    [again] = take(outbox, now=2_000)
    assert (again.id, again.attempt) == ("m1", 2)
    end(outbox, again, Outcome.DELIVERED, now=2_100)
    assert ids(take(outbox, now=2_100)) == ["m2"]


def test_conversations_do_not_wait_for_each_other(outbox: Outbox) -> None:
    for id, lane in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        put(outbox, id, lane)
    assert ids(take(outbox)) == ["a1", "b1"]


@pytest.mark.clause("callback.order.3")
def test_with_bounded_order_followers_pass_after_the_hold(outbox: Outbox) -> None:
    put(outbox, "m1")
    put(outbox, "m2")
    [first] = take(outbox)
    end(outbox, first, Outcome.AGAIN, delay=10 * MIN, hold=MIN)
    assert take(outbox, now=MIN - 1) == []
    assert ids(take(outbox, now=MIN)) == ["m2"]


@pytest.mark.clause("callback.order.3")
def test_the_hold_runs_from_the_first_failure_and_ends_with_delivery(
    outbox: Outbox,
) -> None:
    put(outbox, "m1")
    put(outbox, "m2")
    [first] = take(outbox)
    end(outbox, first, Outcome.AGAIN, delay=1_000, hold=MIN)
    [again] = take(outbox, now=1_000)
    end(outbox, again, Outcome.AGAIN, now=1_000, delay=10_000, hold=MIN)
    assert outbox.db.execute("SELECT due FROM deliveries WHERE id='m2'").fetchone() == (MIN,)
    [third] = take(outbox, now=11_000)
    end(outbox, third, Outcome.DELIVERED, now=11_000, hold=MIN)
    assert ids(take(outbox, now=11_000)) == ["m2"]


@pytest.mark.clause("callback.order.2")
def test_a_dead_answer_does_not_block_the_conversation(outbox: Outbox) -> None:
    put(outbox, "m1")
    put(outbox, "m2")
    [first] = take(outbox)
    end(outbox, first, Outcome.DEAD)
    assert state(outbox, "m1") == "dead"
    assert ids(take(outbox)) == ["m2"]


@pytest.mark.clause("callback.once.1")
def test_the_same_answer_is_stored_once(outbox: Outbox) -> None:
    first = put(outbox, "m1", origin="chat|event|text")
    second = put(outbox, "m2", origin="chat|event|text")
    assert (second.id, second.duplicate) == (first.id, True)
    assert ids(take(outbox)) == ["m1"]


@pytest.mark.clause("callback.lease.1")
def test_a_lost_lease_comes_back_under_the_same_id(outbox: Outbox) -> None:
    put(outbox, "m1")
    [lost] = take(outbox)
    with outbox.store.transaction(durable=False):
        assert outbox.reclaim(LEASE - 1, ()) == 0
        assert outbox.reclaim(LEASE, ()) == 1
    [again] = take(outbox, now=LEASE)
    assert (again.id, again.body, again.attempt) == (lost.id, lost.body, 2)


def test_what_is_in_flight_here_is_not_reclaimed_after_a_pause(
    outbox: Outbox,
) -> None:
    put(outbox, "m1")
    [mine] = take(outbox)
    with outbox.store.transaction(durable=False):
        assert outbox.reclaim(10 * LEASE, {mine.seq}) == 0


@pytest.mark.clause("callback.lease.1")
def test_the_next_process_takes_over_at_once(outbox: Outbox) -> None:
    put(outbox, "m1")
    take(outbox)
    heir = Outbox(outbox.store, "heir")
    with outbox.store.transaction(durable=False):
        assert heir.reclaim(1, (), takeover=True) == 1
    assert ids(take(heir, now=1)) == ["m1"]


@pytest.mark.clause("callback.lease.1")
@pytest.mark.parametrize("takeover", [True, False])
def test_what_was_being_sent_to_an_endpoint_that_was_paused_meanwhile_is_not_sent_again(
    outbox: Outbox, takeover: bool
) -> None:
    put(outbox, "m1")
    take(outbox)
    heir = Outbox(outbox.store, "heir")
    with outbox.store.transaction(durable=False):
        outbox.block("@crm", "paused", "by the operator", 1)
        assert heir.reclaim(LEASE, (), takeover=takeover) == 1
    assert (state(heir, "m1"), take(heir, now=LEASE)) == ("parked", [])
    with outbox.store.transaction(durable=False):
        Custody(heir).resume("@crm", LEASE)
    assert ids(take(heir, now=LEASE)) == ["m1"]


@pytest.mark.clause("callback.lease.2")
def test_of_a_lost_lease_only_a_late_2xx_counts(
    outbox: Outbox,
) -> None:
    put(outbox, "m1")
    [lost] = take(outbox)
    heir = Outbox(outbox.store, "heir")
    with outbox.store.transaction(durable=False):
        heir.reclaim(1, (), takeover=True)
    [current] = take(heir, now=1)
    end(outbox, lost, Outcome.DEAD, now=2)
    assert state(outbox, "m1") == "sending"
    end(outbox, lost, Outcome.DELIVERED, now=3)
    end(heir, current, Outcome.AGAIN, now=4)
    assert state(outbox, "m1") == "delivered"


@pytest.mark.clause("callback.gone.1")
def test_410_parks_what_waits_and_what_comes_and_resume_sends_all_in_order(outbox: Outbox) -> None:
    put(outbox, "m1")
    put(outbox, "m2")
    [first] = take(outbox)
    end(outbox, first, Outcome.GONE)
    assert put(outbox, "m3").state == "parked"
    assert put(outbox, "m4", "other").state == "parked"
    assert take(outbox) == []
    with outbox.store.transaction(durable=True):
        assert Custody(outbox).resume("@crm", 5) == 4
    order = []
    while jobs := take(outbox, now=10):
        order += ids(jobs)
        for job in jobs:
            end(outbox, job, Outcome.DELIVERED, now=10)
    assert [id for id in order if id != "m4"] == ["m1", "m2", "m3"]
    assert len(order) == 4


def test_a_row_in_flight_is_parked_when_its_endpoint_was_paused_meanwhile(outbox: Outbox) -> None:
    put(outbox, "m1")
    [job] = take(outbox)
    with outbox.store.transaction(durable=True):
        outbox.block("@crm", "paused", "by the operator", 0)
    end(outbox, job, Outcome.AGAIN)
    assert state(outbox, "m1") == "parked"


@pytest.mark.clause("callback.age.1")
def test_what_is_too_old_ends_as_dead_and_lets_the_next_go(outbox: Outbox) -> None:
    put(outbox, "m1", max_age_ms=MIN)
    put(outbox, "m2")
    assert ids(take(outbox, now=MIN)) == ["m2"]
    assert state(outbox, "m1") == "dead"


@pytest.mark.clause("callback.replay.1")
def test_a_replay_keeps_the_id_and_begins_a_fresh_round(outbox: Outbox) -> None:
    put(outbox, "m1")
    [job] = take(outbox)
    end(outbox, job, Outcome.DEAD)
    with outbox.store.transaction(durable=True):
        assert Custody(outbox).replay("m1", 5) == "m1"
    [again] = take(outbox, now=5)
    assert (again.id, again.body, again.attempt, again.round) == ("m1", job.body, 2, 1)


@pytest.mark.clause("callback.replay.2")
def test_a_replay_under_a_new_id_is_a_new_callback(outbox: Outbox) -> None:
    put(outbox, "m1")
    [job] = take(outbox)
    end(outbox, job, Outcome.DELIVERED)
    with outbox.store.transaction(durable=True):
        Custody(outbox).replay("m1", 5, new_id="m9")
    [again] = take(outbox, now=5)
    assert (again.id, again.attempt) == ("m9", 1)
    assert again.body == b'{"hermes": {"id": "m9", "seq": 2}}'
    assert state(outbox, "m1") == "delivered"


def test_replay_all_keeps_the_order_of_a_conversation(outbox: Outbox) -> None:
    for n in range(3):
        put(outbox, f"m{n}")
        [job] = take(outbox)
        end(outbox, job, Outcome.DEAD)
    with outbox.store.transaction(durable=True):
        assert Custody(outbox).replay_all(Filter(states=("dead",)), 5) == 3
    [first] = take(outbox, now=5)
    assert first.id == "m0"
    assert state(outbox, "m1") == "waiting"


def test_a_dropped_row_is_kept_and_never_sent(outbox: Outbox) -> None:
    put(outbox, "m1")
    put(outbox, "m2")
    with outbox.store.transaction(durable=True):
        custody = Custody(outbox)
        custody.drop("m1", 0)
        assert custody.replay_all(Filter(), 0) == 0
    assert ids(take(outbox)) == ["m2"]
    assert state(outbox, "m1") == "dropped"


def test_an_id_is_found_by_its_start_if_no_other_starts_so(outbox: Outbox) -> None:
    put(outbox, "msg_aa1")
    put(outbox, "msg_ab2")
    custody = Custody(outbox)
    assert custody.show("msg_aa")["id"] == "msg_aa1"
    for id in ("msg_a", "nothing", "%", "msg_aa_"):
        with pytest.raises(NotFound):
            custody.show(id)


@pytest.mark.clause("callback.keep.1")
def test_what_ended_is_cleared_out_in_time_and_what_is_owed_never(outbox: Outbox) -> None:
    for id in ("delivered", "dead", "owed"):
        put(outbox, id, id, max_age_ms=365 * DAY_MS)
    jobs = {job.id: job for job in take(outbox)}
    end(outbox, jobs["delivered"], Outcome.DELIVERED)
    end(outbox, jobs["dead"], Outcome.DEAD)
    end(outbox, jobs["owed"], Outcome.AGAIN)
    seen = []
    for day in (0.5, 2, 8, 31, 300):
        with outbox.store.transaction(durable=False):
            Custody(outbox).purge(int(day * DAY_MS), max_bytes=1 << 40)
        seen.append(
            dict(
                outbox.db.execute(
                    "SELECT id, EXISTS (SELECT 1 FROM bodies WHERE delivery=seq) FROM deliveries"
                )
            )
        )
    assert seen == [
        {"delivered": 1, "dead": 1, "owed": 1},
        {"delivered": 0, "dead": 1, "owed": 1},
        {"dead": 1, "owed": 1},
        {"owed": 1},
        {"owed": 1},
    ]


def test_beyond_the_size_cap_delivered_rows_go_first_and_owed_ones_never(outbox: Outbox) -> None:
    big = lambda seq: b"x" * 100_000  # noqa: E731
    for n in range(6):
        put(outbox, f"m{n}", f"l{n}", make_body=big)
    for job in take(outbox)[:3]:
        end(outbox, job, Outcome.DELIVERED)
    with outbox.store.transaction(durable=False):
        assert Custody(outbox).purge(1, max_bytes=1000) == 3
    assert outbox.db.execute("SELECT COUNT(*) FROM deliveries").fetchone() == (3,)


def test_a_due_time_that_a_moved_clock_left_in_the_far_future_is_mended(outbox: Outbox) -> None:
    put(outbox, "m1", now=400 * DAY_MS)
    with outbox.store.transaction(durable=False):
        outbox.reclaim(10, (), takeover=True)
    assert ids(take(outbox, now=10)) == ["m1"]
