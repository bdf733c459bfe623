"""The words of exchanges, for full-text search: one index on each store, the same answers.

A text becomes its distinct words, without case and accents, made here and not by the store, so
that SQLite and PostgreSQL find the same. A search finds exchanges in which every word of the
query begins a word. What has ended is noted in a table of its own until `relay/index.py` has read
it: asks pay for one short row, never for the index. A note has a number, and only numbers that were
read are deleted: what changes while it is read has a second note. Only what still exists is taken
in, and an exchange is deleted before its words: no word outlives its exchange.
"""

import re
import unicodedata
from collections.abc import Sequence

from hermes_bridge.db.base import Migration, Row, Schema, Statement
from hermes_bridge.relay.sql.schema import EXCHANGES

UNREAD = "hermes_bridge_unread"
WORDS = "hermes_bridge_words"
IDS = "hermes_bridge_word_ids"
"""SQLite's index knows rows by number only: this gives an exchange its number."""

_WORD = re.compile(r"[^\W_]+")
_LONGEST_WORD = 64
_MOST_WORDS = 5_000
_MOST_TEXT = 200_000
MOST_QUERY_WORDS = 12
_PLACES, _ROWS_A_PLACE = 32, 32
_GOLDEN = 0.6180339887498949
"""Steps of this part of the whole lie evenly and meet no rhythm in what was said."""
_BLOCKS = 32
SMALL = 16
"""An index of so many samples is asked as it is."""
_COMMON = 3
"""A word that more of a sample's (about) thousand texts hold is not worth looking up."""

_FILL = f"INSERT INTO {UNREAD}(request_id) SELECT request_id FROM {EXCHANGES} WHERE ended_at IS NOT NULL"  # noqa: S608

_SQLITE_TRIGGERS = tuple(
    f"CREATE TRIGGER {UNREAD}_{event} AFTER {event} ON {EXCHANGES} "  # noqa: S608
    "WHEN new.ended_at IS NOT NULL BEGIN "
    f"INSERT INTO {UNREAD}(request_id) SELECT new.request_id "
    f"WHERE NOT EXISTS (SELECT 1 FROM {UNREAD} WHERE request_id = new.request_id); END"
    for event in ("insert", "update")
)
_POSTGRES_TRIGGERS = (
    f"CREATE FUNCTION {UNREAD}_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "  # noqa: S608
    f"INSERT INTO {UNREAD}(request_id) SELECT request_id FROM fresh WHERE ended_at IS NOT NULL "
    "ON CONFLICT DO NOTHING; RETURN NULL; END $$",
    *(
        f"CREATE TRIGGER {UNREAD}_{event} AFTER {event} ON {EXCHANGES} "
        f"REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION {UNREAD}_note()"
        for event in ("insert", "update")
    ),
)
"""The store itself notes what has ended: whoever writes, it costs the writer no statement."""

_NUMBERED_SQLITE = (
    *(f"DROP TRIGGER {UNREAD}_{event}" for event in ("insert", "update")),
    f"ALTER TABLE {UNREAD} RENAME TO {UNREAD}_old",
    f"CREATE TABLE {UNREAD} (id integer PRIMARY KEY, request_id text NOT NULL)",
    f"INSERT INTO {UNREAD}(request_id) SELECT request_id FROM {UNREAD}_old ORDER BY request_id",  # noqa: S608
    f"DROP TABLE {UNREAD}_old",
    *(
        f"CREATE TRIGGER {UNREAD}_{event} AFTER {event} ON {EXCHANGES} "  # noqa: S608
        "WHEN new.ended_at IS NOT NULL BEGIN "
        f"INSERT INTO {UNREAD}(request_id) VALUES (new.request_id); END"
        for event in ("insert", "update")
    ),
)
_NUMBERED_POSTGRES = (
    f"ALTER TABLE {UNREAD} DROP CONSTRAINT {UNREAD}_pkey",
    f"ALTER TABLE {UNREAD} ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    f"CREATE OR REPLACE FUNCTION {UNREAD}_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "  # noqa: S608
    f"INSERT INTO {UNREAD}(request_id) SELECT request_id FROM fresh WHERE ended_at IS NOT NULL; "
    "RETURN NULL; END $$",
)
"""A note without a search for an older one halves what it costs the writer."""

