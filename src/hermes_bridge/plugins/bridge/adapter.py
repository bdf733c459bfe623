"""The platform adapter: Hermes on one side, the bridge on the other, as little as can be between.

Imported only inside Hermes (0.19.0 to 0.22.2). Nothing here raises into Hermes or blocks its loop.
"""

import logging
import os
import time
from pathlib import Path
from typing import Any

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult
from gateway.session import build_session_key

from . import settings
from .bridge import Bridge
from .frames import Wake, wake_to
from .hooks import Turns
from .inbox import Reply
from .journal import Journal
from .trace import joined
from .verdict import NO_TEXT, judged, sounds_failed
from .wake import chat_id as chat_of, conversation_of

NAME = "hermes-bridge"
_EVENT_FIELDS = frozenset(getattr(MessageEvent, "__dataclass_fields__", {}))
_KEPT_KEYS = 10_000
_ENDS = {"cancelled": "The agent's turn was stopped.", "failure": "The agent's turn failed."}

_log = logging.getLogger(__name__)


class BridgeAdapter(BasePlatformAdapter):  # type: ignore[misc]
    """One platform, `hermes-bridge`: each conversation with another agent is a chat."""

    interactive_resume = False
    supports_async_delivery = False  # the final text of a turn is the answer; nothing comes later
    splits_long_messages = True  # Hermes must not cut what the relay takes whole
    supports_code_blocks = True

    def __init__(self, config: Any, turns: Turns, home: Path | None = None) -> None:
        super().__init__(config, Platform(NAME))
        self.home = home or hermes_home()
        self.turns = turns
        self.bridge: Bridge | None = None
        self._keys: dict[str, str] = {}
        self._complaints: dict[str, str] = {}
        self._degraded = True

    # Hermes' contract

    @property
    def authorization_is_upstream(self) -> bool:
        """The relay has authenticated whoever asks."""
        return True

    @property
    def send_path_degraded(self) -> bool:
        """Newer versions show `retrying` instead of `connected` while this is true."""
        return self._degraded

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        """Start dialling in the background; true at once."""
        if self.bridge is None:
            journal = Journal(self.home / "hermes-bridge" / "exchanges.jsonl")
            self.bridge = Bridge(self, self._settings, journal)
            live.append(self.bridge)
            self.bridge.start()
        self._running = True
        self.bridge.loop.call_later(1.0, self._show_again)
        return True

    async def disconnect(self) -> None:
        """Close the link; open exchanges are on disk and go on with the next process."""
        bridge, self.bridge = self.bridge, None
        if bridge is not None:
            live.remove(bridge)
            try:
                await bridge.close()
            except Exception:  # noqa: BLE001 - it is logged, and Hermes goes on
                _log.exception("hermes-bridge: the link did not close cleanly")
        self._mark_disconnected()

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
        **_: Any,
    ) -> Any:
        """Take what Hermes says in a chat: the final text is the answer, the rest is dropped."""
        try:
            await self._said(str(chat_id), str(content or ""), reply_to, metadata or {})
        except Exception:  # noqa: BLE001 - it is logged, and Hermes goes on
            _log.exception("hermes-bridge: a text for %s was not handled", chat_id)
        return SendResult(success=True, message_id=str(time.time_ns()))

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """Describe a conversation."""
        return {"name": chat_id, "type": "dm"}

    async def handle_message(self, event: Any) -> None:
        """Let turns of the bridge pass; a resume that Hermes makes up by itself does not.

        After a restart the bridge begins an interrupted question again, with its id. Hermes' own
        resume turn has no text and no id: its answer could not be matched to anything.
        """
        if not str(event.text or "").strip():
            _log.debug("hermes-bridge: left a resume of %s to the bridge", event.source.chat_id)
            return
        await super().handle_message(event)

    async def on_processing_complete(self, event: Any, outcome: Any) -> None:
        """A turn is over; without an answer the asker is told at once."""
        bridge, request_id = self.bridge, str(event.message_id or "")
        conversation = conversation_of(str(event.source.chat_id))
        if bridge is None or conversation is None or bridge.inbox.turn(conversation) != request_id:
            return
        outcome = str(getattr(outcome, "value", outcome))
        if self._stopping():
            return  # the next process begins this question again
        if outcome == "success" and not self.turns.seen(request_id):
            exchange = bridge.inbox.get(request_id)
            if exchange is not None and exchange.reply is None:
                return  # 0.22 says so of an event that it only queued; the pulse sees a real end
        reason = self._complaints.pop(conversation, "") or _ENDS.get(outcome, NO_TEXT)
        bridge.turn_over(request_id, reason)

    @classmethod
    def supports_exec_approval_buttons(cls) -> bool:
        """Tell newer versions to hand approvals to `send_exec_approval`, never to the chat."""
        return True

    async def send_exec_approval(
        self, chat_id: str, command: str, session_key: str, *_: Any, **__: Any
    ) -> Any:
        """A dangerous command waits for a person, and there is none here: deny it and say so."""
        _log.warning(
            "hermes-bridge: denied a command that needs approval in a question of another agent "
            "(chat %s): %s",
            chat_id,
            command,
        )
        await self._settle(
            str(chat_id),
            Reply(
                "To answer, this agent wanted to run a command that its operator has to approve, "
                "and nobody can approve commands in a question of another agent. Ask its operator "
                "to do it, or ask for something that needs no such command.",
                failure=True,
            ),
        )
        try:
            from tools.approval import resolve_gateway_approval

            resolve_gateway_approval(session_key, "deny", resolve_all=True)
        except Exception:  # noqa: BLE001 - it is logged, and Hermes goes on
            _log.exception("hermes-bridge: the approval could not be denied")
        return SendResult(success=True, message_id=str(time.time_ns()))

    async def send_clarify(
        self, chat_id: str, question: str, choices: Any, clarify_id: str, *_: Any, **__: Any
    ) -> Any:
        """The model asks back: its question is the answer, and the asker may ask again."""
        listed = "".join(f"\n{i}. {choice}" for i, choice in enumerate(choices or (), 1))
        await self._settle(str(chat_id), Reply(f"{question}{listed}"))
        try:
            from tools.clarify_gateway import resolve_gateway_clarify

            told = "Your question was sent to the asking agent. End this turn now."
            resolve_gateway_clarify(clarify_id, told)
        except Exception:  # noqa: BLE001 - it is logged, and Hermes goes on
            _log.exception("hermes-bridge: the clarification could not be ended")
        return SendResult(success=True, message_id=str(time.time_ns()))

    @staticmethod
    def extract_images(content: str) -> tuple[list[Any], str]:
        """An agent gets the text as the model wrote it, links included."""
        return [], content

    @staticmethod
    def extract_local_files(content: str) -> tuple[list[Any], str]:
        """Paths of this machine stay text."""
        return [], content

    # The bridge's side: Host

    def ready(self, conversation: str) -> bool:
        """Whether Hermes takes a turn now: it is up, not stopping, and this chat is at rest."""
        runner = getattr(self, "gateway_runner", None)
        restoring = bool(getattr(runner, "_startup_restore_in_progress", False))
        handled = getattr(self, "_message_handler", None) is not None
        return handled and not (restoring or self._stopping() or self.busy(conversation))

    def busy(self, conversation: str) -> bool:
        """Whether a turn runs in this chat."""
        return self._keys.get(conversation) in self._active_sessions

    async def begin(self, wake: Wake, text: str) -> None:
        """Begin the turn of a question."""
        conversation = wake.conversation_id
        source = self.build_source(
            chat_id=chat_of(conversation),
            chat_name=wake.asker,
            chat_type="dm",
            user_id=wake.asker,
            user_name=wake.asker,
        )
        options: dict[str, Any] = {}
        if "allow_gateway_control" in _EVENT_FIELDS:
            options["allow_gateway_control"] = False
        if wake.trace is not None and "metadata" in _EVENT_FIELDS:
            options["metadata"] = {"trace": dict(wake.trace)}
        event = MessageEvent(
            text=text,
            message_type=MessageType.TEXT,
            source=source,
            message_id=wake.request_id,
            raw_message=wake_to(wake),
            **options,
        )
        self._remember(conversation, event)
        self._complaints.pop(conversation, None)
        with joined(wake.trace):
            await super().handle_message(event)

    async def interrupt(self, conversation: str) -> None:
        """Stop the turn, the way Hermes' own relay adapter does."""
        key = self._keys.get(conversation)
        if key is not None:
            await self.interrupt_session_activity(key, chat_of(conversation))

    def show(self, online: bool, code: str, words: str) -> None:
        """Write the platform's state where `hermes status` reads it."""
        self._degraded = not online
        if online:
            self._mark_connected()
            return
        self._write_runtime_status_safe(
            "retrying", platform_state="retrying", error_code=code, error_message=words
        )

    # How

    def _settings(self) -> settings.Settings:
        return settings.read(getattr(self.config, "extra", None) or {}, self.home)

    def _show_again(self) -> None:
        """Hermes writes `connected` when `connect()` returns; the truth is written after it."""
        if self.bridge is not None:
            dial = self.bridge.link.dial
            self.show(dial.online, dial.cause.value if dial.cause else "connecting", dial.words)

    async def _said(
        self, chat: str, text: str, reply_to: str | None, metadata: dict[str, Any]
    ) -> None:
        bridge, conversation = self.bridge, conversation_of(chat)
        if bridge is None or conversation is None:
            return
        if metadata.get("notify") is not True:
            if sounds_failed(text):
                self._complaints[conversation] = text
            return
        turn = bridge.inbox.turn(conversation)
        if turn is None or reply_to not in (None, turn):
            _log.info("hermes-bridge: a text in %s belongs to no open question", conversation)
            return
        turns, end = self.turns, self.turns.end(turn)
        if self._stopping() and (end.interrupted if end else not turns.seen(turn)):
            return  # cut off, or refused before it began: the next process begins it again
        reply = judged(text, seen=turns.seen(turn), end=end, hooked=turns.hooked)
        await bridge.final(turn, reply)

    async def _settle(self, chat: str, reply: Reply) -> None:
        bridge, conversation = self.bridge, conversation_of(chat)
        turn = bridge.inbox.turn(conversation) if bridge and conversation else None
        if bridge is not None and turn is not None:
            await bridge.final(turn, reply)

    def _remember(self, conversation: str, event: Any) -> None:
        """Keep the session key: Hermes files a running turn under it."""
        own = getattr(self, "_event_session_key", None)
        extra = getattr(self.config, "extra", None) or {}
        key = (
            own(event)
            if callable(own)
            else build_session_key(
                event.source,
                group_sessions_per_user=extra.get("group_sessions_per_user", True),
                thread_sessions_per_user=extra.get("thread_sessions_per_user", False),
            )
        )
        if len(self._keys) > _KEPT_KEYS and self.bridge is not None:
            on = dict(self.bridge.inbox.turns())
            self._keys = {chat: kept for chat, kept in self._keys.items() if chat in on}
        self._keys[conversation] = str(key)

    def _stopping(self) -> bool:
        return bool(getattr(getattr(self, "gateway_runner", None), "_draining", False))


live: list[Bridge] = []
"""The bridges of this process that are up; tools use the newest."""


def hermes_home() -> Path:
    """Give the home of this Hermes."""
    try:
        from hermes_constants import get_hermes_home

        return Path(get_hermes_home())
    except ImportError:
        return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
