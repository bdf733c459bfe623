"""Exchanges and agents as rows of their tables, and back."""

import json

from hermes_bridge.db.base import Row
from hermes_bridge.relay.core.conversation import HOUR
from hermes_bridge.relay.core.exchange import Exchange, Status

COLUMNS = (
    "request_id",
    "conversation_id",
    "from_agent",
    "to_agent",
    "message",
    "status",
    "answer",
    "error",
    "started_at",
    "ended_at",
    "data",
    "answer_data",
    "attempt",
    "sent_at",
    "taken_at",
    "heard_at",
    "beats",
    "cap_at",
    "window_ms",
    "queue_until",
    "depth",
    "chain",
    "keyed",
    "trace",
    "epoch",
    "counter",
    "late_answer",
    "late_data",
    "late_at",
    "fetched_at",
    "stage",
    "marks",
)
_OPEN_STAGE, _ENDED_STAGE, _LATE_STAGE, _FETCHED_STAGE = 0, 1, 2, 3
_STATUSES = {status.value: status for status in Status}


def agent_row(name: str, last_seen: int, linked: bool) -> Row:
    """Give the row of one agent."""
    return (name, last_seen, int(linked))


def exchange_row(x: Exchange) -> Row:
    """Give the row of one exchange, in the order of the table."""
    return (
        x.rid,
        x.conv,
        x.asker,
        x.target,
        x.message,
        x.status.value if x.ended_at else _stored(x),
        x.answer,
        x.reason,
        x.at,
        x.ended_at or None,
        _text(x.data),
        _text(x.answer_data),
        x.attempt,
        x.sent_at or None,
        x.taken_at or None,
        x.heard_at or None,
        x.beats,
        x.cap,
        x.window,
        x.queue_until,
        x.depth,
        json.dumps(x.chain) if x.chain else None,
        int(x.keyed),
        x.trace,
        x.order[0],
        x.order[1],
        x.late_answer,
        _text(x.late_data),
        x.late_at or None,
        x.fetched_at or None,
        _stage(x),
        json.dumps(x.marks) if x.marks else None,
    )


def _stage(x: Exchange) -> int:
    if not x.ended_at:
        return _OPEN_STAGE
    if not x.late_at:
        return _ENDED_STAGE
    return _FETCHED_STAGE if x.fetched_at else _LATE_STAGE


def _stored(x: Exchange) -> str:
    """Give the status a reader may meet: the two inner ones are shown as what they follow."""
    if x.status is Status.OPENING:
        return Status.QUEUED.value
    if x.status is Status.SETTLING:
        return (Status.TAKEN if x.taken_at else Status.SENT).value
    return x.status.value


def _text(data: bytes | None) -> str | None:
    return data.decode() if data is not None else None


def _bytes(text: str | None) -> bytes | None:
    return text.encode() if text is not None else None


def exchange(row: Row) -> Exchange:
    """Give the record of a row; a row of the seed's relay lacks most of it."""
    at, ended, attempt = row[8], row[9] or 0, row[12]
    status = _STATUSES.get(row[5], Status.FAILED if ended else Status.QUEUED)
    return Exchange(
        rid=row[0],
        conv=row[1],
        asker=row[2],
        target=row[3],
        message=row[4],
        status=status,
        answer=row[6],
        reason=row[7],
        at=at,
        ended_at=ended,
        data=_bytes(row[10]),
        answer_data=_bytes(row[11]),
        attempt=attempt,
        sent_at=row[13] or 0,
        taken_at=row[14] or 0,
        heard_at=row[15] or 0,
        beats=row[16],
        cap=row[17] or at + HOUR,
        window=row[18] or 120_000,
        queue_until=row[19],
        depth=row[20],
        chain=tuple(json.loads(row[21])) if row[21] else (),
        keyed=bool(row[22]),
        trace=row[23],
        order=(row[24], row[25]),
        late_answer=row[26],
        late_data=_bytes(row[27]),
        late_at=row[28] or 0,
        fetched_at=row[29] or 0,
        marks=json.loads(row[31]) if row[31] else None,
    )
