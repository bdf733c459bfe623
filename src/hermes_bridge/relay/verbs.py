"""The verbs of the relay, once, behind every door: MCP, bridge frames, the command line.

A verb gives a result at once; or `Waits`, when its caller has to wait for an exchange; or something
to await, when the ledger must be asked first. Expected outcomes are results with `ok: false`; only
a call that does not fit the tool at all is `Broken`.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from hermes_bridge.errors import DatabaseDown
from hermes_bridge.relay.core import policy, results
from hermes_bridge.relay.core.admission import Ask
from hermes_bridge.relay.core.book import Answer
from hermes_bridge.relay.core.exchange import Exchange, Outcome, Status
from hermes_bridge.relay.core.results import Result
from hermes_bridge.relay.relay import Relay

_encode = msgspec.json.Encoder().encode
_Key = Annotated[str, Meta(max_length=256)]
_Id = Annotated[str, Meta(max_length=256)]


_LIST_ROOM = 120_000
"""Characters of all descriptions, and of all skills, in a list: it has to fit into a frame."""


class Caller(msgspec.Struct, frozen=True, gc=False):
    """Who calls, and what the door knows of the call."""

    agent: str
    turn: str | None = None
    """The exchange in whose turn the call is made, where the door knows it."""
    trace: str | None = None
    """The caller's trace context, as `carrier.taken` gives it."""


class Broken(msgspec.Struct, frozen=True, gc=False):
    """A call that does not fit its tool: unknown tool, or arguments of the wrong shape."""

    code: str
    reason: str


class Waits(msgspec.Struct, frozen=True, gc=False):
    """The caller has to wait: hold its call for this exchange for so long."""

    exchange: Exchange
    wait_ms: int


Done = Result | list["AgentLine"] | Broken
Now = Done | Waits
Given = Now | Awaitable[Now]


class AskArgs(msgspec.Struct, gc=False):
    """Arguments of `ask_agent`."""

    to: str
    message: str
    conversation_id: _Id | None = None
    wait_ms: float | None = None
    if_offline: Literal["fail", "queue"] | None = None
    idempotency_key: _Key | None = None
    data: msgspec.Raw = msgspec.Raw(b"null")


class WaitArgs(msgspec.Struct, gc=False):
    """Arguments of `wait_answer`."""

    request_id: _Id
    wait_ms: float | None = None


class ReplyArgs(msgspec.Struct, gc=False):
    """Arguments of `reply`."""

    request_id: _Id
    answer: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")
    kind: Literal["answer", "failure"] | None = None


class CancelArgs(msgspec.Struct, gc=False):
    """Arguments of `cancel_ask`."""

    request_id: _Id


class NoArgs(msgspec.Struct, gc=False):
    """Arguments of `list_agents`."""


class AgentLine(msgspec.Struct, omit_defaults=True, gc=False):
    """One agent as `list_agents` shows it; `last_seen` is an ISO 8601 instant in UTC."""

    name: str
    online: bool
    description: str | UnsetType = UNSET
    skills: tuple[str, ...] | UnsetType = UNSET
    busy: bool | UnsetType = UNSET
    last_seen: str | None | UnsetType = UNSET
    may_ask: bool | UnsetType = UNSET


