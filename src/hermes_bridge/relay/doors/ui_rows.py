"""What the page is told: exchanges and agents as JSON.

The first ten names are the seed's (`/ui/api/state`); keys without a value are left out. Times are
unix milliseconds. `deadline` is when an open exchange ends if its target stays silent.
"""

from typing import Any

from hermes_bridge.relay.core.exchange import Exchange, Status
from hermes_bridge.relay.relay import Relay

Json = dict[str, Any]
_TEXTS = ("message", "answer", "late_answer", "data", "answer_data")


def exchange(x: Exchange, cut: int = 0) -> Json:
    """Give one exchange. Texts beyond `cut` characters (0 = none) are cut; `sizes` then tells."""
    row: Json = {
        "request_id": x.rid,
        "conversation_id": x.conv,
        "from": x.asker,
        "to": x.target,
        "message": x.message,
        "status": _shown(x),
        "answer": x.answer,
        "error": x.reason,
        "started_at": x.at,
        "ended_at": x.ended_at,
        "attempt": x.attempt,
        "sent_at": x.sent_at,
        "taken_at": x.taken_at,
        "heard_at": x.heard_at,
        "beats": x.beats,
        "note": x.note,
        "window_ms": x.window,
        "cap_at": x.cap,
        "depth": x.depth,
        "chain": x.chain,
        "trace": x.trace,
        "data": _text(x.data),
        "answer_data": _text(x.answer_data),
        "late_answer": x.late_answer,
        "late_at": x.late_at,
        "fetched_at": x.fetched_at,
    }
    if not x.ended_at:
        row["deadline"], row["queue_until"] = x.deadline, x.queue_until
    row = {key: value for key, value in row.items() if value or key in _ALWAYS}
    if x.answer == "":
        row["answer"] = ""
    return _cut(row, cut) if cut else row


_ALWAYS = frozenset({"request_id", "conversation_id", "from", "to", "message", "status"})


def _cut(row: Json, cut: int) -> Json:
    sizes = {}
    for name in _TEXTS:
        text = row.get(name)
        if text is not None and len(text) > cut:
            sizes[name] = len(text.encode("utf-8", "replace"))
            row[name] = text[:cut]
    if sizes:
        row["sizes"] = sizes
    return row


def _shown(x: Exchange) -> str:
    if x.status is Status.OPENING:
        return Status.QUEUED.value
    if x.status is Status.SETTLING:
        return (Status.TAKEN if x.taken_at else Status.SENT).value
    return x.status.value


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def agents(relay: Relay, now: int) -> list[Json]:
    """Give all agents in the order of the configuration."""
    grace = relay.book.limits.reconnect_grace_ms
    rows = []
    for agent in relay.roster.agents():
        link, seen = relay.roster.link(agent.name), relay.roster.seen(agent.name)
        row: Json = {
            "name": agent.name,
            "online": link is not None,
            "presence": relay.roster.presence(agent.name, now, grace).value,
            "since": link.since if link else seen.lost_at or seen.last_seen or None,
            "description": seen.description or agent.description or None,
            "skills": list(seen.skills) or None,
            "client": link.client or None if link else None,
            "protocol": link.protocol if link else None,
        }
        rows.append({key: value for key, value in row.items() if value is not None})
    return rows
