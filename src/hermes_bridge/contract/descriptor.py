"""The descriptor: what a connector tells a gateway that a platform can do.

It is built from a platform's capability set, so that an operation is advertised exactly when it
works. Every field that either Hermes generation requires is present.
"""

from typing import Any

import msgspec

CONTRACT_VERSION = 1
MAX_MESSAGE_LENGTH = 4000

SEND, TYPING, CHAT_INFO = "send", "typing", "get_chat_info"
EDIT, DELETE, REACT, MEDIA = "edit", "delete", "react", "send_media"
OPS = (SEND, TYPING, CHAT_INFO, EDIT, DELETE, REACT, MEDIA)


class Capabilities(msgspec.Struct, frozen=True):
    """What one platform offers. `ops` are names of the contract's operations."""

    platform: str
    label: str
    ops: tuple[str, ...] = (SEND, TYPING, CHAT_INFO)
    max_message_length: int = MAX_MESSAGE_LENGTH
    threads: bool = False
    markdown: str = "markdown"
    emoji: str = "\N{ROBOT FACE}"
    hint: str = ""


def describe(can: Capabilities) -> dict[str, Any]:
    """Give the descriptor's body."""
    return {
        "contract_version": CONTRACT_VERSION,
        "platform": can.platform,
        "label": can.label,
        "max_message_length": can.max_message_length,
        "supports_draft_streaming": False,
        "supports_edit": EDIT in can.ops,
        "supports_threads": can.threads,
        "supports_context": True,
        "markdown_dialect": can.markdown,
        "len_unit": "chars",
        "emoji": can.emoji,
        "pii_safe": False,
        "platform_hint": can.hint,
        "supported_ops": [op for op in OPS if op in can.ops],
    }
