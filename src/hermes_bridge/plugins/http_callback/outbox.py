"""The outbox: what is owed to receivers, in SQLite, each row under a lease while it is sent.

States: `waiting` (behind an earlier row of its lane), `pending` (due at a time), `sending`
(leased), then one of `delivered`, `dead`, `rejected`, `suppressed`, `parked`, `dropped`.

Synchronous and without a clock: callers pass `now` (unix ms) and hold the transaction. Order is
kept by the rows themselves: of a lane's open rows only the first is `pending`; the next one is
promoted in the transaction that ends the first, or when the first may be passed (bounded order).
"""

import sqlite3
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from .store import Store
from .verdict import Answer, Outcome, Verdict

JSON = "application/json; charset=utf-8"
OPEN = "('waiting', 'pending', 'sending')"
Offer = Callable[[str, int], int]
"""Asked with an endpoint and `now`: for how long (ms) to lease the row that is stored; 0: not."""
FAR_MS = 30 * 3600 * 1000
"""No due time lies further ahead (a schedule's step is a day at most): else a clock was moved."""


@dataclass(frozen=True)
class Draft:
    """A callback to be stored. `make_body` is given the row's sequence number, once."""

    id: str
    kind: str
    endpoint: str
    url: str
    lane: str
    make_body: Callable[[int], bytes] = field(repr=False)
    max_age_ms: int
    chat: str = ""
    origin: str | None = None
    epoch: str = ""
    content_type: str = JSON
    state: str = "pending"
    reason: str = ""


@dataclass(frozen=True)
class Receipt:
    """What storing came to; `duplicate`: the same answer was there already, under this id."""

    id: str
    seq: int
    state: str
    reason: str = ""
    endpoint: str = ""
    duplicate: bool = False
    job: "Job | None" = None
    """The row itself, leased, when it was promised a turn while it was stored."""


@dataclass(frozen=True)
class Job:
    """A leased row: everything an attempt needs. `attempt` fences results of lost leases."""

    seq: int
    id: str
    kind: str
    endpoint: str
    url: str
    content_type: str
    body: bytes = field(repr=False)
    attempt: int
    round: int
    created: int
    lane: str


@dataclass(frozen=True)
class Result:
    """An attempt's end. `hold_ms`: how long followers wait behind it (None: for ever)."""

    job: Job
    answer: Answer
    verdict: Verdict
    at: int
    hold_ms: int | None = None


