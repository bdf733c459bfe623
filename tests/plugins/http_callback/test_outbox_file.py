"""The outbox's file: whose it is, full, locked, damaged, or of a newer version."""

import os
import sqlite3
from pathlib import Path

import pytest
from tests.plugins.http_callback.outbox_steps import end, ids, put, take

from hermes_bridge.plugins.http_callback.custody import Custody
from hermes_bridge.plugins.http_callback.outbox import Outbox
from hermes_bridge.plugins.http_callback.store import OutboxUnavailable, Store
from hermes_bridge.plugins.http_callback.verdict import Outcome


def test_the_file_is_the_owners_alone(outbox: Outbox) -> None:
    path = outbox.store.path
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def open_again(path: Path) -> Outbox:
    return Outbox(Store(path), "again")


@pytest.mark.clause("callback.disk.1")
def test_a_full_disk_is_a_refusal_and_nothing_is_half_stored(outbox: Outbox) -> None:
    put(outbox, "m1")
    pages = outbox.db.execute("PRAGMA page_count").fetchone()[0]
    outbox.db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(OutboxUnavailable, match="full"):
        put(outbox, "m2", make_body=lambda seq: b"x" * 1_000_000)
    outbox.db.execute("PRAGMA max_page_count=1000000")
    assert put(outbox, "m3").state == "waiting"
    assert ids(take(outbox)) == ["m1"]


@pytest.mark.clause("callback.disk.2")
def test_a_locked_outbox_is_a_refusal_within_the_busy_time(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    other = Store(path)
    other.db.execute("BEGIN IMMEDIATE")
    mine = Outbox(Store(path, busy_ms=50), "me")
    with pytest.raises(OutboxUnavailable, match="locked"):
        put(mine, "m1")
    other.db.execute("ROLLBACK")
    assert put(mine, "m1").state == "pending"
    other.close()
    mine.store.close()


@pytest.mark.clause("callback.disk.3")
@pytest.mark.parametrize("damage", ["garbage", "torn", "page"])
def test_a_damaged_file_is_set_aside_and_readable_rows_are_saved(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "http_callback" / "outbox.db"
    first = open_again(path)
    for n in range(200):
        put(first, f"m{n}", f"l{n}", make_body=lambda seq: b"x" * 3000)
    first.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    first.store.close()
    raw = bytearray(path.read_bytes())
    if damage == "garbage":
        raw[:] = os.urandom(len(raw))
    elif damage == "torn":
        raw = raw[: len(raw) // 2]
    else:
        raw[4096 * 40 : 4096 * 44] = os.urandom(4096 * 4)
    path.write_bytes(bytes(raw))
    store = Store(path)
    again = Outbox(store, "again")
    try:
        jobs = take(again, limit=300)
        for job in jobs:
            end(again, job, Outcome.DELIVERED)
    except (OutboxUnavailable, sqlite3.DatabaseError) as error:
        store.set_aside(str(error))
    saved = store.db.execute("SELECT COUNT(*) FROM deliveries").fetchone()[0]
    assert put(again, "new").state == "pending"
    if store.fact("damaged"):
        aside = [name for name in os.listdir(path.parent) if ".damaged-" in name]
        assert aside
        assert "set aside" in caplog.text
        assert Custody(again).status(0)["damaged"]
    if damage == "garbage":
        assert saved == 0
    else:
        assert saved > 50
    store.close()


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    store = Store(path)
    store.mark("schema", "99")
    store.close()
    with pytest.raises(OutboxUnavailable, match="newer version"):
        Store(path)
    assert list(tmp_path.glob("*.damaged-*")) == []
