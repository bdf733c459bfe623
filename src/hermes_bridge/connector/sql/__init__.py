"""The connector's tables. Cursors, inbox rows and marks change in one transaction."""

from hermes_bridge.db.base import Migration, Schema

INBOX = "connector_inbox"
CURSORS = "connector_cursors"
ACCOUNTS = "connector_accounts"
POLICIES = "connector_policies"
LEASES = "connector_leases"

INBOX_COLUMNS = ("id", "bot_id", "channel", "message_id", "body", "received_at", "state")
INBOX_TAIL = "ON CONFLICT (id) DO UPDATE SET state=excluded.state, body=excluded.body"

WAITING, PARKED, OVER, AGAIN, DROP = 0, 1, 2, 3, 4
"""States of an inbox row. A row that is over stays without its body: it is the durable dedup."""


def _tables(blob: str) -> tuple[str, ...]:
    return (
        f"CREATE TABLE {INBOX} (id bigint PRIMARY KEY, bot_id text NOT NULL,"
        " channel text NOT NULL, message_id text NOT NULL,"
        f" body {blob}, received_at bigint NOT NULL, state integer NOT NULL)",
        f"CREATE INDEX {INBOX}_open ON {INBOX} (state) WHERE state <> {OVER}",
        f"CREATE TABLE {CURSORS} (bot_id text NOT NULL, channel text NOT NULL,"
        " at text NOT NULL, PRIMARY KEY (bot_id, channel))",
        f"CREATE TABLE {ACCOUNTS} (bot_id text PRIMARY KEY, alive text NOT NULL,"
        " finals integer NOT NULL, types integer NOT NULL)",
        f"CREATE TABLE {POLICIES} (gateway_id text NOT NULL, platform text NOT NULL,"
        " body text NOT NULL, PRIMARY KEY (gateway_id, platform))",
    )


# An integer key that is SQLite's own row number saves a second tree.
_SQLITE = tuple(
    each.replace("id bigint PRIMARY KEY", "id integer PRIMARY KEY") for each in _tables("blob")
)
_LEASE = (
    f"CREATE TABLE {LEASES} (name text PRIMARY KEY, owner text NOT NULL,"
    " words text NOT NULL, until timestamptz NOT NULL)",
)
SCHEMA = Schema("connector", (Migration(1, _SQLITE, _tables("bytea")), Migration(2, (), _LEASE)))

OPEN_ROWS = (
    f"SELECT id, bot_id, channel, message_id, body, received_at, state FROM {INBOX}"  # noqa: S608
    f" WHERE state <> {OVER} ORDER BY id"
)
NEWEST_KEYS = (
    f"SELECT bot_id, channel, message_id, received_at FROM {INBOX}"  # noqa: S608
    " ORDER BY id DESC LIMIT $1"
)
LAST_ID = f"SELECT max(id) FROM {INBOX}"  # noqa: S608
ALL_CURSORS = f"SELECT bot_id, channel, at FROM {CURSORS}"  # noqa: S608
ALL_ACCOUNTS = f"SELECT bot_id, alive, finals, types FROM {ACCOUNTS}"  # noqa: S608
ALL_POLICIES = f"SELECT gateway_id, platform, body FROM {POLICIES}"  # noqa: S608
ORDERED = (
    f"SELECT id, bot_id, channel, message_id, body, received_at, state FROM {INBOX}"  # noqa: S608
    f" WHERE state IN ({AGAIN}, {DROP}) ORDER BY id"
)
ORDER_ROW = f"UPDATE {INBOX} SET state=$1 WHERE id=$2 AND state <> {OVER}"  # noqa: S608
# The database's own clock decides, and only PostgreSQL has leases.
LEASE_TAKE = (
    f"INSERT INTO {LEASES} (name, owner, words, until)"  # noqa: S608
    " VALUES ('connector', $1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond')"
    " ON CONFLICT (name) DO UPDATE"
    " SET owner=excluded.owner, words=excluded.words, until=excluded.until"
    f" WHERE {LEASES}.owner = excluded.owner OR {LEASES}.until < clock_timestamp()"
)
LEASE_HOLDER = f"SELECT owner, words FROM {LEASES} WHERE name = 'connector'"  # noqa: S608
LEASE_DROP = f"DELETE FROM {LEASES} WHERE owner = $1"  # noqa: S608
PRUNE = (
    f"DELETE FROM {INBOX} WHERE state = {OVER} AND (received_at < $1 OR id <= "  # noqa: S608
    f"(SELECT id FROM {INBOX} WHERE state = {OVER} ORDER BY id DESC LIMIT 1 OFFSET $2))"
)
