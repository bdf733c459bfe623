import os
from pathlib import Path

import pytest

from hermes_bridge import config as config_file
from hermes_bridge.errors import ConfigError
from hermes_bridge.ids import digest
from hermes_bridge.web import loop

TOKEN = "a-token-of-the-right-length"
AGENTS = f"agents:\n  - name: a\n    token: {TOKEN}\n"


def refused(text: str, env: dict[str, str] | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        config_file.parse(text, env or {}, name="c.yaml")
    words = str(caught.value) + caught.value.hint
    assert TOKEN not in words and "other-secret" not in words
    return caught.value


def test_the_seeds_example_loads_with_its_meaning() -> None:
    config = config_file.parse(
        "agents:\n  - name: daniel-bot\n    token: daniel-secret-token-1\n"
        "  - name: helpdesk-bot\n    token: helpdesk-secret-token\nask_timeout_ms: 90000\n"
        "langfuse:\n  public_key: pk\n  secret_key: sk\n"
        "db:\n  driver: postgres\n  connection_string: postgresql://u:p@h/d\n",
        {},
    )
    assert [agent.name for agent in config.agents] == ["daniel-bot", "helpdesk-bot"]
    assert config.limits().ask_timeout_ms == 90_000
    assert (config.db.driver, config.db.connection_string) == ("postgres", "postgresql://u:p@h/d")


def test_a_database_url_switches_postgres_on_as_in_the_seed() -> None:
    config = config_file.parse(AGENTS, {"DATABASE_URL": "postgresql://x"})
    assert (config.db.driver, config.db.connection_string) == ("postgres", "postgresql://x")
    config = config_file.parse(
        AGENTS + "db: {driver: sqlite}\n", {"DATABASE_URL": "postgresql://x"}
    )
    assert config.db.driver == "sqlite"


def test_without_a_database_it_is_sqlite() -> None:
    config = config_file.parse(AGENTS, {})
    assert config.db.driver in (None, "sqlite") and config.listen.host == "127.0.0.1"


def test_host_and_port_come_from_the_environment() -> None:
    config = config_file.parse(AGENTS + "listen: {port: 1}\n", {"HOST": "0.0.0.0", "PORT": "99"})
    assert (config.listen.host, config.listen.port) == ("0.0.0.0", 99)
    refused(AGENTS, {"PORT": "many"})


def test_variables_are_filled_in() -> None:
    config = config_file.parse(
        "agents:\n  - name: a\n    token: ${T}\n    description: ${D:-none}\n", {"T": TOKEN}
    )
    assert config.agents[0].token == TOKEN and config.agents[0].description == "none"


def test_tokens_are_known_by_their_digest_only() -> None:
    text = (
        f"agents:\n  - name: a\n    tokens: [{TOKEN}, other-secret-token-2]\n"
        f"  - name: b\n    token_sha256: {digest('third-secret-token-3').hex()}\n"
    )
    config = config_file.parse(text, {})
    assert config_file.token_digests(config) == {
        digest(TOKEN): "a",
        digest("other-secret-token-2"): "a",
        digest("third-secret-token-3"): "b",
    }
    assert TOKEN not in repr(config)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", 1, "mapping"),
        ("- a\n", 1, "mapping"),
        ("agents: [\n", 2, "YAML"),
        ("agents:\n  - name: a\n    tokn: x\n", 3, "not known"),
        (AGENTS + "ask_timeout: 5\n", 4, "not known"),
        (AGENTS + "ask_timeout_ms: 0\n", 4, ">= 1"),
        (AGENTS + "ask_timeout_ms: '100'\n", 4, "expected int"),
        (AGENTS + "ask_timeout_ms: 3000000000\n", 4, "<= 604800000"),
        (AGENTS + "ask_timeout_ms: 2000\nask_max_ms: 1000\n", 5, "ask_timeout_ms"),
        (AGENTS + "listen: {port: 70000}\n", 4, "<= 65535"),
        (AGENTS + "listen: {tls_cert: x}\n", 4, "belong together"),
        (AGENTS + "db: {driver: postgres}\n", 4, "connection_string"),
        (AGENTS + "db: {driver: mysql}\n", 4, "db.driver"),
        (AGENTS + "bus: {driver: nats}\n", 4, "bus.driver"),
        ("agents:\n  - name: a\n", 2, "needs one of"),
        (f"agents:\n  - name: a\n    token: {TOKEN}\n    tokens: [{TOKEN}]\n", 2, "keep one"),
        ("agents:\n  - name: a\n    token: ''\n", 3, "at least 16"),
        ("agents:\n  - name: a\n    token: short\n", 3, "at least 16"),
        ("agents:\n  - name: a\n    token: 12345678901234567890\n", 3, "expected str"),
        ("agents:\n  - name: a\n    tokens: []\n", 3, "empty"),
        ("agents:\n  - name: a\n    token_sha256: zz\n", 3, "hexadecimal"),
        (f"agents:\n  - name: ''\n    token: {TOKEN}\n", 2, "length"),
        (f"agents:\n  - name: main\n    token: {TOKEN}\n", 2, "reserved"),
        (f"agents:\n  - name: ' a'\n    token: {TOKEN}\n", 2, "blanks"),
        (AGENTS + "  - name: a\n    token: other-secret-token-2\n", 4, "used by agent number 1"),
        (AGENTS + f"  - name: b\n    token: {TOKEN}\n", 4, "agent number 1"),
        (AGENTS + "    may_ask: [aa]\n", 4, "no agent has this name"),
        (AGENTS + "agents: []\n", 4, "twice"),
        (
            "agents:\n  - name: a\n    token: ${NOT_SET_ANYWHERE}\n",
            3,
            "NOT_SET_ANYWHERE is not set",
        ),
    ],
)
def test_a_mistake_names_its_line_and_shows_no_value(text: str, line: int, words: str) -> None:
    error = refused(text)
    assert f"c.yaml, line {line}:" in str(error), str(error)
    assert words in str(error), str(error)
    assert error.exit_code == 2


def test_an_unknown_key_is_answered_with_the_nearest_one() -> None:
    assert "ask_timeout_ms" in refused(AGENTS + "ask_timeot_ms: 5\n").hint
    assert "Known keys" in refused(AGENTS + "zzz: 5\n").hint


def test_files_that_cannot_be_read_are_explained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no configuration file"):
        config_file.load(tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        config_file.load(bad)
    with pytest.raises(ConfigError, match="cannot be read"):
        config_file.load(tmp_path)


def test_the_environment_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(AGENTS)
    assert config_file.load(None, {"HERMES_BRIDGE_CONFIG": str(file)}).agents[0].name == "a"
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        file.rename("config.yaml")
        assert config_file.load(None, {}).agents[0].name == "a"
    finally:
        os.chdir(here)


def test_what_is_missing_in_the_process_is_not_taken_for_a_missing_loop() -> None:
    async def work() -> None:
        raise ImportError("asyncpg")

    with pytest.raises(ImportError, match="asyncpg"):
        loop.run(work())