_KNOWN = (
    f"CREATE FUNCTION {WORDS}_known(wanted tsquery, most integer) RETURNS SETOF text "  # noqa: S608
    "LANGUAGE sql STABLE SET enable_seqscan = off SET enable_indexscan = off AS "
    f"$$ SELECT request_id FROM {WORDS} WHERE words @@ wanted LIMIT most $$",
)
"""The server takes every beginning of a word for a common one, and would read the whole table: here it
must ask the index."""

SEARCH = Schema(
    "relay-words",
    (
        Migration(
            1,
            sqlite=(
                f"CREATE TABLE {UNREAD} (request_id text PRIMARY KEY) WITHOUT ROWID",
                f"CREATE TABLE {IDS} (id integer PRIMARY KEY, request_id text NOT NULL UNIQUE)",
                f"CREATE VIRTUAL TABLE {WORDS} USING "
                "fts5(words, detail=none, columnsize=0, prefix='2 3', tokenize='unicode61')",
                _FILL,
            ),
            postgres=(
                f"CREATE TABLE {UNREAD} (request_id text PRIMARY KEY)",
                f"CREATE TABLE {WORDS} (request_id text PRIMARY KEY, words tsvector NOT NULL)",
                f"CREATE INDEX {WORDS}_idx ON {WORDS} USING gin (words)",
                _FILL,
            ),
        ),
        Migration(2, sqlite=_SQLITE_TRIGGERS, postgres=_POSTGRES_TRIGGERS),
        Migration(3, sqlite=_NUMBERED_SQLITE, postgres=_NUMBERED_POSTGRES),
        Migration(4, sqlite=(), postgres=_KNOWN),
    ),
)

NEXT_UNREAD = (
    "SELECT u.id, u.request_id, x.message, x.answer, x.late_answer, x.error, x.from_agent, x.to_agent "  # noqa: S608
    f"FROM {UNREAD} u LEFT JOIN {EXCHANGES} x ON x.request_id = u.request_id "
    "ORDER BY u.id LIMIT $1"
)


