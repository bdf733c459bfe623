"""The command `hermes-bridge`: which verb lives in which module.

Verbs are imported when they are called, so that `--help` and `serve` start fast.
"""

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from hermes_bridge import __version__
from hermes_bridge.errors import HermesBridgeError

_VERBS: dict[str, tuple[str, str]] = {
    "init": ("hermes_bridge.cli.init:init", "Write a configuration with fresh tokens."),
    "serve": ("hermes_bridge.cli.serve:serve", "Run the relay."),
    "demo": ("hermes_bridge.cli.demo:demo", "See a relay, two agents and one ask at work."),
    "agents": ("hermes_bridge.cli.agents:agents", "List, add, rotate and remove agents."),
    "ask": ("hermes_bridge.cli.ask:ask", "Ask an agent and show its answer."),
    "chat": ("hermes_bridge.cli.ask:chat", "Talk with an agent, turn by turn."),
    "tail": ("hermes_bridge.cli.tail:tail", "Watch exchanges as they happen."),
    "search": ("hermes_bridge.cli.search:search", "Find exchanges by their words."),
    "export": ("hermes_bridge.cli.export:export", "Write history as JSON lines, CSV or text."),
    "db": ("hermes_bridge.cli.db:db", "Look after the store; copy it elsewhere."),
    "install": ("hermes_bridge.cli.install:install", "Put a plugin into a bot's Hermes home."),
    "uninstall": ("hermes_bridge.cli.install:uninstall", "Take a plugin out of it again."),
    "doctor": ("hermes_bridge.cli.doctor:doctor", "Check configuration, port, store, relay."),
    "connector": ("hermes_bridge.cli.connector:connector", "Connect bots with chat accounts."),
    "completion": ("hermes_bridge.cli.completion:completion", "Print shell completion."),
}


class _Verbs(click.Group):
    """A group that imports a verb only when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the verbs in the order of a day's work."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in _VERBS:
            return None
        module, _, name = _VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the list without importing every verb."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, words) for verb, (_, words) in _VERBS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; Ctrl-C ends it as a shell expects."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(130)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Say which verb was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], _VERBS, n=1)
            if not near:
                raise
            raise click.UsageError(f"{error.message} Did you mean {near[0]}?", ctx) from None


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hermes-bridge")
def cli() -> None:
    """Let Hermes agents talk to each other, to chat platforms and to backends.

    \b
    Begin with:  hermes-bridge init && hermes-bridge serve
    See it work: hermes-bridge demo
    Exit codes:  0 done, 1 the thing asked for failed, 2 usage or configuration, 130 Ctrl-C
    """


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line; errors of ours end it with words and a code."""
    try:
        cli.main(args=list(args) if args is not None else None, prog_name="hermes-bridge")
    except HermesBridgeError as error:
        click.echo(f"hermes-bridge: {error}", err=True)
        if error.hint:
            click.echo(f"  {error.hint}", err=True)
        sys.exit(error.exit_code)
