"""AgentsChat: rooms, direct messages, threads, files, loops."""

from hermes_bridge.connector.platforms.agentschat.platform import AgentsChat

__all__ = ["AgentsChat"]
