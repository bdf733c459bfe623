"""A plugin of the tests, loaded into a real gateway beside ours.

It writes every text that Hermes hands to the bridge's adapter into `said.jsonl` of the home, so that
a test can show that a notice was really made. Its tool `disturb` does what the bridge never does: it
puts another message into the chat whose turn is on. Its tool `look` tells what a plugin of this bot
sees of the trace that the turn belongs to.
"""

import asyncio
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType
from gateway.session_context import get_session_env
from hermes_constants import get_hermes_home
from opentelemetry import trace

SAID = Path(get_hermes_home()) / "said.jsonl"
DISTURB = {
    "name": "disturb",
    "description": "Say something into this chat while its turn is on.",
    "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
}
LOOK = {"name": "look", "description": "Look at the trace.", "parameters": {"type": "object"}}
dispatched: dict[str, Any] = {}
hooked: dict[str, Any] = {}


def register(ctx: Any) -> None:
    ctx.register_tool(name="disturb", toolset="spy", schema=DISTURB, handler=disturb)
    ctx.register_tool(name="look", toolset="spy", schema=LOOK, handler=look)
    ctx.register_hook("pre_gateway_dispatch", meet)
    ctx.register_hook("pre_llm_call", listen)


def meet(event: Any, **_: Any) -> None:
    dispatched[event.source.chat_id] = event.metadata.get("trace")


def look(args: dict[str, Any], **_: Any) -> str:
    from hermes_plugins.hermes_bridge import trace_context

    chat = get_session_env("HERMES_SESSION_CHAT_ID", "")
    span = trace.get_current_span().get_span_context()
    seen = {"tool": trace_context(), "hook": hooked.get(chat), "event": dispatched.get(chat)}
    return json.dumps({**seen, "opentelemetry": format(span.trace_id, "032x")})


def listen(**_: Any) -> None:
    """Put an ear on the bridge's adapter, once it is there."""
    from hermes_plugins.hermes_bridge import trace_context

    hooked[get_session_env("HERMES_SESSION_CHAT_ID", "")] = trace_context()
    adapter = _adapter()
    if "send" in vars(adapter):
        return
    real = adapter.send

    async def send(chat_id: str, content: str, *args: Any, **kw: Any) -> Any:
        note(chat_id, content, (kw.get("metadata") or {}).get("notify") is True)
        return await real(chat_id, content, *args, **kw)

    adapter.send = send


def note(chat: str, text: str, final: bool) -> None:
    with SAID.open("a") as file:
        file.write(json.dumps({"chat": chat, "text": text, "final": final}) + "\n")


def disturb(args: dict[str, Any], **_: Any) -> str:
    adapter, chat = _adapter(), get_session_env("HERMES_SESSION_CHAT_ID", "")
    who = {"user_id": "asker", "user_name": "asker"}
    options: dict[str, Any] = {"message_id": f"spy-{time.time_ns()}"}
    if any(f.name == "allow_gateway_control" for f in dataclasses.fields(MessageEvent)):
        options["allow_gateway_control"] = False
    source = adapter.build_source(chat_id=chat, chat_type="dm", **who)
    options |= {"text": args["text"], "message_type": MessageType.TEXT, "source": source}
    event = MessageEvent(**options)
    work = BasePlatformAdapter.handle_message(adapter, event)
    asyncio.run_coroutine_threadsafe(work, adapter.bridge.loop).result(20)
    return "disturbed"


def _adapter() -> Any:
    from hermes_plugins.hermes_bridge.adapter import live

    return live[-1]._host