def folded(text: str) -> str:
    """Give a text without case and accents."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in apart if not unicodedata.combining(c))


def words_of(*texts: str | None) -> list[str]:
    """Give the distinct words of some texts; of very long ones those of the beginning."""
    found: dict[str, None] = {}
    for text in texts:
        if text:
            for word in _WORD.findall(folded(text[:_MOST_TEXT])):
                found[word[:_LONGEST_WORD]] = None
        if len(found) >= _MOST_WORDS:
            break
    return list(found)[:_MOST_WORDS]


def read(dialect: str, rows: Sequence[Row]) -> list[Statement]:
    """Give what takes rows of `NEXT_UNREAD` into the index; of deleted ones only the note goes."""
    texts = {row[1]: words_of(*row[2:]) for row in rows if row[2] is not None}
    notes = [row[0] for row in rows]
    if dialect == "postgres":
        put = (
            f"INSERT INTO {WORDS}(request_id, words) "  # noqa: S608
            "SELECT x.request_id, array_to_tsvector(string_to_array(t.said, ' ')) "
            f"FROM unnest($1::text[], $2::text[]) AS t(rid, said) JOIN {EXCHANGES} x "
            "ON x.request_id = t.rid ORDER BY x.request_id FOR KEY SHARE OF x "
            "ON CONFLICT (request_id) DO UPDATE SET words=excluded.words"
        )
        done = f"DELETE FROM {UNREAD} WHERE id = ANY($1::bigint[])"  # noqa: S608
        said = [" ".join(words) for words in texts.values()]
        return [Statement(put, (list(texts), said)), Statement(done, (notes,))]
    number = (
        f"INSERT INTO {IDS}(request_id) SELECT request_id FROM {EXCHANGES} "  # noqa: S608
        "WHERE request_id=$1 ON CONFLICT DO NOTHING"
    )
    put = (
        f"INSERT OR REPLACE INTO {WORDS}(rowid, words) "  # noqa: S608
        f"SELECT id, $2 FROM {IDS} WHERE request_id=$1"
    )
    done = f"DELETE FROM {UNREAD} WHERE id=$1"  # noqa: S608
    out: list[Statement] = []
    for rid, words in texts.items():
        out += (Statement(number, (rid,)), Statement(put, (rid, " ".join(words))))
    return out + [Statement(done, (note,)) for note in notes]


def forget(dialect: str, rids: Sequence[str]) -> list[Statement]:
    """Give what takes exchanges, deleted just before, out of the index.

    Notes of them go when they are read.
    """
    some, args = ", ".join(f"${n}" for n in range(1, len(rids) + 1)), tuple(rids)
    if dialect == "postgres":
        return [Statement(f"DELETE FROM {WORDS} WHERE request_id IN ({some})", args)]  # noqa: S608
    numbers = f"SELECT id FROM {IDS} WHERE request_id IN ({some})"  # noqa: S608
    return [
        Statement(f"DELETE FROM {WORDS} WHERE rowid IN ({numbers})", args),  # noqa: S608
        Statement(f"DELETE FROM {IDS} WHERE request_id IN ({some})", args),  # noqa: S608
    ]


def extent(dialect: str) -> str:
    """Give the query for the first and the last place of the index: rows on SQLite, else blocks."""
    if dialect == "postgres":
        return f"SELECT 0, pg_relation_size('{WORDS}') / current_setting('block_size')::int"
    end = f"(SELECT rowid FROM {WORDS} ORDER BY rowid {{}} LIMIT 1)"  # noqa: S608
    return f"SELECT {end.format('')}, {end.format('DESC')}"


def sample(
    dialect: str, first: int, last: int, words: Sequence[str]
) -> tuple[str, list[object]] | None:
    """Give the query that counts in how many texts of a sample each word begins one.

    The sample is taken from all over the index, about a thousand texts. None: the index is so small
    that nothing needs to be known before it is asked.
    """
    if dialect == "postgres":
        if last < SMALL * _BLOCKS:
            return None
        counts = ", ".join(
            f"count(*) FILTER (WHERE words @@ ${n}::tsquery)" for n, _ in enumerate(words, 2)
        )
        sql = f"SELECT {counts} FROM {WORDS} TABLESAMPLE SYSTEM ($1)"  # noqa: S608
        return sql, [min(100.0, 100 * _BLOCKS / max(last, 1)), *(f"'{word}':*" for word in words)]
    if last - first < SMALL * _PLACES * _ROWS_A_PLACE:
        return None
    args: list[object] = [f" {word}" for word in words]
    counts = ", ".join(f"sum(instr(' ' || words, ${n}) > 0)" for n, _ in enumerate(words, 1))
    parts = []
    for place in range(_PLACES):
        args.append(first + int((last - first) * (place * _GOLDEN % 1)))
        n = len(args)
        parts.append(
            f"SELECT words FROM {WORDS} WHERE rowid BETWEEN ${n} AND ${n} + {_ROWS_A_PLACE - 1}"  # noqa: S608
        )
    return f"SELECT {counts} FROM ({' UNION ALL '.join(parts)})", args  # noqa: S608


def rare(words: Sequence[str], counts: Sequence[int | None]) -> list[str]:
    """Give the words of a sample's counts that are rare enough to be looked up."""
    return [word for word, count in zip(words, counts, strict=True) if (count or 0) <= _COMMON]


def matching(dialect: str, words: Sequence[str], *, newest: bool = True) -> tuple[str, str]:
    """Give the query for the ids of what holds words beginning with these, and its argument.

    The query's second argument is how many ids at most; `newest`: the newest first (by number on
    SQLite, by id on PostgreSQL), for words that are not rare.
    """
    words = words[:MOST_QUERY_WORDS]
    if dialect == "postgres":
        wanted = " & ".join(f"'{word}':*" for word in words)
        if not newest:
            return f"SELECT * FROM {WORDS}_known($1::tsquery, $2::int)", wanted  # noqa: S608
        sql = f"SELECT request_id FROM {WORDS} WHERE words @@ $1::tsquery ORDER BY request_id DESC LIMIT $2"  # noqa: S608
        return sql, wanted
    wanted = " ".join(f'"{word}"*' for word in words)
    sql = (
        f"SELECT i.request_id FROM {WORDS} w JOIN {IDS} i ON i.id = w.rowid "  # noqa: S608
        f"WHERE {WORDS} MATCH $1 ORDER BY w.rowid DESC LIMIT $2"
    )
    return sql, wanted
