"""Who may speak for whom: sentences, and a machine that tries everything in any order.

Planted mutants that these tests kill (each was seen to fail): a hello that proves no secret; an empty
bot id that is taken for a missing one; a refused hello that keeps its bots; requests that are known
by their id alone.
"""

from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_bridge.connector.core.identity import IdentityTable, table_of
from hermes_bridge.connector.core.session import (
    CREDENTIAL_MISMATCH,
    UNKNOWN_IDENTITY,
    UNSUPPORTED_PLATFORM,
    Declared,
    HelloRefused,
    Known,
    RelaySession,
    Requests,
    Reused,
    Running,
)

UNSET = msgspec.UNSET


def row(bot: str, gateway: str = "gw", secret: str = "s1", **more: Any) -> dict[str, Any]:
    return {"botId": bot, "token": "t", "gatewayId": gateway, "secret": secret, **more}


def table(*rows: dict[str, Any]) -> IdentityTable:
    return table_of(list(rows), source="test")


TWO = table(row("a"), row("b"), row("c", "other"), row("d", secret="s2"))


def hello(session: RelaySession, bot: str, platform: str = "agentschat") -> object:
    return session.hello(platform, bot, TWO)


@pytest.mark.clause("relay.hello.1")
def test_a_hello_with_the_right_gateway_and_secret_is_accepted() -> None:
    session = RelaySession("gw", "s1")
    assert isinstance(hello(session, "a"), Declared)
    assert session.bots == ("a",)


@pytest.mark.clause("relay.hello.3")
@pytest.mark.parametrize(
    ("platform", "bot", "reason"),
    [
        ("telegram", "a", UNSUPPORTED_PLATFORM),
        ("relay", "", UNSUPPORTED_PLATFORM),
        ("", "a", UNSUPPORTED_PLATFORM),
        ("agentschat", "nobody", UNKNOWN_IDENTITY),
        ("agentschat", "", UNKNOWN_IDENTITY),
        ("agentschat", "c", CREDENTIAL_MISMATCH),
        ("agentschat", "d", CREDENTIAL_MISMATCH),
    ],
)
def test_a_refused_hello_names_its_reason_and_takes_everything(
    platform: str, bot: str, reason: str
) -> None:
    session = RelaySession("gw", "s1")
    hello(session, "b")
    assert hello(session, bot, platform) == HelloRefused(reason)
    assert session.bots == ()
    assert session.speaker(UNSET, "b", TWO) is None


@pytest.mark.clause("relay.outbound.1")
def test_a_missing_bot_id_means_the_only_declared_identity() -> None:
    session = RelaySession("gw", "s1")
    assert session.speaker(UNSET, UNSET, TWO) is None
    hello(session, "a")
    speaker = session.speaker(UNSET, UNSET, TWO)
    assert speaker is not None
    assert speaker.bot_id == "a"
    hello(session, "b")
    assert session.speaker(UNSET, UNSET, TWO) is None


@pytest.mark.clause("relay.outbound.2")
@pytest.mark.parametrize("bot_id", ["", None, 7, {}, [], True, "nobody", "c"])
def test_a_malformed_or_foreign_bot_id_is_never_taken_for_a_missing_one(bot_id: Any) -> None:
    session = RelaySession("gw", "s1")
    hello(session, "a")
    assert session.speaker(UNSET, bot_id, TWO) is None


@pytest.mark.parametrize("platform", ["telegram", "", None, 7])
def test_an_operation_for_another_platform_is_refused(platform: Any) -> None:
    session = RelaySession("gw", "s1")
    hello(session, "a")
    assert session.speaker(platform, UNSET, TWO) is None
    assert session.speaker("agentschat", UNSET, TWO) is not None


@pytest.mark.clause("relay.identity.5")
def test_a_reload_takes_removed_reassigned_and_rotated_identities() -> None:
    session = RelaySession("gw", "s1")
    hello(session, "a")
    hello(session, "b")
    new = table(row("a", "elsewhere"), row("b", secret="s9", secrets=["s1"]))
    assert session.reloaded(new) == ("a",)
    assert session.bots == ("b",)
    assert session.still_valid(new)
    assert not session.still_valid(table(row("b", secret="s9")))


@pytest.mark.clause("relay.identity.5")
@pytest.mark.parametrize("changed", [row("a", "elsewhere"), row("a", secret="s9"), row("z")])
def test_a_new_table_counts_before_the_connection_has_heard_of_it(changed: dict[str, Any]) -> None:
    session = RelaySession("gw", "s1")
    hello(session, "a")
    assert session.speaker(UNSET, UNSET, table(changed)) is None
    assert session.speaker(UNSET, "a", table(changed)) is None
    assert not session.may_use("a", table(changed))


