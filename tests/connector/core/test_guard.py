"""Strangers cannot command, secrets cannot leave."""

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.connector.core.guard import (
    MASK,
    Redactor,
    harmless,
    is_answer,
    is_approval_prompt,
    is_stop,
)

PROMPT = (
    "⚠️ **Dangerous command requires approval:**\n```\nrm -rf /\n```\nReason: deletes\n\n"
    "Reply `/approve` to execute this one operation, or `/deny` to cancel."
)


@pytest.mark.clause("relay.guard.1")
@pytest.mark.parametrize("text", ["/new", "  /stop", "\n/approve always", "/", "//x"])
def test_a_strangers_command_is_words(text: str) -> None:
    for has_owners in (True, False):
        found = harmless(text, author="Eve", owner=False, has_owners=has_owners)
        assert not found.strip().startswith("/")
        assert text.strip("/ \n") in found


@pytest.mark.clause("relay.guard.1")
@pytest.mark.parametrize("text", ["/new", "yes", "hello"])
def test_an_owners_words_pass_unchanged(text: str) -> None:
    assert harmless(text, author="Ada", owner=True, has_owners=True) == text


@pytest.mark.clause("relay.guard.2")
@pytest.mark.parametrize(
    "text", ["yes", "Yes!", " OK. ", "approve", "APPROVE  ALWAYS", "👍", "!always", "/approve", "y"]
)
def test_with_owners_a_strangers_bare_answer_is_quoted(text: str) -> None:
    assert is_answer(text)
    found = harmless(text, author="Eve", owner=False, has_owners=True)
    assert not is_answer(found)
    assert text.strip() in found


@pytest.mark.parametrize("text", ["yes, please do that", "okay then", "hello", ""])
def test_a_sentence_is_not_an_answer(text: str) -> None:
    assert not is_answer(text)
    assert harmless(text, author="Eve", owner=False, has_owners=True) == text


@given(text=st.text(max_size=30), has_owners=st.booleans())
def test_no_strangers_text_is_ever_a_command(text: str, has_owners: bool) -> None:
    found = harmless(text, author="Eve", owner=False, has_owners=has_owners)
    assert not found.strip().startswith("/")


@pytest.mark.clause("relay.guard.3")
def test_secrets_are_masked_wherever_they_stand() -> None:
    redactor = Redactor(["hunter2-hunter2", "short", "ac_0123456789abcdef"])
    text = "a ac_ABCDEFGHIJKLMNOP123 b eyJhbGciOi.eyJzdWIiOi.c2lnbmF0 c hunter2-hunter2x short"
    assert redactor.clean(text) == f"a {MASK} b {MASK} c {MASK}x short"
    assert Redactor().clean("ac_tooshort eyJ.a.b") == "ac_tooshort eyJ.a.b"


@pytest.mark.clause("relay.guard.3")
@given(
    secrets=st.lists(st.text("ab-", min_size=8, max_size=20), max_size=30),
    text=st.text("ab-", max_size=200),
    chosen=st.lists(st.tuples(st.integers(0, 29), st.text("ab-", max_size=5)), max_size=4),
)
def test_no_secret_is_left_wherever_it_stands(
    secrets: list[str], text: str, chosen: list[tuple[int, str]]
) -> None:
    for number, more in chosen:
        text += (secrets[number] if number < len(secrets) else "") + more
    clean = Redactor(secrets).clean(text)
    assert not [secret for secret in secrets if secret in clean]
    if not any(secret in text for secret in secrets):
        assert clean == text


@pytest.mark.clause("relay.guard.3")
def test_a_secret_is_found_at_every_place_and_the_longest_one_first() -> None:
    """Planted mutants that these tests kill: pieces a step too far apart; the shortest first."""
    for size in range(8, 25):
        secret = "0123456789abcdefghijklmnopqrstuvwxyz"[:size]
        redactor = Redactor([secret])
        for before in range(40):
            text = "x" * before + secret + "y" * 9
            assert redactor.clean(text) == "x" * before + MASK + "y" * 9
    assert Redactor(["12345678", "123456789abc"]).clean("123456789abc") == MASK


def test_the_stop_command_is_known() -> None:
    assert is_stop(" /stop now")
    assert not is_stop("/stopwatch")
    assert not is_stop("stop")


@pytest.mark.clause("relay.guard.4")
def test_an_approval_prompt_is_known_by_its_words() -> None:
    assert is_approval_prompt(PROMPT)
    assert is_approval_prompt(PROMPT.replace("`/", "`!"))
    assert not is_approval_prompt("Your holiday requires approval by HR.")
    assert not is_approval_prompt("Use /approve or /deny in the other tool.")
