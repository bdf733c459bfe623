"""End to end with real Hermes: subscribe, signed POST in, a scripted model, one signed POST out.

One gateway a version serves most tests (a start costs seconds of CPU): events, routes and texts
have names of their own. One crash of it is looked at by three tests.
"""

import json
import re
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from standardwebhooks.webhooks import Webhook
from tests.harness.fixtures import made_gateways
from tests.harness.gateway import Gateway
from tests.harness.llm import Fail, Say, ScriptedModel
from tests.harness.venvs import Venv
from tests.plugins.http_callback.hermes_bot import Bot, Gateways, holding, route
from tests.plugins.http_callback.receiver import SECRET, Got, Receiver, Reply

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(600)]

TROUBLES = (Reply(500), Reply(403), Reply(429), Reply(hang=5.0), Reply(cut=True))


@pytest.fixture(scope="module")
def llm(module_llm: ScriptedModel) -> ScriptedModel:
    """One model behind the shared gateway and those that a test makes for itself."""
    return module_llm


@pytest.fixture(scope="module")
def mistaken(
    hermes: Venv,
    request: pytest.FixtureRequest,
    llm: ScriptedModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Gateway]:
    """A gateway with a wrong setting: its reconnect takes Hermes 30 s, so it is started first."""
    folder = tmp_path_factory.mktemp("mistaken")
    with Receiver() as receiver:
        for make in made_gateways(request, hermes, llm, folder):
            yield Bot(make, receiver, profile="captian").gateway.launch()


@pytest.fixture(scope="module")
def bot(module_gateways: Gateways) -> Iterator[Bot]:
    with Receiver() as receiver:
        typing = {"url": f"http://127.0.0.1:{receiver.port}/webhooks/captain/typing"}
        crm = {"url": receiver.url + "?inbox_id=3", "profile": "captain", "typing": typing}
        to = {"url": receiver.url, "chat_id": receiver.url, "thread_id": "{c}"}
        bot = Bot(
            module_gateways,
            receiver,
            routes={
                "push": route(deliver_only=True, deliver_extra={"chat_id": receiver.url}),
                "blocked": route(deliver_only=True, deliver_extra={"chat_id": "http://10.9.8.7/"}),
                "open": route(deliver_extra={"chat_id": "{callback_url}"}),
                "second": route("bridge_callback", deliver_extra=to),
                "typed": route(deliver_extra={"chat_id": "@crm?conversation_internal_id={c}"}),
            },
            metadata_from={"conversation_id": "{conversation.id}", "number": "{n}"},
            endpoints={"crm": crm, "plain": {"url": receiver.url + "?a=1,2"}},
            media="inline",
            timeout_seconds=4,
        )
        bot.start().subscribe(receiver.url + "?inbox_id=3&c={conversation.id}")
        yield bot


