"""Delivery through stops, beside other processes, with an outbox that fails, and a worker that falls."""

import asyncio
import sqlite3
import threading
from pathlib import Path

import pytest
from tests.harness.waits import until
from tests.plugins.http_callback.conftest import Plugin, Plugins
from tests.plugins.http_callback.receiver import Receiver, Reply

from hermes_bridge.plugins.http_callback import service, standalone
from hermes_bridge.plugins.http_callback.intake import Call
from hermes_bridge.plugins.http_callback.service import Service
from hermes_bridge.plugins.http_callback.store import OutboxUnavailable


def test_an_endpoint_that_is_left_alone_stays_so_after_a_restart(
    plugins: Plugins, receiver: Receiver, tmp_path: Path
) -> None:
    receiver.script = lambda got, n: Reply(500)
    plugin = plugins(concurrency=1)
    for n in range(10):
        plugin.answer(receiver.url, f"m{n}", chat=str(n))
    receiver.wait(5)
    plugin.stop()
    before = len(receiver.got)
    again = plugins(concurrency=1)
    receipt = again.answer(receiver.url, "one more", chat="x")
    with Receiver() as other:
        again.wait_state(again.answer(other.url, "later", chat="y").id, "delivered")
    assert again.row(receipt.id)["state"] == "pending"
    assert len(receiver.got) == before


@pytest.mark.clause("callback.send.3")
def test_a_stop_gives_everything_back_and_the_next_start_delivers_it(
    plugins: Plugins, receiver: Receiver
) -> None:
    receiver.script = lambda got, n: Reply(hang=30) if n == 1 else None
    plugin = plugins(timeout_seconds=60)
    receipt = plugin.answer(receiver.url, "m")
    receiver.wait(1)
    plugin.stop()
    plugins(timeout_seconds=60)
    got = receiver.wait(2)
    assert {one.id for one in got} == {receipt.id}


@pytest.mark.clause("callback.outside.1")
def test_a_process_without_a_gateway_delivers_by_itself(tmp_path: Path, receiver: Receiver) -> None:
    plugin = Plugin(tmp_path / "home")
    try:
        service = Service(plugin.home)
        receipt = asyncio.run(
            service.accept(Call(receiver.url, "from cron", metadata={"job_id": "j1"}))
        )
        asyncio.run(standalone.drain(service, 10))
        service.desk.close()
        [got] = receiver.wait(1)
        assert (got.id, got.json["hermes"]["job_id"], got.json["hermes"]["kind"]) == (
            receipt.id,
            "j1",
            "cron",
        )
    finally:
        plugin.stop()


@pytest.mark.clause("callback.outside.2")
def test_beside_a_gateway_another_process_only_stores_and_the_gateway_delivers(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins()
    plugin.answer(receiver.url, "warm", chat="0")
    receiver.wait(1)
    other = Service(plugin.home)
    receipt = asyncio.run(other.accept(Call(receiver.url, "from outside")))
    asyncio.run(standalone.drain(other, 5))
    other.desk.close()
    plugin.wait_state(receipt.id, "delivered")
    assert receiver.wait(2)[1].id == receipt.id


@pytest.mark.clause("callback.disk.4")
def test_while_the_disk_is_full_send_says_so_and_delivery_goes_on_afterwards(
    plugins: Plugins, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = plugins()
    kept = plugin.answer(receiver.url, "before", chat="0")
    plugin.wait_state(kept.id, "delivered")

    def limit(pages: int | None) -> None:
        def work(outbox: object, custody: object) -> None:
            most = pages or outbox.db.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[attr-defined]
            outbox.db.execute(f"PRAGMA max_page_count={most}")  # type: ignore[attr-defined]

        plugin.service.desk.submit(work).result(10)

    limit(None)
    long = "x" * 500_000
    with pytest.raises(OutboxUnavailable, match="full"):
        plugin.answer(receiver.url, long, chat="1")
    assert "callbacks wait until it works again" in caplog.text
    limit(10_000_000)
    wrapped = "(Response formatting failed, plain text:)\n\n" + long[:3500]
    receipt = plugin.answer(receiver.url, wrapped, chat="1")
    plugin.wait_state(receipt.id, "delivered")
    assert receiver.got[-1].content == long


@pytest.mark.clause("callback.disk.3")
def test_a_file_that_is_damaged_while_the_gateway_runs_is_replaced_and_it_lives_on(
    plugins: Plugins, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = plugins()
    for n in range(40):
        plugin.answer("http://127.0.0.1:9/cb", f"m{n}" + "x" * 3000, chat=str(n))
    path = plugin.home / "http_callback" / "outbox.db"

    def spoil(outbox: object, custody: object) -> None:
        outbox.db.execute("PRAGMA shrink_memory")  # type: ignore[attr-defined]

    plugin.service.desk.submit(
        lambda outbox, custody: outbox.db.execute("SELECT 1").fetchone()
    ).result(10)
    until(lambda: path.stat().st_size > 100_000, "the log moved into the file")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    plugin.service.desk.submit(spoil).result(10)
    receipt = None
    for _ in range(5):
        try:
            receipt = plugin.answer(receiver.url, "after the damage", chat="after")
        except OutboxUnavailable:
            continue
        break
    assert receipt is not None
    assert plugin.wait_state(receipt.id, "delivered")
    assert "was damaged" in caplog.text
    assert list(path.parent.glob("outbox.db.damaged-*"))


@pytest.mark.clause("callback.disk.2")
def test_while_another_process_holds_the_outbox_send_waits_and_delivery_goes_on_afterwards(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins()
    first = plugin.answer(receiver.url, "first", chat="1")
    plugin.wait_state(first.id, "delivered")
    holder = sqlite3.connect(
        plugin.home / "http_callback" / "outbox.db", isolation_level=None, check_same_thread=False
    )
    holder.execute("BEGIN IMMEDIATE")
    release = threading.Timer(1.0, lambda: holder.execute("ROLLBACK"))
    release.start()
    second = plugin.answer(receiver.url, "second", chat="2")
    plugin.wait_state(second.id, "delivered")
    release.join()
    holder.close()


@pytest.mark.clause("callback.lease.1")
def test_a_worker_that_fell_over_starts_again_and_delivers_what_is_owed(
    plugins: Plugins,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(service, "RESTART_S", 0.05)
    receiver.script = lambda got, n: Reply(503, headers={"Retry-After": "1"}) if n == 1 else None
    plugin = plugins()
    receipt = plugin.answer(receiver.url, "owed")
    receiver.wait(1)
    falls = iter([PermissionError("config.yaml")])

    def fall_once() -> None:
        for error in falls:
            raise error

    monkeypatch.setattr(plugin.service.worker, "_on_poll", fall_once)
    plugin.wait_state(receipt.id, "delivered")
    assert {got.id for got in receiver.got} == {receipt.id}
    assert caplog.text.count("the worker fell over") == 1
