"""What a verb gives back: one JSON object, with a hint that tells a language model what to do next."""

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from hermes_bridge.relay.core.admission import Refusal
from hermes_bridge.relay.core.exchange import Exchange, Status


class Result(msgspec.Struct, kw_only=True, omit_defaults=True, gc=False):
    """The result of every verb but `list_agents`. Unset fields are left out."""

    ok: bool | UnsetType = UNSET
    error: str | UnsetType = UNSET
    conversation_id: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET
    answer: str | UnsetType = UNSET
    data: msgspec.Raw | UnsetType = UNSET
    late: bool | UnsetType = UNSET
    elapsed_ms: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    chain: tuple[str, ...] | UnsetType = UNSET
    hint: str | UnsetType = UNSET


HINTS: dict[str, str] = {
    "working": (
        "The other agent is still working. Call wait_answer with this request_id to go on waiting; "
        "the answer is kept even if you do something else first."
    ),
    Status.TIMEOUT: (
        "The other agent gave no sign of life for a whole window. Ask again later, ask somebody "
        "else, or call wait_answer with this request_id: an answer that comes late is kept."
    ),
    Status.DEADLINE_EXCEEDED: (
        "The other agent was still working when the longest allowed time was over. Ask for a "
        "smaller piece, or call wait_answer later: an answer that comes late is kept."
    ),
    Status.AGENT_DISCONNECTED: (
        "The other agent lost its connection while it worked and did not come back in time. Ask "
        "again later, or call wait_answer: an answer that comes late is kept."
    ),
    Status.AGENT_OFFLINE: (
        "The other agent is not connected. Ask again later, ask somebody else, or ask with "
        'if_offline="queue" so that the question waits for it.'
    ),
    Status.CANCELLED: "The ask was cancelled. Ask again if the answer is still needed.",
    Status.FAILED: "The other agent could not answer. Read the reason, then ask differently or give up.",
    Status.UNKNOWN_AGENT: "No agent has this name. Call list_agents for the names.",
    Status.UNKNOWN_CONVERSATION: (
        "You are not part of such a conversation with this agent. Leave conversation_id out to "
        "begin a new one."
    ),
    Status.NOT_ALLOWED: "You may not ask this agent. Call list_agents: may_ask tells whom you may ask.",
    Status.WOULD_DEADLOCK: (
        "The agents in chain would wait for each other and nobody could answer. Answer what you "
        "were asked first, or ask with wait_ms=0 and fetch the answer later."
    ),
    Status.TURN_LIMIT: (
        "This conversation has had too many turns. Sum up what you know and finish, or begin a new "
        "conversation if there is something new to ask."
    ),
    Status.QUEUE_FULL: "Too many asks wait for this agent. Try again in a minute.",
    Status.RATE_LIMITED: "You ask too often. Wait a minute before the next ask.",
    Status.MESSAGE_TOO_LARGE: "The text is too long. Send a shorter one, or a link to the content.",
    Status.INVALID_MESSAGE: "The text cannot be delivered. Send plain, non-empty text.",
    Status.SHUTTING_DOWN: "The relay is restarting. Try again in a few seconds.",
    "unknown_request": (
        "No exchange has this request_id. Use the id exactly as it was given to you; the exchange "
        "may also be older than the relay keeps."
    ),
    "not_your_request": "This request_id belongs to other agents. Use the id that was given to you.",
    "already_answered": "This request has its answer already. Nothing more needs to be done.",
    "already_ended": "This exchange has ended. Call wait_answer to read how.",
    "invalid_arguments": "The call does not fit the tool. Read the reason and correct the arguments.",
    "store_unavailable": (
        "The relay cannot read its history just now, and this exchange is not among the recent ones. "
        "Try the same call again in a minute."
    ),
    "too_many_calls": "Too many calls of yours are unanswered. Wait for some of them first.",
    "unknown_tool": "No such tool. There are ask_agent, wait_answer, reply, cancel_ask, list_agents.",
}
"""One sentence or two a code; docs/reference/results.md lists the same codes."""


def _raw(data: bytes | None) -> msgspec.Raw | UnsetType:
    return msgspec.Raw(data) if data is not None else UNSET


def refused(refusal: Refusal, rid: str, conversation: str | None) -> Result:
    """Give the result of an ask that opened nothing."""
    status = refusal.status
    hint = HINTS[status]
    if status is Status.UNKNOWN_AGENT and refusal.detail:
        hint = f"No agent has this name. Did you mean: {refusal.detail}? Call list_agents for all names."
    elif status is Status.WOULD_DEADLOCK and refusal.detail == "depth":
        hint = "Too many asks are nested inside each other. Answer with what you know."
    elif refusal.detail:
        hint = f"{hint} ({refusal.detail[0].upper()}{refusal.detail[1:]}.)"
    return Result(
        ok=False,
        error=status.value,
        hint=hint,
        request_id=rid,
        conversation_id=conversation or UNSET,
        chain=refusal.chain or UNSET,
    )


def working(exchange: Exchange, now: int) -> Result:
    """Give the result of a slice that is over while the exchange is open."""
    return Result(
        ok=False,
        error="working",
        hint=HINTS["working"],
        request_id=exchange.rid,
        conversation_id=exchange.conv,
        elapsed_ms=now - exchange.at,
    )


def ended(exchange: Exchange) -> Result:
    """Give the result of an exchange that has its outcome, its late answer included."""
    if exchange.status is Status.OK:
        return Result(
            ok=True,
            conversation_id=exchange.conv,
            request_id=exchange.rid,
            answer=exchange.answer or "",
            data=_raw(exchange.answer_data),
            elapsed_ms=exchange.ended_at - exchange.at,
        )
    if exchange.late_at:
        return Result(
            ok=True,
            conversation_id=exchange.conv,
            request_id=exchange.rid,
            answer=exchange.late_answer or "",
            data=_raw(exchange.late_data),
            late=True,
            elapsed_ms=exchange.late_at - exchange.at,
        )
    return Result(
        ok=False,
        error=exchange.status.value,
        hint=HINTS[exchange.status],
        reason=exchange.reason or UNSET,
        request_id=exchange.rid,
        conversation_id=exchange.conv,
        elapsed_ms=exchange.ended_at - exchange.at,
    )


def failure(code: str, rid: str | None = None, **fields: Any) -> Result:
    """Give the result of a verb that could not do its work."""
    return Result(ok=False, error=code, hint=HINTS[code], request_id=rid or UNSET, **fields)


DONE = Result(ok=True)
"""It was done, and there is nothing more to say."""

DONE_LATE = Result(ok=True, late=True)
"""It was kept, but the asker had stopped waiting."""
