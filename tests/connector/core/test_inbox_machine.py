"""The inbox under everything at once: nothing lost, nothing twice on one connection, order kept."""

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hermes_bridge.connector.core.inbox import Deliver, Done, Entry, Inbox, Parked, Rules
from hermes_bridge.connector.core.message import Message

BOTS = st.sampled_from(["a", "b"])
CHANNELS = st.sampled_from(["x", "y"])
RULES = Rules(ack_timeout_ms=10, ttl_ms=10_000, max_replays=3, busy_hold_ms=40, settle_ms=2)


class InboxMachine(RuleBasedStateMachine):
    """Messages, connections that come and go, acks, signs of turns, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.inbox = Inbox(RULES)
        self.now = 0
        self.number = 0
        self.links: dict[str, int] = {}
        self.open: dict[int, Entry] = {}
        self.order: dict[tuple[str, str], list[int]] = {}
        self.out: dict[int, int] = {}
        self.preparing: list[Entry] = []
        self.writes: dict[int, int] = {}
        self.parked: set[int] = set()

    def observe(self, *, overdue: bool = False) -> None:
        for effect in self.inbox.take():
            if isinstance(effect, Deliver):
                lane = self.order[effect.entry.lane]
                assert effect.entry.id == lane[0], "a message overtook another of its lane"
                assert overdue or effect.entry.id not in self.out, "sent again without a reason"
                self.out.pop(effect.entry.id, None)
                self.preparing.append(effect.entry)
            elif isinstance(effect, Done | Parked):
                self.over(effect.entry, parked=isinstance(effect, Parked))

    def over(self, entry: Entry, *, parked: bool) -> None:
        assert entry.id in self.open, "a delivery ended twice"
        del self.open[entry.id]
        self.order[entry.lane].remove(entry.id)
        self.out.pop(entry.id, None)
        if parked:
            assert self.writes[entry.id] == RULES.max_replays + 1
            self.parked.add(entry.id)

    @rule(bot=BOTS, channel=CHANNELS)
    def message(self, bot: str, channel: str) -> None:
        self.number += 1
        body = Message("p", channel, f"m{self.number}", "ada", "hi")
        entry = Entry(self.number, bot, channel, f"m{self.number}", body, self.now)
        self.open[entry.id] = entry
        self.order.setdefault(entry.lane, []).append(entry.id)
        self.inbox.add(entry, self.now)
        self.observe()

    @rule(bot=BOTS)
    def connect(self, bot: str) -> None:
        self.number += 1
        self.links[bot] = self.number
        for number, entry in list(self.open.items()):
            if entry.bot_id == bot:
                self.out.pop(number, None)
        self.inbox.link_up(bot, self.number, self.now)
        self.observe()

    @rule(bot=BOTS)
    def disconnect(self, bot: str) -> None:
        link = self.links.pop(bot, None)
        if link is not None:
            self.out = {k: v for k, v in self.out.items() if v != link}
            self.inbox.link_down(bot, link, self.now)
            self.observe()

    @rule(place=st.integers(0, 9))
    def write(self, place: int) -> None:
        if not self.preparing:
            return
        entry = self.preparing.pop(place % len(self.preparing))
        link = self.inbox.claim(entry, self.now)
        if link is not None:
            assert link == self.links[entry.bot_id], (
                "written to a connection that is not the newest"
            )
            assert entry.id in self.open
            self.out[entry.id] = link
            self.writes[entry.id] = self.writes.get(entry.id, 0) + 1
        self.observe()

    @rule(place=st.integers(0, 9))
    def ack(self, place: int) -> None:
        if self.out:
            number = sorted(self.out)[place % len(self.out)]
            assert self.inbox.acked(number, self.now) is not None
            self.observe()
            assert number not in self.open

    @rule(bot=BOTS, channel=CHANNELS, final=st.booleans())
    def sign(self, bot: str, channel: str, final: bool) -> None:
        if final:
            self.inbox.final(bot, channel, self.now)
        else:
            self.inbox.typing(bot, channel, self.now)
        self.observe()

    @rule(step=st.integers(0, 30))
    def pass_time(self, step: int) -> None:
        self.now += step
        self.inbox.expire(self.now)
        self.observe(overdue=True)

    @invariant()
    def nothing_is_lost(self) -> None:
        kept = {e.id for bot in ("a", "b") for e in self.inbox.entries(bot)}
        assert kept == set(self.open)

    @invariant()
    def nothing_overdue_stays(self) -> None:
        self.inbox.expire(self.now)
        self.observe(overdue=True)
        deadline = self.inbox.next_deadline()
        assert deadline is None or deadline > self.now

    def teardown(self) -> None:
        """Whatever happened: a gateway that stays and acknowledges gets everything."""
        for bot in ("a", "b"):
            self.number += 1
            self.links[bot] = self.number
            self.inbox.link_up(bot, self.number, self.now)
        self.out.clear()
        for _ in range(1000):
            self.observe(overdue=True)
            todo, self.preparing = self.preparing, []
            for entry in todo:
                if self.inbox.claim(entry, self.now) is not None:
                    self.writes[entry.id] = self.writes.get(entry.id, 0) + 1
                    self.inbox.acked(entry.id, self.now)
            if not self.open:
                return
            self.now += 5
            self.inbox.expire(self.now)
        raise AssertionError(f"never delivered: {sorted(self.open)}")


TestInboxMachine = InboxMachine.TestCase
TestInboxMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
