"""The operator's verbs on the outbox: look, replay, drop, resume, clear out.

And what else the outbox keeps: breaker states and webhook routes.

Same rules as `outbox`: synchronous, `now` is passed in, the caller holds the transaction.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .breaker import FIRST_PAUSE_MS, Gate
from .form import content_type, payload_of, rewritten
from .outbox import Outbox

DAY_MS = 86_400_000
STATES = (
    *("pending", "waiting", "sending", "parked", "delivered"),
    *("dead", "rejected", "suppressed", "dropped"),
)
COLUMNS = (
    "seq, id, kind, endpoint, url, lane, chat, state, attempts, due, created, finished, expires,"
    " last_status, reason, size"
)


class NotFound(LookupError):
    """No row, or no endpoint, of that name."""


@dataclass(frozen=True)
class Filter:
    """Which rows: by state, endpoint, and time of storing (ms)."""

    states: tuple[str, ...] = ()
    endpoint: str = ""
    since: int = 0
    limit: int = 100

    def where(self) -> tuple[str, list[Any]]:
        """Give the SQL condition and its values."""
        parts: list[str] = ["created>=?"]
        values: list[Any] = [self.since]
        if self.states:
            parts.append(f"state IN ({','.join('?' * len(self.states))})")
            values += list(self.states)
        if self.endpoint:
            parts.append("endpoint=?")
            values.append(self.endpoint)
        return " AND ".join(parts), values


class Custody:
    """Everything about stored rows that is not a delivery."""

    def __init__(self, outbox: Outbox) -> None:
        """Work on the outbox's own connection."""
        self.outbox = outbox

    def _all(self, sql: str, values: Any = ()) -> list[dict[str, Any]]:
        cursor = self.outbox.db.execute(sql, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def status(self, now: int) -> dict[str, Any]:
        """Give counts by state, the oldest open row's age (ms) and the endpoints with a story."""
        counts = dict(
            self.outbox.db.execute("SELECT state, COUNT(*) FROM deliveries GROUP BY state")
        )
        oldest = self.outbox.db.execute(
            "SELECT MIN(created) FROM deliveries WHERE state IN ('waiting', 'pending', 'sending')"
        ).fetchone()[0]
        return {
            "states": {state: counts.get(state, 0) for state in STATES},
            "oldest_open_ms": now - oldest if oldest else 0,
            "endpoints": self.endpoints(),
            "damaged": self.outbox.store.fact("damaged"),
        }

    def endpoints(self) -> list[dict[str, Any]]:
        """List endpoints: waiting rows, deliveries, the breaker's state and reason."""
        return self._all(
            "SELECT d.endpoint AS endpoint, COALESCE(e.state, 'active') AS state,"
            " COALESCE(e.reason, '') AS reason, COALESCE(e.open_until, 0) AS open_until,"
            " SUM(d.state IN ('waiting','pending','sending')) AS open,"
            " SUM(d.state='parked') AS parked, SUM(d.state='delivered') AS delivered,"
            " SUM(d.state='dead') AS dead"
            " FROM deliveries d LEFT JOIN endpoints e ON e.key=d.endpoint"
            " GROUP BY d.endpoint ORDER BY d.endpoint"
        )

    def rows(self, chosen: Filter) -> list[dict[str, Any]]:
        """List rows, newest first, without their bodies."""
        where, values = chosen.where()
        return self._all(
            f"SELECT {COLUMNS} FROM deliveries WHERE {where} ORDER BY seq DESC LIMIT ?",  # noqa: S608
            [*values, chosen.limit],
        )

    def show(self, id: str) -> dict[str, Any]:
        """Give one row with its body and its attempts; an unambiguous start of the id will do.

        Raises:
            NotFound: there is none.
        """
        found = self._all(
            f"SELECT {COLUMNS}, content_type, last_ms,"  # noqa: S608
            " (SELECT body FROM bodies WHERE delivery=seq) AS body FROM deliveries"
            " WHERE id=? OR id LIKE ? ESCAPE '\\' ORDER BY id=? DESC LIMIT 2",
            (id, id.replace("\\", "").replace("%", "\\%").replace("_", "\\_") + "%", id),
        )
        if not found or (len(found) > 1 and found[0]["id"] != id):
            raise NotFound(f"no single callback has the id {id!r}; see `hermes callback list`")
        row = found[0]
        row["attempts_made"] = self._all(
            "SELECT n, at, status, ms, reason, head FROM attempts WHERE delivery=? ORDER BY n",
            (row["seq"],),
        )
        if row["state"] == "delivered" and row["attempts"] == 1:
            only = {"n": 1, "at": row["finished"], "status": row["last_status"]}
            row["attempts_made"] = [{**only, "ms": row["last_ms"], "reason": "", "head": ""}]
        return row

    def replay(self, id: str, now: int, *, new_id: str = "") -> str:
        """Send a row again, under its own id or as a new row under `new_id`; give the id used.

        Raises:
            NotFound: no such row, or its body was cleared out.
        """
        row = self.show(id)
        if row["body"] is None:
            raise NotFound(f"the body of {row['id']} was cleared out; it cannot be sent again")
        if new_id:
            return self._copy(row, new_id, now)
        lane = self._requeue(row["seq"], now)
        self.outbox.promote(lane, now)
        if row["state"] == "pending":
            self.outbox.db.execute("UPDATE deliveries SET due=? WHERE seq=?", (now, row["seq"]))
        return str(row["id"])

    def replay_all(self, chosen: Filter, now: int) -> int:
        """Send every chosen row again, in order; give how many."""
        where, values = chosen.where()
        seqs = self.outbox.db.execute(
            f"SELECT seq FROM deliveries WHERE {where}"  # noqa: S608
            " AND EXISTS (SELECT 1 FROM bodies WHERE delivery=seq)"
            " AND state IN ('dead', 'rejected', 'parked', 'suppressed', 'delivered') ORDER BY seq",
            values,
        ).fetchall()
        lanes = [self._requeue(seq, now) for (seq,) in seqs]
        for lane in dict.fromkeys(lanes):
            self.outbox.promote(lane, now)
        return len(seqs)

    def _requeue(self, seq: int, now: int) -> str:
        row = self.outbox.db.execute(
            "UPDATE deliveries SET state='waiting', round=0, due=?, hold_until=NULL, finished=NULL,"
            " reason='', expires=?+(expires-created)"
            " WHERE seq=? AND state NOT IN ('pending', 'waiting', 'sending') RETURNING lane",
            (now, now, seq),
        ).fetchone()
        if row is None:
            row = self.outbox.db.execute(
                "SELECT lane FROM deliveries WHERE seq=?", (seq,)
            ).fetchone()
        return str(row[0])

    def _copy(self, row: dict[str, Any], new_id: str, now: int) -> str:
        seq = self.outbox._next_seq()
        kind, body = row["content_type"], row["body"]
        if kind == content_type(row["id"]):
            inner = _with_identity(payload_of(body, row["id"]), new_id, seq)
            kind, body = content_type(new_id), rewritten(body, row["id"], new_id, inner)
        else:
            body = _with_identity(body, new_id, seq)
        self.outbox.db.execute(
            "INSERT INTO deliveries(seq, id, kind, endpoint, url, lane, chat, content_type,"
            " size, state, due, created, expires) VALUES (?,?,?,?,?,?,?,?,?,'waiting',?,?,?)",
            (
                seq,
                new_id,
                row["kind"],
                row["endpoint"],
                row["url"],
                row["lane"],
                row["chat"],
                kind,
                len(body),
                now,
                now,
                now + row["expires"] - row["created"],
            ),
        )
        self.outbox.db.execute("INSERT INTO bodies VALUES (?,?)", (seq, body))
        self.outbox.promote(row["lane"], now)
        return new_id

    def drop(self, id: str, now: int) -> str:
        """Give a row up for good: it is kept for the record and never sent.

        Raises:
            NotFound: there is none, or it was delivered.
        """
        row = self.show(id)
        if row["state"] == "delivered":
            raise NotFound(f"{row['id']} was delivered; there is nothing to drop")
        self.outbox.db.execute(
            "UPDATE deliveries SET state='dropped', reason='dropped by the operator', finished=?,"
            " lease_owner=NULL WHERE seq=?",
            (now, row["seq"]),
        )
        self.outbox.promote(row["lane"], now)
        return str(row["id"])

    def resume(self, endpoint: str, now: int) -> int:
        """Open a disabled, paused or failing endpoint again and send what was parked, in order."""
        known = self.outbox.db.execute(
            "SELECT 1 FROM endpoints WHERE key=?"
            " UNION SELECT 1 FROM deliveries WHERE endpoint=? LIMIT 1",
            (endpoint, endpoint),
        ).fetchone()
        if not known:
            raise NotFound(f"no endpoint is called {endpoint!r}; see `hermes callback endpoints`")
        self.outbox.db.execute("DELETE FROM endpoints WHERE key=?", (endpoint,))
        return self.replay_all(Filter(states=("parked",), endpoint=endpoint), now)

    def gates(self, make: Callable[[str], Gate], now: int) -> dict[str, Gate]:
        """Load the breakers that were not closed when the last process ended."""
        found: dict[str, Gate] = {}
        for row in self._all("SELECT * FROM endpoints WHERE state IN ('open', 'active')"):
            gate = make(row["key"])
            gate.failures, gate.failing_since = row["failures"], min(row["failing_since"], now)
            gate.pause = row["pause"] or FIRST_PAUSE_MS
            # A clock that was set back must not shut an endpoint for days.
            gate.open_until = row["open_until"] if row["open_until"] <= now + DAY_MS else now
            found[row["key"]] = gate
        return found

    def gate_rows(self) -> set[str]:
        """Give the endpoints that have a story."""
        return {key for (key,) in self.outbox.db.execute("SELECT key FROM endpoints")}

    def save_gate(self, endpoint: str, gate: Gate, reason: str) -> None:
        """Remember a breaker, so that a restart does not storm a sick receiver."""
        if not gate.open_until and not gate.failing_since:
            self.outbox.db.execute(
                "DELETE FROM endpoints WHERE key=? AND state IN ('open', 'active')", (endpoint,)
            )
            return
        self.outbox.db.execute(
            "INSERT INTO endpoints VALUES (?,?,?,?,?,?,?) ON CONFLICT(key) DO UPDATE SET"
            " state=CASE WHEN state IN ('paused','disabled') THEN state ELSE excluded.state END,"
            " failures=excluded.failures, open_until=excluded.open_until,"
            " failing_since=excluded.failing_since, pause=excluded.pause,"
            " reason=CASE WHEN state IN ('paused','disabled') THEN reason ELSE excluded.reason END",
            (
                endpoint,
                "open" if gate.open_until else "active",
                gate.failures,
                gate.open_until,
                gate.failing_since,
                gate.pause,
                reason,
            ),
        )

    def save_route(
        self, chat: str, delivery: dict[str, Any], facts: dict[str, Any], epoch: str, expires: int
    ) -> None:
        """Remember where a webhook chat's answer goes."""
        self.outbox.db.execute(
            "INSERT OR REPLACE INTO routes VALUES (?,?,?,?,?)",
            (chat, json.dumps(delivery, default=str), json.dumps(facts), epoch, expires),
        )

    def route(self, chat: str) -> tuple[dict[str, Any], dict[str, Any], str] | None:
        """Give a chat's remembered delivery, facts and the epoch of its last event."""
        row = self.outbox.db.execute(
            "SELECT delivery, facts, epoch FROM routes WHERE chat=?", (chat,)
        ).fetchone()
        return (json.loads(row[0]), json.loads(row[1]), row[2]) if row else None

    def final_of(self, chat: str) -> str:
        """Give the id of the answer stored for a webhook chat, or ""."""
        row = self.outbox.db.execute(
            "SELECT id FROM deliveries WHERE chat=? AND kind='final'"
            " AND state<>'suppressed' LIMIT 1",
            (chat,),
        ).fetchone()
        return str(row[0]) if row else ""

    def purge(self, now: int, *, max_bytes: int, batch: int = 500) -> int:
        """Clear out: delivered bodies after a day, their rows after 7 days, dead ones after 30.

        Beyond `max_bytes` the oldest ended rows go earlier. Rows that are owed are never touched.
        """
        db = self.outbox.db
        db.execute(
            "DELETE FROM bodies WHERE delivery IN (SELECT seq FROM deliveries JOIN bodies"
            " ON delivery=seq WHERE state='delivered' AND finished<? LIMIT ?)",
            (now - DAY_MS, batch),
        )
        gone = 0
        for states, age in (("'delivered'", 7), ("'dead','rejected','suppressed','dropped'", 30)):
            gone += db.execute(
                "DELETE FROM deliveries WHERE seq IN (SELECT seq FROM deliveries"  # noqa: S608
                f" WHERE state IN ({states}) AND finished<? LIMIT ?)",
                (now - age * DAY_MS, batch),
            ).rowcount
        db.execute("DELETE FROM routes WHERE expires<?", (now,))
        pages, free, size = (
            db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size > max_bytes:
            gone += db.execute(
                "DELETE FROM deliveries WHERE seq IN (SELECT seq FROM deliveries WHERE state IN"
                " ('delivered', 'suppressed', 'dropped') ORDER BY finished LIMIT ?)",
                (batch,),
            ).rowcount
        return gone


def _with_identity(body: bytes, id: str, seq: int) -> bytes:
    """Put a new id and number into the `hermes` object of a copied body."""
    try:
        data = json.loads(body)
    except ValueError:
        return body
    for place in (data, data.get("data") if isinstance(data, dict) else None):
        if isinstance(place, dict) and isinstance(place.get("hermes"), dict):
            place["hermes"].update(id=id, seq=seq)
    return json.dumps(data, ensure_ascii=False).encode()
