"""A. The agent relay: agents ask each other through one server."""
