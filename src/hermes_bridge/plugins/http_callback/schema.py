"""The outbox's tables and their versions: SQL text and nothing else."""

VERSION = 1

OPEN_STATES = ("waiting", "pending", "sending")

TABLES = """
CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row is one callback. Times are unix milliseconds.
CREATE TABLE IF NOT EXISTS deliveries(
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,          -- what the receiver sees; constant for ever
  kind TEXT NOT NULL,               -- final, cron, direct, media, error, status, notice, test
  endpoint TEXT NOT NULL,           -- '@name', or scheme://host:port/path
  url TEXT NOT NULL,
  lane TEXT NOT NULL,               -- rows of a lane are delivered in order
  chat TEXT NOT NULL DEFAULT '',    -- the webhook chat that asked, if any
  origin TEXT,                      -- the same origin is stored once
  epoch TEXT NOT NULL DEFAULT '',   -- the process that stored it
  content_type TEXT NOT NULL,
  size INTEGER NOT NULL,
  state TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  round INTEGER NOT NULL DEFAULT 0, -- attempts since it was stored, replayed or resumed
  due INTEGER NOT NULL,
  hold_until INTEGER,               -- after it, followers may pass (bounded order); NULL: never
  lease_owner TEXT,
  lease_until INTEGER,
  created INTEGER NOT NULL,
  expires INTEGER NOT NULL,
  finished INTEGER,
  last_status INTEGER,
  last_ms INTEGER,
  reason TEXT NOT NULL DEFAULT ''
);

-- Apart, so that the many small changes of a row do not write its body again. Dropped some time
-- after delivery.
CREATE TABLE IF NOT EXISTS bodies(
  delivery INTEGER PRIMARY KEY REFERENCES deliveries(seq) ON DELETE CASCADE,
  body BLOB NOT NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS deliveries_origin
  ON deliveries(endpoint, origin) WHERE origin IS NOT NULL;
CREATE INDEX IF NOT EXISTS deliveries_due ON deliveries(endpoint, due, seq) WHERE state = 'pending';
CREATE INDEX IF NOT EXISTS deliveries_lane
  ON deliveries(lane, seq) WHERE state IN ('waiting', 'pending', 'sending');
CREATE INDEX IF NOT EXISTS deliveries_leased ON deliveries(lease_until) WHERE state = 'sending';
CREATE INDEX IF NOT EXISTS deliveries_finished
  ON deliveries(finished) WHERE finished IS NOT NULL;
CREATE INDEX IF NOT EXISTS deliveries_chat ON deliveries(chat, kind) WHERE chat <> '';

-- Attempts that failed, and those after them. A first attempt that succeeds is in its row.
CREATE TABLE IF NOT EXISTS attempts(
  delivery INTEGER NOT NULL REFERENCES deliveries(seq) ON DELETE CASCADE,
  n INTEGER NOT NULL,
  at INTEGER NOT NULL,
  status INTEGER,
  ms INTEGER NOT NULL,
  reason TEXT NOT NULL,
  head TEXT NOT NULL,
  PRIMARY KEY(delivery, n)
) WITHOUT ROWID;

-- Only endpoints with something to remember have a row.
CREATE TABLE IF NOT EXISTS endpoints(
  key TEXT PRIMARY KEY,
  state TEXT NOT NULL,              -- active, open, paused, disabled
  failures INTEGER NOT NULL DEFAULT 0,
  open_until INTEGER NOT NULL DEFAULT 0,
  failing_since INTEGER NOT NULL DEFAULT 0,
  pause INTEGER NOT NULL DEFAULT 0,
  reason TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;

-- Where the answer of a webhook chat goes: Hermes keeps this in memory only.
CREATE TABLE IF NOT EXISTS routes(
  chat TEXT PRIMARY KEY,
  delivery TEXT NOT NULL,
  facts TEXT NOT NULL,
  epoch TEXT NOT NULL,
  expires INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS routes_expires ON routes(expires);
"""