class Outbox:
    """The rules of the tables. Every method that writes runs inside `store.transaction`."""

    def __init__(self, store: Store, owner: str, offer: Offer | None = None) -> None:
        """`owner` names this process in leases; `offer` may promise a new row a turn at once."""
        self.store = store
        self.owner = owner
        self._offer = offer

    @property
    def db(self) -> sqlite3.Connection:
        """The connection (it changes when a damaged file is set aside)."""
        return self.store.db

    def enqueue(self, draft: Draft, now: int) -> Receipt:
        """Store a callback; the caller commits durably before it promises anything."""
        if draft.origin is not None and (same := self._same(draft)):
            return same
        state, reason = self._entry(draft)
        seq = self._next_seq()
        body = draft.make_body(seq)
        lease = self._offer(draft.endpoint, now) if state == "pending" and self._offer else 0
        state = "sending" if lease else state
        self.db.execute(
            "INSERT INTO deliveries(seq, id, kind, endpoint, url, lane, chat, origin, epoch,"
            " content_type, size, state, due, created, expires, finished, reason,"
            " attempts, round, lease_owner, lease_until)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                seq,
                draft.id,
                draft.kind,
                draft.endpoint,
                draft.url,
                draft.lane,
                draft.chat,
                draft.origin,
                draft.epoch,
                draft.content_type,
                len(body),
                state,
                now,
                now,
                now + draft.max_age_ms,
                None if state in ("waiting", "pending", "sending", "parked") else now,
                reason,
                *((1, 1, self.owner, now + lease) if lease else (0, 0, None, None)),
            ),
        )
        self.db.execute("INSERT INTO bodies VALUES (?,?)", (seq, body))
        if state == "waiting":
            self.promote(draft.lane, now)
        job = _first(draft, seq, body, now) if lease else None
        return Receipt(draft.id, seq, state, reason, draft.endpoint, job=job)

    def _same(self, draft: Draft) -> Receipt | None:
        row = self.db.execute(
            "SELECT id, seq, state, reason, endpoint FROM deliveries WHERE endpoint=? AND origin=?",
            (draft.endpoint, draft.origin),
        ).fetchone()
        return Receipt(row[0], row[1], row[2], row[3], row[4], duplicate=True) if row else None

    def _entry(self, draft: Draft) -> tuple[str, str]:
        """Give the state in which it is stored, and why."""
        if draft.state != "pending":
            return draft.state, draft.reason
        if reason := self.blocked(draft.endpoint):
            return "parked", reason
        found = self.db.execute(
            f"SELECT 1 FROM deliveries WHERE lane=? AND state IN {OPEN} LIMIT 1",  # noqa: S608
            (draft.lane,),
        ).fetchone()
        return ("waiting" if found else "pending"), ""

    def _next_seq(self) -> int:
        row = self.db.execute("SELECT seq FROM sqlite_sequence WHERE name='deliveries'").fetchone()
        return (row[0] if row else 0) + 1

    def blocked(self, endpoint: str) -> str:
        """Say why an endpoint takes nothing (disabled, paused); "" when it does."""
        row = self.db.execute(
            "SELECT state, reason FROM endpoints WHERE key=? AND state IN ('disabled', 'paused')",
            (endpoint,),
        ).fetchone()
        return f"endpoint {row[0]}: {row[1]}" if row else ""

    def promote(self, lane: str, now: int) -> None:
        """Let the lane's next row be due, when those before it have ended or may be passed."""
        gate = now
        rows = self.db.execute(
            "SELECT seq, state, round, due, hold_until FROM deliveries"  # noqa: S608
            f" WHERE lane=? AND state IN {OPEN} ORDER BY seq",
            (lane,),
        )
        for seq, state, rounds, due, hold_until in rows:
            if state == "waiting" or (state == "pending" and rounds == 0):
                if state == "waiting" or due > gate:
                    self.db.execute(
                        "UPDATE deliveries SET state='pending', due=? WHERE seq=?", (gate, seq)
                    )
                return
            if hold_until is None:
                return
            gate = max(gate, hold_until)

    def claim(self, endpoint: str, limit: int, now: int, lease_ms: int) -> list[Job]:
        """Lease up to `limit` due rows of an endpoint, oldest first. Overdue ones end as dead."""
        found: list[Job] = []
        while len(found) < limit:
            rows = self.db.execute(
                "UPDATE deliveries SET state='sending', lease_owner=?, lease_until=?,"
                " attempts=attempts+1, round=round+1 WHERE seq IN (SELECT seq FROM deliveries"
                " WHERE endpoint=? AND state='pending' AND due<=? ORDER BY due, seq LIMIT ?)"
                " RETURNING seq, id, kind, endpoint, url, content_type,"
                " (SELECT body FROM bodies WHERE delivery=deliveries.seq), attempts, round,"
                " created, lane, expires",
                (self.owner, now + lease_ms, endpoint, now, limit - len(found)),
            ).fetchall()
            if not rows:
                break
            for *fields, expires in rows:
                job = Job(*fields)
                if expires > now:
                    found.append(job)
                    continue
                self._end(job.seq, "dead", "too old: it waited longer than max_age", now)
                self.promote(job.lane, now)
        return sorted(found, key=lambda job: job.seq)

    def release(self, job: Job) -> None:
        """Give a lease back that was not used: the attempt does not count."""
        reason = self.blocked(job.endpoint)
        self.db.execute(
            "UPDATE deliveries SET state=?, reason=?, lease_owner=NULL, attempts=attempts-1,"
            " round=round-1 WHERE seq=? AND state='sending' AND lease_owner=? AND attempts=?",
            ("parked" if reason else "pending", reason, job.seq, self.owner, job.attempt),
        )

    def settle(self, result: Result, now: int) -> None:
        """Write an attempt's end. Of a lost lease only a 2xx still counts."""
        job, answer = result.job, result.answer
        delivered = result.verdict.outcome is Outcome.DELIVERED
        if delivered and job.attempt == 1:
            done = self._delivered(job, answer, now)
        elif not self._note(result):
            return
        elif delivered:
            done = self._delivered(job, answer, now)
        else:
            done = self._unless_delivered(result, now)
        if done.rowcount:
            self.promote(job.lane, now)

    def _delivered(self, job: Job, answer: Answer, now: int) -> sqlite3.Cursor:
        return self.db.execute(
            "UPDATE deliveries SET state='delivered', finished=?, reason='', lease_owner=NULL,"
            " last_status=?, last_ms=? WHERE seq=? AND state<>'delivered'",
            (now, answer.status, answer.ms, job.seq),
        )

    def _note(self, result: Result) -> bool:
        job, answer, reason = result.job, result.answer, result.verdict.reason
        known = self.db.execute(
            "UPDATE deliveries SET last_status=?, last_ms=?, reason=? WHERE seq=?",
            (answer.status, answer.ms, reason, job.seq),
        )
        if not known.rowcount:
            return False
        self.db.execute(
            "INSERT OR REPLACE INTO attempts VALUES (?,?,?,?,?,?,?)",
            (job.seq, job.attempt, result.at, answer.status, answer.ms, reason, answer.head),
        )
        return True

    def _unless_delivered(self, result: Result, now: int) -> sqlite3.Cursor:
        job, verdict = result.job, result.verdict
        state, due, finished = "pending", now + verdict.delay_ms, None
        if verdict.outcome in (Outcome.DEAD, Outcome.REJECTED):
            state, finished = str(verdict.outcome), now
        elif verdict.outcome is Outcome.GONE:
            self.block(job.endpoint, "disabled", verdict.reason, now)
            state = "parked"
        elif self.blocked(job.endpoint):
            state = "parked"
        hold = None if result.hold_ms is None else now + result.hold_ms
        return self.db.execute(
            "UPDATE deliveries SET state=?, due=?, finished=?, lease_owner=NULL,"
            " hold_until=COALESCE(hold_until, ?)"
            " WHERE seq=? AND state='sending' AND lease_owner=? AND attempts=?",
            (state, due, finished, hold, job.seq, self.owner, job.attempt),
        )

    def _end(self, seq: int, state: str, reason: str, now: int) -> None:
        self.db.execute(
            "UPDATE deliveries SET state=?, reason=?, finished=?, lease_owner=NULL WHERE seq=?",
            (state, reason, now, seq),
        )

    def block(self, endpoint: str, state: str, reason: str, now: int) -> int:
        """Disable or pause an endpoint: what waits for it is parked, nothing is dropped."""
        self.db.execute(
            "INSERT INTO endpoints(key, state, reason, open_until) VALUES (?,?,?,?)"
            " ON CONFLICT(key) DO UPDATE SET state=excluded.state, reason=excluded.reason",
            (endpoint, state, reason, now),
        )
        parked = self.db.execute(
            "UPDATE deliveries SET state='parked', reason=? WHERE endpoint=?"
            " AND state IN ('pending', 'waiting')",
            (f"endpoint {state}: {reason}", endpoint),
        )
        return parked.rowcount

    def reclaim(self, now: int, in_flight: Collection[int], *, takeover: bool = False) -> int:
        """Give rows whose lease ended back, with the same id; `takeover`: all that are not in flight.

        Those of a blocked endpoint are parked. Also undoes what a moved clock did to due times.
        """
        rows = self.db.execute(
            "SELECT seq, endpoint FROM deliveries WHERE state='sending' AND (lease_until<=? OR ?)",
            (now, takeover),
        ).fetchall()
        lost = [row for row in rows if row[0] not in in_flight]
        for seq, endpoint in lost:
            reason = self.blocked(endpoint)
            self.db.execute(
                "UPDATE deliveries SET state=?, reason=?, due=?, lease_owner=NULL WHERE seq=?",
                ("parked" if reason else "pending", reason, now, seq),
            )
        if takeover:
            self.db.execute(
                "UPDATE deliveries SET due=? WHERE state='pending' AND due>?", (now, now + FAR_MS)
            )
        return len(lost)

    def next_due(self, endpoint: str) -> int | None:
        """Say when an endpoint's next row is due (ms); None when it has none."""
        row = self.db.execute(
            "SELECT due FROM deliveries WHERE endpoint=? AND state='pending'"
            " ORDER BY due, seq LIMIT 1",
            (endpoint,),
        ).fetchone()
        return int(row[0]) if row else None

    def due_by_endpoint(self) -> dict[str, int]:
        """Give every endpoint with pending rows and when its first is due (an index scan)."""
        return dict(
            self.db.execute(
                "SELECT endpoint, MIN(due) FROM deliveries WHERE state='pending' GROUP BY endpoint"
            )
        )

    def data_version(self) -> int:
        """Give a number that changes when another connection has written."""
        return int(self.db.execute("PRAGMA data_version").fetchone()[0])


def _first(draft: Draft, seq: int, body: bytes, now: int) -> Job:
    return Job(
        seq,
        draft.id,
        draft.kind,
        draft.endpoint,
        draft.url,
        draft.content_type,
        body,
        attempt=1,
        round=1,
        created=now,
        lane=draft.lane,
    )
