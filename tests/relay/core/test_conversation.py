import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from hermes_bridge.relay.core.conversation import HOUR, Conversations

NOW = 1_800_000_000_000
PAUSE = 5_000


def over(c: Conversations, now: int, *, turns: int = 40, run: int = 10) -> bool:
    return c.over_limit("x", now, max_turns=turns, max_run=run, pause=PAUSE)


def test_its_participants_are_the_first_two_in_either_direction() -> None:
    c = Conversations()
    c.began("x", "a", "b", NOW, PAUSE)
    talk = c.get("x")
    assert talk is not None and talk.has("a", "b") and talk.has("b", "a")
    assert not talk.has("a", "c") and not talk.has("a", "a")


@pytest.mark.clause("bridge.ask.5")
def test_a_conversation_has_a_limit_of_turns_an_hour() -> None:
    c = Conversations()
    for turn in range(3):
        assert not over(c, NOW + turn * 60_000, turns=3)
        c.began("x", "a", "b", NOW + turn * 60_000, PAUSE)
        c.ended("x", NOW + turn * 60_000 + 1)
    assert over(c, NOW + 180_000, turns=3)
    assert not over(c, NOW + HOUR, turns=3)


@pytest.mark.clause("bridge.ask.5")
def test_turns_without_a_pause_have_a_limit_of_their_own() -> None:
    c = Conversations()
    now = NOW
    for _ in range(3):
        assert not over(c, now, run=3)
        c.began("x", "a", "b", now, PAUSE)
        now += 100
        c.ended("x", now)
    assert over(c, now + PAUSE - 1, run=3)
    assert not over(c, now + PAUSE, run=3)
    c.began("x", "a", "b", now + PAUSE, PAUSE)
    assert not over(c, now + PAUSE, run=3)


def test_an_open_exchange_is_no_pause() -> None:
    c = Conversations()
    c.began("x", "a", "b", NOW, PAUSE)
    assert over(c, NOW + 60_000, run=1)


def test_the_least_recently_used_is_forgotten_and_can_be_loaded() -> None:
    c = Conversations(keep=2)
    for name in ("one", "two"):
        c.began(name, "a", "b", NOW, PAUSE)
    c.began("one", "a", "b", NOW, PAUSE)
    c.began("three", "a", "b", NOW, PAUSE)
    assert c.get("two") is None and len(c) == 2
    c.load("two", "a", "b", (NOW, NOW))
    c.load("two", "z", "z", ())
    talk = c.get("two")
    assert talk is not None and talk.has("a", "b") and len(talk.starts) == 2


class ConversationMachine(RuleBasedStateMachine):
    """Against a plain list of what happened.

    Killed mutants: an hour that is a millisecond too long; a run that is not set back after a pause; a
    pause measured from the start of the last exchange; starts that are never dropped.
    """

    TURNS, RUN = 2, 2

    def __init__(self) -> None:
        super().__init__()
        self.c = Conversations()
        self.now = NOW
        self.starts: list[int] = []
        self.run = 0
        self.quiet: int | None = None

    @rule()
    def begin(self) -> None:
        paused = self.quiet is not None and self.now - self.quiet >= PAUSE
        recent = [s for s in self.starts if self.now - s < HOUR]
        expected = len(recent) >= self.TURNS or (self.run >= self.RUN and not paused)
        assert over(self.c, self.now, turns=self.TURNS, run=self.RUN) == expected
        if not expected:
            self.c.began("x", "a", "b", self.now, PAUSE)
            self.run = 1 if paused or not self.starts else self.run + 1
            self.starts.append(self.now)
            self.quiet = None
            talk = self.c.get("x")
            assert talk is not None and len(talk.starts) <= self.TURNS

    @rule()
    def end(self) -> None:
        if self.starts:
            self.c.ended("x", self.now)
            self.quiet = self.now

    @rule(ms=st.sampled_from([1, 100, 4_999, 5_000, 60_000, 1_000_000, HOUR - 1, HOUR]))
    def pass_time(self, ms: int) -> None:
        self.now += ms


ConversationMachine.TestCase.settings = settings(max_examples=150, deadline=None)
TestConversations = ConversationMachine.TestCase
