"""`hermes-bridge init`: a configuration that works, with tokens that nobody had to invent."""

import json
from pathlib import Path

import click

from hermes_bridge import config as config_file
from hermes_bridge.cli.options import OPERATOR, base_url
from hermes_bridge.errors import ConfigError, UsageError
from hermes_bridge.ids import new_token
from hermes_bridge.install import files

_TEXT = """\
# hermes-bridge: who may join this relay. Every key is explained in docs/reference/config.md.
# This file holds secrets: keep it readable for the relay's user only.
agents:
{agents}
listen:
  host: 127.0.0.1      # 0.0.0.0 to be reachable from other machines (put TLS in front)
  port: {port}
db:
  path: hermes-bridge.db   # SQLite; where DATABASE_URL is set, PostgreSQL is used instead
ui:
  password: {password}
"""
_AGENT = "  - name: {name}\n    token: {token}\n"


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--config", "path", default=config_file.DEFAULT_PATH, metavar="FILE", show_default=True
)
@click.option("--port", default=8787, show_default=True, type=click.IntRange(1, 65535))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the tokens as JSON.")
def init(names: tuple[str, ...], path: str, port: int, force: bool, as_json: bool) -> None:
    """Write a configuration with one fresh token an agent (mode 0600).

    NAMEs are your bots (default: bot-a and bot-b). An agent called operator is added: the command
    line speaks for it.

    \b
    Example:  hermes-bridge init daniel-bot helpdesk-bot
    """
    wanted = list(dict.fromkeys(names or ("bot-a", "bot-b")))
    tokens = {
        name: new_token() for name in [*wanted, *([OPERATOR] if OPERATOR not in wanted else [])]
    }
    agents = "".join(
        _AGENT.format(name=json.dumps(name), token=token) for name, token in tokens.items()
    )
    text = _TEXT.format(agents=agents.rstrip("\n"), port=port, password=new_token())
    config = config_file.parse(text, {}, name=path)
    file = Path(path)
    if file.exists() and not force:
        raise UsageError(
            f"{path} exists already.",
            hint="Use --force to replace it (its tokens are lost), or --config to write elsewhere.",
        )
    write_config(file, text)
    url = base_url(None, config).replace("http", "ws", 1) + "/bridge/connect"
    if as_json:
        click.echo(json.dumps({"config": str(file), "relay_url": url, "tokens": tokens}))
        return
    click.echo(f"Wrote {path} (only you can read it).\n")
    for name in wanted:
        click.echo(bot_lines(name, tokens[name], url))
    click.echo(f"Start the relay:      hermes-bridge serve --config {path}")
    click.echo(f"Then ask somebody:    hermes-bridge ask {wanted[0]} 'Are you there?'")
    click.echo(f"Operator's page:      {base_url(None, config)}/ui   (open on this machine;")
    click.echo("                      elsewhere it asks for ui.password)")


def bot_lines(name: str, token: str, url: str) -> str:
    """Give the two lines that a bot needs in its environment."""
    return (
        f"For {name}, in the .env of its Hermes home:\n"
        f"  HERMES_BRIDGE_TOKEN={token}\n"
        f"  HERMES_BRIDGE_RELAY_URL={url}\n"
    )


def write_config(file: Path, text: str, mode: int = 0o600) -> None:
    """Write a configuration whole or not at all; one that is there keeps its owner.

    Raises `ConfigError`.
    """
    try:
        files.write(file, text.encode(), mode=mode, like=file.absolute().parent)
    except OSError as error:
        raise ConfigError(
            f"{file} cannot be written: {error.strerror}.",
            hint="Name a folder that this user may write to (--config).",
        ) from None
