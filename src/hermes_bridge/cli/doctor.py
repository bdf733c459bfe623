"""`hermes-bridge doctor`: what works, what does not, and what to do about it."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator

import click

from hermes_bridge import config as config_file
from hermes_bridge.cli.client import RelayClient
from hermes_bridge.cli.options import base_url, relay_options
from hermes_bridge.errors import ConfigError, HermesBridgeError, Unreachable
from hermes_bridge.install.doctor import Finding
from hermes_bridge.relay.config import RelayConfig


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.option("--hermes-home", metavar="DIR", help="Look into a bot instead: why is it offline?")
@relay_options
def doctor(
    config_path: str | None,
    relay_url: str | None,
    speaker: str | None,
    hermes_home: str | None,
    as_json: bool,
) -> None:
    """Check configuration, store, port, relay and tokens. Exit code 1 if something is wrong.

    \b
    Example:  hermes-bridge doctor --config /etc/hermes-bridge/config.yaml
    Bot:      hermes-bridge doctor --hermes-home /opt/data
    """
    findings: list[Finding] = []
    looked = _bot(hermes_home) if hermes_home else _look(config_path, relay_url, speaker)
    for finding in looked:
        findings.append(finding)
        if not as_json:
            click.echo(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.what:<14} {finding.words}")
            if finding.hint and not finding.ok:
                click.echo(f"      {'':<14} {finding.hint}")
    if as_json:
        click.echo(json.dumps([finding._asdict() for finding in findings]))
    if not all(finding.ok for finding in findings):
        sys.exit(1)


def _bot(hermes_home: str) -> Iterator[Finding]:
    from hermes_bridge.cli.install import ask_relay
    from hermes_bridge.install import doctor as bot_doctor
    from hermes_bridge.install.home import find_home

    home = find_home(hermes_home, None)
    yield from bot_doctor.look(home)
    found = bot_doctor.access(home)
    if found.url and found.token:
        yield from ask_relay(found.url, found.token)


def _look(config_path: str | None, relay_url: str | None, speaker: str | None) -> Iterator[Finding]:
    try:
        config = config_file.load(config_path, os.environ)
    except ConfigError as error:
        yield Finding("configuration", False, str(error), error.hint)
        return
    yield Finding("configuration", True, f"{len(config.agents)} agents")
    yield _mode(config_path)
    yield _store(config)
    yield from _relay(config, relay_url, speaker)


def _mode(config_path: str | None) -> Finding:
    from pathlib import Path

    if os.environ.get("HERMES_BRIDGE_CONFIG_TEXT") and config_path is None:
        return Finding("secrets", True, "they stand in HERMES_BRIDGE_CONFIG_TEXT, in no file")
    path = Path(config_path or os.environ.get("HERMES_BRIDGE_CONFIG") or config_file.DEFAULT_PATH)
    if path.stat().st_mode & 0o077:
        return Finding("secrets", False, f"{path} can be read by others", f"Run: chmod 600 {path}")
    return Finding("secrets", True, "only their owner can read them")


def _store(config: RelayConfig) -> Finding:
    from hermes_bridge.relay.ledger import Ledger
    from hermes_bridge.serve import database

    async def look() -> int:
        ledger = Ledger(database(config.db))
        try:
            await ledger.open()
            return len(await ledger.open_exchanges())
        finally:
            await ledger.database.close()

    try:
        still_open = asyncio.run(look())
    except HermesBridgeError as error:
        hint = error.hint or "Asks go on without it; history waits. Check path, rights and disk."
        return Finding("store", False, str(error), hint)
    return Finding("store", True, f"{config.db.driver}, {still_open} open exchanges")


def _relay(config: RelayConfig, relay_url: str | None, speaker: str | None) -> Iterator[Finding]:
    url = base_url(relay_url, config)
    try:
        health = RelayClient(url).get("/health", "version")
    except Unreachable as error:
        if relay_url is None and _port_free(config):
            yield Finding(
                "relay",
                False,
                f"it does not run; its port {config.listen.port} is free",
                "Start it: hermes-bridge serve",
            )
        else:
            yield Finding("relay", False, str(error), error.hint)
        return
    except HermesBridgeError:
        yield Finding("relay", False, f"something else answers at {url}", "Change listen.port.")
        return
    yield Finding(
        "relay", True, f"version {health.get('version')}, {health.get('agents_online')} online"
    )
    store = health.get("store")
    yield Finding("its store", store == "up", str(store), "See the relay's log for the cause.")
    for agent in config.agents:
        token = agent.token or (agent.tokens or [""])[0]
        if not token or (speaker and agent.name != speaker):
            continue
        try:
            RelayClient(url, token).tool("list_agents", {})
        except HermesBridgeError as error:
            yield Finding(
                f"token {agent.name}",
                False,
                str(error),
                "The relay runs with another configuration: send it SIGHUP.",
            )
        else:
            yield Finding(f"token {agent.name}", True, "accepted")


def _port_free(config: RelayConfig) -> bool:
    from hermes_bridge.serve import bind

    try:
        bind(config).close()
    except ConfigError:
        return False
    return True
