"""`hermes-bridge completion`: the lines that make a shell complete our verbs and options."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what a SHELL needs to complete `hermes-bridge`.

    \b
    Example:  hermes-bridge completion bash >> ~/.bashrc
    """
    from hermes_bridge.cli.main import cli

    kind = get_completion_class(shell)
    if kind is not None:
        click.echo(kind(cli, {}, "hermes-bridge", "_HERMES_BRIDGE_COMPLETE").source())
