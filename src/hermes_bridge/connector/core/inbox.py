"""The inbox: what is owed to gateways, in order per identity and chat, until they say they have it.

A lane is the queue of one identity in one chat. One delivery of a lane is out at a time; it is
removed by the gateway's ack and by nothing else. A connection that ends gives back what it did
not acknowledge; a connection that stays silent gets it again after `ack_timeout`; a delivery that
was repeated too often is parked, so that it cannot block its lane for ever.

While an agent works on a turn, the next message of that chat is held back: a gateway that is
busy answers from inside its socket reader and then freezes for 30 s. That a turn runs is known
from the gateway's own signs: typing, or the mark on its final answers.
"""

import heapq
from collections import deque
from collections.abc import Iterator

import msgspec

from hermes_bridge.connector.core.message import Message

LaneKey = tuple[str, str]


class Entry(msgspec.Struct, eq=False):
    """One delivery that is owed. `id` is its buffer id and grows; times are unix milliseconds."""

    id: int
    bot_id: str
    channel: str
    message_id: str
    message: Message
    received_at: int
    tries: int = 0
    urgent: bool = False

    @property
    def lane(self) -> LaneKey:
        """The queue that it stands in."""
        return self.bot_id, self.channel


class Deliver(msgspec.Struct, frozen=True):
    """Prepare this delivery and `claim` it: it is the next of its lane."""

    entry: Entry


class Done(msgspec.Struct, frozen=True):
    """A delivery is over: acknowledged, expired or dropped, as `reason` says."""

    entry: Entry
    reason: str


class Parked(msgspec.Struct, frozen=True):
    """A delivery was repeated too often and waits for an operator."""

    entry: Entry


class Wake(msgspec.Struct, frozen=True):
    """Something waits for a bot that has no awake gateway."""

    bot_id: str


Effect = Deliver | Done | Parked | Wake
ACKED, EXPIRED, WRITTEN = "acked", "expired", "written"


class Rules(msgspec.Struct, frozen=True):
    """The inbox's limits, in milliseconds and counts. `acks` off: a written delivery is done."""

    ack_timeout_ms: int = 30_000
    ttl_ms: int = 24 * 3600 * 1000
    max_replays: int = 5
    busy_hold_ms: int = 60_000
    settle_ms: int = 250
    typing_ms: int = 6_000
    wake_every_ms: int = 60_000
    acks: bool = True


class _Lane:
    __slots__ = (
        "awaits_final", "busy_from", "busy_until", "deadline", "key", "link", "out", "rows", "timer",
    )  # fmt: skip

    def __init__(self, key: LaneKey) -> None:
        self.key = key
        self.rows: deque[Entry] = deque()
        self.out: Entry | None = None
        self.link = 0
        self.deadline = 0
        self.busy_from = 0
        self.busy_until = 0
        self.timer = 0
        self.awaits_final = False


