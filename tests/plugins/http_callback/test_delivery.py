"""From `send()` to a real receiver: retries, order, breaker, and what the fault reports ask for."""

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook
from tests.plugins.http_callback.conftest import Plugin
from tests.plugins.http_callback.receiver import Got, Receiver, Reply

from hermes_bridge.plugins.http_callback import signing
from hermes_bridge.plugins.http_callback.intake import Call, Origin
from hermes_bridge.plugins.http_callback.service import Service

Plugins = Callable[..., Plugin]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def failing(times: int, reply: Reply) -> Callable[[Got, int], Reply | None]:
    """Answer so the first few times, then 200."""
    return lambda got, n: reply if n <= times else None


def test_an_answer_arrives_signed_at_the_url_as_it_was_given(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins(signing_secret=SECRET)
    url = receiver.url + "?inbox_id=3&slug=a%2Fb&x=%7e&y"
    receipt = plugin.answer(url + "#key=55", "olá 😊\u2028", reply_to="delivery-1")
    [got] = receiver.wait(1)
    assert got.path == "/cb?inbox_id=3&slug=a%2Fb&x=%7e&y"
    assert (got.content, got.id) == ("olá 😊\u2028", receipt.id)
    assert got.json["reply_to"] == "delivery-1"
    assert got.json["hermes"]["conversation"] == "55"
    Webhook(SECRET).verify(got.body, got.headers)
    secret = signing.read_secret(SECRET)
    assert got.headers["x-hermes-callback-signature"] == signing.legacy_signature(secret, got.body)
    assert got.headers["content-type"] == "application/json; charset=utf-8"
    plugin.wait_state(receipt.id, "delivered")


@pytest.mark.clause("callback.retry.1")
def test_a_503_is_followed_by_the_same_id_and_body_with_a_fresh_attempt(
    plugins: Plugins, receiver: Receiver
) -> None:
    receiver.script = failing(2, Reply(503))
    plugin = plugins(signing_secret=SECRET)
    receipt = plugin.answer(receiver.url, "m")
    got = receiver.wait(3)
    assert {(one.id, one.body) for one in got} == {(receipt.id, got[0].body)}
    assert [one.headers["x-hermes-callback-attempt"] for one in got] == ["1", "2", "3"]
    for one in got:
        Webhook(SECRET).verify(one.body, one.headers)
    row = plugin.wait_state(receipt.id, "delivered")
    assert [one["status"] for one in row["attempts_made"]] == [503, 503, 200]


@pytest.mark.clause("callback.retry.4")
@pytest.mark.parametrize(
    "reply", [Reply(hang=5.0), Reply(cut=True), Reply(500), Reply(429), Reply(403)], ids=str
)
def test_no_failure_of_the_receiver_makes_another_body_or_id(
    plugins: Plugins, receiver: Receiver, reply: Reply
) -> None:
    receiver.script = failing(1, reply)
    plugin = plugins(timeout_seconds=0.5)
    receipt = plugin.answer(receiver.url, "the answer")
    [got] = receiver.wait(1, accepted=True)
    plugin.wait_state(receipt.id, "delivered")
    assert {one.body for one in receiver.got} == {got.body}
    assert {one.id for one in receiver.got} == {receipt.id}
    assert got.content == "the answer"


@pytest.mark.clause("callback.status.8")
@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"\xff\xfe"),
        Reply(204, b""),
        Reply(200, b"x" * 2_000_000),
        Reply(200, slow_body=4.0),
    ],
    ids=["not text", "empty", "huge", "slow"],
)
def test_the_status_line_decides_whatever_the_body_is(
    plugins: Plugins, receiver: Receiver, reply: Reply
) -> None:
    receiver.script = lambda got, n: reply
    plugin = plugins(timeout_seconds=3)
    receipt = plugin.answer(receiver.url, "m")
    plugin.wait_state(receipt.id, "delivered")
    assert len(receiver.got) == 1


def test_a_refused_connection_is_tried_again(plugins: Plugins) -> None:
    with Receiver() as gone:
        url, port = gone.url, gone.port
    plugin = plugins(schedule=[0, *[0.2] * 20])
    receipt = plugin.answer(url, "m")
    plugin.wait_state(receipt.id, "pending")
    back = Receiver()
    back.port = port
    with back:
        assert back.wait(1)[0].id == receipt.id
        plugin.wait_state(receipt.id, "delivered")


