"""The mention grammar, row by row; and that its answer never depends on the rest of the table."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.connector.core.mention import Mentions

ROWS = json.loads((Path(__file__).parents[2] / "vectors/relay/mentions.json").read_text("utf-8"))


@pytest.mark.clause("relay.mention.1")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["text"][:24].encode("unicode_escape"))
def test_a_text_calls_exactly_whom_the_table_says(row: dict[str, object]) -> None:
    assert Mentions(row["ids"]).called(row["text"]) == frozenset(row["called"])


IDS = st.sampled_from(["a", "ab", "agent-a", "agent-b", "a.b", "a+b(c)"])
TEXTS = st.lists(
    st.sampled_from(
        ["@", "(", ")", " ", "a", "ab", "agent-a", "agent-b", "a.b", "é", "-", "x", "\n"]
    ),
    max_size=12,
).map("".join)


@given(text=TEXTS, ids=st.sets(IDS, min_size=1))
def test_an_identity_is_called_whoever_else_is_in_the_table(text: str, ids: set[str]) -> None:
    alone = {each for each in ids if Mentions([each]).called(text)}
    assert Mentions(ids).called(text) == alone


@given(text=TEXTS)
def test_nobody_is_called_without_an_at_sign(text: str) -> None:
    assert Mentions(["agent-a", "a"]).called(text.replace("@", "")) == frozenset()
