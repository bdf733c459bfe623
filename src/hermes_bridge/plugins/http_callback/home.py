"""The Hermes home: where our files lie, what config.yaml says, and the operator's allow list.

Hermes may serve several homes in one process, so nothing here is remembered.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .config import ALIAS, PLATFORM, Env, Settings, SettingsError, read_settings

DIRECTORY = "http_callback"
_VARIABLE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")


def hermes_home() -> Path:
    """Give the home of the profile that is being served now."""
    try:
        from hermes_constants import get_hermes_home
    except ImportError:
        return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
    return Path(get_hermes_home())


def process_home() -> Path:
    """Give the home of the process: with several profiles, where Hermes keeps what they share."""
    try:
        from hermes_constants import get_process_hermes_home
    except ImportError:
        return hermes_home()
    return Path(get_process_hermes_home())


def state_directory(home: Path) -> Path:
    """Give the directory of our files."""
    return home / DIRECTORY


def environment(home: Path) -> Env:
    """Give a look-up of variables: Hermes' own scoped one, the process, then the home's .env."""
    try:
        from agent.secret_scope import get_secret
    except ImportError:
        get_secret = None
    written = _dotenv(home / ".env")
    # The process's own variables are those of the profile that it was started for.
    another = _multiplexed() and home.resolve() != process_home().resolve()

    def find(name: str) -> str | None:
        if get_secret is not None:
            try:
                value = get_secret(name)
            except Exception:  # noqa: BLE001 - a scope that refuses is as good as an unset variable
                value = None
            if isinstance(value, str) and value:
                return value
            if another:
                return written.get(name)
        return os.environ.get(name) or written.get(name)

    return find


def _multiplexed() -> bool:
    try:
        from agent.secret_scope import is_multiplex_active
    except ImportError:
        return False
    return bool(is_multiplex_active())


def _dotenv(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return found
    for line in lines:
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and name and not name.startswith("#"):
            found[name.strip()] = value.strip().strip("\"'")
    return found


def read_config(home: Path) -> dict[str, Any]:
    """Give `platforms.http_callback.extra` of config.yaml, the alias' own settings laid over it.

    Raises:
        SettingsError: the file is not YAML.
    """
    path = home / "config.yaml"
    try:
        text = path.read_text("utf-8")
    except OSError:
        return {}
    try:
        data = _parse_yaml(text)
    except Exception as error:  # noqa: BLE001
        # Which class it is depends on the library; what matters is that a person hears of it.
        raise SettingsError(f"{path} is not YAML: {str(error)[:200]}") from None
    found: dict[str, Any] = {}
    for name in (PLATFORM, ALIAS):
        found.update(_extra_of(data, name))
    return found


def _parse_yaml(text: str) -> Any:
    # Hermes ships PyYAML in some versions and ruamel.yaml in others.
    try:
        import yaml
    except ImportError:
        from ruamel.yaml import YAML

        return YAML(typ="safe", pure=True).load(text)
    return yaml.safe_load(text)


def _extra_of(data: Any, name: str) -> dict[str, Any]:
    block: Any = data
    for key in ("platforms", name):
        block = block.get(key) if isinstance(block, dict) else None
    if not isinstance(block, dict):
        return {}
    extra = block.get("extra")
    found = dict(extra) if isinstance(extra, dict) else {}
    home = block.get("home_channel")
    if isinstance(home, dict) and isinstance(home.get("chat_id"), str):
        found.setdefault("home_url", home["chat_id"])
    return found


def load_settings(home: Path, extra: Mapping[str, Any] | None = None) -> Settings:
    """Read all settings of a home; `extra` is what Hermes had read of config.yaml when it started.

    The file wins: it may have been mended since.

    Raises:
        SettingsError: something cannot be used.
    """
    env = environment(home)
    written = _expand(read_config(home), env)
    settings = read_settings({**(extra or {}), **written}, env, read_allow_list(home))
    # Hermes lays settings of its own beside ours: only what a person wrote can be a mistake.
    return replace(settings, unknown=tuple(name for name in settings.unknown if name in written))


def _expand(value: Any, env: Env) -> Any:
    """Fill in `${NAME}` and `${env:NAME}`, as Hermes does in its own reading of the file."""
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: env(found[1]) or found[0], value)
    if isinstance(value, dict):
        return {key: _expand(item, env) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, env) for item in value]
    return value


def read_allow_list(home: Path) -> list[str]:
    """Give the entries that `hermes callback allow` has written."""
    try:
        data = json.loads((state_directory(home) / "allow.json").read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return [item for item in data if isinstance(item, str)] if isinstance(data, list) else []


def write_allow_list(home: Path, entries: list[str]) -> None:
    """Replace the allow list, whole."""
    directory = state_directory(home)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = directory / "allow.json.new"
    fresh.write_text(json.dumps(entries, indent=1) + "\n", "utf-8")
    fresh.chmod(0o600)
    fresh.replace(directory / "allow.json")
