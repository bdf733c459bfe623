"""Answers and failures, told apart. Texts as seen with real gateways of both versions."""

import pytest

from hermes_bridge.plugins.bridge.verdict import NO_TEXT, TurnEnd, judged, sounds_failed

WELL = TurnEnd(completed=True, interrupted=False)
FAILURES = [
    "⚠️ The model provider failed after retries. I kept raw provider details out of chat; check "
    "gateway logs for diagnostics.",
    "custom rejected this request as malformed.\n\nYour request was not processed. Send it again "
    "if you still want me to carry it out.",
    "The request failed: boom\nTry again or use /reset to start a fresh session.",
    "⚠️ No reply: the model returned empty content after retries and any fallback providers.",
    "explainer.no_reply_prefixexplainer.empty_response",
    "Hermes is at the active session limit (1/1). Try again when another session finishes.",
    "⏳ Gateway is restarting and is not accepting another turn right now.",
    "gateway.busy.draining_maintenance",
]


def test_a_text_of_a_turn_that_went_well_is_the_answer() -> None:
    assert judged(" 4 \n", seen=True, end=WELL).text == "4"
    assert not judged("4", seen=True, end=WELL).failure


def test_an_empty_text_is_a_failure_with_words() -> None:
    assert judged("  ", seen=True, end=WELL).text == NO_TEXT
    assert judged("", seen=True, end=WELL).failure


@pytest.mark.parametrize("text", FAILURES)
def test_the_words_of_a_failure_are_known_without_any_hook(text: str) -> None:
    assert judged(text, seen=False, end=None).failure


def test_a_turn_that_was_seen_to_begin_and_not_to_end_has_failed() -> None:
    assert judged("anything at all", seen=True, end=None).failure


def test_a_failed_or_interrupted_turn_is_a_failure_whatever_it_says() -> None:
    assert judged("fine", seen=True, end=TurnEnd(False, False, failed=True)).failure
    assert judged("fine", seen=True, end=TurnEnd(True, True)).failure


def test_a_model_that_quotes_a_failure_in_a_good_turn_has_answered() -> None:
    assert not judged(FAILURES[0], seen=True, end=WELL).failure


def test_a_turn_that_ran_out_of_steps_may_still_answer() -> None:
    assert not judged("what I have so far", seen=True, end=TurnEnd(False, False)).failure
    assert judged(FAILURES[0], seen=True, end=TurnEnd(False, False)).failure


def test_a_busy_tip_is_not_the_reason_of_a_failure() -> None:
    assert not sounds_failed("gateway.busy.ack\n\n💡 First-time tip - I redirected the current run")


def test_a_text_without_a_model_is_no_answer_where_hermes_tells_of_turns() -> None:
    assert judged("any words of Hermes", seen=False, end=None, hooked=True).failure
    assert not judged("of another server", seen=False, end=None, hooked=False).failure
