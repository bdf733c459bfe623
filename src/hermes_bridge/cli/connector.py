"""`hermes-bridge connector`: run it, check it, look at it, order its inbox."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from hermes_bridge.connector.config import ConnectorConfig, configure
from hermes_bridge.errors import HermesBridgeError, Unreachable, UsageError
from hermes_bridge.web.loop import run as run_loop

if TYPE_CHECKING:
    from hermes_bridge.connector.store import Store

_STATES = {0: "waiting", 1: "parked", 3: "to be replayed", 4: "to be dropped"}


class _Words(click.Group):
    """A group whose errors are our words, not tracebacks."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; show an error of ours in two lines and leave with its exit code."""
        try:
            return super().invoke(ctx)
        except HermesBridgeError as error:
            click.echo(f"ERROR: {error}", err=True)
            if error.hint:
                click.echo(f"  {error.hint}", err=True)
            ctx.exit(error.exit_code)


@click.group(cls=_Words, invoke_without_command=True)
@click.option("--log-level", default="INFO", show_default=True, help="DEBUG shows every skip.")
@click.option("--log-format", type=click.Choice(["line", "json"]), default="line")
@click.pass_context
def connector(ctx: click.Context, log_level: str, log_format: str) -> None:
    """Connect Hermes gateways with chat accounts.

    \b
    What it needs: an identity file (mode 0600), one object a bot:
      [{"botId": "agent-a", "token": "ac_...", "gatewayId": "gw-a", "secret": "..."}]
    \b
    Example:  hermes-bridge connector check
    The smallest run: RELAY_IDENTITIES_FILE=/private/identities.json hermes-bridge connector
    `check` prints what each Hermes has to set.
    """
    ctx.obj = {"level": log_level, "form": log_format}
    if ctx.invoked_subcommand is None:
        ctx.invoke(run)


@connector.command()
@click.pass_context
def run(ctx: click.Context) -> None:
    """Run the connector until it is told to stop."""
    from hermes_bridge.connector.process import Process
    from hermes_bridge.log import configure as configure_log

    configure_log(level=ctx.obj["level"], form=ctx.obj["form"])
    config = _config()

    async def serve() -> None:
        await Process(config).run()

    run_loop(serve())


@connector.command()
@click.option("--json", "as_json", is_flag=True, help="Print data instead of words.")
@click.option("--url", default="", help="How gateways reach this connector (default: its address).")
@click.pass_context
def check(ctx: click.Context, as_json: bool, url: str) -> None:
    """Validate the table, try every account, print what each gateway has to set."""
    from hermes_bridge.connector import checks

    config = _config()
    rows = run_loop(checks.accounts(config))
    dial = url or f"ws://{config.section.host}:{config.section.port}/relay"
    good = all(row.account.state == "online" for row in rows)
    if as_json:
        data = [checks.as_data(row, dial) for row in rows]
        click.echo(json.dumps({"ok": good, "identities": data}, indent=2))
    else:
        click.echo(f"{len(rows)} identities from {config.source}: the table is valid.\n")
        for row in rows:
            click.echo(checks.as_words(row, dial))
    ctx.exit(0 if good else 1)


@connector.command()
@click.option("--json", "as_json", is_flag=True, help="Print data instead of words.")
@click.option("--url", default="", help="The running connector (default: where it would listen).")
def status(as_json: bool, url: str) -> None:
    """Show the state of the running connector."""
    from hermes_bridge.connector.checks import status_lines

    if not url:
        config = _config()
        url = f"http://{config.section.host}:{config.section.port}"
    report = _get(url.rstrip("/") + "/health")
    if as_json:
        click.echo(json.dumps(report, indent=2))
        return
    for line in status_lines(report):
        click.echo(line)


@connector.group()
def inbox() -> None:
    """List, replay or drop messages that no gateway has acknowledged."""


@inbox.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print data instead of words.")
@click.option("--text", is_flag=True, help="Also show what was written (it may be private).")
def inbox_list(as_json: bool, text: bool) -> None:
    """Show what is owed to gateways."""
    rows = []
    for entry, state in run_loop(_open_rows(_config())):
        row = {
            "id": entry.id,
            "bot": entry.bot_id,
            "chat": entry.channel,
            "message": entry.message_id,
            "from": entry.message.author,
            "since": datetime.fromtimestamp(entry.received_at / 1000, UTC).isoformat(),
            "state": _STATES[state],
        }
        rows.append(row | ({"text": entry.message.text} if text else {}))
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    if not rows:
        click.echo("The inbox is empty: every message was acknowledged.")
    for row in rows:
        click.echo("  ".join(str(value) for value in row.values()))


@inbox.command("replay")
@click.argument("ids", nargs=-1, type=int)
@click.option("--parked", is_flag=True, help="All parked messages.")
def inbox_replay(ids: tuple[int, ...], parked: bool) -> None:
    """Send messages on their way again. A running connector does so within five seconds."""
    _order(ids, parked, again=True)


@inbox.command("drop")
@click.argument("ids", nargs=-1, type=int)
@click.option("--parked", is_flag=True, help="All parked messages.")
def inbox_drop(ids: tuple[int, ...], parked: bool) -> None:
    """Forget messages for ever."""
    _order(ids, parked, again=False)


def _order(ids: tuple[int, ...], parked: bool, *, again: bool) -> None:
    if not ids and not parked:
        raise UsageError("no message was named", hint="Give ids of `inbox list`, or --parked.")
    config = _config()
    rows = {entry.id: state for entry, state in run_loop(_open_rows(config))}
    chosen = [each for each in rows if each in ids or (parked and rows[each] == 1)]
    unknown = [each for each in ids if each not in rows]
    if unknown:
        raise UsageError(f"not in the inbox: {unknown[0]}", hint="See `connector inbox list`.")
    run_loop(_give_orders(config, chosen, again=again))
    click.echo(f"{len(chosen)} {'sent on their way again' if again else 'dropped'}.")


@asynccontextmanager
async def _store(config: ConnectorConfig) -> "AsyncIterator[Store]":
    from hermes_bridge.clock import SystemClock
    from hermes_bridge.connector.store import Store, database

    rows = database(config.section.database, config.store)
    try:
        store = Store(rows, SystemClock())
        await store.load()
        yield store
    finally:
        await rows.close()


async def _open_rows(config: ConnectorConfig) -> Any:
    async with _store(config) as store:
        return await store.open_rows()


async def _give_orders(config: ConnectorConfig, ids: list[int], *, again: bool) -> None:
    async with _store(config) as store:
        for entry_id in ids:
            await store.order(entry_id, again=again)


def _config() -> ConnectorConfig:
    return configure({}, os.environ)


def _get(url: str) -> dict[str, Any]:
    if not url.startswith(("http://", "https://")):
        raise UsageError(
            "the address must begin with http:// or https://",
            hint="As in --url http://127.0.0.1:8790; its path is added.",
        )
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310
            found: dict[str, Any] = json.loads(answer.read(4 * 1024 * 1024))
            return found
    except (OSError, ValueError, urllib.error.URLError):
        raise Unreachable(
            f"no connector answers at {url}",
            hint="Is it running? `--url` names another address.",
        ) from None
