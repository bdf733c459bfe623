"""Options that several verbs share, and how they find a relay and a token."""

import os
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import click

from hermes_bridge import config as config_file
from hermes_bridge.errors import ConfigError, UsageError
from hermes_bridge.relay.config import RelayConfig

_F = TypeVar("_F", bound=Callable[..., Any])
OPERATOR = "operator"
"""The agent that the command line speaks for unless it is told otherwise."""
_HTTP = {"http": "http", "https": "https", "ws": "http", "wss": "https"}


def config_option(function: _F) -> _F:
    """Add `--config FILE`."""
    return click.option(
        "--config",
        "config_path",
        metavar="FILE",
        envvar="HERMES_BRIDGE_CONFIG",
        help="The configuration file (default: ./config.yaml).",
    )(function)


def relay_options(function: _F) -> _F:
    """Add `--relay-url`, `--as`, `--config`."""
    function = click.option(
        "--relay-url",
        metavar="URL",
        envvar="HERMES_BRIDGE_RELAY_URL",
        help="Where the relay is (default: from the configuration).",
    )(function)
    function = click.option(
        "--as",
        "speaker",
        metavar="NAME",
        help=f"The agent to speak for (default: {OPERATOR}; or HERMES_BRIDGE_TOKEN).",
    )(function)
    return config_option(function)


def split_url(text: str) -> SplitResult | None:
    """Take an address apart; None if it is none, or its port is none."""
    try:
        parts = urlsplit(text.strip())
        good = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if good else None


def base_url(relay_url: str | None, config: RelayConfig | None) -> str:
    """Give the relay's address as `http(s)://host:port`, from any form people have at hand."""
    if relay_url:
        parts = split_url(relay_url if "://" in relay_url else f"http://{relay_url}")
        scheme = _HTTP.get(parts.scheme) if parts else None
        if parts is None or scheme is None:
            raise UsageError(
                "The relay's URL is not one.", hint="Use http(s)://host:port or ws(s)://host:port."
            )
        return f"{scheme}://{parts.netloc}"
    if config is None:
        return "http://127.0.0.1:8787"
    listen = config.listen
    host = "127.0.0.1" if listen.host in ("0.0.0.0", "::", "") else listen.host  # noqa: S104
    scheme = "https" if listen.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listen.port}"


def load_if_there(config_path: str | None) -> RelayConfig | None:
    """Read the configuration; None if no file was named and there is none here."""
    from pathlib import Path

    if config_path is None and not Path(config_file.DEFAULT_PATH).exists():
        return None
    return config_file.load(config_path, os.environ)


def find_token(config: RelayConfig | None, speaker: str | None) -> str:
    """Give the token to speak with: `--as`, else HERMES_BRIDGE_TOKEN, else the operator's."""
    from_env = os.environ.get("HERMES_BRIDGE_TOKEN")
    if speaker is None and from_env:
        return from_env
    if config is None:
        raise ConfigError(
            "There is no token to speak with.",
            hint="Set HERMES_BRIDGE_TOKEN, or run this where the relay's config.yaml is (--config).",
        )
    name = speaker or OPERATOR
    agent = next((agent for agent in config.agents if agent.name == name), None)
    if agent is None:
        known = ", ".join(agent.name for agent in config.agents) or "none"
        raise UsageError(
            f"No agent is called {name}.", hint=f"Choose with --as NAME. There are: {known}."
        )
    token = agent.token or (agent.tokens[0] if agent.tokens else None)
    if token is None:
        raise UsageError(
            f"The configuration holds only the hash of {name}'s token.",
            hint="Set HERMES_BRIDGE_TOKEN to the token itself.",
        )
    return token
