"""May this ask be opened? The checks in the order of the contract (bridge.md, part 2).

Arguments, target, permission, conversation, rings, turns, rates and queues, reachability: the
first that fails names the refusal. A refusal opens nothing.
"""

from difflib import get_close_matches

import msgspec

from hermes_bridge.relay.core import policy
from hermes_bridge.relay.core.book import ExchangeBook
from hermes_bridge.relay.core.conversation import Conversations
from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.core.policy import Limits, Rates
from hermes_bridge.relay.core.roster import Agent, Presence, Roster
from hermes_bridge.relay.core.waits import WaitGraph

_LONGEST = 100
"""How much of an unknown name is compared with the known ones: comparing costs its square."""


class Ask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an agent asks for, before anything is decided."""

    asker: str
    target: str
    message: str
    conversation: str | None = None
    holds: bool = True
    """Whether the asker waits for the answer (`wait_ms` above 0)."""
    queue: bool = False
    """Whether it may wait for a target that is away (`if_offline: queue`)."""
    parent: Exchange | None = None
    """The exchange in whose turn the ask is made, if the caller named it."""
    data: bytes | None = None
    trace: str | None = None
    """The caller's trace context, as `carrier.taken` gives it."""


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why nothing was opened; `detail` completes the hint."""

    status: Status
    detail: str = ""
    chain: tuple[str, ...] = ()


class Admission:
    """The doorkeeper: reads every core, writes only the rates."""

    def __init__(
        self,
        roster: Roster,
        book: ExchangeBook,
        conversations: Conversations,
        waits: WaitGraph,
        rates: Rates,
    ) -> None:
        self._roster, self._book = roster, book
        self._conversations, self._waits, self._rates = conversations, waits, rates

    def check(self, ask: Ask, now: int) -> Refusal | None:
        """Give the first reason against the ask, or None."""
        limits = self._book.limits
        return (
            self._text(ask, limits)
            or self._target(ask)
            or (ask.conversation is not None and self._conversation(ask, ask.conversation))
            or self._ring(ask, limits)
            or (ask.conversation is not None and self._turns(ask.conversation, limits, now))
            or self._load(ask, limits, now)
            or self._reach(ask, limits, now)
        )

    @staticmethod
    def _text(ask: Ask, limits: Limits) -> Refusal | None:
        fault = policy.text_fault(ask.message)
        if fault:
            return Refusal(Status.INVALID_MESSAGE, fault)
        if policy.too_large(ask.message, limits.max_message_bytes, ask.data):
            return Refusal(
                Status.MESSAGE_TOO_LARGE, f"the limit is {limits.max_message_bytes} bytes"
            )
        return None

    def _target(self, ask: Ask) -> Refusal | None:
        if ask.target not in self._roster:
            near = get_close_matches(ask.target[:_LONGEST], self._roster.names(), n=3, cutoff=0.5)
            return Refusal(Status.UNKNOWN_AGENT, ", ".join(near))
        asker = self._roster.agent(ask.asker)
        if asker is not None and not policy.may_ask(asker, ask.target):
            return Refusal(Status.NOT_ALLOWED)
        return None

    def _conversation(self, ask: Ask, conversation: str) -> Refusal | None:
        talk = self._conversations.get(conversation)
        if talk is None or not talk.has(ask.asker, ask.target):
            return Refusal(Status.UNKNOWN_CONVERSATION)
        return None

    def _ring(self, ask: Ask, limits: Limits) -> Refusal | None:
        parent = ask.parent
        if parent is not None and parent.depth + 1 > limits.max_depth:
            chain = (*parent.chain, parent.asker, ask.asker, ask.target)
            return Refusal(Status.WOULD_DEADLOCK, "depth", chain)
        if not ask.holds:
            return None
        ring = self._waits.ring(ask.asker, ask.target)
        if ring is None:
            return None
        same = ask.conversation is not None and self._waits.waits_in(ask.target, ask.conversation)
        deaf = any(not self._nests(agent) for agent in ring)
        if len(ring) == 1 or same or deaf or len(ring) > limits.max_depth:
            return Refusal(Status.WOULD_DEADLOCK, "ring", (*ring, ask.asker))
        return None

    def _nests(self, agent: str) -> bool:
        """Whether the agent can answer while it waits: only over a version 2 link."""
        link = self._roster.link(agent)
        return link is not None and link.acks

    def _turns(self, conversation: str, limits: Limits, now: int) -> Refusal | None:
        if self._conversations.over_limit(
            conversation,
            now,
            max_turns=limits.max_turns,
            max_run=limits.max_run,
            pause=limits.run_pause_ms,
        ):
            detail = f"{limits.max_turns} in an hour, {limits.max_run} without a pause"
            return Refusal(Status.TURN_LIMIT, detail)
        return None

    def _load(self, ask: Ask, limits: Limits, now: int) -> Refusal | None:
        target = self._roster.agent(ask.target)
        most = _own(target, "max_pending", limits.max_pending)
        if self._book.pending(ask.target) >= most:
            return Refusal(Status.QUEUE_FULL, f"{most} asks wait for it")
        rate = _own(self._roster.agent(ask.asker), "rate_per_minute", limits.rate_per_minute)
        if not self._rates.allows(ask.asker, rate, now):
            return Refusal(Status.RATE_LIMITED, f"{rate} a minute")
        return None

    def _reach(self, ask: Ask, limits: Limits, now: int) -> Refusal | None:
        if ask.queue:
            return None
        presence = self._roster.presence(ask.target, now, limits.reconnect_grace_ms)
        return Refusal(Status.AGENT_OFFLINE) if presence is Presence.OFFLINE else None


def _own(agent: Agent | None, name: str, default: int) -> int:
    value: int | None = getattr(agent, name, None)
    return default if value is None else value
