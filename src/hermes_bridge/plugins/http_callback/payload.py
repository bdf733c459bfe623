"""The body of a callback: four original keys, one `hermes` object, byte-stable for ever.

Pure. A receiver that merges the query with the JSON body (the original's does, and the body wins)
must never find a new top-level key, so all that is ours lives under `hermes`.
"""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

FORMATS = ("compat", "standard")
PLACEHOLDER = re.compile(r"\{([A-Za-z0-9_][A-Za-z0-9_.-]*)\}")
MAX_VALUE = 512
_PRIVATE = frozenset({"notify", "direct_messages_topic_id"})


def clean(text: str) -> str:
    """Give text that any receiver can store: lone surrogates become U+FFFD, NUL is dropped."""
    if not text.isascii():
        # Two halves that belong together become one character; a half alone is replaced.
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\x00", "")


def tidy(value: Any, depth: int = 0) -> Any:
    """Give a JSON value with the same cleaning applied to every text in it."""
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if depth < 8 and isinstance(value, dict):
        return {clean(str(key)): tidy(item, depth + 1) for key, item in value.items()}
    if depth < 8 and isinstance(value, (list, tuple)):
        return [tidy(item, depth + 1) for item in value]
    return clean(str(value))


def public_metadata(metadata: dict[str, Any] | None) -> dict[str, Any]:
    """Give the caller's metadata without the marks that Hermes keeps for itself."""
    kept = {
        key: value
        for key, value in (metadata or {}).items()
        if key not in _PRIVATE and not str(key).startswith("_")
    }
    cleaned: dict[str, Any] = tidy(kept)
    return cleaned


def lookup(payload: Any, path: str) -> Any:
    """Find a dotted path in the inbound payload; None where it leads nowhere."""
    for part in path.split("."):
        if isinstance(payload, dict):
            payload = payload.get(part)
        elif isinstance(payload, list) and part.isdigit() and int(part) < len(payload):
            payload = payload[int(part)]
        else:
            return None
    return payload


def metadata_from(rules: dict[str, str], payload: Any) -> dict[str, Any]:
    """Resolve `metadata_from` against the inbound payload; what is missing is left out.

    A rule that is one placeholder keeps the value's type, so an id stays a number.
    """
    found: dict[str, Any] = {}
    for key, template in rules.items():
        whole = PLACEHOLDER.fullmatch(template)
        value = lookup(payload, whole[1]) if whole else _render(template, payload)
        if isinstance(value, str):
            value = clean(value)[:MAX_VALUE]
        if isinstance(value, (str, int, float, bool)):
            found[key] = value
    return found


def _render(template: str, payload: Any) -> str | None:
    missing = False

    def put(match: re.Match[str]) -> str:
        nonlocal missing
        value = lookup(payload, match[1])
        if not isinstance(value, (str, int, float, bool)):
            missing = True
            return ""
        return str(value)

    text = PLACEHOLDER.sub(put, template)
    return None if missing else text


@dataclass(frozen=True)
class Answer:
    """What the body says; `facts` go into the `hermes` object when they are known."""

    id: str
    kind: str
    content: str
    timestamp: int
    reply_to: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    attachments: tuple[dict[str, Any], ...] = ()


def envelope(answer: Answer, seq: int) -> dict[str, Any]:
    """Give the `hermes` object: version, id, kind, sequence number and the known facts."""
    facts = {key: tidy(value) for key, value in answer.facts.items() if value not in (None, "")}
    found = {"v": 1, "id": answer.id, "kind": answer.kind, "seq": seq, **facts}
    if answer.attachments:
        found["attachments"] = [tidy(dict(item)) for item in answer.attachments]
    return found


def body(answer: Answer, seq: int, *, form: str = "compat", with_hermes: bool = True) -> bytes:
    """Serialise once: these bytes are stored, signed and sent unchanged at every attempt."""
    hermes = envelope(answer, seq)
    core: dict[str, Any] = {
        "content": clean(answer.content),
        "reply_to": answer.reply_to,
        "metadata": answer.metadata,
        "timestamp": answer.timestamp,
    }
    if form == "standard":
        at = datetime.fromtimestamp(answer.timestamp, UTC).isoformat().replace("+00:00", "Z")
        data = {
            "content": core["content"],
            "reply_to": answer.reply_to,
            "metadata": answer.metadata,
        }
        core = {"type": "agent.reply", "timestamp": at, "data": {**data, "hermes": hermes}}
    elif with_hermes:
        core["hermes"] = hermes
    return json.dumps(core, ensure_ascii=False).encode()
