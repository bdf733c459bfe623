"""The identity table: what a file may say, what is never echoed, how two tables differ."""

import json

import pytest

from hermes_bridge.connector.core.identity import (
    account_moved,
    difference,
    read_table,
    table_of,
)
from hermes_bridge.errors import ConfigError

ROW = {"botId": "agent-a", "token": "ac_tok", "gatewayId": "gw-a", "secret": "sss-one"}


def table(*rows: dict[str, object]) -> object:
    return table_of([dict(row) for row in rows], source="test")


@pytest.mark.clause("relay.identity.1")
def test_the_seeds_four_fields_are_enough() -> None:
    identity = table_of([ROW], source="test").rows[0]
    assert (identity.agent_id, identity.secrets, identity.platform) == (
        "agent-a", ("sss-one",), "agentschat",
    )  # fmt: skip


def test_unknown_keys_are_ignored() -> None:
    assert len(table_of([ROW | {"note": 1}], source="test")) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("{}", "not a non-empty array"),
        ("[]", "not a non-empty array"),
        ("[7]", "entry 0: not an object"),
        (json.dumps([ROW, ROW]), "entry 1: duplicate botId"),
        (json.dumps([ROW | {"token": " "}]), "entry 0: missing or invalid string fields: token"),
        (
            json.dumps([{"botId": "b"}]),
            "entry 0: missing or invalid string fields: token, gatewayId",
        ),
        (json.dumps([ROW | {"profile": 7}]), "entry 0: missing or invalid string fields: profile"),
        (
            json.dumps([ROW | {"owners": "ada"}]),
            "entry 0: missing or invalid string fields: owners",
        ),
        (json.dumps([ROW | {"profile": "main"}]), "'main' is reserved"),
    ],
)
def test_a_bad_table_says_which_row_and_which_fields(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_table(text, source="file")
    assert words in str(caught.value)


@pytest.mark.clause("relay.identity.4")
def test_no_error_and_no_repr_shows_a_secret() -> None:
    secret, token = "very-secret-value", "ac_very_private_token"
    row = ROW | {"secret": secret, "token": token}
    for bad in (row | {"botId": ""}, row | {"owners": 3}, row | {"gatewayId": None}):
        with pytest.raises(ConfigError) as caught:
            table_of([bad], source="file")
        assert secret not in f"{caught.value}{caught.value.hint}"
    shown = repr(table_of([row], source="file").rows[0])
    assert secret not in shown
    assert token not in shown


@pytest.mark.clause("relay.identity.3")
def test_several_secrets_are_valid_at_once_for_one_bot() -> None:
    rows = table_of([ROW | {"secrets": ["sss-two", "sss-one"]}], source="test")
    assert rows.secrets_of("gw-a") == ["sss-one", "sss-two"]
    alone = {key: value for key, value in ROW.items() if key != "secret"} | {"secrets": ["x"]}
    assert table_of([alone], source="test").secrets_of("gw-a") == ["x"]


def test_a_table_differs_by_bot() -> None:
    b, c = ROW | {"botId": "b"}, ROW | {"botId": "c"}
    old = table_of([ROW, b], source="test")
    new = table_of([b | {"profile": "p"}, c], source="test")
    found = difference(old, new)
    assert [each.bot_id for each in found.added] == ["c"]
    assert [each.bot_id for each in found.removed] == ["agent-a"]
    assert [(before.profile, after.profile) for before, after in found.changed] == [("", "p")]
    assert difference(old, old).changed == ()


def test_only_the_account_of_a_row_needs_a_new_login() -> None:
    before = table_of([ROW], source="test").rows[0]
    for change, moved in (
        ({"token": "t2"}, True),
        ({"agentId": "x"}, True),
        ({"secret": "s"}, False),
    ):
        after = table_of([ROW | change], source="test").rows[0]
        assert account_moved(before, after) is moved
