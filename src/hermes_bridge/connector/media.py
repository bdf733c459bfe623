"""Files between gateways and platforms: short-lived, one gateway each, under names nobody guesses.

A gateway gives files for its agent's messages; those lie on disk for an hour. Files that came
with a chat message are only lent: they are fetched from the platform when a gateway asks.
"""

import asyncio
import re
import shutil
import tempfile
from pathlib import Path

import msgspec

from hermes_bridge.clock import Clock
from hermes_bridge.connector.core.message import Attachment
from hermes_bridge.ids import new_token

MAX_FILE = 25 * 1024 * 1024
KEEP_MS = 3_600_000
_PER_GATEWAY = 256 * 1024 * 1024
_MAX_LENT = 20_000
_MIME = re.compile(r"[a-zA-Z0-9.+-]+/[a-zA-Z0-9.+-]+")
_UNSAFE = re.compile(r"[^\w.\- ]+")


class Kept(msgspec.Struct, frozen=True):
    """A file that a gateway gave."""

    gateway_id: str
    mime: str
    name: str
    size: int
    path: Path
    until: int


class Lent(msgspec.Struct, frozen=True):
    """A file of a platform that a gateway may fetch."""

    gateway_id: str
    bot_id: str
    attachment: Attachment
    until: int


class Shelf:
    """All files that can be asked for now."""

    def __init__(self, clock: Clock, directory: str | None = None) -> None:
        self._clock, self._parent = clock, directory
        self._directory: Path | None = None
        self._items: dict[str, Kept | Lent] = {}

    async def keep(self, gateway_id: str, body: bytes, mime: str, name: str) -> str | None:
        """Take a file; give its id, or None when the gateway has too much here already."""
        self.sweep()
        if not body:
            return ""
        mine = [each for each in self._items.values() if isinstance(each, Kept)]
        if sum(each.size for each in mine if each.gateway_id == gateway_id) > _PER_GATEWAY:
            return None
        key = new_token()
        path = self._place() / key
        until = self._clock.now() + KEEP_MS
        await asyncio.to_thread(path.write_bytes, body)
        self._items[key] = Kept(
            gateway_id, safe_mime(mime), safe_name(name), len(body), path, until
        )
        return key

    def lend(self, gateway_id: str, bot_id: str, attachment: Attachment) -> str:
        """Let a gateway fetch a platform's file; give its id."""
        if len(self._items) > _MAX_LENT:
            self.sweep()
        key = new_token()
        self._items[key] = Lent(gateway_id, bot_id, attachment, self._clock.now() + KEEP_MS)
        return key

    def find(self, key: str, gateway_id: str) -> Kept | Lent | None:
        """Give an item, to the gateway that it is for and to nobody else."""
        item = self._items.get(key)
        if item is None or item.gateway_id != gateway_id or item.until < self._clock.now():
            return None
        return item

    def sweep(self) -> None:
        """Forget what is too old."""
        now = self._clock.now()
        for key, item in list(self._items.items()):
            if item.until < now:
                del self._items[key]
                if isinstance(item, Kept):
                    item.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove every file."""
        self._items.clear()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _place(self) -> Path:
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="relay-media-", dir=self._parent))
        return self._directory


def safe_name(name: str) -> str:
    """Give a file name that is safe in a header and on a disk."""
    return _UNSAFE.sub("_", name.rsplit("/", 1)[-1])[:255].strip() or "file"


def safe_mime(mime: str) -> str:
    """Give a media type that is safe in a header."""
    mime = mime.split(";")[0].strip()
    return mime if _MIME.fullmatch(mime) else "application/octet-stream"
