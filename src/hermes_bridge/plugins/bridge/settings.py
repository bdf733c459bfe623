"""Where the relay is and who this bot is: the platform's `extra`, `.env`, the environment.

`.env` wins over the environment, as it does in Hermes; it is read again for every dial, so that a
token mended there needs no restart.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

TOKEN = "HERMES_BRIDGE_TOKEN"  # noqa: S105 - the name of a variable
URL = "HERMES_BRIDGE_RELAY_URL"
PATH = "/bridge/connect"


@dataclass(frozen=True, slots=True)
class Settings:
    """What the link needs. The token is never shown."""

    url: str
    token: str = field(repr=False)
    description: str = ""
    skills: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether there is an address and a token at all."""
        return bool(self.url and self.token)


def read(extra: Mapping[str, Any], home: Path | None = None) -> Settings:
    """Read the settings as they are now."""
    file = dotenv(home / ".env") if home else {}

    def variable(name: str) -> str:
        return file.get(name) or os.environ.get(name) or ""

    def value(name: str, key: str) -> str:
        written = str(extra.get(key) or variable(name))
        # Hermes 0.20 and later put variables in themselves.
        return re.sub(r"\$\{(?:env:)?(\w+)\}", lambda m: variable(m[1]), written).strip()

    skills = extra.get("skills")
    return Settings(
        url=address(value(URL, "relay_url")),
        token=value(TOKEN, "token"),
        description=str(extra.get("description") or "")[:2_000],
        skills=tuple(str(s)[:100] for s in skills[:50]) if isinstance(skills, list) else (),
    )


def address(url: str) -> str:
    """Give the WebSocket address: `https://host` and `wss://host/bridge/connect` mean the same."""
    if "://" not in url:
        return url and address("wss://" + url)
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/")
    return urlunsplit((scheme, parts.netloc, path or PATH, parts.query, ""))


def dotenv(path: Path) -> dict[str, str]:
    """Read `KEY=value` lines; quotes and `export` are allowed, anything else is passed over."""
    try:
        lines = path.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    found: dict[str, str] = {}
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            found[name.strip()] = _unquoted(value.strip())
    return found


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"":
        return re.sub(rf"\\([\\{value[0]}])", r"\1", value[1:-1])
    return value.partition(" #")[0].rstrip()
