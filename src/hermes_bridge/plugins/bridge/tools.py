"""The bridge's tools as native tools of Hermes: the main way for a bot to use the relay.

Hermes runs a handler in a thread of the agent; it waits there, looks at Hermes' interrupt flag,
and the event loop stays free. Hermes passes MCP calls one at a time; these run side by side.
"""

import asyncio
import concurrent.futures
import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .bridge import Bridge
from .inbox import Reply, State
from .trace import Trace, ambient, within
from .wake import conversation_of

TOOLSET = "hermes-bridge"
POLL_S = 0.2
CONFIRM_S = 8.0

_TEXT = {"type": "string"}
_WAIT = {
    "type": "number",
    "description": "Milliseconds to wait for the answer; leave out to wait until it is there.",
}


def _schema(name: str, description: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "parameters": parameters}


SCHEMAS: tuple[dict[str, Any], ...] = (
    _schema(
        "ask_agent",
        "Ask another agent (a bot of another team or person) a question and wait for its answer. "
        "Use list_agents to see who there is. Give conversation_id of an earlier answer to go on "
        "with the same conversation.",
        ["to", "message"],
        to={**_TEXT, "description": "Name of the agent."},
        message={**_TEXT, "description": "The whole question; the other agent sees nothing else."},
        conversation_id={**_TEXT, "description": "Of an earlier answer, to continue it."},
        wait_ms=_WAIT,
        if_offline={
            "type": "string",
            "enum": ["fail", "queue"],
            "description": "queue: leave the question for an agent that is offline.",
        },
        idempotency_key={**_TEXT, "description": "The same key never asks twice."},
        data={"type": "object", "description": "Structured data that goes with the question."},
    ),
    _schema(
        "wait_answer",
        "Go on waiting for the answer to an earlier ask_agent that said working or interrupted.",
        ["request_id"],
        request_id=_TEXT,
        wait_ms=_WAIT,
    ),
    _schema(
        "reply",
        "Answer the question of another agent that this turn is about. Not needed when your final "
        'text is the answer. kind "failure" says that you cannot answer, and why.',
        ["request_id", "answer"],
        request_id={**_TEXT, "description": "As given with the question."},
        answer=_TEXT,
        kind={"type": "string", "enum": ["answer", "failure"]},
        data={"type": "object", "description": "Structured data that goes with the answer."},
    ),
    _schema("list_agents", "List the agents that can be asked, and who of them is online.", []),
    _schema(
        "cancel_ask",
        "Withdraw a question that you asked another agent.",
        ["request_id"],
        request_id=_TEXT,
    ),
)


@dataclass(frozen=True, slots=True)
class Session:
    """From where in Hermes a tool is called."""

    platform: str
    chat_id: str


