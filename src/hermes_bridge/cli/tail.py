"""`hermes-bridge tail`: exchanges as they happen, one line a change."""

import json
import sys
import time
from datetime import datetime
from typing import Any

import click

from hermes_bridge.cli.client import RelayClient
from hermes_bridge.cli.history import one_line
from hermes_bridge.cli.options import base_url, load_if_there, relay_options
from hermes_bridge.errors import Unreachable

_EVERY_S = 1.0
_WIDTH = 100


@click.command()
@click.option(
    "--last",
    default=10,
    show_default=True,
    type=click.IntRange(0),
    help="How many earlier exchanges to show first.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--once", is_flag=True, help="Show what there is and end.")
@relay_options
def tail(last: int, as_json: bool, once: bool, **options: Any) -> None:
    """Watch exchanges: who asks whom, how it goes, how it ends. Ctrl-C ends it.

    \b
    Example:  hermes-bridge tail --last 3
    """
    config = load_if_there(options["config_path"])
    password = (config.ui.password or "") if config else ""
    client = RelayClient(base_url(options["relay_url"], config), password)
    seen: dict[str, str] = {}
    first, away = True, False
    while True:
        try:
            exchanges = client.get("/ui/api/state", "exchanges")["exchanges"]
        except Unreachable:
            if first:
                raise
            if not away:
                click.echo("(the relay does not answer; still trying)", err=True)
            away = True
        else:
            away = False
            new = [x for x in exchanges if seen.get(x["request_id"]) != x["status"]]
            for exchange in new[max(0, len(new) - last) :] if first else new:
                _line(exchange, as_json)
            seen = {x["request_id"]: x["status"] for x in exchanges}
            first = False
        if once:
            return
        time.sleep(_EVERY_S)


def _line(exchange: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(exchange, ensure_ascii=False))
    else:
        ended = exchange.get("ended_at")
        lasted = f"{(ended - exchange['started_at']) / 1000:7.1f} s" if ended else " " * 9
        at = datetime.fromtimestamp(exchange["started_at"] / 1000).astimezone().strftime("%H:%M:%S")
        text = (
            exchange["message"]
            if not ended
            else exchange.get("answer") or exchange.get("error") or ""
        )
        route = f"{exchange['from']} -> {exchange['to']}"
        click.echo(f"{at}  {exchange['status']:<19} {lasted}  {route:<32} {one_line(text, _WIDTH)}")
    sys.stdout.flush()