@pytest.mark.clause("callback.doctor.1")
def test_the_doctor_finds_nothing_wrong_with_a_good_home(mistaken: Gateway, bot: Bot) -> None:
    done = bot.gateway.cli("callback", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "`deliver: http_callback` is ours" in done.stdout
    assert "warn" not in done.stdout, done.stdout


def test_wrong_settings_are_shown_by_hermes_and_by_the_doctor(mistaken: Gateway) -> None:
    """Mended here; `..._without_a_restart` below sees it connect."""
    mistaken.wait_ready(120)
    mistaken.wait_log("captian", timeout=60, name="logs/agent.log")
    doctor = mistaken.cli("callback", "doctor")
    assert doctor.returncode == 1
    assert "captain" in doctor.stdout
    text = mistaken.config_file.read_text("utf-8")
    mistaken.config_file.write_text(text.replace("captian", "captain"), "utf-8")


@pytest.mark.clause("callback.flow.1")
def test_every_answer_of_a_subscribed_route_reaches_the_url_once_signed_with_its_event(
    bot: Bot, llm: ScriptedModel
) -> None:
    llm.when("Customer said: (?P<what>\\w+)", Say("Reply to {what} 😊"))
    for n in (1, 2, 3):
        assert bot.post(f"event-{n}", message=f"m{n}") == 202
        bot.wait_got("event-", n)
    got = bot.got("event-")
    assert [one.content for one in got] == [f"Reply to m{n} 😊" for n in (1, 2, 3)]
    assert {one.path for one in got} == {"/cb?inbox_id=3&c=55"}
    for n, one in enumerate(got, start=1):
        Webhook(SECRET).verify(one.body, one.headers)
        assert one.json["reply_to"] == f"event-{n}"
        assert one.json["metadata"] == {"conversation_id": 55}
        hermes = one.json["hermes"]
        assert (hermes["kind"], hermes["route"], hermes["delivery_id"]) == (
            "final",
            "support",
            f"event-{n}",
        )
        assert hermes["conversation"] == "55"
    rows = bot.wait_delivered("event-", 3)
    assert {row["id"] for row in rows} == {one.id for one in got}
    listed = bot.gateway.cli("callback", "list", "--json")
    assert {row["id"] for row in rows} <= {row["id"] for row in json.loads(listed.stdout)}
    assert "http_callback" in bot.gateway.cli("plugins", "list").stdout


@pytest.mark.clause("callback.flow.2")
def test_a_failing_receiver_sees_no_other_text_or_id(
    bot: Bot, llm: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int] = {}

    def first_time(got: Got, n: int) -> Reply | None:
        seen[got.content] = seen.get(got.content, 0) + 1
        return TROUBLES[int(got.content[-1])] if seen[got.content] == 1 else None

    monkeypatch.setattr(bot.receiver, "script", first_time)
    llm.when(r"Customer said: (?P<what>[\w-]+)", Say("The answer to {what}"))
    for n in range(len(TROUBLES)):
        bot.post(f"trouble-{n}")
    rows = bot.wait_delivered("trouble-", len(TROUBLES))
    tried = bot.got("trouble-")
    ids = {one.content: one.id for one in tried}
    assert sorted(ids) == [f"The answer to trouble-{n}" for n in range(len(TROUBLES))]
    assert {one.id for one in tried} == {row["id"] for row in rows}
    assert all(ids[one.content] == one.id for one in tried)


@pytest.mark.clause("callback.kind.3")
def test_an_error_of_the_model_does_not_reach_the_customer_and_is_shown_to_the_operator(
    bot: Bot, llm: ScriptedModel
) -> None:
    llm.when("Customer said: bad-model", Fail(401, "Provided authentication token is expired"))
    bot.post("bad-model")
    rows = bot.wait_rows(
        "bad-model", lambda rows: any(row["state"] == "suppressed" for row in rows)
    )
    assert any(row["kind"] in ("error", "status") for row in rows)
    llm.when("Customer said: good-model", Say("fine"))
    bot.post("good-model")
    assert [one.content for one in bot.wait_got("good-model")] == ["fine"]
    assert bot.got("bad-model") == []


@pytest.mark.clause("callback.media.1")
def test_a_file_in_the_answer_becomes_an_attachment_without_a_path_of_the_machine(
    bot: Bot, llm: ScriptedModel
) -> None:
    folder = bot.gateway.home / "cache" / "documents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.pdf").write_bytes(b"%PDF-1.4 hello")
    llm.when("Customer said", Say(f"Here it is. MEDIA:{folder / 'report.pdf'}"))
    bot.post("with-a-file")
    got = bot.wait_got("with-a-file", 2)
    kinds = {one.json["hermes"]["kind"]: one for one in got}
    assert kinds["final"].content == "Here it is."
    [item] = kinds["media"].json["hermes"]["attachments"]
    assert (item["name"], item["mime"], item["size"]) == ("report.pdf", "application/pdf", 14)
    assert item["data_b64"]
    assert all(str(bot.gateway.home) not in one.body.decode() for one in got)
    assert all("Couldn't deliver" not in one.content for one in got)


