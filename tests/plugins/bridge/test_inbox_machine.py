"""The inbox under everything at once: wakes, repeats, answers, ends, cancels, restarts, time.

Planted mutants that this machine and `test_inbox.py` kill (each was seen to fail): no rest after a
turn; a rest that is swept away; a settled question that starts; a postponed one that goes to the
back, or counts as a start; a second answer that counts; an unconfirmed answer that is not sent after
a restart, or not for a repeated wake; an interrupt for a question that waits; the end of another
question's turn that frees the lane; a fourth start; an ack before its line is written.
"""

import copy
from typing import Any

from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from hermes_bridge.plugins.bridge import inbox as box
from hermes_bridge.plugins.bridge.frames import Wake
from hermes_bridge.plugins.bridge.inbox import Inbox, Reply, State


class InboxMachine(RuleBasedStateMachine):
    """A model of the bot beside it: what was asked, what runs, what was answered."""

    asked: Any = Bundle("asked")

    def __init__(self) -> None:
        super().__init__()
        self.inbox = Inbox()
        self.now = 0.0
        self.count = 0
        self.order: dict[str, list[str]] = {}
        self.running: dict[str, str] = {}
        self.rests: dict[str, float] = {}
        self.answers: dict[str, Reply] = {}
        self.cancelled: set[str] = set()
        self.starts: dict[str, int] = {}
        self.conversation: dict[str, str] = {}

    def observe(self, effects: list[box.Effect]) -> None:
        for effect in effects:
            match effect:
                case box.Start(wake):
                    rid, conversation = wake.request_id, wake.conversation_id
                    assert conversation not in self.running, "two turns in one conversation"
                    assert self.rests.get(conversation, 0.0) <= self.now, "started without a rest"
                    assert rid not in self.answers, "an answered question runs again"
                    assert rid not in self.cancelled, "a cancelled question runs"
                    waiting = [r for r in self.order[conversation] if self._waits(r)]
                    assert waiting[0] == rid, "out of order"
                    self.running[conversation] = rid
                    self.starts[rid] = self.starts.get(rid, 0) + 1
                case box.Send(rid, reply):
                    assert self.answers.setdefault(rid, reply) == reply, "two different answers"
                    assert rid not in self.cancelled, "a cancelled question is answered"
                case box.Interrupt(conversation, rid):
                    assert self.running[conversation] == rid
                case box.Ack(rid):
                    assert self.inbox.get(rid) is not None

    def _waits(self, rid: str) -> bool:
        over = rid in self.answers or rid in self.cancelled
        return not over and rid not in self.running.values()

    @rule(target=asked, conversation=st.sampled_from("abc"))
    def ask(self, conversation: str) -> str:
        self.count += 1
        rid = f"r{self.count}"
        self.order.setdefault(conversation, []).append(rid)
        self.conversation[rid] = conversation
        self.observe(self.inbox.arrived(Wake(rid, conversation, "ann", "hi"), self.now))
        return rid

    @rule(rid=asked)
    def repeat(self, rid: str) -> None:
        wake = Wake(rid, self.conversation[rid], "ann", "hi", attempt=2)
        effects = self.inbox.arrived(wake, self.now)
        assert effects[0] == box.Ack(rid)
        assert not [e for e in effects if isinstance(e, box.Start)]
        self.observe(effects)

    @rule(rid=asked, text=st.sampled_from(["x", "y"]), failure=st.booleans())
    def answer(self, rid: str, text: str, failure: bool) -> None:
        open_now = rid not in self.answers and rid not in self.cancelled
        effects = self.inbox.replied(rid, Reply(text, failure=failure))
        assert bool(effects) == open_now
        self.observe(effects)

    @rule(rid=asked)
    def end_turn(self, rid: str) -> None:
        conversation = self.conversation[rid]
        effects = self.inbox.turn_over(rid, self.now, "ended")
        if self.running.get(conversation) == rid:
            del self.running[conversation]
            self.rests[conversation] = self.now + box.REST_S
        else:
            assert effects == []
        self.observe(effects)

    @rule(rid=asked)
    def cancel(self, rid: str) -> None:
        effects = self.inbox.cancelled(rid)
        self.observe(effects)
        if effects:
            self.cancelled.add(rid)

    @rule(rid=asked, later=st.floats(0.01, 1.0))
    def postpone(self, rid: str, later: float) -> None:
        conversation = self.conversation[rid]
        self.inbox.postponed(rid, self.now + later)
        if self.running.get(conversation) == rid:
            del self.running[conversation]
            self.starts[rid] -= 1
            self.rests[conversation] = self.now + later

    @rule(rid=asked)
    def confirm(self, rid: str) -> None:
        if rid in self.answers:
            self.inbox.confirmed(rid)

    @rule(step=st.floats(0.0, 1.0))
    def pass_time(self, step: float) -> None:
        self.now += step
        self.observe(self.inbox.due(self.now))

    @rule()
    def restart(self) -> None:
        exchanges = copy.deepcopy(self.inbox.all())
        unconfirmed = {
            e.wake.request_id for e in exchanges if e.reply is not None and not e.confirmed
        }
        self.inbox, self.running, self.rests = Inbox(), {}, {}
        effects = self.inbox.loaded(exchanges, self.now)
        assert unconfirmed <= {e.request_id for e in effects if isinstance(e, box.Send)}
        self.observe(effects)

    @invariant()
    def nothing_that_may_start_is_left_waiting(self) -> None:
        deadline = self.inbox.next_deadline()
        assert deadline is None or deadline > self.now or self.inbox.due(self.now) == []

    @invariant()
    def the_inbox_and_the_bot_agree(self) -> None:
        assert dict(self.inbox.turns()) == self.running
        working = set(self.inbox.open())
        for rid in self.conversation:
            exchange = self.inbox.get(rid)
            assert exchange is not None
            settled = rid in self.answers or rid in self.cancelled
            assert (exchange.state is State.SETTLED) == settled
            assert (rid in working) == (not settled)
            assert self.starts.get(rid, 0) <= box.MAX_STARTS


TestInbox = InboxMachine.TestCase
TestInbox.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
