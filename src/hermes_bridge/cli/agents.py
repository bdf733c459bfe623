"""`hermes-bridge agents`: the list of agents in the configuration, with comments and order kept."""

import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import click

from hermes_bridge import config as config_file
from hermes_bridge.cli.client import RelayClient
from hermes_bridge.cli.init import bot_lines, write_config
from hermes_bridge.cli.options import base_url, config_option, find_token
from hermes_bridge.errors import HermesBridgeError, UsageError
from hermes_bridge.ids import new_token
from hermes_bridge.relay.config import RelayConfig

_RELOAD = "A running relay takes this over on SIGHUP:  kill -HUP <its pid>"


@click.group()
def agents() -> None:
    """List, add, rotate and remove agents.

    \b
    Example:  hermes-bridge agents add research-bot --description "reads papers"
    """


@agents.command("list")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_agents(config_path: str | None, as_json: bool) -> None:
    """Show the agents, and who of them is online if the relay runs.

    \b
    Example:  hermes-bridge agents list --json
    """
    config = config_file.load(config_path, os.environ)
    lines: list[dict[str, Any]] = [
        {"name": agent.name, "description": agent.description} for agent in config.agents
    ]
    speaker = next((agent.name for agent in config.agents if agent.token or agent.tokens), None)
    live = speaker is not None
    try:
        if speaker is not None:
            client = RelayClient(base_url(None, config), find_token(config, speaker))
            lines = client.tool("list_agents", {})
    except HermesBridgeError:
        live = False
    if as_json:
        click.echo(json.dumps(lines, ensure_ascii=False))
        return
    if not lines:
        click.echo("No agents are configured. Add one with: hermes-bridge agents add NAME")
    for line in lines:
        state = ("online " if line.get("online") else "offline") if live else "-      "
        seen = (
            f"  last seen {line['last_seen']}"
            if line.get("last_seen") and not line["online"]
            else ""
        )
        click.echo(f"{state}  {line['name']:<24} {line.get('description', '')}{seen}")
    if not live:
        why = "The relay does not answer" if speaker else "No agent's token stands in the file"
        click.echo(f"({why}, so nothing is known of their connections.)", err=True)


@agents.command()
@click.argument("name")
@click.option("--description", default="", help="What it is good for; other agents see this.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def add(name: str, description: str, config_path: str | None, as_json: bool) -> None:
    """Add an agent with a fresh token.

    \b
    Example:  hermes-bridge agents add research-bot
    """
    file = _File(config_path)
    token = new_token()
    entry: dict[str, Any] = {"name": name, "token": token}
    if description:
        entry["description"] = description
    file.agents().append(entry)
    _done(file.save(), name, token, as_json)


@agents.command()
@click.argument("name")
@click.option("--drop-old", is_flag=True, help="Let only the new token in.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rotate(name: str, drop_old: bool, config_path: str | None, as_json: bool) -> None:
    """Give an agent a new token; the old one stays valid until --drop-old.

    \b
    Example:  hermes-bridge agents rotate research-bot
    """
    file = _File(config_path)
    entry = file.entry(name)
    token = new_token()
    old = [entry["token"]] if "token" in entry else list(entry.get("tokens") or [])[:1]
    if "token_sha256" in entry and not drop_old:
        raise UsageError(
            f"Only the hash of {name}'s token is configured, so old and new cannot both stay.",
            hint="Use --drop-old, then give the bot its new token.",
        )
    for key in ("token", "tokens", "token_sha256"):
        entry.pop(key, None)
    if drop_old or not old:
        entry["token"] = token
    else:
        entry["tokens"] = [token, *old]
    _done(file.save(), name, token, as_json)


@agents.command()
@click.argument("name")
@config_option
def remove(name: str, config_path: str | None) -> None:
    """Remove an agent; its history stays.

    \b
    Example:  hermes-bridge agents remove research-bot
    """
    file = _File(config_path)
    file.agents().remove(file.entry(name))
    for entry in file.agents():
        if name in (entry.get("may_ask") or []):
            entry["may_ask"].remove(name)
    file.save()
    click.echo(f"Removed {name}.\n{_RELOAD}")


def _done(config: RelayConfig, name: str, token: str, as_json: bool) -> None:
    url = base_url(None, config).replace("http", "ws", 1) + "/bridge/connect"
    if as_json:
        click.echo(json.dumps({"name": name, "token": token, "relay_url": url}))
    else:
        click.echo(f"{bot_lines(name, token, url)}\n{_RELOAD}")


class _File:
    """The configuration as it was written, to be changed in one place."""

    def __init__(self, path: str | None) -> None:
        from ruamel.yaml import YAML

        self._path = Path(
            path or os.environ.get("HERMES_BRIDGE_CONFIG") or config_file.DEFAULT_PATH
        )
        config_file.load(self._path, os.environ)
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 4096
        self._data = self._yaml.load(self._path.read_text("utf-8"))

    def agents(self) -> Any:
        """Give the list of agents."""
        return self._data["agents"]

    def entry(self, name: str) -> Any:
        """Give one agent's entry."""
        for entry in self.agents():
            if entry.get("name") == name:
                return entry
        known = ", ".join(str(entry.get("name")) for entry in self.agents()) or "none"
        raise UsageError(f"No agent is called {name}.", hint=f"There are: {known}.")

    def save(self) -> RelayConfig:
        """Write the file back if what it says is valid; same mode, whole or not at all."""
        out = io.StringIO()
        self._yaml.dump(self._data, out)
        config = config_file.parse(out.getvalue(), os.environ, name=str(self._path))
        mode = stat.S_IMODE(self._path.stat().st_mode)
        write_config(self._path, out.getvalue(), mode)
        return config
