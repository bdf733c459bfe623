"""Why is this bot not online? Looks into a Hermes home and says what is wrong and what to do."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from hermes_bridge.errors import HermesBridgeError
from hermes_bridge.install import dotenv
from hermes_bridge.install.files import read
from hermes_bridge.install.hermes_config import HermesConfig
from hermes_bridge.install.plugins import BRIDGE, Plugin

_NAMES = {"HERMES_BRIDGE_RELAY_URL": "relay_url", "HERMES_BRIDGE_TOKEN": "token"}
_INSTALL = "Run: hermes-bridge install bridge --token=... --relay-url=..."


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str
    ok: bool
    words: str
    hint: str = ""


class Access(NamedTuple):
    """What the bot dials with, and where each came from."""

    url: str
    token: str
    words: str


def look(home: Path, env: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Give what the files of a bot tell; the relay itself is asked elsewhere."""
    try:
        text = (read(home / "config.yaml") or b"").decode("utf-8", "replace")
        config = HermesConfig(text, str(home / "config.yaml"))
    except HermesBridgeError as error:
        yield Finding("config.yaml", False, str(error), error.hint)
        return
    yield _files(home, BRIDGE)
    yield _enabled(config, BRIDGE)
    yield _access_finding(home, env)
    yield from _misplaced(home)
    yield _gateway(home)


def access(home: Path, env: Mapping[str, str] = os.environ) -> Access:
    """Give address and token as the plugin finds them: `config.yaml`, `.env`, the environment."""
    text = (read(home / ".env") or b"").decode("utf-8", "replace")
    known = {**env, **{name: dotenv.value_of(text, name) or env.get(name, "") for name in _NAMES}}
    extra = _extra(home)
    found: list[str] = []
    words: list[str] = []
    for name, key in _NAMES.items():
        here, there = dotenv.value_of(text, name), env.get(name)
        written = re.sub(r"\$\{(?:env:)?(\w+)\}", lambda m: known.get(m[1], ""), extra.get(key, ""))
        found.append(written or known[name])
        if written and written != (known[name] or written):
            words.append(f"platforms.{BRIDGE.platform}.extra.{key} of config.yaml wins over {name}")
        elif here and there and here != there:
            words.append(f"{name} of .env wins over another value in the environment")
    return Access(found[0], found[1], "; ".join(words))


def _extra(home: Path) -> dict[str, str]:
    """Give what `config.yaml` says about the relay."""
    try:
        text = (read(home / "config.yaml") or b"").decode("utf-8", "replace")
        extra = HermesConfig(text).get("platforms", BRIDGE.platform, "extra")
    except HermesBridgeError:
        return {}
    return {k: str(v) for k, v in extra.items() if v} if isinstance(extra, dict) else {}


def _files(home: Path, plugin: Plugin) -> Finding:
    target = home / "plugins" / plugin.name
    if not (target / "plugin.yaml").is_file():
        return Finding("plugin", False, f"there is none in {target}", _INSTALL)
    wrong = [name for name, content in plugin.files().items() if read(target / name) != content]
    if wrong:
        words = f"{len(wrong)} of its files are of another version ({wrong[0]})"
        return Finding("plugin", False, words, f"{_INSTALL} and restart the bot.")
    return Finding("plugin", True, "is there, in this version")


def _enabled(config: HermesConfig, plugin: Plugin) -> Finding:
    enabled, disabled = config.get("plugins", "enabled"), config.get("plugins", "disabled")
    if isinstance(disabled, list) and plugin.name in disabled:
        hint = f"Take {plugin.name} out of plugins.disabled in config.yaml and restart the bot."
        return Finding("enabled", False, "plugins.disabled switches it off", hint)
    if not isinstance(enabled, list) or plugin.name not in enabled:
        hint = f"{_INSTALL} (or add {plugin.name} to that list by hand)."
        return Finding("enabled", False, "plugins.enabled does not list it", hint)
    if config.get("platforms", plugin.platform, "enabled") is False:
        hint = f"Set platforms.{plugin.platform}.enabled to true in config.yaml."
        return Finding("enabled", False, "its platform is switched off", hint)
    return Finding("enabled", True, "config.yaml lists it")


def _access_finding(home: Path, env: Mapping[str, str]) -> Finding:
    found = access(home, env)
    missing = [name for name, value in zip(_NAMES, found, strict=False) if not value]
    if missing:
        words = f"{' and '.join(missing)} is set neither in .env nor in this environment"
        hint = f"{_INSTALL} (variables that only the bot's process has cannot be seen from here)."
        return Finding("address", False, words, hint)
    return Finding("address", True, found.words or f"{found.url}, with a token")


def _misplaced(home: Path) -> Iterator[Finding]:
    wrong = home / ".hermes" / "plugins" / BRIDGE.name
    if wrong.is_dir():
        yield Finding(
            "old copy",
            False,
            f"an installer of old put the plugin into {wrong}, where Hermes does not look",
            f"Remove {wrong}.",
        )


def _gateway(home: Path) -> Finding:
    try:
        state = json.loads(read(home / "gateway_state.json") or b"{}")
        platform = state.get("platforms", {}).get(BRIDGE.platform, {})
        pid = int(state.get("pid") or 0)
    except (ValueError, AttributeError, TypeError):
        state, platform, pid = {}, {}, 0
    if not state:
        return Finding(
            "gateway", False, "it has never run in this home", "Start: hermes gateway run"
        )
    if not _alive(pid):
        return Finding("gateway", False, "it does not run (seen from here)", "Start the bot.")
    if not platform:
        hint = "Restart the bot: plugins are loaded at its start."
        return Finding("gateway", False, "it runs and has not loaded the plugin", hint)
    shown = str(platform.get("state"))
    why = str(platform.get("error_message") or "")
    if shown != "connected":
        hint = "The line above says what to mend; the bot tries again by itself."
        return Finding("gateway", False, f"its platform is {shown}: {why or 'no reason'}", hint)
    return Finding("gateway", True, "it runs and is connected")


def _alive(pid: int) -> bool:
    """Whether a process is there; one in another container cannot be seen and counts as there."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
