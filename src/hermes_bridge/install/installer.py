"""Plans an installation or its reversal. Reads the home, decides everything, writes nothing."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_bridge.errors import ConfigError, UsageError
from hermes_bridge.install import dotenv
from hermes_bridge.install.files import Plan, read
from hermes_bridge.install.hermes_config import Edit, HermesConfig
from hermes_bridge.install.manifest import Manifest
from hermes_bridge.install.plugins import BRIDGE, Plugin

CONFIG, ENV = "config.yaml", ".env"
_TOOL_SEARCH = ["tools", "tool_search", "enabled"]


@dataclass(frozen=True)
class Wish:
    """What an operator asked for."""

    plugin: Plugin
    home: Path
    env: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    """Dotted keys of `config.yaml` and their values, for `--with-mcp`."""
    direct_tools: bool = True
    force: bool = False


def plan_install(wish: Wish) -> Plan:
    """Plan everything that is missing; an empty plan means that it is all there."""
    plan, plugin = Plan(wish.home), wish.plugin
    manifest = Manifest.load(wish.home, plugin.name) or Manifest()
    _check_target(wish)
    config, before = _read_config(wish.home)
    edits = _edit_config(config, wish, plan)
    if edits:
        after = config.text().encode()
        manifest.remember(CONFIG, before, after)
        manifest.edits += edits
        plan.put(wish.home / CONFIG, after)
    _edit_env(wish, manifest, plan)
    _copy_plugin(wish, manifest, plan)
    if plan.changes:
        path = Manifest.path(wish.home, plugin.name)
        plan.put(path, manifest.dump(), mode=0o600, secret=True)
        plan.changes.reverse()  # the record first, and what switches the plugin on last
    return plan


def plan_uninstall(plugin: Plugin, home: Path) -> Plan:
    """Plan the way back: files nobody touched since become what they were, byte for byte."""
    plan = Plan(home)
    manifest = Manifest.load(home, plugin.name)
    target = home / "plugins" / plugin.name
    if manifest is None:
        if not target.is_dir():
            plan.notes.append(f"{plugin.name} is not installed in {home}.")
            return plan
        manifest = _guess(plugin, target)
        plan.notes.append("There is no record of the installation; undid what it usually writes.")
    _undo_config(home, manifest, plan)
    _undo_env(home, manifest, plan)
    for cache in sorted(target.rglob("*.pyc")) if target.is_dir() else []:
        plan.put(cache, None)
    for name in manifest.files:
        plan.put(target / name, None)
    plan.put(Manifest.path(home, plugin.name), None)
    return plan


def _check_target(wish: Wish) -> None:
    target = wish.home / "plugins" / wish.plugin.name
    if target.is_symlink() and not wish.force:
        raise UsageError(
            f"{target} is a symbolic link, perhaps to somebody's working copy; nothing was changed.",
            hint="Remove the link, or use --force to write through it.",
        )


def _read_config(home: Path) -> tuple[HermesConfig, bytes | None]:
    before = read(home / CONFIG)
    try:
        text = (before or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{home / CONFIG} is not UTF-8 text; nothing was changed.", hint="Mend it by hand."
        ) from error
    return HermesConfig(text, str(home / CONFIG)), before


def _edit_config(config: HermesConfig, wish: Wish, plan: Plan) -> list[Edit]:
    name = wish.plugin.name
    disabled = config.get("plugins", "disabled")
    if isinstance(disabled, list) and name in disabled and not wish.force:
        raise UsageError(
            f"config.yaml switches {name} off (plugins.disabled); nothing was changed.",
            hint="Take it out of that list, or use --force to have that done.",
        )
    edits = config.drop_from_list(["plugins", "disabled"], name)
    edits += config.add_to_list(["plugins", "enabled"], name)
    if config.get("platforms", wish.plugin.platform, "enabled") is False:
        edits += config.set(["platforms", wish.plugin.platform, "enabled"], True)
        plan.notes.append(f"platforms.{wish.plugin.platform}.enabled was false and is true now.")
    if wish.direct_tools and config.get("tools", "tool_search") is None:
        edits += config.set(_TOOL_SEARCH, "off")
    for key in config.get("platforms", wish.plugin.platform, "extra") or ():
        if key in ("relay_url", "token") and wish.plugin is BRIDGE:
            plan.notes.append(
                f"platforms.{wish.plugin.platform}.extra.{key} stands in config.yaml and wins over "
                "what is written into .env; take it out, or change it there."
            )
    for key, value in wish.settings.items():
        there = config.get(*key.split("."))
        if there is None or wish.force:
            edits += config.set(key.split("."), value)
        elif there != value:
            plan.notes.append(
                f"{key} is there already and was left as it is (--force replaces it)."
            )
    return edits


def _edit_env(wish: Wish, manifest: Manifest, plan: Plan) -> None:
    path = wish.home / ENV
    before = read(path)
    text = (before or b"").decode("utf-8", "surrogateescape")
    after = text
    for name, value in wish.env.items():
        known = dotenv.value_of(after, name)
        if known == value:
            continue
        manifest.env.setdefault(name, known)
        after = dotenv.assign(after, name, value)
    if after != text:
        content = after.encode("utf-8", "surrogateescape")
        manifest.remember(ENV, before, content)
        plan.put(path, content, mode=0o600, secret=True)


def _copy_plugin(wish: Wish, manifest: Manifest, plan: Plan) -> None:
    target = wish.home / "plugins" / wish.plugin.name
    files = wish.plugin.files()
    known = set(manifest.files)
    if target.is_dir() and not known:
        known = {str(p.relative_to(target)) for p in target.rglob("*.py") if p.is_file()}
    for name, content in files.items():
        plan.put(target / name, content)
    for name in sorted(known - set(files)):
        plan.put(target / name, None)
    manifest.files = sorted(files)


def _guess(plugin: Plugin, target: Path) -> Manifest:
    """What an installation without a record (the seed's) has written."""
    files = [str(p.relative_to(target)) for p in sorted(target.rglob("*")) if p.is_file()]
    listed = {"do": "listed", "at": ["plugins", "enabled"], "item": plugin.name}
    names = [*plugin.secrets, "HERMES_BRIDGE_RELAY_URL"] if plugin.verb == "bridge" else []
    return Manifest(files=files, edits=[listed], env=dict.fromkeys(names))


def _undo_config(home: Path, manifest: Manifest, plan: Plan) -> None:
    now = read(home / CONFIG)
    if now is None or not manifest.edits:
        return
    if manifest.untouched(CONFIG, now):
        plan.put(home / CONFIG, manifest.original(CONFIG))
        return
    config, _ = _read_config(home)
    config.undo(manifest.edits)
    text = config.text()
    plan.put(home / CONFIG, text.encode())


def _undo_env(home: Path, manifest: Manifest, plan: Plan) -> None:
    now = read(home / ENV)
    if now is None or not manifest.env:
        return
    if manifest.untouched(ENV, now):
        plan.put(home / ENV, manifest.original(ENV), mode=0o600, secret=True)
        return
    text = now.decode("utf-8", "surrogateescape")
    for name, before in manifest.env.items():
        gone = before is None
        text = dotenv.remove(text, name) if gone else dotenv.assign(text, name, str(before))
    plan.put(home / ENV, text.encode("utf-8", "surrogateescape"), mode=0o600, secret=True)
