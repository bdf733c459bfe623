"""Calls that wait for a result: each is repeated on every new link until it has one.

That is safe because every verb may be repeated: `ask_agent` carries an idempotency key made of its
call id, the others are idempotent by nature.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from . import frames
from .trace import Trace


@dataclass(slots=True)
class _Open:
    frame: str
    future: "asyncio.Future[Any]"


class Calls:
    """The open calls of this bot, by id, oldest first."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(
        self,
        call_id: str,
        tool: str,
        args: dict[str, Any],
        turn: str | None,
        trace: Trace | None = None,
    ) -> tuple[str, "asyncio.Future[Any]"]:
        """Give the frame to send and the future of its result; an open call is found again."""
        known = self._open.get(call_id)
        if known is None:
            if tool == "ask_agent":
                args = {**args, "idempotency_key": args.get("idempotency_key") or key_of(call_id)}
            frame = frames.call(call_id, tool, args, turn, trace)
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            known = self._open[call_id] = _Open(frame, future)
        return known.frame, known.future

    def ended(self, call_id: str, result: Any) -> bool:
        """A result came in; false when nobody waits for it."""
        known = self._open.pop(call_id, None)
        if known is None:
            return False
        if not known.future.done():
            known.future.set_result(result)
        return True

    def drop(self, call_id: str) -> None:
        """Nobody waits for this call any more; it is not repeated."""
        known = self._open.pop(call_id, None)
        if known is not None:
            known.future.cancel()

    def frames(self) -> list[str]:
        """What a new link has to be told."""
        return [call.frame for call in self._open.values()]


def key_of(call_id: str) -> str:
    """Give the idempotency key of a call."""
    return f"call-{call_id}"
