import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_bridge.relay.core.roster import Agent, Presence, Roster

NOW = 1_800_000_000_000
GRACE = 30_000


def roster(*names: str) -> Roster:
    return Roster(Agent(name=name) for name in names)


def test_an_agent_is_offline_then_online_then_reconnecting_then_offline() -> None:
    r = roster("a")
    assert r.presence("a", NOW, GRACE) is Presence.OFFLINE
    link, old = r.link_up("a", NOW)
    assert old is None and r.presence("a", NOW, GRACE) is Presence.ONLINE
    assert r.link_down("a", link.generation, NOW)
    assert r.presence("a", NOW + GRACE - 1, GRACE) is Presence.RECONNECTING
    assert r.presence("a", NOW + GRACE, GRACE) is Presence.OFFLINE


@pytest.mark.clause("bridge.link.6")
def test_the_end_of_an_older_link_changes_nothing() -> None:
    r = roster("a")
    first, _ = r.link_up("a", NOW)
    second, superseded = r.link_up("a", NOW + 1)
    assert superseded is first
    assert not r.link_down("a", first.generation, NOW + 2)
    assert r.link("a") is second and r.seen("a").lost_at == 0


def test_a_hello_of_an_older_link_changes_nothing() -> None:
    r = roster("a")
    first, _ = r.link_up("a", NOW)
    second, _ = r.link_up("a", NOW)
    assert not r.greet("a", first.generation, protocol=2, description="old")
    assert r.greet("a", second.generation, protocol=2, client="x", description="new", skills=("s",))
    assert (second.acks, second.ready, r.seen("a").description) == (True, True, "new")


def test_an_agent_that_was_linked_before_a_restart_has_its_grace() -> None:
    r = roster("a", "b")
    r.restore("a", last_seen=NOW - 5, linked=True, now=NOW)
    r.restore("b", last_seen=NOW - 5, linked=False, now=NOW)
    assert r.presence("a", NOW + 1, GRACE) is Presence.RECONNECTING
    assert r.presence("b", NOW + 1, GRACE) is Presence.OFFLINE
    assert r.seen("b").last_seen == NOW - 5


def test_a_restore_does_not_touch_a_link_that_is_there() -> None:
    r = roster("a")
    r.link_up("a", NOW)
    r.restore("a", last_seen=1, linked=False, now=NOW)
    assert r.seen("a").last_seen == NOW


def test_replacing_the_agents_names_those_that_are_gone() -> None:
    r = roster("a", "b")
    assert r.replace([Agent(name="b", description="x"), Agent(name="c")]) == ["a"]
    assert r.names() == ["b", "c"] and "a" not in r
    agent = r.agent("b")
    assert agent is not None and agent.description == "x"


class RosterMachine(RuleBasedStateMachine):
    """Links come, go and go late, in any order; the newest has the seat.

    Killed mutants: `link_down` without the generation check; `link_up` that keeps `lost_at`;
    `greet` without the generation check.
    """

    def __init__(self) -> None:
        super().__init__()
        self.roster = roster("a", "b")
        self.now = NOW
        self.alive: dict[str, list[int]] = {"a": [], "b": []}
        self.seat: dict[str, int | None] = {"a": None, "b": None}

    @rule(name=st.sampled_from("ab"))
    def up(self, name: str) -> None:
        link, old = self.roster.link_up(name, self.now)
        assert (old.generation if old else None) == self.seat[name]
        self.alive[name].append(link.generation)
        self.seat[name] = link.generation

    @rule(name=st.sampled_from("ab"), which=st.integers(0, 5))
    def down(self, name: str, which: int) -> None:
        if self.alive[name]:
            generation = self.alive[name].pop(which % len(self.alive[name]))
            was_seated = self.seat[name] == generation
            assert self.roster.link_down(name, generation, self.now) == was_seated
            if was_seated:
                self.seat[name] = None
                assert self.roster.seen(name).lost_at == self.now

    @rule(name=st.sampled_from("ab"), which=st.integers(0, 5))
    def hello(self, name: str, which: int) -> None:
        if self.alive[name]:
            generation = self.alive[name][which % len(self.alive[name])]
            seated = self.roster.greet(name, generation, protocol=2)
            assert seated == (self.seat[name] == generation)

    @rule(ms=st.integers(1, 40_000))
    def pass_time(self, ms: int) -> None:
        self.now += ms

    @invariant()
    def the_seat_is_the_newest_live_link(self) -> None:
        online = 0
        for name, generation in self.seat.items():
            link = self.roster.link(name)
            assert (link.generation if link else None) == generation
            online += generation is not None
            if generation is not None:
                assert self.roster.seen(name).lost_at == 0
                assert self.roster.is_current(name, generation)
        assert self.roster.online() == online


RosterMachine.TestCase.settings = settings(max_examples=100, deadline=None)
TestRoster = RosterMachine.TestCase
