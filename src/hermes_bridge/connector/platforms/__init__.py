"""Chat platforms: each behind the one protocol of `base`, found by name."""

from importlib import import_module
from importlib.metadata import entry_points

from hermes_bridge.connector.platforms.base import Factory, Platform, Settings
from hermes_bridge.errors import ConfigError

GROUP = "hermes_bridge.platforms"
_OURS = {
    "agentschat": ("hermes_bridge.connector.platforms.agentschat", "AgentsChat"),
    "echo": ("hermes_bridge.connector.platforms.echo", "EchoPlatform"),
}


def find(name: str, settings: Settings) -> Platform:
    """Build a platform by name. Raises `ConfigError` when it, or a library of its, is missing."""
    try:
        return _factory(name)(settings)
    except ImportError as error:
        raise ConfigError(
            f"the platform {name!r} needs a library that is not installed: {error.name}",
            hint=f"Install it: pip install 'hermes-bridge[{name}]'.",
        ) from None


def _factory(name: str) -> Factory:
    if name in _OURS:
        module, attribute = _OURS[name]
        factory: Factory = getattr(import_module(module), attribute)
        return factory
    for entry in entry_points(group=GROUP, name=name):
        loaded: Factory = entry.load()
        return loaded
    raise ConfigError(
        f"there is no platform {name!r}",
        hint=f"Known: {', '.join(sorted(_OURS))}, and what installed packages offer in the "
        f"entry-point group {GROUP}.",
    )