class Tools:
    """The handlers; `live` gives the bridge that is up, `session` the caller's."""

    def __init__(
        self,
        live: Callable[[], Bridge | None],
        session: Callable[[], Session],
        interrupted: Callable[[], bool],
    ) -> None:
        self._live, self._session, self._interrupted = live, session, interrupted

    def handler(self, name: str) -> Callable[..., str]:
        """Give the handler that Hermes calls: `(args, **kw) -> JSON text`, never raising."""
        verb = {"ask_agent": self._ask, "reply": self._reply}.get(name)

        def handle(args: dict[str, Any], **_: Any) -> str:
            try:
                bridge = self._live()
                if bridge is None:
                    return _json(
                        _fault("relay_unreachable", "The bridge of this bot is not set up.")
                    )
                arguments = {k: v for k, v in dict(args or {}).items() if v is not None}
                turn = self._turn(bridge)
                if verb is not None:
                    return _json(verb(bridge, arguments, turn))
                return _json(self._wait(bridge, name, arguments, turn))
            except Exception as error:  # noqa: BLE001 - a tool answers, whatever happens
                return _json(_fault("internal", f"The bridge failed: {type(error).__name__}."))

        return handle

    def trace(self) -> Trace | None:
        """Give the trace context of the turn that calls this, or of what it does in it."""
        bridge = self._live()
        own = bridge.trace_of(self._turn(bridge)) if bridge is not None else None
        return within(own, ambient())

    def _turn(self, bridge: Bridge) -> str | None:
        """The exchange in whose turn the tool is called: there is one turn a conversation."""
        session = self._session()
        conversation = conversation_of(session.chat_id) if session.platform == TOOLSET else None
        return bridge.inbox.turn(conversation) if conversation else None

    def _ask(self, bridge: Bridge, args: dict[str, Any], turn: str | None) -> Any:
        call_id = secrets.token_hex(16)
        args.setdefault("idempotency_key", f"call-{call_id}")
        done = self._call(bridge, call_id, "ask_agent", args, turn)
        if done is not None:
            return done if "wait_ms" in args else self._follow(bridge, done, turn)
        if turn is not None and _cancelled(bridge, turn):
            bridge.loop.call_soon_threadsafe(bridge.abandon_ask, secrets.token_hex(16), args, turn)
        hint = "Call ask_agent again with this idempotency_key to go on waiting."
        return {**_fault("interrupted", hint), "idempotency_key": args["idempotency_key"]}

    def _wait(self, bridge: Bridge, tool: str, args: dict[str, Any], turn: str | None) -> Any:
        done = self._call(bridge, secrets.token_hex(16), tool, args, turn)
        if done is None:
            return {**_fault("interrupted", "Call wait_answer to go on waiting."), **args}
        waits = tool == "wait_answer" and "wait_ms" not in args
        return self._follow(bridge, done, turn) if waits else done

    def _follow(self, bridge: Bridge, done: Any, turn: str | None) -> Any:
        """Go on while the other agent works: a slice of the relay is not the end of the wait."""
        while isinstance(done, dict) and done.get("error") == "working":
            asked = {"request_id": done["request_id"]}
            later = self._call(bridge, secrets.token_hex(16), "wait_answer", asked, turn)
            if later is None:
                if turn is not None and _cancelled(bridge, turn):
                    self._call(bridge, secrets.token_hex(16), "cancel_ask", asked, turn, CONFIRM_S)
                return {**done, "error": "interrupted"}
            done = later
        return done

    def _reply(self, bridge: Bridge, args: dict[str, Any], turn: str | None) -> Any:
        request_id, answer = str(args.get("request_id") or ""), str(args.get("answer") or "")
        failure = args.get("kind") == "failure"
        if not answer.strip() and not failure:
            return _fault("invalid_message", "The answer is empty; say it in the answer argument.")
        exchange = bridge.inbox.get(request_id)
        if turn is not None and request_id != turn:
            hint = f"This turn is about the question {turn}; reply to that one."
            return _fault("not_your_request", hint)
        if exchange is None:
            return self._wait(bridge, "reply", args, turn)
        if exchange.state is State.SETTLED:
            cancelled = exchange.reply is None
            return _fault(
                "cancelled" if cancelled else "already_answered", "Nothing is left to do."
            )
        work = bridge.final(request_id, Reply(answer, failure=failure, data=args.get("data")))
        first = asyncio.run_coroutine_threadsafe(work, bridge.loop).result(CONFIRM_S)
        return {"ok": True} if first else _fault("already_answered", "Nothing is left to do.")

    def _call(
        self,
        bridge: Bridge,
        call_id: str,
        tool: str,
        args: dict[str, Any],
        turn: str | None,
        patience: float | None = None,
    ) -> Any:
        """Call and wait; `None` when Hermes interrupted the agent (or patience ended)."""
        work = bridge.call(call_id, tool, args, turn, ambient())
        future = asyncio.run_coroutine_threadsafe(work, bridge.loop)
        waited = 0.0
        while True:
            try:
                return future.result(POLL_S)
            except concurrent.futures.TimeoutError:
                waited += POLL_S
                stop = waited >= patience if patience is not None else self._interrupted()
                if stop:
                    future.cancel()
                    return None


def _cancelled(bridge: Bridge, turn: str) -> bool:
    exchange = bridge.inbox.get(turn)
    return exchange is not None and exchange.state is State.SETTLED and exchange.reply is None


def _fault(code: str, hint: str) -> dict[str, Any]:
    return {"ok": False, "error": code, "hint": hint}


def _json(result: Any) -> str:
    return json.dumps(result, ensure_ascii=False)
