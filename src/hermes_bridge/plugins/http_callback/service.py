"""One home's callbacks in this process: settings, desk, intake and the worker's thread.

Adapters of the same home share one service, so the alias platform and a reconnect change nothing.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .commons import shared
from .config import Settings, SettingsError
from .desk import Desk
from .home import hermes_home, load_settings, state_directory
from .intake import EPOCH, Call, Intake
from .outbox import Receipt
from .worker import Worker

logger = logging.getLogger(__name__)

RESTART_S = 5.0

_services: dict[Path, "Service"] = shared("services", dict)
_lock = shared("lock", threading.Lock)


class Service:
    """Everything of one home. `start` and `stop` are counted: the last `stop` ends the worker."""

    def __init__(self, home: Path, extra: Mapping[str, Any] | None = None) -> None:
        """Read the settings; open nothing yet.

        Raises:
            SettingsError: they cannot be used.
        """
        self.home = home
        self.settings: Settings = load_settings(home, extra)
        self.desk = Desk(state_directory(home) / "outbox.db", f"{os.getpid()}-{EPOCH}")
        self.intake = Intake(self.desk)
        self._extra = extra
        self._seen = self._stamps()
        self._users = 0
        self.worker: Worker | None = None
        self._thread: threading.Thread | None = None

    async def accept(self, call: Call) -> Receipt:
        """Store a callback durably; see `Intake.accept`."""
        return await self.intake.accept(call, self.settings)

    def start(self) -> None:
        """Deliver from now on."""
        with _lock:
            self._users += 1
            if self._thread is not None:
                return
            self.worker = Worker(self.desk, lambda: self.settings, on_poll=self.reload_if_changed)
            self.desk.on_change = self.worker.note_change
            self.desk.offer = self.worker.turns.offer
            self._thread = threading.Thread(
                target=_run, args=(self.worker,), name="http-callback-worker", daemon=True
            )
            self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Stop delivering when the last user is gone. Blocks: call it off the event loop."""
        with _lock:
            self._users = max(0, self._users - 1)
            if self._users or self._thread is None:
                return
            worker, thread = self.worker, self._thread
            self.worker = self._thread = None
            _services.pop(self.home, None)
        if worker is not None:
            worker.stop()
        thread.join(timeout)
        self.desk.close()

    def _stamps(self) -> tuple[int, ...]:
        files = [
            self.home / "config.yaml",
            self.home / ".env",
            state_directory(self.home) / "allow.json",
        ]
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)

    def reload_if_changed(self) -> None:
        """Read the settings again when a file changed; wrong ones change nothing."""
        stamps = self._stamps()
        if stamps != self._seen:
            self._seen = stamps
            self.reload()

    def reload(self) -> None:
        """Read the settings again; wrong ones change nothing and are logged."""
        try:
            self.settings = load_settings(self.home)
        except SettingsError as error:
            logger.error("http_callback: the new settings are not used: %s", error)  # noqa: TRY400
        else:
            logger.info("http_callback: settings read again")


def _run(worker: Worker) -> None:
    while not worker.stopping.is_set():
        try:
            asyncio.run(worker.run())
            return
        except Exception:
            logger.exception("http_callback: the worker fell over; it starts again in a moment")
        worker.stopping.wait(RESTART_S)


def service_for(home: Path | None = None, extra: Mapping[str, Any] | None = None) -> Service:
    """Give the service of a home, making it on first use.

    Raises:
        SettingsError: its settings cannot be used.
    """
    home = (home or hermes_home()).resolve()
    with _lock:
        found = _services.get(home)
        if found is None:
            found = _services[home] = Service(home, extra)
    return found


def running() -> list[Service]:
    """Give the services of this process, one for each home it serves."""
    with _lock:
        return list(_services.values())


__all__ = ["Service", "running", "service_for"]
