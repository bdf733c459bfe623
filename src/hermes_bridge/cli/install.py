"""`hermes-bridge install` and `uninstall`: a plugin into a bot's Hermes home, and out of it."""

import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import click

from hermes_bridge.cli.client import RelayClient
from hermes_bridge.cli.options import split_url
from hermes_bridge.errors import HermesBridgeError, Unreachable, UsageError
from hermes_bridge.install.doctor import Finding
from hermes_bridge.install.files import Plan
from hermes_bridge.install.home import find_home
from hermes_bridge.install.installer import Wish, plan_install, plan_uninstall
from hermes_bridge.install.plugins import BRIDGE, HTTP_CALLBACK, Plugin

_F = TypeVar("_F", bound=Callable[..., Any])
_MCP_TIMEOUT_S = 120
_CLOCK_S = 60
_WS = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


@click.group()
def install() -> None:
    """Put a plugin into a bot's Hermes home.

    \b
    Example:  hermes-bridge install bridge --token=... --relay-url=ws://relay:8787/bridge/connect
    """


@click.group()
def uninstall() -> None:
    """Take a plugin out of a bot's Hermes home.

    \b
    Example:  hermes-bridge uninstall bridge --dry-run
    """


def home_options(function: _F) -> _F:
    """Add `--hermes-home`, `--data-dir`, `--dry-run`."""
    function = click.option("--dry-run", is_flag=True, help="Show the changes and make none.")(
        function
    )
    function = click.option(
        "--data-dir", metavar="DIR", help="The same as --hermes-home (older name)."
    )(function)
    return click.option(
        "--hermes-home",
        metavar="DIR",
        help="The bot's Hermes home (default: HERMES_HOME, /opt/data if it is one, ~/.hermes).",
    )(function)


@install.command("bridge")
@click.option("--token", envvar="HERMES_BRIDGE_TOKEN", help="The bot's token on the relay.")
@click.option(
    "--relay-url",
    envvar="HERMES_BRIDGE_RELAY_URL",
    help="Where the relay is, for example wss://relay.example.org/bridge/connect.",
)
@home_options
@click.option("--with-mcp", is_flag=True, help="Also write two mcp_servers entries.")
@click.option(
    "--keep-tool-search",
    is_flag=True,
    help="Leave tools.tool_search alone (the tools then hide behind a search on newer Hermes).",
)
@click.option("--no-check", is_flag=True, help="Do not ask the relay whether the token is right.")
@click.option("--force", is_flag=True, help="Replace settings that stand in the way.")
def install_bridge(  # noqa: PLR0913 - one a flag
    token: str | None,
    relay_url: str | None,
    hermes_home: str | None,
    data_dir: str | None,
    dry_run: bool,
    with_mcp: bool,
    keep_tool_search: bool,
    no_check: bool,
    force: bool,
) -> None:
    """Install the bridge plugin: the bot joins the relay after its next start.

    \b
    Example:  hermes-bridge install bridge --token=... --relay-url=wss://relay/bridge/connect
    Docker:   docker exec -u hermes BOT hermes-bridge install bridge --token=... --relay-url=...
    """
    url = bridge_url(relay_url)
    if not token or not token.strip():
        raise UsageError(
            "There is no token for the bot.",
            hint="Give it with --token=...; the relay's configuration has one for each agent "
            "(hermes-bridge agents add NAME makes one).",
        )
    if any(c.isspace() or not c.isprintable() for c in token):
        raise UsageError("The token has spaces or control characters in it.", hint="Copy it again.")
    wish = Wish(
        plugin=BRIDGE,
        home=find_home(hermes_home, data_dir),
        env={"HERMES_BRIDGE_TOKEN": token, "HERMES_BRIDGE_RELAY_URL": url},
        settings=mcp_entries(url) if with_mcp else {},
        direct_tools=not keep_tool_search,
        force=force,
    )
    plan = plan_install(wish)
    if not no_check and not dry_run:
        click.echo(check(url, token))
    _carry_out(plan, BRIDGE, dry_run, done="Restart the bot; then it is in list_agents.")


@install.command("http-callback")
@click.option("--secret", help="Signs every callback (whsec_... or any string).")
@home_options
@click.option("--force", is_flag=True, help="Replace settings that stand in the way.")
def install_http_callback(
    secret: str | None,
    hermes_home: str | None,
    data_dir: str | None,
    dry_run: bool,
    force: bool,
) -> None:
    """Install the http_callback plugin: the bot's answers go to a backend as signed POSTs.

    \b
    Example:  hermes-bridge install http-callback --secret=whsec_...
    """
    if secret and not (secret.isprintable() and secret == secret.strip()):
        raise UsageError(
            "The secret has blanks around it or control characters in it.", hint="Copy it again."
        )
    wish = Wish(
        plugin=HTTP_CALLBACK,
        home=find_home(hermes_home, data_dir),
        env={"HTTP_CALLBACK_SECRET": secret} if secret else {},
        direct_tools=False,
        force=force,
    )
    _carry_out(plan_install(wish), HTTP_CALLBACK, dry_run, done="Restart the bot to load it.")


