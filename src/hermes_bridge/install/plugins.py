"""What each plugin of ours needs in a Hermes home."""

from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "plugins"


@dataclass(frozen=True)
class Plugin:
    """A directory of ours, and the name Hermes knows it by."""

    verb: str
    """Its name on our command line."""
    name: str
    """Its key in `plugins.enabled` and its directory in the home."""
    source: Path
    platform: str
    secrets: tuple[str, ...]
    """Environment names that hold secrets: masked in diffs."""

    def files(self) -> dict[str, bytes]:
        """Give its files by relative name."""
        found = (path for path in sorted(self.source.rglob("*")) if path.is_file())
        kept = (path for path in found if "__pycache__" not in path.parts)
        return {str(path.relative_to(self.source)): path.read_bytes() for path in kept}


BRIDGE = Plugin(
    "bridge", "hermes-bridge", PACKAGE / "bridge", "hermes-bridge", ("HERMES_BRIDGE_TOKEN",)
)
HTTP_CALLBACK = Plugin(
    "http-callback",
    "http_callback",
    PACKAGE / "http_callback",
    "http_callback",
    ("HTTP_CALLBACK_SECRET",),
)
ALL = (BRIDGE, HTTP_CALLBACK)
