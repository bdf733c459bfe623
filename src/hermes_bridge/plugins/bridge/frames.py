"""The frames of `/bridge/connect`, as the bot reads and writes them (bridge.md, part 1).

Pure: text in, records out. Unknown types and unknown fields are ignored; a frame that makes no
sense raises `BadFrame`, which its reader logs and forgets.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .trace import Trace, taken

PROTOCOL = 2
CLIENT = "hermes-bridge-plugin/0.1.0"
FEATURES = ("wake", "ack", "heartbeat", "call", "cancel", "failure")
MAX_FRAME_BYTES = 1_048_576
"""The relay closes a link over this; an answer is cut before it gets there."""


class BadFrame(ValueError):
    """The relay sent something that is not a frame."""


@dataclass(frozen=True, slots=True)
class Wake:
    """A question for this bot. `deadline_ms` is what is left until nobody waits any more."""

    request_id: str
    conversation_id: str
    asker: str
    message: str
    attempt: int = 1
    deadline_ms: int | None = None
    depth: int = 0
    data: Any = None
    trace: Trace | None = None


@dataclass(frozen=True, slots=True)
class Welcome:
    """The relay accepted the hello. Times in milliseconds."""

    agent: str
    heartbeat_ms: int
    window_ms: int
    max_message_bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """What a call came to."""

    id: str
    result: Any


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for this exchange any more."""

    request_id: str
    reason: str


Frame = Wake | Welcome | Result | Cancel


def decode(text: str | bytes) -> Frame | None:
    """Read one frame; `None` for a type of a later version. Raises: BadFrame."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFrame("not JSON") from error
    if not isinstance(raw, dict):
        raise BadFrame("not an object")
    kind = raw.get("type", "wake")
    reader = _READERS.get(kind) if isinstance(kind, str) else None
    return reader(raw) if reader else None


def wake_from(raw: dict[str, Any]) -> Wake:
    """Read a wake; also used for the copy in the journal. Raises: BadFrame."""
    deadline = raw.get("deadline_ms")
    return Wake(
        request_id=_text(raw, "request_id"),
        conversation_id=_text(raw, "conversation_id"),
        asker=_text(raw, "from"),
        message=_text(raw, "message"),
        attempt=_number(raw, "attempt", 1),
        deadline_ms=None if deadline is None else _number(raw, "deadline_ms", 0),
        depth=_number(raw, "depth", 0),
        data=raw.get("data"),
        trace=taken(raw.get("trace")),
    )


def wake_to(wake: Wake) -> dict[str, Any]:
    """Write a wake the way `wake_from` reads it."""
    return {
        "request_id": wake.request_id,
        "conversation_id": wake.conversation_id,
        "from": wake.asker,
        "message": wake.message,
        "attempt": wake.attempt,
        "deadline_ms": wake.deadline_ms,
        "depth": wake.depth,
        "data": wake.data,
        "trace": wake.trace,
    }


def hello(description: str = "", skills: tuple[str, ...] = ()) -> str:
    """The first frame of a link."""
    frame: dict[str, Any] = {"type": "hello", "protocol": PROTOCOL, "client": CLIENT}
    frame["features"] = list(FEATURES)
    if description:
        frame["description"] = description
    if skills:
        frame["skills"] = list(skills)
    return _encode(frame)


def ack(request_id: str) -> str:
    """This wake was taken."""
    return _encode({"type": "ack", "request_id": request_id})


def heartbeat(request_id: str, note: str | None = None) -> str:
    """This bot still works on this exchange."""
    frame = {"type": "heartbeat", "request_id": request_id}
    return _encode({**frame, "note": note} if note else frame)


def call(
    call_id: str,
    tool: str,
    args: dict[str, Any],
    turn: str | None = None,
    trace: Trace | None = None,
) -> str:
    """A verb of the relay; `turn` is the exchange in whose turn the call is made."""
    frame: dict[str, Any] = {"type": "call", "id": call_id, "tool": tool, "args": args}
    if turn:
        frame["request_id"] = turn
    if trace:
        frame["trace"] = trace
    return _encode(frame)


def clean(text: str) -> str:
    """Replace what no JSON reader or database takes: lone surrogates and NUL."""
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")


def fitted(answer: str, max_bytes: int) -> str:
    """Cut an answer to what the relay takes, counted as UTF-8 and as an escaped frame."""
    answer = clean(answer)
    whole, room = len(answer.encode()), min(max_bytes, MAX_FRAME_BYTES - 4096)
    if whole <= room and len(_encode({"a": answer}).encode()) <= MAX_FRAME_BYTES - 4096:
        return answer
    note = f"\n\n[cut by hermes-bridge: the answer was {whole} bytes long]"
    room -= len(note)
    kept = answer.encode()[: max(room, 0)].decode("utf-8", "ignore")
    while kept and len(_encode({"a": kept}).encode()) > MAX_FRAME_BYTES - 4096 - len(note):
        kept = kept[: len(kept) * 3 // 4]
    return kept + note


def _encode(frame: dict[str, Any]) -> str:
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:
        return clean(text)
    return text


def _text(raw: dict[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or not value:
        raise BadFrame(f"{key} is missing or is not a text")
    return clean(value)


def _number(raw: dict[str, Any], key: str, default: int) -> int:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise BadFrame(f"{key} is not a number")
    return int(min(max(value, 0), 2**53))


def _welcome(raw: dict[str, Any]) -> Welcome:
    return Welcome(
        agent=_text(raw, "agent"),
        heartbeat_ms=max(50, _number(raw, "heartbeat_ms", 5_000)),
        window_ms=_number(raw, "window_ms", 120_000),
        max_message_bytes=max(256, _number(raw, "max_message_bytes", 262_144)),
    )


def _result(raw: dict[str, Any]) -> Result:
    return Result(_text(raw, "id"), raw.get("result"))


def _cancel(raw: dict[str, Any]) -> Cancel:
    return Cancel(_text(raw, "request_id"), str(raw.get("reason") or ""))


_READERS: dict[Any, Callable[[dict[str, Any]], Frame]] = {
    "wake": wake_from,
    "welcome": _welcome,
    "result": _result,
    "cancel": _cancel,
}
