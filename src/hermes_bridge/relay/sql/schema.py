"""The relay's tables, as numbered steps (`db/migrate.py` applies what is missing).

`hermes_bridge_exchanges` keeps the columns of the seed's relay, so that a table written by it
opens and shows; what is ours is added. Times in SQLite are unix milliseconds.
"""

from hermes_bridge.db.base import Migration, Schema
from hermes_bridge.relay.core.exchange import ENDS, REFUSALS, Status

EXCHANGES = "hermes_bridge_exchanges"
AGENTS = "hermes_bridge_agents"

_SEED = f"""CREATE TABLE IF NOT EXISTS {EXCHANGES} (
    request_id text PRIMARY KEY,
    conversation_id text NOT NULL,
    from_agent text NOT NULL,
    to_agent text NOT NULL,
    message text NOT NULL,
    status text NOT NULL,
    answer text,
    error text,
    started_at {{instant}} NOT NULL,
    ended_at {{instant}}
)"""

_ADDED = (
    "data text",
    "answer_data text",
    "attempt integer NOT NULL DEFAULT 0",
    "sent_at bigint",
    "taken_at bigint",
    "heard_at bigint",
    "beats integer NOT NULL DEFAULT 0",
    "cap_at bigint",
    "window_ms bigint",
    "queue_until bigint NOT NULL DEFAULT 0",
    "depth integer NOT NULL DEFAULT 0",
    "chain text",
    "keyed integer NOT NULL DEFAULT 0",
    "trace text",
    "epoch bigint NOT NULL DEFAULT 0",
    "counter bigint NOT NULL DEFAULT 0",
    "late_answer text",
    "late_data text",
    "late_at bigint",
    "fetched_at bigint",
    "stage integer NOT NULL DEFAULT 0",
)

_ADD_COLUMNS = tuple(f"ALTER TABLE {EXCHANGES} ADD COLUMN {column}" for column in _ADDED)

_INDEXES = (
    f"CREATE INDEX IF NOT EXISTS {EXCHANGES}_started_at_idx ON {EXCHANGES} (started_at DESC)",
    f"CREATE INDEX IF NOT EXISTS {EXCHANGES}_conversation_idx ON {EXCHANGES} (conversation_id, started_at)",
    f"CREATE INDEX IF NOT EXISTS {EXCHANGES}_open_idx ON {EXCHANGES} (to_agent) WHERE ended_at IS NULL",
)

_AGENTS = (
    f"CREATE TABLE {AGENTS} (name text PRIMARY KEY, last_seen bigint NOT NULL, linked integer NOT NULL)",
)

_MARKS = f"ALTER TABLE {EXCHANGES} ADD COLUMN marks text"

BAD = (ENDS | REFUSALS) - {Status.OK, Status.CANCELLED}
"""How an exchange ends that is worth a look: failed or refused."""
IS_BAD = f"status IN ({', '.join(repr(status.value) for status in sorted(BAD))})"

_BAD_INDEX = (
    f"CREATE INDEX IF NOT EXISTS {EXCHANGES}_bad_idx "
    f"ON {EXCHANGES} (started_at DESC, to_agent, from_agent, status) WHERE {IS_BAD}",
)
"""What went wrong is rare: found at once among millions, at no cost for what went well."""

SCHEMA = Schema(
    "relay",
    (
        Migration(
            1,
            sqlite=(_SEED.format(instant="bigint"),),
            postgres=(_SEED.format(instant="timestamptz"),),
        ),
        Migration(
            2,
            sqlite=(*_ADD_COLUMNS, *_INDEXES, *_AGENTS),
            postgres=(*_ADD_COLUMNS, *_INDEXES, *_AGENTS),
        ),
        Migration(3, sqlite=(_MARKS,), postgres=(_MARKS,)),
        Migration(4, sqlite=_BAD_INDEX, postgres=_BAD_INDEX),
    ),
)
