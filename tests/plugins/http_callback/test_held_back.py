"""What does not go out, and what the operator is told: notices, refused targets, texts too large."""

import asyncio
import json

import pytest
from tests.plugins.http_callback.conftest import Plugins
from tests.plugins.http_callback.receiver import Receiver, Reply, failing

from hermes_bridge.plugins.http_callback import cli, intake
from hermes_bridge.plugins.http_callback.intake import Call, Origin


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
    assert cli.main(["resume", key, "--home", str(plugin.home)]) == 0
    assert len(receiver.wait(4, accepted=True)) == 4
    assert plugin.row(first.id)["attempts"] == 2


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
    plugin = plugins(allow=[])
    receipt = plugin.answer(receiver.url, "m")
    assert "hermes callback allow" in receipt.reason
    home = ["--home", str(plugin.home)]
    assert cli.main(["allow", receiver.url, *home]) == 0
    plugin.service.reload_if_changed()
    assert cli.main(["replay", "--all", "--state", "rejected", *home]) == 0
    # The row was stored before its URL was understood; it is sent to the URL it names.
    assert receiver.wait(1)[0].content == "m"


def test_an_answer_of_an_event_answered_before_the_restart_is_kept_back(
    plugins: Plugins, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
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


@pytest.mark.clause("callback.sign.3")
def test_nothing_goes_out_unsigned_when_that_is_required(
    plugins: Plugins, receiver: Receiver
) -> None:
    plugin = plugins(require_signature=True, schedule=[0, 0.05])
    receipt = plugin.answer(receiver.url, "m")
    row = plugin.wait_state(receipt.id, "dead")
    assert "require_signature" in row["reason"]
    assert receiver.got == []


def test_a_text_that_is_too_large_is_kept_as_dead_with_its_body(plugins: Plugins) -> None:
    plugin = plugins(max_body_kib=1)
    receipt = plugin.answer("https://backend.example/cb", "x" * 2_000)
    assert receipt.state == "dead"
    assert plugin.row(receipt.id)["size"] > 2_000


@pytest.mark.clause("callback.guard.1")
def test_an_internal_receiver_is_refused_with_the_command_and_opened_by_it(
    plugins: Plugins,
) -> None:
    """svix 792: the rule and the command stand in the refusal; metadata stays shut."""
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
