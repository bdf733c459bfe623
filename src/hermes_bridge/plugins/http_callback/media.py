"""Attachments: what the body says about a file or an image, never where it lies on this machine."""

import base64
import hashlib
import mimetypes
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .urlguard import BadUrl, read_url

CHUNK = 1 << 20
MOST = 64 * CHUNK


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


def of_file(
    path: str, kind: str, *, mode: str = "reference", inline_kib: int = 256
) -> dict[str, Any]:
    """Describe a local file; `mode` "inline" puts the bytes in when they are few enough.

    Reads the file: call it off the event loop.
    """
    file = Path(path)
    mime = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    found: dict[str, Any] = {"type": kind, "name": file.name, "mime": mime}
    if mode == "omit":
        return {**found, "omitted": "the setting `media` is omit"}
    digest, kept, size = hashlib.sha256(), bytearray(), 0
    limit = inline_kib * 1024
    try:
        with file.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                size += len(chunk)
                if size > MOST:
                    return {**found, "omitted": f"larger than {MOST // CHUNK} MiB"}
                digest.update(chunk)
                if mode == "inline" and size <= limit:
                    kept += chunk
    except OSError:
        return {**found, "omitted": "the file cannot be read"}
    found |= {"size": size, "sha256": digest.hexdigest()}
    if mode == "inline" and size <= limit:
        return {**found, "data_b64": base64.b64encode(bytes(kept)).decode()}
    why = (
        f"larger than inline_kib ({inline_kib})" if mode == "inline" else "files are not sent along"
    )
    return {**found, "omitted": why}
