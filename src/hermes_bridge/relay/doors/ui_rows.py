"""What the page is told: exchanges and agents as JSON.

The first ten names are the seed's (`/ui/api/state`); keys without a value are left out. Times are
unix milliseconds. `deadline` is when an open exchange ends if its target stays silent.
"""

from collections.abc import Sequence
from typing import Any

from hermes_bridge.relay.core import carrier
from hermes_bridge.relay.core.exchange import Exchange, Mark, Status
from hermes_bridge.relay.relay import Relay

Json = dict[str, Any]
_BEFORE, _AFTER = 60, 120
"""How much of a text is given around a hit."""
_TEXTS = ("message", "answer", "late_answer", "data", "answer_data")
_ANSWERS = frozenset({"answer", "late_answer"})
"""An empty answer is one."""
_ALWAYS = frozenset({"request_id", "conversation_id", "from", "to", "message", "status"})


def exchange(x: Exchange, cut: int = 0, words: Sequence[str] = ()) -> Json:
    """Give one exchange. Texts beyond `cut` characters (0 = none) are cut; `sizes` then tells.

    `hits` holds the text around the first of `words` (lower case) that lies beyond the cut.
    """
    row: Json = {
        "request_id": x.rid,
        "conversation_id": x.conv,
        "from": x.asker,
        "to": x.target,
        "message": x.message,
        "status": status(x),
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
        "beat_times": x.marked(Mark.BEAT),
        "resent": x.marked(Mark.AGAIN),
        "outages": x.outages(),
        "window_ms": x.window,
        "cap_at": x.cap,
        "depth": x.depth,
        "chain": x.chain,
        "trace": carrier.parent(x.trace),
        "data": _text(x.data),
        "answer_data": _text(x.answer_data),
        "late_answer": x.late_answer,
        "late_at": x.late_at,
        "fetched_at": x.fetched_at,
    }
    if not x.ended_at:
        row["deadline"], row["queue_until"] = x.deadline, x.queue_until
    row = {k: v for k, v in row.items() if v or k in _ALWAYS or (v == "" and k in _ANSWERS)}
    return _cut(row, cut, words) if cut else row


def beat(x: Exchange) -> Json:
    """Give what a heartbeat changed."""
    return {
        "request_id": x.rid,
        "status": status(x),
        "beats": x.beats,
        "heard_at": x.heard_at,
        "deadline": x.deadline,
        "note": x.note or "",
    }


def status(x: Exchange) -> str:
    """Give the status a reader may meet: the two inner ones are shown as what they follow."""
    if x.status is Status.OPENING:
        return Status.QUEUED.value
    if x.status is Status.SETTLING:
        return (Status.TAKEN if x.taken_at else Status.SENT).value
    return x.status.value


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


def agent_detail(relay: Relay, name: str) -> Json | None:
    """Give what is configured for an agent, and its last connections."""
    agent = relay.roster.agent(name)
    if agent is None:
        return None
    limits = relay.book.limits
    return {
        "name": name,
        "may_ask": None if agent.may_ask is None else sorted(agent.may_ask),
        "hold_ms": limits.hold_ms if agent.hold_ms is None else agent.hold_ms,
        "rate_per_minute": (
            limits.rate_per_minute if agent.rate_per_minute is None else agent.rate_per_minute
        ),
        "max_pending": limits.max_pending if agent.max_pending is None else agent.max_pending,
        "links": [
            {
                "since": span.since,
                "until": span.until or None,
                "protocol": span.protocol,
                "client": span.client,
                "superseded": span.superseded,
            }
            for span in reversed(relay.roster.spans(name))
        ],
    }


def _cut(row: Json, cut: int, words: Sequence[str]) -> Json:
    sizes, hits = {}, {}
    for name in _TEXTS:
        text = row.get(name)
        if text is not None and len(text) > cut:
            sizes[name] = len(text.encode("utf-8", "replace"))
            if words and (hit := _hit(text, cut, words)):
                hits[name] = hit
            row[name] = text[:cut]
    if sizes:
        row["sizes"] = sizes
    if hits:
        row["hits"] = hits
    return row


def _hit(text: str, cut: int, words: Sequence[str]) -> str:
    """Give the text around the first word that only the part beyond the cut holds."""
    lower = text.lower()
    if len(lower) != len(text) or any(word in lower[:cut] for word in words):
        return ""
    at = min((i for word in words if (i := lower.find(word, cut)) >= 0), default=-1)
    return text[max(0, at - _BEFORE) : at + _AFTER] if at >= 0 else ""


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
