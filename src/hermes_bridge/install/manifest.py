"""What an installation did, kept in the home so that it can be undone: one JSON file a plugin."""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_bridge.install.files import read
from hermes_bridge.install.hermes_config import Edit

FOLDER = "hermes-bridge"
_MIXED = "changed by others between two installations"


@dataclass
class Manifest:
    """Originals of what was changed, and every edit."""

    files: list[str] = field(default_factory=list)
    """The plugin's files, relative to its directory."""
    originals: dict[str, str | None] = field(default_factory=dict)
    """`config.yaml` and `.env` as they were (base64; null: no file)."""
    written: dict[str, str] = field(default_factory=dict)
    """SHA-256 of what we made of them."""
    edits: list[Edit] = field(default_factory=list)
    env: dict[str, str | None] = field(default_factory=dict)
    """Variables that were set, with the value before (null: none)."""

    @staticmethod
    def path(home: Path, plugin: str) -> Path:
        """Where the manifest of a plugin stands."""
        return home / FOLDER / f"install-{plugin}.json"

    @classmethod
    def load(cls, home: Path, plugin: str) -> "Manifest | None":
        """Read it; `None` when there is none that can be read."""
        raw = read(cls.path(home, plugin))
        try:
            return cls(**json.loads(raw)) if raw else None
        except (ValueError, TypeError):
            return None

    def dump(self) -> bytes:
        """Give the file."""
        return (json.dumps(vars(self), indent=1, sort_keys=True) + "\n").encode()

    def remember(self, name: str, before: bytes | None, after: bytes) -> None:
        """Note a file's original, once, and what it is now.

        When others changed the file between two installations, their changes are in neither, so
        the original is no longer what an uninstallation may put back.
        """
        if name not in self.originals:
            kept = None if before is None else base64.b64encode(before).decode()
            self.originals[name] = kept
        elif not self.untouched(name, before):
            self.written[name] = _MIXED
            return
        self.written[name] = digest(after)

    def original(self, name: str) -> bytes | None:
        """Give a file as it was before the first installation."""
        kept: Any = self.originals.get(name)
        return None if kept is None else base64.b64decode(kept)

    def untouched(self, name: str, now: bytes | None) -> bool:
        """Whether nobody changed the file since."""
        return now is not None and self.written.get(name) == digest(now)


def digest(content: bytes) -> str:
    """Give the SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()
