"""A question runs once, whatever is sent again and whoever restarts."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.e2e.hermes.conftest import NAME, PLUGIN
from tests.harness.gateway import Gateway
from tests.harness.llm import Say, ScriptedModel
from tests.plugins.bridge.fake_relay import FakeRelay

pytestmark = [pytest.mark.hermes, pytest.mark.timeout(240)]


def test_a_wake_sent_twice_runs_once_also_across_a_restart_of_the_gateway(
    llm: ScriptedModel, gateways: Callable[..., Gateway]
) -> None:
    llm.when("only once", Say("done once"))
    with FakeRelay() as relay:
        env = {"HERMES_BRIDGE_TOKEN": relay.token, "HERMES_BRIDGE_RELAY_URL": relay.url}
        options: dict[str, Any] = {"config": {"plugins": {"enabled": [NAME]}}, "env": env}
        gateway = gateways(plugins={NAME: PLUGIN}, **options)
        gateway.wait_platform(NAME)
        relay.wake("r1", "only once")
        relay.wake("r1", "only once", attempt=2)
        assert relay.reply("r1")["answer"] == "done once"
        gateway.restart()
        gateway.wait_platform(NAME)
        relay.wake("r1", "only once", attempt=3)
        relay.expect(type="call", tool="reply", args__request_id="r1", count=2)
        relay.wake("r2", "only once more")
        relay.reply("r2")
        assert len(llm.texts("only once")) == 2
