"""End to end with real Hermes: subscribe, signed POST in, a scripted model, one signed POST out."""

import contextlib
import hashlib
import hmac
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook
from tests.harness.gateway import Gateway
from tests.harness.llm import Fail, Say, ScriptedModel
from tests.plugins.http_callback.receiver import Got, Receiver, Reply

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(240)]

PLUGIN = Path(__file__).parents[3] / "src/hermes_bridge/plugins/http_callback"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
INBOUND = "inbound-secret"
Gateways = Callable[..., Gateway]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Bot:
    """A gateway with the plugin, a webhook port, and the CLI of its home."""

    def __init__(
        self, gateways: Gateways, receiver: Receiver, *, bare: bool = False, **extra: Any
    ) -> None:
        self.port = free_port()
        settings = {
            "allow": [f"127.0.0.1:{receiver.port}"],
            "schedule": [0, 0.2, 0.2, 0.5, 0.5, 0.5, 1, 1, 1, 1],
            **extra,
        }
        self.routes: dict[str, Any] = settings.pop("routes", {})
        self.home_channel = settings.pop("home_channel", None)
        self.gateway = gateways(
            "bot",
            start=False,
            plugins={} if bare else {"http_callback": PLUGIN},
            config={
                "plugins": {"enabled": [] if bare else ["http_callback"]},
                "platforms": {
                    "webhook": {
                        "enabled": True,
                        "extra": {"host": "127.0.0.1", "port": self.port, "routes": self.routes},
                    },
                    "http_callback": {
                        "extra": settings,
                        **({"home_channel": self.home_channel} if self.home_channel else {}),
                    },
                },
            },
            env={} if bare else {"CAPTAIN_HTTP_CALLBACK_SECRET": SECRET},
        )

    def start(self) -> "Bot":
        self.gateway.start()
        self.gateway.wait_platform("http_callback")
        self.gateway.wait_platform("webhook")
        return self

    def subscribe(self, url: str, route: str = "support", *more: str) -> None:
        arguments = ["--prompt", "Customer said: {message}", "--deliver", "http_callback"]
        done = self.gateway.cli(
            *["webhook", "subscribe", route, *arguments],
            *["--deliver-chat-id", url, "--secret", INBOUND, *more],
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def post(self, payload: dict[str, Any], event: str, route: str = "support") -> int:
        body = json.dumps(payload).encode()
        stamp = str(int(time.time()))
        signed = hmac.new(INBOUND.encode(), stamp.encode() + b"." + body, hashlib.sha256)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/webhooks/{route}",
            data=body,
            headers={
                "Content-Type": "application/json",
                "X-Request-ID": event,
                "X-Webhook-Timestamp": stamp,
                "X-Webhook-Signature-V2": signed.hexdigest(),
            },
        )
        with urllib.request.urlopen(request, timeout=20) as response:
            status: int = response.status
            return status

    def command(self, *args: str) -> Any:
        done = self.gateway.cli("callback", *args, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.command("list")
        return found

    def wait_rows(self, condition: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        end = time.monotonic() + 30
        rows: list[dict[str, Any]] = []
        while time.monotonic() < end:
            with contextlib.suppress(AssertionError):
                rows = self.rows()
                if condition(rows):
                    return rows
            time.sleep(0.2)  # the command line is the only window into another process
        raise AssertionError(f"never so: {rows}")


def final(got: list[Got]) -> list[str]:
    return [one.content for one in got]


@pytest.mark.clause("callback.flow.1")
def test_every_answer_of_a_subscribed_route_reaches_the_url_once_signed_with_its_event(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Customer said: (?P<what>\\w+)", Say("Reply to {what} 😊"))
    bot = Bot(gateways, receiver, metadata_from={"conversation_id": "{conversation.id}"}).start()
    bot.subscribe(receiver.url + "?inbox_id=3&c={conversation.id}")
    for n in (1, 2, 3):
        assert bot.post({"message": f"m{n}", "conversation": {"id": 55}}, f"event-{n}") == 202
        receiver.wait(n, 60)
    got = receiver.wait(3)
    assert final(got) == [f"Reply to m{n} 😊" for n in (1, 2, 3)]
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
    rows = bot.wait_rows(lambda rows: [row["state"] for row in rows] == ["delivered"] * 3)
    assert {row["id"] for row in rows} == {one.id for one in got}
    listed = bot.gateway.cli("plugins", "list")
    assert "http_callback" in listed.stdout


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
    bot.post({"message": "m"}, "event-1")
    [got] = receiver.wait(1, 60)
    Webhook(SECRET).verify(got.body, got.headers)
    bot.wait_rows(lambda rows: [row["state"] for row in rows] == ["delivered"])
    bot.gateway.stop()
    remove = [*program, "uninstall", "http-callback", *home]
    done = subprocess.run(remove, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (bot.gateway.home / "http_callback" / "outbox.db").exists()
    assert not (bot.gateway.home / "plugins" / "http_callback").exists()


@pytest.mark.clause("callback.flow.2")
def test_a_failing_receiver_sees_no_other_text_or_id(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    troubles = [Reply(500), Reply(403), Reply(429), Reply(hang=4.0), Reply(cut=True)]
    seen: dict[str, int] = {}

    def first_time(got: Got, n: int) -> Reply | None:
        seen[got.content] = seen.get(got.content, 0) + 1
        return troubles[int(got.content[-1])] if seen[got.content] == 1 else None

    receiver.script = first_time
    llm.when(r"Customer said: (?P<what>\w+)", Say("The answer to {what}"))
    bot = Bot(gateways, receiver, timeout_seconds=2).start()
    bot.subscribe(receiver.url)
    for n in range(len(troubles)):
        bot.post({"message": f"m{n}"}, f"event-{n}")
    done = ["delivered"] * len(troubles)
    rows = bot.wait_rows(lambda rows: [row["state"] for row in rows] == done)
    ids = {one.content: one.id for one in receiver.got}
    assert sorted(ids) == [f"The answer to m{n}" for n in range(len(troubles))]
    assert {one.id for one in receiver.got} == {row["id"] for row in rows}
    assert all(ids[one.content] == one.id for one in receiver.got)


@pytest.mark.clause("callback.flow.3")
def test_an_answer_survives_kill_minus_9_between_the_answer_and_its_delivery(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    down = threading.Event()
    receiver.script = lambda got, n: None if down.is_set() else Reply(503)
    llm.when("Customer said", Say("The answer"))
    bot = Bot(gateways, receiver, schedule=[0, *[0.5] * 60]).start()
    bot.subscribe(receiver.url)
    bot.post({"message": "m"}, "event-1")
    first = receiver.wait(1, 60)[0]
    bot.gateway.kill()
    down.set()
    bot.start()
    receiver.wait(1, 60, accepted=True)
    bot.wait_rows(
        lambda rows: [row["state"] for row in rows if row["state"] != "suppressed"] == ["delivered"]
    )
    assert {one.id for one in receiver.got} == {first.id}
    assert set(final(receiver.got)) == {"The answer"}


@pytest.mark.clause("callback.flow.4")
def test_a_turn_that_is_killed_is_run_again_and_its_answer_finds_the_url(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    gate = threading.Event()
    llm.when("Customer said", Say("The answer", gate=gate))
    bot = Bot(gateways, receiver).start()
    bot.subscribe(receiver.url)
    bot.post({"message": "m"}, "event-1")
    llm.wait_for("Customer said", timeout=60)
    bot.gateway.kill()
    gate.set()
    llm.when(".*", Say("The answer after the restart"))
    bot.start()
    got = receiver.wait(1, 60)
    bot.wait_rows(
        lambda rows: [row["state"] for row in rows if row["kind"] == "final"] == ["delivered"]
    )
    assert len(receiver.got) == 1
    assert got[0].json["hermes"]["delivery_id"] == "event-1"
    assert "Recovered" not in got[0].content


@pytest.mark.clause("callback.flow.5")
def test_an_answer_that_hermes_ledger_redelivers_arrives_bare_and_once(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Customer said", Say("The answer"))
    bot = Bot(gateways, receiver).start()
    bot.subscribe(receiver.url)
    bot.post({"message": "m"}, "event-1")
    receiver.wait(1, 60)
    bot.wait_rows(lambda rows: [row["state"] for row in rows] == ["delivered"])
    bot.gateway.kill()
    import sqlite3

    db = sqlite3.connect(bot.gateway.home / "state.db")
    done = db.execute("UPDATE delivery_obligations SET state='attempting'")
    db.commit()
    db.close()
    assert done.rowcount == 1
    bot.start()
    bot.gateway.wait_log("stored before as", name="logs/agent.log")
    assert len(receiver.got) == 1


@pytest.mark.clause("callback.kind.3")
def test_an_error_of_the_model_does_not_reach_the_customer_and_is_shown_to_the_operator(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Customer said: bad", Fail(401, "Provided authentication token is expired"))
    llm.when("Customer said: good", Say("fine"))
    bot = Bot(gateways, receiver).start()
    bot.subscribe(receiver.url)
    bot.post({"message": "bad"}, "event-1")
    rows = bot.wait_rows(lambda rows: any(row["state"] == "suppressed" for row in rows))
    bot.post({"message": "good"}, "event-2")
    receiver.wait(1, 60)
    assert final(receiver.got) == ["fine"]
    assert any(row["kind"] in ("error", "status") for row in rows)


@pytest.mark.clause("callback.media.1")
def test_a_file_in_the_answer_becomes_an_attachment_without_a_path_of_the_machine(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver, tmp_path: Path
) -> None:
    bot = Bot(gateways, receiver, media="inline").start()
    folder = bot.gateway.home / "cache" / "documents"
    folder.mkdir(parents=True)
    (folder / "report.pdf").write_bytes(b"%PDF-1.4 hello")
    llm.when("Customer said", Say(f"Here it is. MEDIA:{folder / 'report.pdf'}"))
    bot.subscribe(receiver.url)
    bot.post({"message": "m"}, "event-1")
    got = receiver.wait(2, 60)
    kinds = {one.json["hermes"]["kind"]: one for one in got}
    assert kinds["final"].content == "Here it is."
    [item] = kinds["media"].json["hermes"]["attachments"]
    assert (item["name"], item["mime"], item["size"]) == ("report.pdf", "application/pdf", 14)
    assert item["data_b64"]
    assert all(str(bot.gateway.home) not in one.body.decode() for one in got)
    assert all("Couldn't deliver" not in one.content for one in got)


@pytest.mark.clause("callback.outside.1")
def test_hermes_send_delivers_without_a_gateway_and_through_it_when_there_is_one(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    bot = Bot(gateways, receiver, endpoints={"crm": {"url": receiver.url + "?a=1,2"}})
    bot.gateway.env["HTTP_CALLBACK_HOME_URL"] = "@crm"
    sent = bot.gateway.cli("send", "--to", "http_callback", "--json", "from outside")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    [got] = receiver.wait(1)
    assert (got.content, got.path) == ("from outside", "/cb?a=1,2")
    bot.start()
    sent = bot.gateway.cli("send", "--to", "http_callback", "--json", "beside the gateway")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert receiver.wait(2)[1].content == "beside the gateway"
    assert bot.wait_rows(lambda rows: [row["state"] for row in rows] == ["delivered"] * 2)


@pytest.mark.clause("callback.outside.1")
def test_a_cron_job_in_a_process_of_its_own_reaches_a_named_endpoint(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Daily question", Say("The daily answer"))
    bot = Bot(gateways, receiver, endpoints={"crm": {"url": receiver.url + "?a=1,2"}})
    job = ["30m", "Daily question", "--deliver", "http_callback:@crm", "--name", "daily"]
    made = bot.gateway.cli("cron", "create", *job)
    assert made.returncode == 0, made.stdout + made.stderr
    found = re.search(r"\b[0-9a-f]{12}\b", made.stdout)
    assert found is not None, made.stdout
    for args in (["run", found[0]], ["tick"]):
        done = bot.gateway.cli("cron", *args, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
    [got] = receiver.wait(1, 60)
    assert "The daily answer" in got.content
    assert got.path == "/cb?a=1,2"


@pytest.mark.clause("callback.flow.6")
def test_deliver_only_routes_are_delivered_and_a_refusal_reaches_the_caller(
    gateways: Gateways, receiver: Receiver
) -> None:
    bot = Bot(gateways, receiver, metadata_from={"number": "{n}"}).start()
    bot.subscribe(receiver.url, "push", "--deliver-only")
    bot.subscribe("http://10.9.8.7/", "blocked", "--deliver-only")
    assert bot.post({"message": "ping", "n": 7}, "event-1", "push") == 200
    [got] = receiver.wait(1)
    assert got.content == "Customer said: ping"
    assert got.json["metadata"] == {"number": 7}
    with pytest.raises(urllib.error.HTTPError) as refused:
        bot.post({"message": "ping"}, "event-2", "blocked")
    assert refused.value.code == 502
    [row] = [row for row in bot.rows() if row["state"] == "rejected"]
    assert "hermes callback allow http://10.9.8.7" in row["reason"]


@pytest.mark.clause("callback.target.5")
def test_a_rejected_target_on_the_agents_path_makes_no_second_send(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Customer said", Say("The answer"))
    bot = Bot(gateways, receiver).start()
    bot.subscribe("{callback_url}")
    bot.post({"message": "m"}, "event-1")
    bot.post({"message": "m", "callback_url": "http://169.254.169.254/latest"}, "event-2")
    rows = bot.wait_rows(lambda rows: len(rows) >= 2)
    assert [row["state"] for row in rows] == ["rejected", "rejected"]
    assert {"placeholder" in row["reason"] or "169.254" in row["reason"] for row in rows} == {True}
    assert "plain-text fallback" not in bot.gateway.log()


@pytest.mark.clause("callback.alias.1")
def test_the_second_name_of_the_platform_delivers_too(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Customer said", Say("The answer"))
    route = {
        "secret": INBOUND,
        "prompt": "Customer said: {message}",
        "deliver": "bridge_callback",
        "deliver_extra": {"url": receiver.url, "chat_id": receiver.url, "thread_id": "{c}"},
    }
    bot = Bot(gateways, receiver, routes={"second": route}).start()
    bot.post({"message": "m", "c": 55}, "event-1", "second")
    [got] = receiver.wait(1, 60)
    assert got.json["metadata"] == {"thread_id": "55"}
    assert got.json["hermes"]["conversation"] == "55"


@pytest.mark.clause("callback.typing.1")
def test_the_typing_signal_goes_on_with_the_event_and_off_with_the_answer(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Customer said", Say("The answer"))
    typing = {"url": f"http://127.0.0.1:{receiver.port}/webhooks/captain/typing"}
    crm = {"url": receiver.url + "?inbox_id=3", "profile": "captain", "typing": typing}
    bot = Bot(gateways, receiver, endpoints={"crm": crm}).start()
    bot.subscribe("@crm?conversation_internal_id={c}")
    bot.post({"message": "m", "c": 55}, "event-1")
    receiver.wait(3, 60)
    signals = [one for one in receiver.got if "/typing" in one.path]
    assert [one.json for one in signals] == [{"typing_status": "on"}, {"typing_status": "off"}]
    assert {one.path for one in signals} == {
        "/webhooks/captain/typing?inbox_id=3&conversation_internal_id=55"
    }
    assert all("x-hermes-callback-signature" in one.headers for one in signals)
    [answer] = [one for one in receiver.got if one.path.startswith("/cb")]
    assert list(answer.json) == ["content", "reply_to", "metadata", "timestamp"]


def test_wrong_settings_are_shown_by_hermes_and_mended_without_a_restart(
    gateways: Gateways, receiver: Receiver
) -> None:
    bot = Bot(gateways, receiver, profile="captian")
    bot.gateway.start()
    bot.gateway.wait_log("captian", name="logs/agent.log")
    doctor = bot.gateway.cli("callback", "doctor")
    assert doctor.returncode == 1
    assert "captain" in doctor.stdout
    text = bot.gateway.config_file.read_text("utf-8")
    bot.gateway.config_file.write_text(text.replace("captian", "captain"), "utf-8")
    # Hermes connects again by itself (`is_reconnect=True`), after 30 s at the earliest.
    bot.gateway.wait_platform("http_callback", timeout=150)


@pytest.mark.clause("callback.doctor.1")
def test_the_doctor_finds_nothing_wrong_with_a_good_home(
    gateways: Gateways, receiver: Receiver
) -> None:
    bot = Bot(gateways, receiver).start()
    done = bot.gateway.cli("callback", "doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "`deliver: http_callback` is ours" in done.stdout
    assert "warn" not in done.stdout, done.stdout
