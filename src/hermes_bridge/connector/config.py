"""The connector's settings: the `connector:` section, the seed's environment, the identity file.

The environment wins over the section. Every key of the section also has a variable of its own,
`HERMES_BRIDGE_CONNECTOR_<KEY>`; the seed's names are understood as well. This is the only place
of the connector that reads either.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from hermes_bridge.connector.core.identity import IdentityTable, read_table, table_of
from hermes_bridge.connector.core.inbox import Rules
from hermes_bridge.connector.platforms.base import Settings
from hermes_bridge.errors import ConfigError

PREFIX = "HERMES_BRIDGE_CONNECTOR_"
STORE_NAME = "hermes-bridge-connector.db"

_SEED_NAMES = {
    "RELAY_IDENTITIES_FILE": "identities_file",
    "RELAY_HOST": "host",
    "RELAY_PORT": "port",
    "AGENTCHAT_API_URL": "api_url",
    "AGENTCHAT_WS_URL": "ws_url",
    "AGENTCHAT_CURSOR_DIR": "cursor_dir",
    "AGENTSCHAT_MCP_CURSOR_FLUSH_MS": "cursor_flush_ms",
    "AGENTSCHAT_CONNECTOR_PING_MS": "ping_ms",
    "AGENTSCHAT_CONNECTOR_PONG_TIMEOUT_MS": "pong_timeout_ms",
    "AGENTSCHAT_CONNECTOR_CONNECT_TIMEOUT_MS": "connect_timeout_ms",
}
_SINGLE = (
    ("AGENTCHAT_AGENT_ID", "botId"),
    ("AGENTCHAT_TOKEN", "token"),
    ("RELAY_GATEWAY_ID", "gatewayId"),
    ("RELAY_GATEWAY_SECRET", "secret"),
)


_RULES, _SETTINGS = Rules(), Settings()


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of `connector:`. Periods are milliseconds."""

    identities_file: str = ""
    identities: list[dict[str, Any]] | None = None
    host: str = "127.0.0.1"
    port: int = 8765
    state_dir: str = ""
    cursor_dir: str = ""
    database: str = ""
    api_url: str = "https://agents-chat.com"
    ws_url: str = ""
    public_url: str = ""
    cursor_flush_ms: int = 5_000
    ping_ms: int = _SETTINGS.ping_ms
    pong_timeout_ms: int = _SETTINGS.pong_timeout_ms
    connect_timeout_ms: int = _SETTINGS.connect_timeout_ms
    operation_timeout_ms: int = _SETTINGS.operation_timeout_ms
    context_timeout_ms: int = 1_000
    hello_timeout_ms: int = 15_000
    acks: bool = True
    ack_timeout_ms: int = _RULES.ack_timeout_ms
    inbox_ttl_ms: int = _RULES.ttl_ms
    max_replays: int = _RULES.max_replays
    busy_hold_ms: int = _RULES.busy_hold_ms
    refusals_per_minute: int = 10
    max_connections: int = 1_000
    sync_every_commit: bool = False

    def __repr__(self) -> str:
        return f"Section({self.host}:{self.port})"


class ConnectorConfig(msgspec.Struct, frozen=True):
    """Everything that a connector is started with."""

    table: IdentityTable
    section: Section
    settings: Settings
    rules: Rules
    store: str
    cursor_dir: str
    source: str

    def __repr__(self) -> str:
        return f"ConnectorConfig({len(self.table)} identities from {self.source})"


def configure(
    section: Mapping[str, Any], env: Mapping[str, str], *, cwd: str = "."
) -> ConnectorConfig:
    """Make a configuration. Raises `ConfigError` that says which key is wrong, and how."""
    found = _section(section, env)
    table, source = _identities(found, env)
    return ConnectorConfig(
        table=table,
        section=found,
        settings=_settings(found),
        rules=Rules(
            ack_timeout_ms=found.ack_timeout_ms,
            ttl_ms=found.inbox_ttl_ms,
            max_replays=found.max_replays,
            busy_hold_ms=found.busy_hold_ms if found.acks else 0,
            acks=found.acks,
        ),
        store=str(Path(found.state_dir or found.cursor_dir or cwd) / STORE_NAME),
        cursor_dir=found.cursor_dir,
        source=source,
    )


def reread(config: ConnectorConfig) -> IdentityTable:
    """Read the identity file again. Raises `ConfigError`; inline tables cannot have changed."""
    path = config.section.identities_file
    return _from_file(path) if path else config.table


def _section(section: Mapping[str, Any], env: Mapping[str, str]) -> Section:
    values: dict[str, Any] = dict(section)
    kinds = {field.name: field.type for field in msgspec.structs.fields(Section)}
    given = {name: key for name, key in _SEED_NAMES.items() if env.get(name)}
    given |= {PREFIX + key.upper(): key for key in kinds if env.get(PREFIX + key.upper())}
    for name, key in given.items():
        values[key] = _from_env(name, env[name], kinds[key])
    try:
        return msgspec.convert(values, Section, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(
            f"connector: {error}", hint="docs/reference/connector.md lists the keys."
        ) from None


def _from_env(name: str, value: str, kind: Any) -> Any:
    text = value.strip()
    if kind is int:
        if not text.isascii() or not text.isdigit():
            raise ConfigError(f"{name} must be a whole number", hint=f"For example {name}=5000.")
        return int(text)
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0", "on", "off", "yes", "no"):
            raise ConfigError(f"{name} must be true or false", hint=f"For example {name}=false.")
        return text.lower() in ("true", "1", "on", "yes")
    return text


def _identities(section: Section, env: Mapping[str, str]) -> tuple[IdentityTable, str]:
    if section.identities_file:
        return _from_file(section.identities_file), section.identities_file
    inline = env.get("RELAY_IDENTITIES", "")
    if inline:
        return read_table(inline, source="RELAY_IDENTITIES"), "RELAY_IDENTITIES"
    if section.identities is not None:
        where = "connector.identities"
        return table_of(section.identities, source=where), where
    row = {}
    for name, key in _SINGLE:
        value = env.get(name, "").strip()
        if not value:
            raise ConfigError(
                f"{name} is required",
                hint="Set RELAY_IDENTITIES_FILE to your identity file, or all of "
                + ", ".join(each for each, _ in _SINGLE)
                + ".",
            )
        row[key] = value
    return table_of([row], source="the environment"), "the environment"


def _from_file(path: str) -> IdentityTable:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"the identity file {path} cannot be read: {error.strerror}",
            hint="Check the path and that the connector's user may read it (mode 0600 is right).",
        ) from None
    return read_table(text, source=path)


def _settings(section: Section) -> Settings:
    api_url = section.api_url.removesuffix("/")
    if urlsplit(api_url).scheme not in ("http", "https"):
        raise ConfigError(
            "api_url must begin with http:// or https://", hint="AGENTCHAT_API_URL or api_url."
        )
    ping = max(5_000, section.ping_ms)
    return Settings(
        api_url=api_url,
        ws_url=section.ws_url or "ws" + api_url.removeprefix("http") + "/ws",
        ping_ms=ping,
        pong_timeout_ms=max(ping + 5_000, section.pong_timeout_ms),
        connect_timeout_ms=max(5_000, section.connect_timeout_ms),
        operation_timeout_ms=section.operation_timeout_ms,
    )
