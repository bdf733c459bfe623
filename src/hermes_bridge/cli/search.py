"""`hermes-bridge search`: who said that, and when."""

import json
import sys

import click

from hermes_bridge.cli import history
from hermes_bridge.cli.options import config_option
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.sql.words import folded

_WIDTH = 120


@click.command()
@click.argument("text")
@click.option("--last", "-n", default=20, show_default=True, type=click.IntRange(1, 1000))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@config_option
def search(text: str, last: int, as_json: bool, config_path: str | None) -> None:
    """Find exchanges by their words: messages, answers, reasons, names. Newest first.

    \b
    Example:  hermes-bridge search "invoice 4711"
    """
    store = history.configured(config_path)
    history.must_exist(store)

    async def work() -> list[Exchange]:
        async with history.opened(store) as ledger:
            return await ledger.search(text, last)

    found = history.run(work)
    for x in found:
        if as_json:
            click.echo(json.dumps(history.as_data(x), ensure_ascii=False))
            continue
        route = f"{x.asker} -> {x.target}"
        click.echo(f"{history.local(x.at)}  {x.status.value:<19}  {route:<32}  {x.conv}")
        for sign, said in ((">", x.message), ("<", x.answer or x.late_answer or x.reason)):
            if said:
                click.echo(f"    {sign} {_around(said, text)}")
    if not found:
        click.echo("Nothing found.", err=True)
        sys.exit(1)


def _around(said: str, text: str) -> str:
    """Give the part of a text around what was looked for, on one line."""
    at = folded(said).find(folded(text))
    begin = max(0, at - _WIDTH // 3) if at > _WIDTH // 2 else 0
    return ("\N{HORIZONTAL ELLIPSIS}" if begin else "") + history.one_line(said[begin:], _WIDTH)
