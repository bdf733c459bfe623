"""The upgrade token: vectors, and that nothing but the right secret opens a door."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hermes_bridge.contract.token import Accepted, mint, read, verify

ROWS = json.loads((Path(__file__).parents[1] / "vectors/relay/tokens.json").read_text("utf-8"))
TEXT = st.text(min_size=1, max_size=12)


@pytest.mark.clause("relay.token.1", "relay.token.2", "relay.token.3")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["why"])
def test_a_token_is_judged_as_the_vectors_say(row: dict[str, object]) -> None:
    found = verify(read(row["token"]), row["secrets"], row["now"])
    verdict = found.gateway_id if isinstance(found, Accepted) else found.reason
    assert verdict == row["verdict"]


@given(gateway=TEXT, secret=TEXT, others=st.lists(TEXT, max_size=3))
def test_what_is_minted_is_accepted_and_names_the_secret_that_proved_it(
    gateway: str, secret: str, others: list[str]
) -> None:
    claims = read(mint(gateway, secret, 1_000))
    found = verify(claims, [*others, secret], 1_000)
    assert found == Accepted(gateway, secret)


@given(token=st.text(max_size=80))
def test_no_text_at_all_makes_a_token_raise(token: str) -> None:
    assert not isinstance(verify(read(token), ["secret"], 1_000), Accepted)


def test_one_changed_character_is_enough_to_be_refused() -> None:
    token = mint("gw-a", "secret", 2_000)
    for place in range(len(token) - 1):
        other = "A" if token[place] != "A" else "B"
        changed = token[:place] + other + token[place + 1 :]
        assert not isinstance(verify(read(changed), ["secret"], 1_000), Accepted)
