"""`hermes-bridge serve`."""

import os

import click

from hermes_bridge.cli.options import config_option


@click.command()
@config_option
@click.argument("config_file", required=False)
def serve(config_path: str | None, config_file: str | None) -> None:
    """Run the relay until it is told to stop (Ctrl-C, SIGTERM).

    SIGHUP reads the configuration again: agents, tokens, limits and permissions change without
    dropping a connection.

    \b
    Example:  hermes-bridge serve --config /etc/hermes-bridge/config.yaml
    """
    from hermes_bridge.serve import run

    run(config_file or config_path, os.environ)
