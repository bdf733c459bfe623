"""The command `hermes-bridge`, one module a verb."""
