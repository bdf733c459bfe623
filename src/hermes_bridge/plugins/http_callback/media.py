"""Attachments: what the body says about a file or an image, never where it lies on this machine."""

import base64
import hashlib
import mimetypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .form import File
from .urlguard import BadUrl, read_url

CHUNK = 1 << 20
MOST = 64 * CHUNK
MODES = ("reference", "inline", "multipart", "omit")
BYTES = "_bytes"
"""Where an attachment keeps the bytes that go along as a part of their own."""


def local_path(url: str) -> str:
    """Give the path in a `file:` URL."""
    return unquote(url.removeprefix("file://"))


def of_url(url: str, kind: str) -> dict[str, Any]:
    """Describe something that lies at a URL."""
    try:
        place = read_url(url)
    except BadUrl as error:
        return {"type": kind, "omitted": str(error)}
    name = Path(unquote(urlsplit(place.url).path)).name
    return {"type": kind, "name": name, "url": place.url}


def of_file(path: str, kind: str, *, mode: str = "reference", most_kib: int = 0) -> dict[str, Any]:
    """Describe a local file; modes "inline" and "multipart" take the bytes when they are few enough.

    Reads the file: call it off the event loop.
    """
    file = Path(path)
    mime = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    found: dict[str, Any] = {"type": kind, "name": file.name, "mime": mime}
    if mode == "omit":
        return {**found, "omitted": "the setting `media` is omit"}
    keeps = mode in ("inline", "multipart")
    digest, kept, size = hashlib.sha256(), bytearray(), 0
    limit = most_kib * 1024
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                size += len(chunk)
                if size > MOST:
                    return {**found, "omitted": f"larger than {MOST // CHUNK} MiB"}
                digest.update(chunk)
                if keeps and size <= limit:
                    kept += chunk
    except OSError:
        return {**found, "omitted": "the file cannot be read"}
    found |= {"size": size, "sha256": digest.hexdigest()}
    if not keeps:
        return {**found, "omitted": "files are not sent along"}
    if size > limit:
        name = "inline_kib" if mode == "inline" else "file_kib"
        return {**found, "omitted": f"larger than {name} ({most_kib})"}
    if mode == "multipart":
        return {**found, BYTES: bytes(kept)}
    return {**found, "data_b64": base64.b64encode(bytes(kept)).decode()}


def parted(items: Iterable[dict[str, Any]]) -> tuple[tuple[dict[str, Any], ...], list[File]]:
    """Take the bytes that go as parts of their own out of attachments, which then name the parts."""
    described: list[dict[str, Any]] = []
    files: list[File] = []
    for item in items:
        data = item.get(BYTES)
        facts = {key: value for key, value in item.items() if key != BYTES}
        if isinstance(data, bytes):
            files.append(File(f"file{len(files)}", item["name"], item["mime"], data))
            facts["part"] = files[-1].part
        described.append(facts)
    return tuple(described), files
