"""`hermes-bridge ask` and `chat`: speak to an agent from a terminal."""

import json
import sys
from typing import Any

import click

from hermes_bridge.cli.client import RelayClient
from hermes_bridge.cli.options import base_url, find_token, load_if_there, relay_options

_FAILED = 1


@click.command()
@click.argument("name")
@click.argument("message")
@click.option("--conversation", metavar="ID", help="Go on with an earlier conversation.")
@click.option("--queue", is_flag=True, help="If the agent is away, keep the ask until it comes.")
@click.option("--no-wait", is_flag=True, help="Ask and leave; the answer is kept.")
@click.option("--key", metavar="TEXT", help="Idempotency key: the same key never asks twice.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@relay_options
def ask(name: str, message: str, as_json: bool, **options: Any) -> None:
    """Ask agent NAME a question and show its answer ("-" reads the message from standard input).

    \b
    Example:  hermes-bridge ask daniel-bot 'What is our VPN address?'
    """
    text = sys.stdin.read() if message == "-" else message
    client = _client(options)
    arguments: dict[str, Any] = {"to": name, "message": text}
    if options["conversation"]:
        arguments["conversation_id"] = options["conversation"]
    if options["queue"]:
        arguments["if_offline"] = "queue"
    if options["key"]:
        arguments["idempotency_key"] = options["key"]
    if options["no_wait"]:
        arguments["wait_ms"] = 0
    result = _wait(client, arguments, name, leave=options["no_wait"])
    if as_json:
        click.echo(json.dumps(result, ensure_ascii=False))
    else:
        _show(result, leave=options["no_wait"])
    accepted = options["no_wait"] and result.get("error") == "working"
    if not result.get("ok") and not accepted:
        sys.exit(_FAILED)


@click.command()
@click.argument("name")
@relay_options
def chat(name: str, **options: Any) -> None:
    """Talk with agent NAME in one conversation, turn by turn. An empty line or Ctrl-D ends it.

    \b
    Example:  hermes-bridge chat daniel-bot
    """
    client = _client(options)
    conversation: str | None = None
    while True:
        try:
            text = click.prompt("you", prompt_suffix="> ", default="", show_default=False)
        except (click.Abort, EOFError):
            break
        if not text.strip():
            break
        arguments = {"to": name, "message": text}
        if conversation:
            arguments["conversation_id"] = conversation
        result = _wait(client, arguments, name, leave=False)
        conversation = (
            result.get("conversation_id", conversation) if result.get("ok") else conversation
        )
        _show(result, leave=False, prefix=f"{name}> ")


def _client(options: dict[str, Any]) -> RelayClient:
    config = load_if_there(options["config_path"])
    token = find_token(config, options["speaker"])
    return RelayClient(base_url(options["relay_url"], config), token)


def _wait(
    client: RelayClient, arguments: dict[str, Any], name: str, *, leave: bool
) -> dict[str, Any]:
    """Ask, then wait slice by slice, with a spinner if somebody looks at a terminal."""
    if leave or not sys.stderr.isatty():
        return _slices(client, arguments, leave=leave, note=lambda text: None)
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(f"waiting for {name}") as spinner:
        return _slices(
            client, arguments, leave=leave, note=lambda text: spinner.update(text or "waiting")
        )


def _slices(
    client: RelayClient, arguments: dict[str, Any], *, leave: bool, note: Any
) -> dict[str, Any]:
    result: dict[str, Any] = client.tool("ask_agent", arguments, note)
    while result.get("error") == "working" and not leave:
        result = client.tool("wait_answer", {"request_id": result["request_id"]}, note)
    return result


def _show(result: dict[str, Any], *, leave: bool, prefix: str = "") -> None:
    if result.get("ok"):
        click.echo(f"{prefix}{result['answer']}")
        if "data" in result:
            click.echo(json.dumps(result["data"], ensure_ascii=False, indent=2))
        if sys.stderr.isatty() and not prefix:
            click.echo(
                f"({result['elapsed_ms'] / 1000:.1f} s; go on with --conversation "
                f"{result['conversation_id']})",
                err=True,
            )
    elif leave and result.get("error") == "working":
        click.echo(f"Asked. request_id: {result['request_id']}")
    else:
        reason = f" ({result['reason']})" if result.get("reason") else ""
        click.echo(f"{result.get('error')}{reason}: {result.get('hint', '')}", err=True)
