"""From `send()` to a real receiver: signed, tried again, in order, once."""

import sqlite3
import threading
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook
from tests.harness.waits import until
from tests.plugins.http_callback.conftest import Plugin, Plugins
from tests.plugins.http_callback.receiver import SECRET, Receiver, Reply, failing

from hermes_bridge.plugins.http_callback import signing
from hermes_bridge.plugins.http_callback.store import OutboxUnavailable
from hermes_bridge.plugins.http_callback.webhook_bridge import learn


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
        until(lambda: desk._tasks, "something in the queue")
        broken = desk.submit(fails)
        hold.set()
        assert isinstance(broken.exception(30), OutboxUnavailable)
        waiting.join(30)
    kept = plugin.answer(receiver.url, "kept")
    plugin.wait_state(kept.id, "delivered")
    assert [got.content for got in receiver.got] == ["kept"]


def store_in_vain(plugin: Plugin, url: str, text: str) -> None:
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

    until(lambda: plugin.service.desk.submit(open_until).result(30), "left alone")
    assert len(receiver.got) <= 6
    attempts = [plugin.row(receipt.id)["attempts"] for receipt in receipts]
    assert sum(attempts) == len(receiver.got)


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


@pytest.mark.clause("callback.metadata.1")
def test_an_id_of_a_payload_cannot_write_into_the_url(plugins: Plugins, receiver: Receiver) -> None:
    crm = {"url": receiver.url + "?inbox_id=3", "metadata_from": {"conversation_id": "{c}"}}
    plugin = plugins(endpoints={"crm": crm})
    delivery = {"deliver": "http_callback", "deliver_extra": {"chat_id": "@crm"}}
    facts = learn(delivery, {"c": "1&inbox_id=2"}, plugin.service.settings)
    plugin.send("@crm", "m", facts=facts)
    [got] = receiver.wait(1)
    assert got.path == "/cb?inbox_id=3"
    assert got.json["metadata"] == {"conversation_id": "1&inbox_id=2"}