@pytest.mark.clause("callback.flow.6")
def test_deliver_only_routes_are_delivered_and_a_refusal_reaches_the_caller(bot: Bot) -> None:
    assert bot.post("a-ping", "push", n=7) == 200
    [got] = bot.wait_got("a-ping")
    assert got.content == "Customer said: a-ping"
    assert got.json["metadata"] == {"number": 7}
    with pytest.raises(urllib.error.HTTPError) as refused:
        bot.post("a-refused-ping", "blocked")
    assert refused.value.code == 502
    [row] = bot.rows("10.9.8.7")
    assert row["state"] == "rejected"
    assert "hermes callback allow http://10.9.8.7" in row["reason"]


@pytest.mark.clause("callback.target.5")
def test_a_rejected_target_on_the_agents_path_makes_no_second_send(
    bot: Bot, llm: ScriptedModel
) -> None:
    llm.when("Customer said", Say("The answer"))
    bot.post("no-target-1", "open")
    bot.post("no-target-2", "open", callback_url="http://169.254.169.254/latest")
    rows = bot.wait_rows("no-target", lambda rows: len(rows) >= 2)
    assert [row["state"] for row in rows] == ["rejected", "rejected"]
    assert {"placeholder" in row["reason"] or "169.254" in row["reason"] for row in rows} == {True}
    assert "plain-text fallback" not in bot.gateway.log()


@pytest.mark.clause("callback.alias.1")
def test_the_second_name_of_the_platform_delivers_too(bot: Bot, llm: ScriptedModel) -> None:
    llm.when("Customer said", Say("The answer"))
    bot.post("by-second-name", "second", c=55)
    [got] = bot.wait_got("by-second-name")
    assert got.json["metadata"] == {"thread_id": "55"}
    assert got.json["hermes"]["conversation"] == "55"


@pytest.mark.clause("callback.typing.1")
def test_the_typing_signal_goes_on_with_the_event_and_off_with_the_answer(
    bot: Bot, llm: ScriptedModel
) -> None:
    llm.when("Customer said", Say("The answer"))
    bot.post("typed-event", "typed", c=77)
    got = bot.wait_got("conversation_internal_id=77", 3)
    signals = [one for one in got if "/typing" in one.path]
    assert [one.json for one in signals] == [{"typing_status": "on"}, {"typing_status": "off"}]
    assert {one.path for one in signals} == {
        "/webhooks/captain/typing?inbox_id=3&conversation_internal_id=77"
    }
    assert all("x-hermes-callback-signature" in one.headers for one in signals)
    [answer] = [one for one in got if one.path.startswith("/cb")]
    assert list(answer.json) == ["content", "reply_to", "metadata", "timestamp"]


