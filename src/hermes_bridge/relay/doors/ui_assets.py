"""The page's files: read once, at the first look, and named by the hash of them all.

One folder a version (`/ui/static/<hash>/app.js`), so modules import each other by relative names
and browsers may keep every file for ever.
"""

import gzip
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}


class Asset(NamedTuple):
    """One file, as it is and compressed."""

    kind: bytes
    plain: bytes
    packed: bytes


class Assets(NamedTuple):
    """All files of one version."""

    base: str
    """The path of their folder, `/ui/static/<hash>`."""
    files: dict[str, Asset]
    documents: dict[str, str]

    def document(self, name: str, **fields: str) -> bytes:
        """Give an HTML document; the values of `fields` must be escaped already."""
        text = self.documents[name]
        for field, value in {"base": self.base, **fields}.items():
            text = text.replace("{{" + field + "}}", value)
        return text.encode()


_INDENT = re.compile(rb"^[ \t]+", re.MULTILINE)
_COMMENT = re.compile(rb"^(?://.*|/\*\*.*\*/)$", re.MULTILINE)


def _lean(script: bytes) -> bytes:
    """Leave out indentation and comments on lines of their own; lines keep their numbers."""
    return _COMMENT.sub(b"", _INDENT.sub(b"", script))


@cache
def load() -> Assets:
    """Read the folder."""
    files, documents, total = {}, {}, hashlib.sha256()
    for path in sorted(_FOLDER.iterdir()):
        content = path.read_bytes()
        total.update(path.name.encode() + b"\0" + content)
        if path.suffix == ".html":
            documents[path.name] = content.decode()
        elif path.suffix in _TYPES:
            content = _lean(content) if path.suffix == ".js" else content
            packed = gzip.compress(content, 9, mtime=0)
            files[path.name] = Asset(_TYPES[path.suffix], content, packed)
    return Assets(f"/ui/static/{total.hexdigest()[:16]}", files, documents)
