"""Who gets a message, and why everybody else does not.

Direct messages go to the identity whose account received them. Group messages go to every
identity that is called by name, once each, whichever account's socket saw them first. Every skip
has a name: an operator who asks "why did the bot not answer" finds it in the log.
"""

from collections.abc import Mapping

import msgspec

from hermes_bridge.connector.core.dedup import CONTENT_MS, Seen, content_id, delivery_key
from hermes_bridge.connector.core.identity import Identity, IdentityTable
from hermes_bridge.connector.core.message import MESSAGE, TICK, Message
from hermes_bridge.contract.frames import Policy

TYPING_TEXT = "__typing__"
HIDDEN_KINDS = ("slash_input", "slash_response", "loop_status")

TYPING = "typing"
NO_CHANNEL = "no_channel"
EMPTY = "empty"
MIRRORED = "mirrored"
NOT_ADDRESSED = "not_addressed"
OWN_MESSAGE = "own_message"
SEEN = "seen"
UNKNOWN_OWNER = "unknown_owner"
OTHER_BOTS_OFF = "other_bots_off"
AMBIGUOUS_TICK = "ambiguous_tick"
MALFORMED_TICK = "malformed_tick"
REASONS = (
    TYPING, NO_CHANNEL, EMPTY, MIRRORED, NOT_ADDRESSED, OWN_MESSAGE, SEEN, UNKNOWN_OWNER,
    OTHER_BOTS_OFF, AMBIGUOUS_TICK, MALFORMED_TICK,
)  # fmt: skip
"""Every reason of a skip, besides `kind:<name>` for kinds that no agent may see."""


class Skip(msgspec.Struct, frozen=True):
    """Nobody, or one identity, does not get a message, for a named reason."""

    reason: str
    bot_id: str = ""


class Plan(msgspec.Struct, frozen=True):
    """What becomes of a message: the bot ids it is for, in the table's order, and the skips."""

    message_id: str
    bots: tuple[str, ...] = ()
    skips: tuple[Skip, ...] = ()


class Router:
    """Plans messages against one table. Remembers what was planned."""

    def __init__(self, table: IdentityTable, *, keep: int = 50_000) -> None:
        self._table = table
        self._ingested = Seen(keep=keep)
        self.seen = Seen(keep=keep)
        self.policies: dict[str, Policy] = {}

    def reloaded(self, table: IdentityTable) -> None:
        """A new table is in force: what nobody wanted before may be for somebody now."""
        self._table = table
        self._ingested.clear()

    def plan(self, message: Message, arrival: str | None, now: int) -> Plan:
        """Plan one message that came in on the account of `arrival`, and reserve its deliveries."""
        refused = _refused(message)
        if refused:
            return Plan(message.id, skips=(Skip(refused),))
        message_id, age = message.id, None
        if not message_id:
            message_id, age = content_id(message.sender, message.at, message.text), CONTENT_MS
        scope = arrival or "" if message.direct else ""
        if not self._ingested.take(
            delivery_key(scope, message.channel, message_id), now, age_ms=age
        ):
            return Plan(message_id, skips=(Skip(MIRRORED),))
        targets, skips = self._targets(message, arrival)
        bots = []
        for target in targets:
            key = delivery_key(target.bot_id, message.channel, message_id)
            if self.seen.take(key, now, age_ms=age) and self._new_tick(target, message, now):
                bots.append(target.bot_id)
            else:
                skips.append(Skip(SEEN, target.bot_id))
        if age is not None:
            # After a minute the same words are a new message: the durable row needs its own name.
            message_id = f"{message_id}.{now}"
        return Plan(message_id, tuple(bots), tuple(skips))

    def _targets(self, message: Message, arrival: str | None) -> tuple[list[Identity], list[Skip]]:
        if message.kind == TICK:
            return self._tick_target(message)
        called = self._dm_owner(message, arrival) if message.direct else self._called(message)
        if not called:
            return [], [Skip(UNKNOWN_OWNER if message.direct else NOT_ADDRESSED)]
        targets, skips = [], []
        for identity in called:
            policy = self.policies.get(identity.bot_id)
            if message.sender == identity.agent_id:
                skips.append(Skip(OWN_MESSAGE, identity.bot_id))
            elif message.from_bot and policy is not None and not policy.allow_other_bots:
                skips.append(Skip(OTHER_BOTS_OFF, identity.bot_id))
            else:
                targets.append(identity)
        return targets, skips

    def _dm_owner(self, message: Message, arrival: str | None) -> list[Identity]:
        owner = arrival if arrival is not None else message.owner
        if owner is None:
            rows = [row for row in self._table.rows if row.platform == message.platform]
            return rows if len(rows) == 1 else []
        identity = self._table.get(owner)
        return [identity] if identity and identity.platform == message.platform else []

    def _called(self, message: Message) -> list[Identity]:
        named = self._table.mentions.called(message.text) if "@" in message.text else frozenset()
        return [
            row
            for row in self._table.rows
            if row.platform == message.platform
            and (
                row.bot_id in message.mentioned
                or row.agent_id in named
                or row.bot_id in named
                or _speaks_freely(self.policies.get(row.bot_id), message.channel)
            )
        ]

    def _tick_target(self, message: Message) -> tuple[list[Identity], list[Skip]]:
        rows = self._table.of_agent(message.platform, message.sender)
        if len(rows) != 1:
            return [], [Skip(AMBIGUOUS_TICK)]
        return rows, []

    def _new_tick(self, target: Identity, message: Message, now: int) -> bool:
        if message.tick is None:
            return True
        name = f"{message.tick.loop_id}@{message.tick.next_tick_ms}"
        return self.seen.take(delivery_key(target.bot_id, message.channel, name), now)


def _refused(message: Message) -> str:
    if message.text == TYPING_TEXT:
        return TYPING
    if not message.channel:
        return NO_CHANNEL
    if message.kind == TICK:
        return "" if message.tick else MALFORMED_TICK
    if message.kind != MESSAGE:
        return f"kind:{message.kind if message.kind in HIDDEN_KINDS else 'other'}"
    return "" if message.text.strip() or message.attachments else EMPTY


def _speaks_freely(policy: Policy | None, channel: str) -> bool:
    if policy is None:
        return False
    return not policy.require_address or channel in policy.free_response_scopes


def policies_of(
    table: IdentityTable, declared: Mapping[tuple[str, str], Policy]
) -> dict[str, Policy]:
    """Give each bot the policy that its gateway declared for its platform."""
    return {
        row.bot_id: declared[row.gateway_id, row.platform]
        for row in table.rows
        if (row.gateway_id, row.platform) in declared
    }