class Inbox:
    """All lanes of a connector, and which connection serves which bot now."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self._lanes: dict[LaneKey, _Lane] = {}
        self._of_bot: dict[str, set[LaneKey]] = {}
        self._links: dict[str, int] = {}
        self._entries: dict[int, _Lane] = {}
        self._finals: set[str] = set()
        self._types: set[str] = set()
        self._woken: dict[str, int] = {}
        self._timers: list[tuple[int, LaneKey]] = []
        self._effects: list[Effect] = []

    # -- what happened ---------------------------------------------------------------

    def add(self, entry: Entry, now: int) -> None:
        """A delivery was stored."""
        lane = self._lane(entry.lane)
        if entry.urgent:
            lane.rows.appendleft(entry)
        else:
            lane.rows.append(entry)
        self._entries[entry.id] = lane
        if entry.bot_id not in self._links:
            self._wake(entry.bot_id, now)
        self._pump(lane, now)

    def link_up(self, bot_id: str, link: int, now: int) -> None:
        """A connection declared a bot: it is the newest, so everything goes there from now on."""
        if self._links.get(bot_id) == link:
            return
        old = self._links.get(bot_id)
        self._links[bot_id] = link
        if old is not None:
            self._take_back(bot_id, old)
        for lane in self._lanes_of(bot_id):
            self._pump(lane, now)

    def link_down(self, bot_id: str, link: int, now: int) -> None:
        """A connection ended, lost a bot, or goes idle: what it did not acknowledge is owed."""
        if self._links.get(bot_id) == link:
            del self._links[bot_id]
        self._take_back(bot_id, link)
        lanes = self._lanes_of(bot_id)
        for lane in lanes:
            self._pump(lane, now)
        if bot_id not in self._links and any(lane.rows for lane in lanes):
            self._wake(bot_id, now)

    def claim(self, entry: Entry, now: int) -> int | None:
        """A delivery is prepared. Gives the connection to write it to, or None: not now.

        From here on it is out: the caller writes it in the same breath.
        """
        lane = self._entries.get(entry.id)
        if lane is None or lane.out is not entry or lane.link:
            return None
        link = self._links.get(entry.bot_id)
        if link is None:
            lane.out = None
            lane.rows.appendleft(entry)
            return None
        entry.tries += 1
        lane.link = link
        if not self.rules.acks:
            self._finish(entry, lane, WRITTEN, now)
            return link
        lane.deadline = now + self.rules.ack_timeout_ms
        self._timer(lane, lane.deadline)
        return link

    def acked(self, entry_id: int, now: int) -> Entry | None:
        """A gateway has a delivery. The caller has checked that it may say so."""
        lane = self._entries.get(entry_id)
        if lane is None:
            return None
        entry = lane.out
        if entry is None or entry.id != entry_id:
            entry = next(each for each in lane.rows if each.id == entry_id)
        if not entry.tries:
            return None  # never sent: nobody can have it
        self._hold(lane, now)
        self._finish(entry, lane, ACKED, now)
        return entry

    def dropped(self, entry: Entry, reason: str, now: int) -> None:
        """A delivery must not be made: its loop is gone, or an operator said so."""
        lane = self._entries.get(entry.id)
        if lane is not None:
            self._finish(entry, lane, reason, now)

    def typing(self, bot_id: str, channel: str, now: int) -> None:
        """A gateway shows that a turn runs in a chat."""
        self._types.add(bot_id)
        if not self.rules.busy_hold_ms:
            return
        lane = self._lane((bot_id, channel))
        if lane.busy_until <= now:
            lane.busy_from = now
        cap = lane.busy_from + self.rules.busy_hold_ms
        lane.busy_until = min(cap, now + self.rules.typing_ms)
        self._timer(lane, lane.busy_until)

    def answering(self, bot_id: str, channel: str, now: int) -> None:
        """The final answer of a turn is about to be posted: the turn runs until `final`."""
        self._finals.add(bot_id)
        if self.rules.busy_hold_ms:
            lane = self._lane((bot_id, channel))
            lane.awaits_final = True
            lane.busy_from = now
            lane.busy_until = now + self.rules.busy_hold_ms
            self._timer(lane, lane.busy_until)

    def final(self, bot_id: str, channel: str, now: int) -> None:
        """The final answer of a turn was posted."""
        self._finals.add(bot_id)
        lane = self._lanes.get((bot_id, channel))
        if lane is not None and lane.busy_until > now:
            lane.awaits_final = False
            lane.busy_until = min(lane.busy_until, now + self.rules.settle_ms)
            self._timer(lane, lane.busy_until)

    def learned(self, bot_id: str, *, finals: bool, types: bool) -> None:
        """What earlier runs learned about a gateway's signs."""
        if finals:
            self._finals.add(bot_id)
        if types:
            self._types.add(bot_id)

    def traits(self, bot_id: str) -> tuple[bool, bool]:
        """Whether a bot's gateway marks its final answers, and whether it types."""
        return bot_id in self._finals, bot_id in self._types

    # -- time ------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """Give the next moment at which `expire` has something to do, or None."""
        return self._timers[0][0] if self._timers else None

    def expire(self, now: int) -> None:
        """Time has passed: repeat what was not acknowledged, let go what was held."""
        while self._timers and self._timers[0][0] <= now:
            at, key = heapq.heappop(self._timers)
            lane = self._lanes.get(key)
            if lane is None or lane.timer != at:
                continue
            lane.timer = 0
            if lane.awaits_final and lane.busy_until <= now:
                # It says no longer when it is done: it is not waited for until it does again.
                lane.awaits_final = False
                self._finals.discard(key[0])
            if lane.link and lane.deadline <= now:
                self._give_back(lane)
            self._pump(lane, now)
            self._timer_for_rest(lane, now)
            self._forget_if_empty(lane, now)

    def sweep(self, now: int) -> None:
        """Drop what is older than the inbox keeps. Called about once a minute."""
        limit = now - self.rules.ttl_ms
        for lane in list(self._lanes.values()):
            for entry in [each for each in lane.rows if each.received_at < limit]:
                self._finish(entry, lane, EXPIRED, now)
        for lane in list(self._lanes.values()):
            self._forget_if_empty(lane, now)

    # -- what to do and what is there ----------------------------------------------------

    def take(self) -> list[Effect]:
        """Give the effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def entries(self, bot_id: str) -> Iterator[Entry]:
        """Give everything that is owed to a bot."""
        for key in self._of_bot.get(bot_id, ()):
            lane = self._lanes[key]
            if lane.out is not None:
                yield lane.out
            yield from lane.rows

    def entry(self, entry_id: int) -> Entry | None:
        """Give one delivery that is owed, or None."""
        lane = self._entries.get(entry_id)
        if lane is None:
            return None
        if lane.out is not None and lane.out.id == entry_id:
            return lane.out
        return next((each for each in lane.rows if each.id == entry_id), None)

    def depth(self, bot_id: str) -> tuple[int, int]:
        """Give how much is owed to a bot, and since when (unix ms; 0: nothing)."""
        count, oldest = 0, 0
        for entry in self.entries(bot_id):
            count += 1
            oldest = min(oldest or entry.received_at, entry.received_at)
        return count, oldest

    def serving(self, bot_id: str) -> int | None:
        """Give the connection that serves a bot now, or None."""
        return self._links.get(bot_id)

    # -- within ------------------------------------------------------------------------

    def _lane(self, key: LaneKey) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key)
            self._of_bot.setdefault(key[0], set()).add(key)
        return lane

    def _lanes_of(self, bot_id: str) -> list[_Lane]:
        return [self._lanes[key] for key in self._of_bot.get(bot_id, ())]

    def _pump(self, lane: _Lane, now: int) -> None:
        if lane.out is not None or not lane.rows or lane.key[0] not in self._links:
            return
        if lane.busy_until > now and not lane.rows[0].urgent:
            return
        lane.out = lane.rows.popleft()
        lane.link = 0
        self._effects.append(Deliver(lane.out))

    def _finish(self, entry: Entry, lane: _Lane, reason: str, now: int) -> None:
        if lane.out is entry:
            lane.out, lane.link = None, 0
        else:
            lane.rows.remove(entry)
        del self._entries[entry.id]
        self._effects.append(Done(entry, reason))
        self._pump(lane, now)
        self._forget_if_empty(lane, now)

    def _give_back(self, lane: _Lane) -> None:
        entry = lane.out
        lane.out, lane.link = None, 0
        if entry is None:
            return
        if entry.tries > self.rules.max_replays:
            del self._entries[entry.id]
            self._effects.append(Parked(entry))
        else:
            lane.rows.appendleft(entry)

    def _take_back(self, bot_id: str, link: int) -> None:
        """What `link` did not acknowledge is owed again; its turns are nobody's any more."""
        for lane in self._lanes_of(bot_id):
            lane.busy_until = 0
            lane.awaits_final = False
            if lane.link == link:
                self._give_back(lane)

    def _hold(self, lane: _Lane, now: int) -> None:
        finals, types = self.traits(lane.key[0])
        if not self.rules.busy_hold_ms or not finals:
            return
        span = self.rules.busy_hold_ms
        lane.awaits_final = True
        lane.busy_from = now
        lane.busy_until = now + (min(span, self.rules.typing_ms) if types else span)
        self._timer(lane, lane.busy_until)

    def _timer(self, lane: _Lane, at: int) -> None:
        """See to it that the lane is looked at by `at`: one timer a lane, the earliest."""
        if not lane.timer or at < lane.timer:
            lane.timer = at
            heapq.heappush(self._timers, (at, lane.key))

    def _timer_for_rest(self, lane: _Lane, now: int) -> None:
        if lane.link:
            self._timer(lane, lane.deadline)
        if lane.busy_until > now:
            self._timer(lane, lane.busy_until)

    def _wake(self, bot_id: str, now: int) -> None:
        last = self._woken.get(bot_id)
        if last is None or now - last >= self.rules.wake_every_ms:
            self._woken[bot_id] = now
            self._effects.append(Wake(bot_id))

    def _forget_if_empty(self, lane: _Lane, now: int) -> None:
        idle = lane.out is None and not lane.rows and lane.busy_until <= now
        if idle and self._lanes.get(lane.key) is lane:
            del self._lanes[lane.key]
            self._of_bot[lane.key[0]].discard(lane.key)
