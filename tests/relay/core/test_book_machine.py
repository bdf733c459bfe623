"""Any order of asks, replies, signs of life, lost links, restarts and clock steps.

Planted mutants that this machine kills (each was seen to fail): a beat that may pass the cap; a
beat that shortens a deadline; `committed` that does not pump the lane; `_pump` that wakes behind an
unanswered head; `link_up` that sends acked wakes again; a heap entry that is not pushed again after
a beat; `answer` without the target check; `link_lost` that leaves the deadline as it was.
"""

from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from tests.relay.core.world import LIMITS, NAMES, World

from hermes_bridge.relay.core.book import Answer, ExchangeBook
from hermes_bridge.relay.core.exchange import ENDS, Exchange, Status

AGENTS = st.sampled_from(NAMES)
OPEN = (Status.QUEUED, Status.SENT, Status.TAKEN)


class BookMachine(RuleBasedStateMachine):
    exchanges = Bundle("exchanges")

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.all: dict[str, Exchange] = {}
        self.answered_by: dict[str, str] = {}
        self.epoch = 1

    @rule(
        target=exchanges,
        asker=AGENTS,
        to=AGENTS,
        conv=st.sampled_from(["x", "y", None]),
        queue=st.booleans(),
    )
    def ask(self, asker: str, to: str, conv: str | None, queue: bool) -> str:
        exchange = self.world.ask(to, asker, conv, queue=queue)
        self.all[exchange.rid] = exchange
        self.world.pass_ms(0)  # the shell's timer: a target away for too long ends it at once
        return exchange.rid

    @rule(rid=exchanges)
    def submit_again(self, rid: str) -> None:
        again = self.world.make()
        again.rid = rid
        wakes = len(self.world.wakes)
        if self.world.book.get(rid) is None:
            return
        found, effects = self.world.book.submit(again, "here", self.world.now)
        assert found is self.all[rid] and not effects and len(self.world.wakes) == wakes

    @rule(agent=AGENTS, protocol=st.sampled_from([1, 2]))
    def link(self, agent: str, protocol: int) -> None:
        taken = {
            rid for rid, x in self.all.items() if x.target == agent and x.status is Status.TAKEN
        }
        before = len(self.world.wakes)
        self.world.link(agent, protocol)
        if protocol == 2:
            again = {rid for rid, _ in self.world.wakes[before:]}
            assert not again & taken, "an acked wake was sent again"

    @rule(agent=AGENTS)
    def unlink(self, agent: str) -> None:
        if self.world.roster.link(agent) is not None:
            self.world.unlink(agent)
            for x in self.world.book.open_exchanges():
                if x.target == agent and not (x.queue_until and not x.attempt):
                    assert x.deadline <= self.world.now + LIMITS.reconnect_grace_ms

    @rule(rid=exchanges, who=AGENTS)
    def beat(self, rid: str, who: str) -> None:
        x = self.all[rid]
        before = x.deadline
        woken = x.status in (Status.SENT, Status.TAKEN)
        self.world.beat(rid, who)
        if woken and who == x.target:
            fresh = min(x.cap, self.world.now + x.window)
            assert x.deadline == max(before, fresh) and x.deadline <= x.cap
        else:
            assert x.deadline == before

    @rule(rid=exchanges, who=AGENTS)
    def ack(self, rid: str, who: str) -> None:
        x = self.all[rid]
        sent = x.status is Status.SENT
        self.world.ack(rid, who)
        if sent and who == x.target:
            assert x.status is Status.TAKEN

    @rule(rid=exchanges, who=AGENTS, text=st.sampled_from(["yes", "no"]))
    def reply(self, rid: str, who: str, text: str) -> None:
        x = self.all[rid]
        was_open, was = not x.ended, x.status
        said = self.world.reply(rid, who, text)
        if who != x.target:
            assert said is Answer.NOT_YOURS and x.status is was
        elif was_open:
            assert said is Answer.OK and x.answer == text
        elif was is Status.OK:
            assert said is (Answer.OK if x.answer == text else Answer.ALREADY)

    @rule(rid=exchanges)
    def cancel(self, rid: str) -> None:
        x = self.all[rid]
        was_open = not x.ended
        self.world.cancel(rid)
        assert (x.status is Status.CANCELLED) or not was_open

    @rule(rid=consumes(exchanges))
    def forget(self, rid: str) -> None:
        """Let the machine work on younger ones."""

    @rule(ms=st.integers(0, 3_000))
    def pass_time(self, ms: int) -> None:
        self.world.pass_ms(ms)

    @rule(ms=st.integers(0, 500))
    def restart(self, ms: int) -> None:
        world = self.world
        queues = {name: world.book.release(name) for name in NAMES}
        ended = [x for x in self.all.values() if x.ended]
        world.now += ms
        self.epoch = max(self.epoch + 1, world.now)  # no two processes begin in one millisecond
        world.book = ExchangeBook(world.roster, LIMITS, epoch=self.epoch)
        for x in ended:
            world.book.remember(x)
        for name, records in queues.items():
            world.perform(world.book.load(name, records, world.now))
        world.perform(world.book.expire(world.now))

    @invariant()
    def nothing_overdue_stays_open(self) -> None:
        world = self.world
        deadline = world.book.next_deadline()
        assert deadline is None or deadline > world.now
        for x in world.book.open_exchanges():
            assert x.deadline > world.now, x
            assert deadline is not None and deadline <= x.deadline

    @invariant()
    def every_exchange_ends_exactly_once_and_is_told_once(self) -> None:
        settled = [x.rid for x in self.world.settled]
        assert len(settled) == len(set(settled))
        assert sorted(settled) == sorted(self.world.told)
        for rid, x in self.all.items():
            assert x.ended == (rid in settled)
            assert x.status in (ENDS if x.ended else OPEN)
            assert (self.world.book.get(rid) is x) or x.ended

    @invariant()
    def a_conversation_has_one_wake_at_a_time_in_order(self) -> None:
        lanes: dict[tuple[str, str], list[Exchange]] = {}
        for x in sorted(self.world.book.open_exchanges(), key=lambda x: x.order):
            lanes.setdefault((x.target, x.conv), []).append(x)
        for lane in lanes.values():
            assert all(x.attempt == 0 and x.status is Status.QUEUED for x in lane[1:])
            head, link = lane[0], self.world.roster.link(lane[0].target)
            assert link is None or head.status is not Status.QUEUED, "the head was not woken"

    @invariant()
    def the_counts_agree(self) -> None:
        book = self.world.book
        assert sum(book.pending(name) for name in NAMES) == len(book)


BookMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=50, deadline=None)
TestBook = BookMachine.TestCase
