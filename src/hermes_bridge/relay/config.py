"""What an operator may set for the relay, with its ranges. Read once, at start and on reload.

The seed's keys keep their meaning. Defaults of behaviour stand in `core/policy.py`; this file says
which of them a person may change and how far.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hermes_bridge.relay.core.policy import WIRE_LIMIT, Limits
from hermes_bridge.relay.core.roster import Agent

_WEEK = 604_800_000
Millis = Annotated[int, Meta(ge=1, le=_WEEK)]
Text = Annotated[str, Meta(max_length=2_000)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]


class _Section(msgspec.Struct, frozen=True, kw_only=True):
    """A mapping in the file; unknown keys were refused before it is read."""


class AgentSection(_Section, frozen=True, kw_only=True):
    """One entry of `agents`. Exactly one of `token`, `tokens`, `token_sha256` is needed."""

    name: Name
    token: str | None = None
    tokens: list[str] | None = None
    token_sha256: str | list[str] | None = None
    description: Text = ""
    may_ask: list[str] | None = None
    hold_ms: Millis | None = None
    rate_per_minute: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    max_pending: Annotated[int, Meta(ge=1, le=100_000)] | None = None


class ListenSection(_Section, frozen=True, kw_only=True):
    """Where the server listens. With a certificate and key it speaks TLS."""

    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8787
    tls_cert: str | None = None
    tls_key: str | None = None


class DbSection(_Section, frozen=True, kw_only=True):
    """The store. The seed's form `{driver: postgres, connection_string: ...}` stays valid."""

    driver: Literal["sqlite", "postgres", "memory"] | None = None
    path: str = "hermes-bridge.db"
    connection_string: str | None = None


class UiSection(_Section, frozen=True, kw_only=True):
    """Who may see the page: with a password whoever has it, on loopback without one everybody there.

    A server that listens elsewhere needs the password or `auth: none` (docs/guides/page.md).
    """

    password: Annotated[str, Meta(min_length=8, max_length=1024)] | None = None
    auth: Literal["password", "none"] = "password"
    trace_url: Annotated[str, Meta(pattern=r"^https?://[^\s]*\{trace_id\}[^\s]*$")] | None = None
    """Where a trace can be seen; `{trace_id}` stands for its id."""


class LangfuseSection(_Section, frozen=True, kw_only=True):
    """The seed's Langfuse block."""

    public_key: str
    secret_key: str
    base_url: str = "https://cloud.langfuse.com"
    content: bool = True


class OtlpSection(_Section, frozen=True, kw_only=True):
    """One OTLP/HTTP target for traces: message texts or not, open asks or only ended ones."""

    endpoint: str
    headers: dict[str, str] = {}
    content: bool = False
    live: bool = False


class BusSection(_Section, frozen=True, kw_only=True):
    """How several relays find each other; `local` = there is one."""

    driver: Literal["local"] = "local"


class LogSection(_Section, frozen=True, kw_only=True):
    """How the log is written."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["line", "json"] = "line"


class RelayConfig(_Section, frozen=True, kw_only=True):
    """The whole file, but for the connector's part."""

    agents: list[AgentSection]
    ask_timeout_ms: Millis = 120_000
    ask_max_ms: Millis = 3_600_000
    hold_ms: Millis = 100_000
    reconnect_grace_ms: Annotated[int, Meta(ge=0, le=_WEEK)] = 30_000
    queue_ttl_ms: Millis = 86_400_000
    max_turns: Annotated[int, Meta(ge=1, le=1_000_000)] = 40
    max_run: Annotated[int, Meta(ge=1, le=1_000_000)] = 10
    max_depth: Annotated[int, Meta(ge=0, le=64)] = 4
    max_message_bytes: Annotated[int, Meta(ge=1, le=WIRE_LIMIT - 16_384)] = 262_144
    rate_per_minute: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    max_pending: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    allowed_origins: list[str] = []
    retention_days: Annotated[int, Meta(ge=0, le=36_500)] = 90
    listen: ListenSection = ListenSection()
    db: DbSection = DbSection()
    ui: UiSection = UiSection()
    langfuse: LangfuseSection | None = None
    otlp: list[OtlpSection] = []
    bus: BusSection = BusSection()
    log: LogSection = LogSection()
    connector: dict[str, Any] | None = None

    def limits(self) -> Limits:
        """Give the cores' limits."""
        return Limits(
            ask_timeout_ms=self.ask_timeout_ms,
            ask_max_ms=self.ask_max_ms,
            hold_ms=self.hold_ms,
            reconnect_grace_ms=self.reconnect_grace_ms,
            queue_ttl_ms=self.queue_ttl_ms,
            max_turns=self.max_turns,
            max_run=self.max_run,
            max_depth=self.max_depth,
            max_message_bytes=self.max_message_bytes,
            rate_per_minute=self.rate_per_minute,
            max_pending=self.max_pending,
        )

    def roster(self) -> list[Agent]:
        """Give the cores' agents."""
        return [
            Agent(
                name=agent.name,
                description=agent.description,
                may_ask=None if agent.may_ask is None else frozenset(agent.may_ask),
                hold_ms=agent.hold_ms,
                rate_per_minute=agent.rate_per_minute,
                max_pending=agent.max_pending,
            )
            for agent in self.agents
        ]

    def __repr__(self) -> str:
        """Never show a secret, whoever prints a configuration."""
        return f"RelayConfig({len(self.agents)} agents)"
