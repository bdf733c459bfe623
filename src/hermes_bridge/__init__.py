"""hermes-bridge: Hermes agents talk to each other, to chat platforms and to backends."""

__version__ = "0.1.0"