@pytest.mark.clause("relay.inbound.3")
def test_the_profile_stamp_depends_on_the_row_and_on_how_many_bots_share_a_connection() -> None:
    plain, named = TWO.rows[0], table(row("a", profile="work")).rows[0]
    session = RelaySession("gw", "s1")
    hello(session, "a")
    assert session.profile_for(plain) is None
    assert session.profile_for(named) == "work"
    hello(session, "b")
    assert session.profile_for(plain) == "a"


@pytest.mark.clause("relay.outbound.5")
def test_a_repeated_request_gets_the_answer_of_the_first() -> None:
    requests = Requests()
    assert requests.begin("a", "r1", b"{}") is None
    assert isinstance(requests.begin("a", "r1", b"{}"), Running)
    requests.finish("a", "r1", {"success": True})
    assert requests.begin("a", "r1", b"{}") == Known({"success": True})
    assert isinstance(requests.begin("a", "r1", b"[]"), Reused)
    assert requests.begin("b", "r1", b"{}") is None


def test_old_requests_are_forgotten_but_never_running_ones() -> None:
    requests = Requests(keep=2)
    for name in ("r1", "r2", "r3"):
        requests.begin("a", name, b"")
    assert isinstance(requests.begin("a", "r1", b""), Running)
    for name in ("r1", "r2", "r3"):
        requests.finish("a", name, {})
    requests.begin("a", "r4", b"")
    assert requests.begin("a", "r1", b"") is None


BOTS = ["a", "b", "c"]
GATEWAYS = ["g1", "g2"]
SECRETS = ["s1", "s2"]


class SessionMachine(RuleBasedStateMachine):
    """Connections, hellos, operations and reloads in any order, against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = {bot: ("g1", {"s1"}) for bot in BOTS}
        self.sessions: list[tuple[str, str, RelaySession, set[str]]] = []

    def table(self) -> IdentityTable:
        rows = [
            row(bot, gateway, sorted(secrets)[0], secrets=sorted(secrets))
            for bot, (gateway, secrets) in self.rows.items()
        ]
        return table(*rows, row("always", "gx", "sx"))

    @rule(gateway=st.sampled_from(GATEWAYS), secret=st.sampled_from(SECRETS))
    def connect(self, gateway: str, secret: str) -> None:
        self.sessions.append((gateway, secret, RelaySession(gateway, secret), set()))

    def may(self, gateway: str, secret: str, bot: str) -> bool:
        found = self.rows.get(bot)
        return found is not None and found[0] == gateway and secret in found[1]

    @rule(place=st.integers(0, 5), bot=st.sampled_from([*BOTS, "nobody"]))
    def declare(self, place: int, bot: str) -> None:
        if not self.sessions:
            return
        gateway, secret, session, bots = self.sessions[place % len(self.sessions)]
        answer = session.hello("agentschat", bot, self.table())
        assert isinstance(answer, Declared) is self.may(gateway, secret, bot)
        if isinstance(answer, Declared):
            bots.add(bot)
        else:
            bots.clear()

    @rule(
        bot=st.sampled_from(BOTS),
        gateway=st.sampled_from(GATEWAYS),
        secrets=st.sets(st.sampled_from(SECRETS), min_size=1),
        gone=st.booleans(),
        told=st.booleans(),
    )
    def reload(self, bot: str, gateway: str, secrets: set[str], gone: bool, told: bool) -> None:
        self.rows.pop(bot, None)
        if not gone:
            self.rows[bot] = (gateway, secrets)
        if not told:
            return  # an operation may come before the connection hears of the new table
        for of_gateway, secret, session, bots in self.sessions:
            lost = session.reloaded(self.table())
            kept = {each for each in bots if self.may(of_gateway, secret, each)}
            assert set(lost) == bots - kept
            bots &= kept

    @rule(place=st.integers(0, 5), bot=st.sampled_from([*BOTS, "nobody", "", None, UNSET]))
    def speak(self, place: int, bot: Any) -> None:
        if not self.sessions:
            return
        gateway, secret, session, bots = self.sessions[place % len(self.sessions)]
        speaker = session.speaker(UNSET, bot, self.table())
        wanted = next(iter(bots)) if bot is UNSET and len(bots) == 1 else bot
        allowed = isinstance(wanted, str) and wanted in bots and self.may(gateway, secret, wanted)
        assert (speaker.bot_id if speaker else None) == (wanted if allowed else None)

    @invariant()
    def a_connection_has_what_it_declared_and_nothing_else(self) -> None:
        for _, _, session, bots in self.sessions:
            assert set(session.bots) == bots


TestSessionMachine = SessionMachine.TestCase