class Verbs:
    """All verbs over one relay."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self._table: dict[str, tuple[Any, Callable[[Caller, Any], Given]]] = {
            "ask_agent": (_decoder(AskArgs), self.ask_agent),
            "wait_answer": (_decoder(WaitArgs), self.wait_answer),
            "reply": (_decoder(ReplyArgs), self.reply),
            "cancel_ask": (_decoder(CancelArgs), self.cancel_ask),
            "list_agents": (_decoder(NoArgs), self.list_agents),
        }

    def call(self, tool: str, caller: Caller, args: msgspec.Raw | bytes) -> Given:
        """Do what a tool call asks for."""
        known = self._table.get(tool)
        if known is None:
            return Broken("unknown_tool", f"no tool is called {tool[:64]!r}")
        decode, verb = known
        try:
            parsed = decode(args)
        except msgspec.MsgspecError as error:
            return Broken("invalid_arguments", _plain(error))
        except (RecursionError, UnicodeDecodeError):
            return Broken("invalid_arguments", "the arguments cannot be read as JSON")
        return verb(caller, parsed)

    def ask_agent(self, caller: Caller, args: AskArgs) -> Given:
        """Ask another agent; wait for the answer as long as the call may be held."""
        conversation = args.conversation_id
        if args.idempotency_key or (
            conversation and self.relay.conversations.get(conversation) is None
        ):
            return self._ask_informed(caller, args)
        return self._ask(caller, args, None, 0)

    async def _ask_informed(self, caller: Caller, args: AskArgs) -> Now:
        """Ask after the ledger was asked: is the key known, who takes part in the conversation."""
        key, generation = args.idempotency_key or None, 0
        if args.conversation_id:
            await self.relay.recall.know(args.conversation_id, caller.agent, args.to)
        if key is not None:
            known, generation = await self.relay.recall.find_keyed(caller.agent, key)
            if known is not None:
                return self._follow(known, self._wait(caller.agent, args.wait_ms))
        return self._ask(caller, args, key, generation)

    def _ask(self, caller: Caller, args: AskArgs, key: str | None, generation: int) -> Now:
        wait_ms = self._wait(caller.agent, args.wait_ms)
        conversation = args.conversation_id or None
        turn = self._turn(caller) if caller.turn else None
        opened = self.relay.open(
            Ask(
                asker=caller.agent,
                target=args.to,
                message=args.message,
                conversation=conversation,
                holds=wait_ms > 0,
                queue=args.if_offline == "queue",
                parent=turn,
                data=_data(args.data),
                trace=caller.trace or (turn.trace if turn is not None else None),
            ),
            key=key,
            generation=generation,
        )
        if isinstance(opened, Exchange):
            return self._follow(opened, wait_ms)
        refusal, record = opened
        return results.refused(refusal, record.rid, conversation)

    def _turn(self, caller: Caller) -> Exchange | None:
        """Give the open exchange in whose turn the caller says it is, if it is the one asked."""
        parent = self.relay.book.get(caller.turn or "")
        if parent is None or parent.target != caller.agent or parent.ended:
            return None
        return parent

    async def wait_answer(self, caller: Caller, args: WaitArgs) -> Now:
        """Go on waiting for an exchange, or fetch what came of it."""
        found = await self._asked_by(caller, args.request_id)
        if isinstance(found, Result):
            return found
        return self._follow(found, self._wait(caller.agent, args.wait_ms))

    async def _asked_by(self, caller: Caller, rid: str) -> Exchange | Result:
        """Give the caller's own exchange, or why not."""
        try:
            exchange = await self.relay.recall.find(rid)
        except DatabaseDown:
            return results.failure("store_unavailable", rid)
        if exchange is None:
            return results.failure("unknown_request", rid)
        return (
            exchange if exchange.asker == caller.agent else results.failure("not_your_request", rid)
        )

    def reply(self, caller: Caller, args: ReplyArgs) -> Given:
        """Answer an exchange that was asked of the caller, or say that it failed."""
        rid, limit = args.request_id, self.relay.book.limits.max_message_bytes
        fault = policy.text_fault(args.answer) if args.answer.strip() else None
        if fault:
            return results.failure(Status.INVALID_MESSAGE, rid, reason=fault)
        data = _data(args.data)
        if policy.too_large(args.answer, limit, data):
            return results.failure(
                Status.MESSAGE_TOO_LARGE, rid, reason=f"the limit is {limit} bytes"
            )
        if args.kind == "failure":
            outcome = Outcome(Status.FAILED, reason=args.answer or "the agent gave no reason")
        else:
            outcome = Outcome(Status.OK, answer=args.answer, data=data)
        if self.relay.book.get(rid) is None:
            return self._reply_informed(caller, rid, outcome)
        return self._reply(caller, rid, outcome)

    async def _reply_informed(self, caller: Caller, rid: str, outcome: Outcome) -> Now:
        """Reply to an exchange that only the ledger may know."""
        try:
            await self.relay.recall.find(rid)
        except DatabaseDown:
            return results.failure("store_unavailable", rid)
        return self._reply(caller, rid, outcome)

    def _reply(self, caller: Caller, rid: str, outcome: Outcome) -> Done:
        said = self.relay.reply(rid, caller.agent, outcome)
        if said is Answer.OK:
            return results.DONE
        if said is Answer.LATE:
            return results.DONE_LATE
        return results.failure(said.value, rid)

    async def cancel_ask(self, caller: Caller, args: CancelArgs) -> Now:
        """End an exchange that the caller asked for."""
        exchange = await self._asked_by(caller, args.request_id)
        if isinstance(exchange, Result):
            return exchange
        if self.relay.cancel(exchange.rid, f"cancelled by {caller.agent}"):
            return results.DONE
        if exchange.status is Status.CANCELLED:
            return results.DONE
        return results.failure("already_ended", exchange.rid)

    def list_agents(self, caller: Caller, args: NoArgs) -> Done:
        """Say who there is, the caller included, in the order of the configuration."""
        roster, book = self.relay.roster, self.relay.book
        me, agents = roster.agent(caller.agent), roster.agents()
        lines: list[AgentLine] = []
        room = _LIST_ROOM // max(1, len(agents))
        for agent in agents:
            seen = roster.seen(agent.name)
            line = AgentLine(agent.name, roster.link(agent.name) is not None)
            line.description = (seen.description or agent.description)[:room] or UNSET
            line.skills = seen.skills if 0 < sum(map(len, seen.skills)) < room else UNSET
            line.busy = book.working_on(agent.name) is not None
            line.last_seen = iso(seen.last_seen) if seen.last_seen else None
            line.may_ask = me is None or policy.may_ask(me, agent.name)
            lines.append(line)
        return lines

    def _follow(self, exchange: Exchange, wait_ms: int) -> Result | Waits:
        if exchange.ended or wait_ms <= 0:
            return self.outcome(exchange)
        return Waits(exchange, wait_ms)

    def outcome(self, exchange: Exchange) -> Result:
        """Give the result of an exchange as things stand now."""
        if not exchange.ended:
            return results.working(exchange, self.relay.clock.now())
        if exchange.late_at and not exchange.fetched_at:
            exchange.fetched_at = self.relay.clock.now()
            self.relay.touch(exchange)
        return results.ended(exchange)

    def _wait(self, agent: str, asked: float | None) -> int:
        known = self.relay.roster.agent(agent)
        longest = self.relay.book.limits.hold_ms
        if known is not None and known.hold_ms is not None:
            longest = known.hold_ms
        return longest if asked is None else max(0, min(longest, int(asked)))


def spell(done: Done) -> bytes:
    """Give the JSON of what a verb gave."""
    if isinstance(done, Broken):
        hint = results.HINTS[done.code]
        return _encode(Result(ok=False, error=done.code, reason=done.reason, hint=hint))
    return _encode(done)


def iso(instant: int) -> str:
    """Give unix milliseconds as ISO 8601 in UTC."""
    return datetime.fromtimestamp(instant / 1000, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def _decoder(kind: type) -> Callable[[msgspec.Raw | bytes], Any]:
    return msgspec.json.Decoder(kind).decode


def _data(raw: msgspec.Raw) -> bytes | None:
    data = bytes(raw)
    return None if data == b"null" else data


def _plain(error: msgspec.MsgspecError) -> str:
    """Say what is wrong with the arguments; the library's text names keys and types, not values."""
    return str(error).replace("`", "").replace(" - at $.", " at ").replace(" - at $", "")[:300]
