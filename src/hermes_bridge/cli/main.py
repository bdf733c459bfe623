"""The command `hermes-bridge`."""

import sys


def main() -> None:
    """Run the command line."""
    from hermes_bridge.serve import run

    run(sys.argv[2] if len(sys.argv) > 2 else None)
