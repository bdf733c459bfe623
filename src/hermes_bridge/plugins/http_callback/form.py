"""A body with files: `multipart/form-data`, byte-stable like any other.

Pure. The first part, `payload`, is the JSON that would be the body without files; each file is a part
`file0`, `file1`..., named by its attachment's `part`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

TYPE = "multipart/form-data; boundary="


@dataclass(frozen=True)
class File:
    """One file of a body."""

    part: str
    name: str
    mime: str
    data: bytes = field(repr=False)


def content_type(id: str) -> str:
    """Give the content type of a callback's body with files."""
    return TYPE + _boundary(id)


def _boundary(id: str) -> str:
    # Random, and not a text that stands in the payload.
    return "callback-" + id.removeprefix("msg_")


def join(id: str, payload: bytes, files: Sequence[File]) -> bytes:
    """Give the body."""
    edge = f"--{_boundary(id)}".encode()
    head = (
        b'Content-Disposition: form-data; name="payload"\r\nContent-Type: application/json\r\n\r\n'
    )
    parts = [edge + b"\r\n" + head + payload]
    for file in files:
        about = (
            f'Content-Disposition: form-data; name="{file.part}"; filename="{_quoted(file.name)}"'
            f"\r\nContent-Type: {file.mime}\r\n\r\n"
        )
        parts.append(edge + b"\r\n" + about.encode("utf-8", "replace") + file.data)
    return b"\r\n".join(parts) + b"\r\n" + edge + b"--\r\n"


def _quoted(name: str) -> str:
    name = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(char for char in name if char.isprintable())[:200]


def rewritten(body: bytes, old_id: str, new_id: str, payload: bytes) -> bytes:
    """Give a body with files under another id, with another payload."""
    old, new = (f"--{_boundary(id)}".encode() for id in (old_id, new_id))
    first, _, rest = body.partition(b"\r\n\r\n")
    _, edge, files = rest.partition(b"\r\n" + old)
    files = (edge + files).replace(b"\r\n" + old, b"\r\n" + new)
    return first.replace(old, new) + b"\r\n\r\n" + payload + files


def payload_of(body: bytes, id: str) -> bytes:
    """Give the payload of a body with files."""
    edge = f"\r\n--{_boundary(id)}".encode()
    return body.partition(b"\r\n\r\n")[2].partition(edge)[0]