@uninstall.command("bridge")
@home_options
def uninstall_bridge(hermes_home: str | None, data_dir: str | None, dry_run: bool) -> None:
    """Take the bridge plugin out; files that nobody else changed become what they were."""
    plan = plan_uninstall(BRIDGE, find_home(hermes_home, data_dir))
    _carry_out(plan, BRIDGE, dry_run, done="Restart the bot; then it is gone from the relay.")


@uninstall.command("http-callback")
@home_options
def uninstall_http_callback(hermes_home: str | None, data_dir: str | None, dry_run: bool) -> None:
    """Take the http_callback plugin out; callbacks that wait to be sent stay in its store."""
    plan = plan_uninstall(HTTP_CALLBACK, find_home(hermes_home, data_dir))
    _carry_out(plan, HTTP_CALLBACK, dry_run, done="Restart the bot.")


def bridge_url(text: str | None) -> str:
    """Give the WebSocket address of a relay from any form people have at hand."""
    if not text or not text.strip():
        raise UsageError(
            "There is no address of the relay.",
            hint="Give it with --relay-url=wss://relay.example.org/bridge/connect.",
        )
    parts = split_url(text if "://" in text else f"wss://{text.strip()}")
    scheme = _WS.get(parts.scheme) if parts else None
    if parts is None or scheme is None:
        raise UsageError(
            f"{text} is not an address of a relay.",
            hint="It looks like wss://relay.example.org/bridge/connect (ws:// without TLS).",
        )
    path = parts.path.rstrip("/")
    return f"{scheme}://{parts.netloc}{path or '/bridge/connect'}"


def http_url(url: str) -> str:
    """Give the HTTP address behind a bridge address."""
    base = url.replace("ws", "http", 1)
    return base.removesuffix("/bridge/connect")


def mcp_entries(url: str) -> dict[str, Any]:
    """Give two `mcp_servers` entries: Hermes runs one call at a time per entry.

    Neither may be called `hermes-bridge`: so is the toolset of the plugin, and Hermes would then not
    offer the entry's tools.
    """
    entry = {
        "enabled": True,
        "transport": "http",
        "url": f"{http_url(url)}/mcp",
        "timeout": _MCP_TIMEOUT_S,
        "headers": {"Authorization": "Bearer ${HERMES_BRIDGE_TOKEN}"},
    }
    asking = ["ask_agent", "wait_answer", "list_agents", "cancel_ask"]
    return {
        "mcp_servers.bridge-ask": {**entry, "tools": {"include": asking}},
        "mcp_servers.bridge-reply": {**entry, "tools": {"include": ["reply"]}},
    }


def check(url: str, token: str) -> str:
    """Ask the relay whether it knows the token, and say what it said."""
    findings = list(ask_relay(url, token))
    wrong = [finding for finding in findings if not finding.ok]
    if not wrong:
        return f"The relay at {http_url(url)} accepts the token."
    return "\n".join(f"warning: {finding.words} {finding.hint}".rstrip() for finding in wrong)


def ask_relay(url: str, token: str) -> Iterator[Finding]:
    """Look at the relay with a bot's eyes: is it there, does it know the token, is its clock ours."""
    base = http_url(url)
    try:
        agents = RelayClient(base, token).tool("list_agents", {})
    except Unreachable as error:
        yield Finding("relay", False, str(error), "The bot joins by itself when the relay is up.")
    except (HermesBridgeError, ValueError, KeyError) as error:
        hint = "The bot will not come online with it: take the token of the relay's configuration."
        yield Finding("token", False, str(error), hint)
    else:
        yield Finding("token", True, f"accepted by {base}, which knows {len(agents)} agents")
        yield from _clock(base)


def _clock(base: str) -> Iterator[Finding]:
    try:
        with urllib.request.urlopen(f"{base}/health", timeout=10) as answer:  # noqa: S310 - ours
            theirs = parsedate_to_datetime(answer.headers["Date"]).timestamp()
    except (OSError, TypeError, ValueError):
        return
    apart = abs(datetime.now(UTC).timestamp() - theirs)
    words = f"{apart:.0f} s from the relay's"
    yield Finding("clock", apart < _CLOCK_S, words, "Set the clock of this machine (NTP).")


def _carry_out(plan: Plan, plugin: Plugin, dry_run: bool, done: str) -> None:
    for note in plan.notes:
        click.echo(f"note: {note}")
    if dry_run:
        click.echo(plan.diff() or "Nothing would change.")
        return
    if not plan.changes:
        click.echo(f"Nothing to do for {plugin.name} in {plan.home}.")
        return
    plan.apply()
    click.echo(f"Changed {len(plan.changes)} files in {plan.home}. {done}")