@pytest.mark.clause("callback.outside.1")
def test_hermes_send_delivers_through_a_home_whose_gateway_runs(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(bot.gateway.env, "HTTP_CALLBACK_HOME_URL", "@plain")
    sent = bot.gateway.cli("send", "--to", "http_callback", "--json", "beside the gateway")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    [got] = bot.wait_got("beside the gateway")
    bot.wait_rows("a=1,2", lambda rows: [row["state"] for row in rows] == ["delivered"])
    assert (got.content, got.path) == ("beside the gateway", "/cb?a=1,2")


@pytest.mark.clause("callback.outside.1")
def test_hermes_send_and_a_cron_job_deliver_without_a_gateway(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Daily question", Say("The daily answer"))
    bot = Bot(gateways, receiver, endpoints={"crm": {"url": receiver.url + "?a=1,2"}})
    bot.gateway.env["HTTP_CALLBACK_HOME_URL"] = "@crm"
    sent = bot.gateway.cli("send", "--to", "http_callback", "--json", "from outside")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    [got] = receiver.wait(1)
    assert (got.content, got.path) == ("from outside", "/cb?a=1,2")
    job = ["30m", "Daily question", "--deliver", "http_callback:@crm", "--name", "daily"]
    made = bot.gateway.cli("cron", "create", *job)
    assert made.returncode == 0, made.stdout + made.stderr
    found = re.search(r"\b[0-9a-f]{12}\b", made.stdout)
    assert found is not None, made.stdout
    for args in (["run", found[0]], ["tick"]):
        done = bot.gateway.cli("cron", *args, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    [got] = bot.wait_got("The daily answer")
    assert got.path == "/cb?a=1,2"


def test_the_installer_makes_a_bot_that_delivers_and_the_uninstaller_leaves_what_is_owed(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Customer said", Say("The answer"))
    bot = Bot(gateways, receiver, bare=True)
    program = [str(Path(sys.executable).with_name("hermes-bridge"))]
    home = ["--hermes-home", str(bot.gateway.home)]
    install = [*program, "install", "http-callback", "--secret", SECRET, *home]
    done = subprocess.run(install, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert SECRET not in done.stdout
    bot.start()
    bot.subscribe(receiver.url)
    bot.post("installed")
    [got] = receiver.wait(1, 60)
    Webhook(SECRET).verify(got.body, got.headers)
    bot.wait_delivered("installed")
    bot.gateway.stop()
    remove = [*program, "uninstall", "http-callback", *home]
    done = subprocess.run(remove, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (bot.gateway.home / "http_callback" / "outbox.db").exists()
    assert not (bot.gateway.home / "plugins" / "http_callback").exists()


@pytest.fixture(scope="module")
def crashed(bot: Bot, llm: ScriptedModel) -> Bot:
    """`kill -9` with three events under way: one delivered, one owed, one whose turn runs."""
    down = threading.Event()

    def script(got: Got, n: int) -> Reply | None:
        return Reply(503) if holding("crash-owed")(got) and not down.is_set() else None

    bot.receiver.script = script
    gate = threading.Event()
    llm.when("Customer said", Say("The answer"))
    llm.when("Customer said: crash-delivered", Say("Delivered before the crash"))
    llm.when("Customer said: crash-turn", Say("The answer", gate=gate))
    bot.post("crash-delivered")
    bot.wait_delivered("crash-delivered")
    bot.post("crash-turn")
    llm.wait_for("Customer said: crash-turn", timeout=90)
    bot.post("crash-owed")  # last: what fails for long lets the breaker hold the others back
    bot.wait_got("crash-owed")
    bot.gateway.kill()
    gate.set()
    down.set()
    db = sqlite3.connect(bot.gateway.home / "state.db")
    done = db.execute(
        "UPDATE delivery_obligations SET state='attempting' WHERE content LIKE 'Delivered before%'"
    )
    db.commit()
    db.close()
    assert done.rowcount == 1
    llm.when(".*", Say("The answer after the restart"))
    return bot.start()


@pytest.mark.clause("callback.flow.3")
def test_an_answer_survives_kill_minus_9_between_the_answer_and_its_delivery(crashed: Bot) -> None:
    crashed.wait_got("crash-owed", accepted=True)
    crashed.wait_delivered("crash-owed")
    sent = crashed.got("crash-owed")
    assert len({one.id for one in sent}) == 1
    assert {one.content for one in sent} == {"The answer"}


@pytest.mark.clause("callback.flow.4")
def test_a_turn_that_is_killed_is_run_again_and_its_answer_finds_the_url(crashed: Bot) -> None:
    [got] = crashed.wait_got("crash-turn")
    crashed.wait_rows(
        "crash-turn",
        lambda rows: [row["state"] for row in rows if row["kind"] == "final"] == ["delivered"],
    )
    assert crashed.got("crash-turn") == [got]
    assert got.json["hermes"]["delivery_id"] == "crash-turn"
    assert "Recovered" not in got.content


@pytest.mark.clause("callback.flow.5")
def test_an_answer_that_hermes_ledger_redelivers_arrives_bare_and_once(crashed: Bot) -> None:
    crashed.gateway.wait_log("stored before as", timeout=60, name="logs/agent.log")
    assert len(crashed.got("crash-delivered")) == 1


def test_wrong_settings_are_mended_without_a_restart(mistaken: Gateway) -> None:
    """Hermes connects again by itself (`is_reconnect=True`), after 30 s at the earliest."""
    mistaken.wait_platform("http_callback", timeout=200)
