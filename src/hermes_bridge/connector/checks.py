"""What `connector check` and `connector status` say."""

from typing import Any, NamedTuple

from hermes_bridge.connector.config import ConnectorConfig
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.platforms import find
from hermes_bridge.connector.platforms.base import ONLINE, Account, Platform


class Checked(NamedTuple):
    """An identity and how its account answered."""

    identity: Identity
    account: Account


async def accounts(config: ConnectorConfig) -> list[Checked]:
    """Try to log every account in."""
    platforms: dict[str, Platform] = {}
    rows = []
    try:
        for identity in config.table.rows:
            if identity.platform not in platforms:
                platforms[identity.platform] = find(identity.platform, config.settings)
            account = await platforms[identity.platform].login(identity)
            rows.append(Checked(identity, account))
    finally:
        for platform in platforms.values():
            await platform.close()
    return rows


def as_data(row: Checked, dial: str) -> dict[str, Any]:
    """Give one checked identity as data; the gateway's secret is not in it."""
    return {
        "bot": row.identity.bot_id,
        "platform": row.identity.platform,
        "account": row.account.state,
        "reason": row.account.reason,
        "channels": row.account.channels,
        "config_yaml": config_yaml(row.identity, dial),
        "env": env_lines(row.identity),
    }


def as_words(row: Checked, dial: str) -> str:
    """Give one checked identity for people: verdict, then what its Hermes has to set."""
    account, identity = row.account, row.identity
    if account.state == ONLINE:
        verdict = f"ok, member of {account.channels} channels"
    else:
        verdict = f"{account.state.upper()}: {account.reason}"
    yaml = "\n".join(f"    {line}" for line in config_yaml(identity, dial).splitlines())
    env = "\n".join(f"    {line}" for line in env_lines(identity))
    return (
        f"{identity.bot_id} on {identity.platform}: {verdict}\n"
        f"  in the config.yaml of its Hermes profile:\n{yaml}\n"
        f"  in the .env of that profile:\n{env}\n"
        "  (remove other GATEWAY_RELAY_* lines from that .env: they win over everything else)\n"
    )


def config_yaml(identity: Identity, dial: str) -> str:
    """Give the lines that a bot's `config.yaml` needs."""
    return (
        "gateway:\n"
        f'  relay_url: "{dial}"\n'
        f'  relay_id: "{identity.gateway_id}"\n'
        "  multiplex_profiles: false\n"
        "platforms:\n"
        "  relay:\n"
        "    enabled: true\n"
        "display:\n"
        "  busy_ack_enabled: false  # a busy notice would freeze the relay connection for 30 s"
    )


def env_lines(identity: Identity) -> list[str]:
    """Give the lines that a bot's `.env` needs; its secret is named, never shown."""
    bots = f'{{"{identity.platform}":{{"botId":"{identity.bot_id}"}}}}'
    return [
        "GATEWAY_RELAY_SECRET=<the `secret` of this row in the identity file>",
        f"GATEWAY_RELAY_PLATFORMS={identity.platform}",
        f"GATEWAY_RELAY_BOT_IDS='{bots}'",
        "RELAY_HOME_CHANNEL=none",
    ]


def status_lines(report: dict[str, Any]) -> list[str]:
    """Give a health report for people."""
    lines = [
        f"{report.get('status', '?')}: store {report.get('store', '?')},"
        f" {report.get('connections', 0)} gateway connections"
    ]
    for row in report.get("identities", []):
        waiting = f"{row['inbox']} waiting" if row["inbox"] else "nothing waiting"
        if row["inbox"]:
            waiting += f", the oldest for {row['oldest_ms'] // 1000} s"
        line = f"  {row['bot']}: account {row['account']}, gateway {row['gateway']}, {waiting}"
        lines.append(line)
        lines += [f"    {key}: {row[key]}" for key in ("reason", "last_error") if key in row]
    return lines
