"""`hermes-bridge db`: look after the store, and move it between SQLite and PostgreSQL."""

import json
import sys

import click

from hermes_bridge.cli import history
from hermes_bridge.cli.options import config_option
from hermes_bridge.db.base import Database
from hermes_bridge.errors import HermesBridgeError, UsageError
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.sql.rows import agent_row
from hermes_bridge.relay.verbs import iso

_STARTED_AT, _REQUEST_ID = 8, 0


@click.group()
def db() -> None:
    """Look after the store: its state, its tables, a copy of it elsewhere.

    \b
    Example:  hermes-bridge db copy hermes-bridge.db postgresql://user:password@host/name
    """


@db.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def status(config_path: str | None, as_json: bool) -> None:
    """Say where the store is, whether it answers, and what is in it. Changes nothing.

    \b
    Example:  hermes-bridge db status
    """
    store = history.configured(config_path)
    history.must_exist(store)

    async def work() -> dict[str, object]:
        async with history.opened(store, as_it_is=True) as ledger:
            missing = await ledger.steps_missing()
            where = {"store": history.place(store), "tables": "up to date"}
            if missing:
                where["tables"] = (
                    f"{missing} steps behind (`hermes-bridge db migrate`, or the relay)"
                )
                return dict(where)
            return {**where, **await ledger.overview()}

    found = history.run(work)
    for key in ("oldest", "newest"):
        if key not in found:
            continue
        instant = found[key]
        found[key] = iso(instant) if isinstance(instant, int) else None
    if as_json:
        click.echo(json.dumps(found))
        return
    for key, value in found.items():
        click.echo(f"{key.replace('_', ' '):<22} {'-' if value is None else value}")


@db.command()
@config_option
def migrate(config_path: str | None) -> None:
    """Bring the tables up to date now (the relay does the same when it starts).

    \b
    Example:  hermes-bridge db migrate
    """
    store = history.configured(config_path)

    async def work() -> None:
        async with history.opened(store):
            pass

    history.run(work)
    click.echo(f"{history.place(store)}: the tables are up to date.")


@db.command()
@click.argument("source")
@click.argument("target")
def copy(source: str, target: str) -> None:
    """Copy all exchanges and agents from one store to another: a path or a postgresql:// URL.

    It may be interrupted and run again, also while a relay uses either store: what is there stays,
    and a row is never replaced by an older state of itself.

    \b
    Example:  hermes-bridge db copy hermes-bridge.db "$DATABASE_URL"
    """
    if source == target:
        raise UsageError(
            "The two stores are the same.", hint="Name first the one to copy from, then the other."
        )
    one, other = history.named(source), history.named(target)
    history.must_exist(one)
    count = history.run(lambda: _copy(one, other))
    click.echo(f"{count} exchanges copied from {history.place(one)} to {history.place(other)}.")


async def _copy(one: Database, other: Database) -> int:
    async with history.opened(one) as source, history.opened(other) as target:
        total, done = await source.count(), 0
        at, after = 0, ""
        while rows := await source.rows_since(at, after, history.PAGE):
            await target.write(rows, [])
            done += len(rows)
            at, after = rows[-1][_STARTED_AT], rows[-1][_REQUEST_ID]
            if sys.stderr.isatty():
                click.echo(f"\r{done} of {total}", nl=False, err=True)
        await target.write([], [agent_row(*agent) for agent in await source.agents()])
        if sys.stderr.isatty():
            click.echo(err=True)
        await _check(source, target)
        return done


async def _check(source: Ledger, target: Ledger) -> None:
    have, want = await target.count(), await source.count()
    if have < want:
        raise HermesBridgeError(
            f"The copy holds {have} exchanges, the source {want}.",
            hint="A relay may have written meanwhile: run the command again.",
        )
