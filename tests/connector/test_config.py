"""Settings: the seed's environment, the section, and words for everything that is wrong."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_bridge.connector.config import Section, configure, reread
from hermes_bridge.connector.core import route
from hermes_bridge.connector.legacy import cursor_file
from hermes_bridge.errors import ConfigError

ROW = {"botId": "a", "token": "ac_tok", "gatewayId": "gw", "secret": "sss"}
INLINE = {"RELAY_IDENTITIES": json.dumps([ROW])}
ROOT = Path(__file__).parents[2]


def test_the_seeds_environment_is_understood() -> None:
    config = configure(
        {},
        INLINE
        | {
            "RELAY_HOST": "0.0.0.0",
            "RELAY_PORT": "9000",
            "AGENTCHAT_API_URL": "http://hub:1/",
            "AGENTCHAT_CURSOR_DIR": "/cursors",
            "AGENTSCHAT_CONNECTOR_PING_MS": "100",
            "AGENTSCHAT_CONNECTOR_PONG_TIMEOUT_MS": "100",
        },
    )
    assert (config.section.host, config.section.port) == ("0.0.0.0", 9000)
    assert (config.settings.api_url, config.settings.ws_url) == ("http://hub:1", "ws://hub:1/ws")
    assert (config.settings.ping_ms, config.settings.pong_timeout_ms) == (5_000, 10_000)
    assert config.store == "/cursors/hermes-bridge-connector.db"


def test_without_a_table_the_four_single_variables_make_one() -> None:
    single = {
        "AGENTCHAT_AGENT_ID": "a", "AGENTCHAT_TOKEN": "t",
        "RELAY_GATEWAY_ID": "g", "RELAY_GATEWAY_SECRET": "s",
    }  # fmt: skip
    assert configure({}, single).table.rows[0].bot_id == "a"
    for name in single:
        with pytest.raises(ConfigError, match=f"{name} is required"):
            configure({}, single | {name: " "})


def test_the_file_wins_over_everything_and_can_be_read_again(tmp_path: Path) -> None:
    file = tmp_path / "ids.json"
    file.write_text(json.dumps([ROW | {"botId": "from-file"}]))
    config = configure({}, INLINE | {"RELAY_IDENTITIES_FILE": str(file)})
    assert config.table.rows[0].bot_id == "from-file"
    file.write_text(json.dumps([ROW | {"botId": "later"}]))
    assert reread(config).rows[0].bot_id == "later"
    file.unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        reread(config)


def test_the_section_is_used_and_the_environment_wins() -> None:
    section: dict[str, Any] = {"identities": [ROW], "port": 1, "acks": False}
    config = configure(section, {"HERMES_BRIDGE_CONNECTOR_PORT": "2"})
    assert (config.section.port, config.rules.acks, config.rules.busy_hold_ms) == (2, False, 0)
    assert configure(section, {"HERMES_BRIDGE_CONNECTOR_ACKS": "on"}).rules.acks is True


@pytest.mark.parametrize(
    ("section", "env", "words"),
    [
        ({"prot": 1}, {}, "prot"),
        ({"port": "x"}, {}, "port"),
        ({}, {"RELAY_PORT": "1.5"}, "RELAY_PORT must be a whole number"),
        ({}, {"HERMES_BRIDGE_CONNECTOR_ACKS": "maybe"}, "must be true or false"),
        ({"api_url": "ftp://x"}, {}, "api_url must begin with"),
    ],
)
def test_a_wrong_setting_is_named(section: dict[str, Any], env: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        configure(section, INLINE | env)


def test_a_config_does_not_show_its_secrets() -> None:
    assert "sss" not in repr(configure({}, INLINE))


def test_a_bot_id_cannot_leave_the_cursor_directory() -> None:
    assert cursor_file("/c", "../../etc/x").parent == Path("/c")


def test_every_key_and_every_reason_is_documented() -> None:
    page = (ROOT / "docs/reference/connector.md").read_text("utf-8")
    for field in msgspec.structs.fields(Section):
        assert f"`{field.name}`" in page
    for reason in route.REASONS:
        assert f"`{reason}`" in page
