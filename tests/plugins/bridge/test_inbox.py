"""The inbox in sentences."""

import pytest

from hermes_bridge.plugins.bridge import inbox as box
from hermes_bridge.plugins.bridge.frames import Wake
from hermes_bridge.plugins.bridge.inbox import (
    Ack,
    Exchange,
    Inbox,
    Interrupt,
    Keep,
    Reply,
    Send,
    Start,
    State,
)

YES = Reply("yes")


def wake(rid: str, conversation: str = "c", **more: int) -> Wake:
    return Wake(rid, conversation, "ann", "hi", **more)


def started(effects: list[box.Effect]) -> list[str]:
    return [e.wake.request_id for e in effects if isinstance(e, Start)]


def test_a_wake_is_kept_acked_and_started() -> None:
    first = Inbox().arrived(wake("r"), 0.0)
    assert first == [Keep("r"), Ack("r"), Keep("r"), Start(wake("r"))]


def test_the_same_wake_again_is_acked_and_runs_once() -> None:
    inbox = Inbox()
    inbox.arrived(wake("r"), 0.0)
    assert inbox.arrived(wake("r", attempt=2), 1.0) == [Ack("r")]
    inbox.replied("r", YES)
    assert inbox.arrived(wake("r", attempt=3), 2.0) == [Ack("r"), Send("r", YES)]


def test_a_conversation_has_one_turn_at_a_time_in_order() -> None:
    inbox = Inbox()
    assert started(inbox.arrived(wake("r1"), 0.0)) == ["r1"]
    assert started(inbox.arrived(wake("r2"), 0.0)) == []
    assert started(inbox.arrived(wake("r3"), 0.0)) == []
    inbox.replied("r1", YES)
    inbox.turn_over("r1", 1.0, "")
    assert started(inbox.due(1.1)) == []
    assert inbox.next_deadline() == 1.0 + box.REST_S
    assert started(inbox.due(1.0 + box.REST_S)) == ["r2"]
    inbox.turn_over("r2", 2.0, "")
    assert started(inbox.due(3.0)) == ["r3"]


def test_two_conversations_run_side_by_side() -> None:
    inbox = Inbox()
    assert started(inbox.arrived(wake("r1", "a"), 0.0)) == ["r1"]
    assert started(inbox.arrived(wake("r2", "b"), 0.0)) == ["r2"]
    assert inbox.turns() == [("a", "r1"), ("b", "r2")]


def test_the_first_answer_counts() -> None:
    inbox = Inbox()
    inbox.arrived(wake("r"), 0.0)
    assert inbox.replied("r", YES) == [Keep("r"), Send("r", YES)]
    assert inbox.replied("r", Reply("no")) == []
    assert inbox.turn_over("r", 1.0, "ended") == []
    assert inbox.replied("stranger", YES) == []


def test_a_turn_that_ends_without_an_answer_fails_its_exchange() -> None:
    inbox = Inbox()
    inbox.arrived(wake("r"), 0.0)
    effects = inbox.turn_over("r", 1.0, "no text")
    assert effects == [Keep("r"), Send("r", Reply("no text", failure=True))]


def test_an_answer_in_mid_turn_leaves_the_turn_on() -> None:
    inbox = Inbox()
    inbox.arrived(wake("r1"), 0.0)
    inbox.arrived(wake("r2"), 0.0)
    inbox.replied("r1", YES)
    assert inbox.turn("c") == "r1"
    assert inbox.open() == ["r2"]
    assert started(inbox.due(99.0)) == []


def test_a_cancelled_wake_that_waits_never_starts() -> None:
    inbox = Inbox()
    inbox.arrived(wake("r1"), 0.0)
    inbox.arrived(wake("r2"), 0.0)
    assert inbox.cancelled("r2") == [Keep("r2")]
    inbox.turn_over("r1", 0.0, "")
    assert started(inbox.due(9.0)) == []
    assert inbox.cancelled("r2") == []


def test_a_cancelled_turn_is_interrupted_and_its_text_dropped() -> None:
    inbox = Inbox()
    inbox.arrived(wake("r"), 0.0)
    assert inbox.cancelled("r") == [Keep("r"), Interrupt("c", "r")]
    assert inbox.replied("r", YES) == []
    assert inbox.turn_over("r", 1.0, "stopped") == []


def test_a_postponed_turn_starts_later_and_keeps_its_place() -> None:
    inbox = Inbox()
    inbox.arrived(wake("r1"), 0.0)
    inbox.arrived(wake("r2"), 0.0)
    inbox.postponed("r1", 5.0)
    assert inbox.next_deadline() == 5.0
    assert started(inbox.due(4.9)) == []
    assert inbox.due(5.0)[-1] == Start(wake("r1"))


def test_what_ran_in_the_last_process_runs_again_and_says_so() -> None:
    inbox = Inbox()
    before = Exchange(wake("r"), 0.0, State.RUNNING, starts=1)
    assert inbox.loaded([before], 5.0)[-1] == Start(wake("r", attempt=2))


def test_an_answer_that_the_relay_never_confirmed_is_sent_again() -> None:
    unsent = Exchange(wake("r1"), 0.0, State.SETTLED, 1, YES)
    sent = Exchange(wake("r2"), 0.0, State.SETTLED, 1, YES, confirmed=True)
    assert Inbox().loaded([unsent, sent], 5.0) == [Send("r1", YES)]


def test_a_question_nobody_waits_for_any_more_does_not_run_after_a_restart() -> None:
    inbox = Inbox()
    late = Exchange(wake("r", deadline_ms=1_000), 0.0, State.RUNNING, 1)
    assert started(inbox.loaded([late], 2.0)) == []


def test_a_question_that_ended_the_process_three_times_fails() -> None:
    inbox = Inbox()
    poison = Exchange(wake("r"), 0.0, State.RUNNING, starts=box.MAX_STARTS)
    sent = inbox.loaded([poison], 1.0)[-1]
    assert isinstance(sent, Send)
    assert sent.reply.failure


def test_over_the_bound_a_question_is_failed_at_once() -> None:
    inbox = Inbox()
    for n in range(box.MAX_OPEN):
        inbox.arrived(wake(f"r{n}"), 0.0)
    refused = inbox.arrived(wake("one more"), 0.0)[-1]
    assert isinstance(refused, Send)
    assert refused.reply.failure


def test_a_request_id_is_remembered_for_a_day() -> None:
    inbox = Inbox()
    inbox.arrived(wake("r"), 0.0)
    inbox.replied("r", YES)
    inbox.turn_over("r", 0.0, "")
    inbox.confirmed("r")
    assert inbox.arrived(wake("r"), box.KEEP_S - 1)[0] == Ack("r")
    assert started(inbox.arrived(wake("new"), box.KEEP_S + 1)) == ["new"]
    assert inbox.get("r") is None


@pytest.mark.parametrize("count", [box.KEPT_ANSWERS + 10])
def test_old_confirmed_answers_give_their_memory_back(count: int) -> None:
    inbox = Inbox()
    for n in range(count):
        inbox.arrived(wake(f"r{n}", f"c{n}"), n * 61.0)
        inbox.replied(f"r{n}", YES)
        inbox.turn_over(f"r{n}", n * 61.0, "")
        inbox.confirmed(f"r{n}")
    inbox.arrived(wake("last"), count * 61.0)
    kept = [e for e in inbox.all() if e.reply is not None]
    assert len(kept) == box.KEPT_ANSWERS
