"""The answer, a status line, an error, Hermes' own notices: told apart."""

import pytest

from hermes_bridge.plugins.http_callback.classify import Circumstance, sort

FINAL = Circumstance(webhook=True, notify=True)
INTERIM = Circumstance(webhook=True)
TEXT = "Seu pedido chega amanhã."


@pytest.mark.clause("callback.kind.1")
@pytest.mark.parametrize(
    ("text", "how", "kind"),
    [
        (TEXT, FINAL, "final"),
        (TEXT, Circumstance(webhook=True, recorded=True), "final"),
        (TEXT, INTERIM, "status"),
        ("↪ Redirected current run", INTERIM, "status"),
        ("⏳ Queued for the next turn", INTERIM, "status"),
        (TEXT, Circumstance(webhook=False), "direct"),
        (TEXT, Circumstance(webhook=False, job=True), "cron"),
        (TEXT, Circumstance(webhook=False, bridged=False), "final"),
        (TEXT, Circumstance(webhook=False, bridged=False, job=True), "cron"),
        ("(Response formatting failed, plain text:)\n\n" + TEXT, FINAL, "notice"),
        ("gateway.notify.plain_fallback_prefix", FINAL, "notice"),
        ("⚠️ Message delivery failed after multiple attempts. Please try again", FINAL, "notice"),
        ("Sorry, I encountered an error (UnicodeEncodeError).\nx", INTERIM, "error"),
        ("HTTP 401: Provided authentication token is expired", FINAL, "error"),
        (TEXT, Circumstance(webhook=True, notify=True, turn_failed=True), "error"),
        ("x rejected your API key.\n\nProvider said: HTTP 401: expired", FINAL, "error"),
        ("⚠️ API call failed after 3 retries: x", FINAL, "error"),
        ("Use HTTP 401 when the token is missing.", FINAL, "final"),
        ("[SILENT]", FINAL, "silence"),
    ],
)
def test_a_text_is_what_it_is(text: str, how: Circumstance, kind: str) -> None:
    assert sort(text, how).kind == kind


@pytest.mark.clause("callback.kind.2")
def test_a_recovered_answer_loses_hermes_words_about_its_recovery() -> None:
    wrapped = "♻️ Recovered reply — the gateway restarted during delivery:\n\n" + TEXT
    found = sort(wrapped, INTERIM)
    assert (found.kind, found.content) == ("final", TEXT)


@pytest.mark.clause("callback.kind.2")
def test_an_answer_that_could_not_be_stored_comes_back_whole_without_the_prefix() -> None:
    long = "x" * 5_000
    how = Circumstance(webhook=True, notify=True, failed=long)
    found = sort("(Response formatting failed, plain text:)\n\n" + long[:3500], how)
    assert (found.kind, found.content, found.held_back) == ("final", long, "")


def test_an_error_inside_a_long_answer_is_part_of_the_answer() -> None:
    assert sort("HTTP 404 means not found. " * 100, FINAL).kind == "final"
