"""`python -m hermes_bridge` is the command `hermes-bridge`."""

from hermes_bridge.cli.main import main

main()