def test_a_row_whose_receiver_is_free_is_leased_while_it_is_stored(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins(concurrency=1)
    plugin.wait_ready()
    first = plugin.answer(receiver.url, "m1")
    assert first.state == "sending"
    row = plugin.wait_state(first.id, "delivered")
    assert row["attempts"] == 1


def test_a_promise_that_could_not_be_stored_leaves_the_receiver_free(
    plugins: Plugins, receiver: Receiver
) -> None:
    from hermes_bridge.plugins.http_callback.store import OutboxUnavailable

    plugin = plugins(concurrency=1)
    plugin.wait_ready()

    def fails(outbox: object, custody: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    desk = plugin.service.desk
    for n in range(3):
        begun, hold = threading.Event(), threading.Event()

        def pause(outbox: object, custody: object, begun: Any = begun, hold: Any = hold) -> None:
            begun.set()
            hold.wait(30)

        desk.submit(pause)
        assert begun.wait(30)
        waiting = threading.Thread(target=store_in_vain, args=(plugin, receiver.url, f"lost {n}"))
        waiting.start()
        while not desk._tasks:
            time.sleep(0.01)  # the queue tells nobody that something came
        broken = desk.submit(fails)
        hold.set()
        assert isinstance(broken.exception(30), OutboxUnavailable)
        waiting.join(30)
    kept = plugin.answer(receiver.url, "kept")
    plugin.wait_state(kept.id, "delivered")
    assert [got.content for got in receiver.got] == ["kept"]


def store_in_vain(plugin: Plugin, url: str, text: str) -> None:
    from hermes_bridge.plugins.http_callback.store import OutboxUnavailable

    with pytest.raises(OutboxUnavailable):
        plugin.send(url, text)


@pytest.mark.clause("callback.order.2")
def test_a_conversation_stays_in_order_when_the_first_message_fails_once(
    plugins: Plugins, receiver: Receiver
) -> None:
    receiver.script = failing(1, Reply(503))
    plugin = plugins()
    for n in range(1, 4):
        plugin.answer(receiver.url + "?c=55", f"m{n}", chat=f"webhook:r:{n}")
    got = receiver.wait(3, accepted=True)
    assert [one.content for one in got] == ["m1", "m2", "m3"]
    assert [one.json["hermes"]["seq"] for one in got] == [1, 2, 3]


@pytest.mark.clause("callback.gone.1")
def test_410_parks_later_answers_and_resume_delivers_all(
    plugins: Plugins, receiver: Receiver
) -> None:
    receiver.script = failing(1, Reply(410))
    plugin = plugins()
    first = plugin.answer(receiver.url, "m1", chat="1")
    plugin.wait_state(first.id, "parked")
    later = [plugin.answer(receiver.url, f"m{n}", chat=str(n)) for n in (2, 3, 4)]
    assert [receipt.state for receipt in later] == ["parked"] * 3
    assert len(receiver.got) == 1
    key = plugin.row(first.id)["endpoint"]
    from hermes_bridge.plugins.http_callback import cli

    assert cli.main(["resume", key, "--home", str(plugin.home)]) == 0
    assert len(receiver.wait(4, accepted=True)) == 4
    assert plugin.row(first.id)["attempts"] == 2


@pytest.mark.clause("callback.once.1")
def test_the_same_answer_of_the_same_event_goes_out_once(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins()
    first = plugin.answer(receiver.url, "m", reply_to="d1")
    marked = "♻️ Recovered reply — the gateway restarted, so this may be a duplicate:\n\nm"
    second = plugin.answer(receiver.url, marked, reply_to="d1")
    assert (second.id, second.duplicate) == (first.id, True)
    plugin.wait_state(first.id, "delivered")
    assert len(receiver.got) == 1


@pytest.mark.clause("callback.kind.3")
@pytest.mark.parametrize(
    "text",
    [
        "(Response formatting failed, plain text:)\n\nm",
        "⚠️ Message delivery failed after multiple attempts. Please try again",
        "HTTP 401: Provided authentication token is expired",
        "   ",
    ],
)
def test_what_is_no_answer_is_kept_back_and_told(plugins: Plugins, text: str) -> None:
    plugin = plugins()
    receipt = plugin.answer("https://backend.example/cb", text)
    assert receipt.state == "suppressed"
    assert plugin.row(receipt.id)["reason"]


@pytest.mark.clause("callback.kind.3")
def test_what_hermes_says_while_a_session_is_busy_stays_here_and_the_answer_goes_out(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins()
    chat = "webhook:support:session:55"
    busy = ["↪ Redirected current run", "⏳ Queued for the next turn", "⚠️ Compressing context"]
    for text in busy:
        call = Call(receiver.url, text, origin=Origin(chat))
        assert asyncio.run(plugin.service.accept(call)).state == "suppressed"
    receipt = plugin.answer(receiver.url, "the one answer", chat=chat, reply_to="event-2")
    plugin.wait_state(receipt.id, "delivered")
    assert [got.content for got in receiver.got] == ["the one answer"]


def test_status_lines_reach_a_receiver_that_asked_for_them(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins(statuses="send")
    call = Call(receiver.url, "⏳ Queued", origin=Origin("webhook:r:1"))
    asyncio.run(plugin.service.accept(call))
    assert receiver.wait(1)[0].json["hermes"]["kind"] == "status"


@pytest.mark.clause("callback.kind.4")
def test_errors_reach_a_receiver_that_asked_for_them(plugins: Plugins, receiver: Receiver) -> None:
    plugin = plugins(errors="send")
    plugin.answer(receiver.url, "HTTP 401: Provided authentication token is expired")
    assert receiver.wait(1)[0].json["hermes"]["kind"] == "error"


@pytest.mark.clause("callback.target.3")
@pytest.mark.parametrize(
    "target", ["http://10.0.0.1/", "{callback_url}", "@nobody", "ftp://x", "http://2130706433:9/"]
)
def test_an_unusable_target_is_stored_as_rejected_and_told(plugins: Plugins, target: str) -> None:
    plugin = plugins()
    receipt = plugin.answer(target, "m")
    assert receipt.state == "rejected"
    assert receipt.reason
    assert json.loads(plugin.row(receipt.id)["body"])["content"] == "m"


@pytest.mark.clause("callback.guard.6")
def test_a_redirect_is_not_followed(plugins: Plugins, receiver: Receiver) -> None:
    with Receiver() as trap:
        receiver.script = lambda got, n: Reply(302, headers={"Location": trap.url + "?t=secret"})
        plugin = plugins(allow=[f"127.0.0.1:{receiver.port}"])
        receipt = plugin.answer(receiver.url, "m")
        row = plugin.wait_state(receipt.id, "dead")
        assert f"127.0.0.1:{trap.port}" in row["reason"]
        assert "secret" not in row["reason"]
        assert trap.got == []


def test_the_allow_command_opens_a_running_gateway(plugins: Plugins, receiver: Receiver) -> None:
    from hermes_bridge.plugins.http_callback import cli

    plugin = plugins(allow=[])
    receipt = plugin.answer(receiver.url, "m")
    assert "hermes callback allow" in receipt.reason
    home = ["--home", str(plugin.home)]
    assert cli.main(["allow", receiver.url, *home]) == 0
    plugin.service.reload_if_changed()
    assert cli.main(["replay", "--all", "--state", "rejected", *home]) == 0
    # The row was stored before its URL was understood; it is sent to the URL it names.
    assert receiver.wait(1)[0].content == "m"


@pytest.mark.clause("callback.send.2")
def test_send_works_from_any_event_loop_and_thread(plugins: Plugins, receiver: Receiver) -> None:
    plugin = plugins()
    failures: list[BaseException] = []

    def elsewhere(n: int) -> None:
        try:
            plugin.answer(receiver.url, f"m{n}", chat=str(n))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=elsewhere, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not failures
    assert {one.content for one in receiver.wait(8)} == {f"m{n}" for n in range(8)}


@pytest.mark.clause("callback.breaker.1")
def test_a_dead_endpoint_is_left_alone_and_its_rows_spend_no_attempts(
    plugins: Plugins, receiver: Receiver
) -> None:
    receiver.script = lambda got, n: Reply(500)
    plugin = plugins(concurrency=1)
    receipts = [plugin.answer(receiver.url, f"m{n}", chat=str(n)) for n in range(30)]
    receiver.wait(5)

    def open_until(outbox: object, custody: object) -> int:
        rows = outbox.db.execute("SELECT open_until FROM endpoints").fetchall()  # type: ignore[attr-defined]
        return int(rows[0][0]) if rows else 0

    async def shut() -> None:
        async with asyncio.timeout(10):
            while not await asyncio.to_thread(plugin.service.desk.submit(open_until).result):
                await asyncio.sleep(0.02)

    asyncio.run(shut())
    assert len(receiver.got) <= 6
    attempts = [plugin.row(receipt.id)["attempts"] for receipt in receipts]
    assert sum(attempts) == len(receiver.got)


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
    with pytest.raises(AssertionError):
        again.wait_state(receipt.id, "delivered", seconds=1.0)
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


def test_an_answer_of_an_event_answered_before_the_restart_is_kept_back(
    plugins: Plugins, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_bridge.plugins.http_callback import intake

    plugin = plugins()

    def remember(outbox: object, custody: object) -> None:
        custody.save_route("chat", {}, {"delivery_id": "d1"}, "an earlier process", 1 << 60)  # type: ignore[attr-defined]

    plugin.service.desk.submit(remember).result(10)
    monkeypatch.setattr(intake, "EPOCH", "an earlier process")
    first = plugin.answer(receiver.url, "the answer", chat="chat")
    monkeypatch.setattr(intake, "EPOCH", "this process")
    again = plugin.answer(receiver.url, "another wording of it", chat="chat")
    assert again.state == "suppressed"
    assert first.id in again.reason
    same = plugin.answer(receiver.url, "the answer", chat="chat")
    assert (same.id, same.duplicate) == (first.id, True)


@pytest.mark.clause("callback.outside.1")
def test_a_process_without_a_gateway_delivers_by_itself(tmp_path: Path, receiver: Receiver) -> None:
    from hermes_bridge.plugins.http_callback import standalone

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
    from hermes_bridge.plugins.http_callback import standalone

    plugin = plugins()
    plugin.answer(receiver.url, "warm", chat="0")
    receiver.wait(1)
    other = Service(plugin.home)
    receipt = asyncio.run(other.accept(Call(receiver.url, "from outside")))
    asyncio.run(standalone.drain(other, 5))
    other.desk.close()
    plugin.wait_state(receipt.id, "delivered")
    assert receiver.wait(2)[1].id == receipt.id


@pytest.mark.clause("callback.sign.3")
def test_nothing_goes_out_unsigned_when_that_is_required(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins(require_signature=True, schedule=[0, 0.05])
    receipt = plugin.answer(receiver.url, "m")
    row = plugin.wait_state(receipt.id, "dead")
    assert "require_signature" in row["reason"]
    assert receiver.got == []


def test_the_captain_profile_sends_the_four_keys_and_the_legacy_signature(
    plugins: Plugins, receiver: Receiver
) -> None:
    crm = {"url": receiver.url + "?inbox_id=3", "profile": "captain"}
    plugin = plugins(endpoints={"crm": crm}, signing_secret="s3cret")
    plugin.answer("@crm", "m")
    [got] = receiver.wait(1)
    assert list(got.json) == ["content", "reply_to", "metadata", "timestamp"]
    assert "x-hermes-callback-signature" in got.headers
    assert "webhook-signature" not in got.headers


def test_a_text_that_is_too_large_is_kept_as_dead_with_its_body(plugins: Plugins) -> None:
    plugin = plugins(max_body_kib=1)
    receipt = plugin.answer("https://backend.example/cb", "x" * 2_000)
    assert receipt.state == "dead"
    assert plugin.row(receipt.id)["size"] > 2_000


@pytest.mark.clause("callback.disk.4")
def test_while_the_disk_is_full_send_says_so_and_delivery_goes_on_afterwards(
    plugins: Plugins, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    from hermes_bridge.plugins.http_callback.store import OutboxUnavailable

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
    from hermes_bridge.plugins.http_callback.store import OutboxUnavailable

    plugin = plugins()
    for n in range(40):
        plugin.answer("http://127.0.0.1:9/cb", f"m{n}" + "x" * 3000, chat=str(n))
    path = plugin.home / "http_callback" / "outbox.db"

    def spoil(outbox: object, custody: object) -> None:
        outbox.db.execute("PRAGMA shrink_memory")  # type: ignore[attr-defined]

    plugin.service.desk.submit(
        lambda outbox, custody: outbox.db.execute("SELECT 1").fetchone()
    ).result(10)
    wait_checkpoint(path)
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


def wait_checkpoint(path: Path) -> None:
    """Wait until the idle outbox has moved its log into the file (it tells nobody)."""

    async def look() -> None:
        async with asyncio.timeout(20):
            while path.stat().st_size < 100_000:
                await asyncio.sleep(0.1)

    asyncio.run(look())


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


@pytest.mark.clause("callback.homes.1")
def test_two_homes_in_one_process_keep_their_answers_secrets_and_settings_apart(
    plugins: Plugins, receiver: Receiver
) -> None:
    url = receiver.url
    one = plugins(home="one", signing_secret="secret of one", endpoints={"crm": {"url": url}})
    two = plugins(home="two", signing_secret="secret of two")
    first = one.answer("@crm", "from one", chat="webhook:r:1", reply_to="1")
    second = two.answer(url, "from two", chat="webhook:r:1", reply_to="1")
    assert two.answer("@crm", "not its endpoint").state == "rejected"
    one.wait_state(first.id, "delivered")
    two.wait_state(second.id, "delivered")
    for got in receiver.wait(2):
        secret = signing.read_secret(f"secret of {got.content.removeprefix('from ')}")
        proof = signing.legacy_signature(secret, got.body)
        assert got.headers["x-hermes-callback-signature"] == proof
    one.service.stop()
    later = two.answer(url, "two goes on", chat="webhook:r:2")
    two.wait_state(later.id, "delivered")


@pytest.mark.clause("callback.guard.1")
def test_an_internal_receiver_is_refused_with_the_command_and_opened_by_it(
    plugins: Plugins,
) -> None:
    """svix 792: the rule and the command stand in the refusal; metadata stays shut."""
    from hermes_bridge.plugins.http_callback import cli

    plugin = plugins(allow=[], start=False)
    url = "http://172.17.0.1:3000/cb"
    refused = plugin.answer(url, "m1", chat="1")
    assert refused.state == "rejected"
    command = "hermes callback allow http://172.17.0.1:3000"
    assert refused.reason == (
        f"172.17.0.1 is private (172.16.0.0/12); if this receiver is yours, run `{command}`"
    )
    assert cli.main([*command.split()[2:], "--home", str(plugin.home)]) == 0
    plugin.service.reload_if_changed()
    assert plugin.answer(url, "m2", chat="2").state == "pending"
    metadata = plugin.answer("http://169.254.169.254/latest", "m3", chat="3")
    assert (metadata.state, "169.254.0.0/16" in metadata.reason) == ("rejected", True)


@pytest.mark.clause("callback.metadata.1")
def test_an_id_of_a_payload_cannot_write_into_the_url(plugins: Plugins, receiver: Receiver) -> None:
    from hermes_bridge.plugins.http_callback.webhook_bridge import learn

    crm = {"url": receiver.url + "?inbox_id=3", "metadata_from": {"conversation_id": "{c}"}}
    plugin = plugins(endpoints={"crm": crm})
    delivery = {"deliver": "http_callback", "deliver_extra": {"chat_id": "@crm"}}
    facts = learn(delivery, {"c": "1&inbox_id=2"}, plugin.service.settings)
    plugin.send("@crm", "m", facts=facts)
    [got] = receiver.wait(1)
    assert got.path == "/cb?inbox_id=3"
    assert got.json["metadata"] == {"conversation_id": "1&inbox_id=2"}


@pytest.mark.clause("callback.lease.1")
def test_a_worker_that_fell_over_starts_again_and_delivers_what_is_owed(
    plugins: Plugins,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from hermes_bridge.plugins.http_callback import service

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
