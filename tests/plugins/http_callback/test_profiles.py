"""One gateway that serves two profiles: each answer goes through the outbox of its own."""

from pathlib import Path

import pytest
import yaml
from standardwebhooks.webhooks import Webhook
from tests.harness.gateway import merged
from tests.harness.llm import Say, ScriptedModel
from tests.plugins.http_callback.receiver import Receiver
from tests.plugins.http_callback.test_hermes import SECRET, Bot, Gateways, route

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(300)]

OF_WORK = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def add_profile(bot: Bot, receiver: Receiver) -> Path:
    """Make the profile `work`, with a secret and settings of its own."""
    home = bot.gateway.home / "profiles" / "work"
    home.mkdir(parents=True)
    (home / "plugins").symlink_to(bot.gateway.home / "plugins", target_is_directory=True)
    main = yaml.safe_load(bot.gateway.config_file.read_text("utf-8"))
    extra = {
        "allow": [f"127.0.0.1:{receiver.port}"],
        "metadata_from": {"ticket": "{ticket}"},
        "endpoints": {"crm": {"url": receiver.url + "?of=work"}},
    }
    own = {**main, "platforms": {"http_callback": {"enabled": True, "extra": extra}}}
    (home / "config.yaml").write_text(yaml.safe_dump(own), "utf-8")
    (home / ".env").write_text(f"HTTP_CALLBACK_SECRET={OF_WORK}\n", "utf-8")
    both = merged(main, {"gateway": {"multiplex_profiles": True}, "multiplex_profiles": True})
    bot.gateway.config_file.write_text(yaml.safe_dump(both), "utf-8")
    return home


@pytest.mark.clause("callback.homes.1")
@pytest.mark.parametrize("hermes", ["0.22"], indirect=True)  # 0.19 sends by the main profile
def test_an_answer_of_a_profile_is_stored_signed_and_sent_by_its_own_settings(
    gateways: Gateways, llm: ScriptedModel, receiver: Receiver
) -> None:
    llm.when("Customer said", Say("The answer"))
    routes = {
        "main": route(deliver_extra={"chat_id": receiver.url}),
        "work": route(deliver_extra={"chat_id": "@crm"}, profile="work"),
    }
    bot = Bot(gateways, receiver, routes=routes)
    home = add_profile(bot, receiver)
    bot.start()
    assert bot.post("of-main", "main") == 202
    [got] = receiver.wait(1, 90)
    Webhook(SECRET).verify(got.body, got.headers)
    assert bot.post("of-work", "work", prefix="/p/work", ticket=7) == 202
    got = receiver.wait(2, 90)[1]
    assert got.path == "/cb?of=work"
    Webhook(OF_WORK).verify(got.body, got.headers)
    assert got.json["metadata"] == {"ticket": 7}
    hermes = got.json["hermes"]
    assert (hermes["kind"], hermes["delivery_id"]) == ("final", "of-work")
    assert (home / "http_callback" / "outbox.db").exists()
    assert [row["url"] for row in bot.rows("of-main")] == [receiver.url]
    assert bot.rows("of-work") == []
