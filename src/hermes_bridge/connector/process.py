"""A connector inside another process, and one that runs alone: store, doors, server, signals.

SIGTERM and SIGINT stop it within ten seconds and with exit code 0; SIGHUP reads the identity
file again.
"""

import asyncio
import contextlib
import fcntl
import logging
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from hermes_bridge.connector import health
from hermes_bridge.connector.config import ConnectorConfig
from hermes_bridge.connector.connector import Connector
from hermes_bridge.connector.doors.asgi import build
from hermes_bridge.connector.figures import Figure, figures
from hermes_bridge.connector.lease import StoreTaken
from hermes_bridge.connector.platforms.base import Platform
from hermes_bridge.connector.state import logger
from hermes_bridge.connector.store import database
from hermes_bridge.contract.descriptor import CONTRACT_VERSION
from hermes_bridge.errors import ConfigError, DatabaseDown, HermesBridgeError
from hermes_bridge.log import event
from hermes_bridge.web import serving
from hermes_bridge.web.serving import Server

_STOP_S = 4.0
_AGAIN_S = 5.0


class Inside:
    """A connector as a part of some process: its store with its lock, its life, its doors."""

    def __init__(
        self, config: ConnectorConfig, *, platforms: Mapping[str, Platform] | None = None
    ) -> None:
        self._config = config
        section = config.section
        self._database = database(section.database, config.store, durable=section.sync_every_commit)
        self.connector = Connector(config, self._database, platforms=platforms)
        self.doors = build(self.connector)

    async def run(self) -> None:
        """Live until cancelled.

        Raises:
            ConfigError: another connector uses the same store.
            DatabaseDown: the store cannot be opened.
        """
        try:
            await self._live()
        finally:
            await self._database.close()

    async def _live(self) -> None:
        with _alone(self._config.store):
            try:
                await self.connector.run()
            except ExceptionGroup as errors:
                raise _first(errors) from None

    async def beside(self) -> None:
        """Live beside another part, which must not end because of this one."""
        try:
            while True:
                try:
                    await self._live()
                except (DatabaseDown, StoreTaken) as error:
                    self._failed(error)
                await asyncio.sleep(_AGAIN_S)
        except HermesBridgeError as error:
            self._failed(error)
        except Exception as error:  # noqa: BLE001  the other part must not end because of us
            self.connector.readiness.down("a fault of the connector itself; the log names it")
            event(logger, "connector.bug", logging.ERROR, cause=_words(error))
        finally:
            await self._database.close()

    def _failed(self, error: HermesBridgeError) -> None:
        self.connector.readiness.down(f"the connector does not run: {error}")
        event(logger, "connector.failed", logging.ERROR, cause=error, hint=error.hint)

    def figures(self) -> Iterator[Figure]:
        """Give what `/metrics` says of the connector."""
        return figures(self.connector.state, self.connector.readiness)

    def report(self) -> dict[str, Any]:
        """Give what `/health` says of the connector."""
        readiness = self.connector.readiness
        if readiness.serving:
            return health.report(self.connector.state)
        return (
            {"status": "starting"}
            if readiness.starting
            else {"status": "down", "cause": readiness.cause}
        )


class Process:
    """One connector process. `address` is set when it serves."""

    def __init__(
        self, config: ConnectorConfig, *, platforms: Mapping[str, Platform] | None = None
    ) -> None:
        self._config = config
        self._inside = Inside(config, platforms=platforms)
        self.connector = self._inside.connector
        self._stop = asyncio.Event()
        self.serving = asyncio.Event()
        self.address: tuple[str, int] = ("", 0)

    def stop(self) -> None:
        """Begin to stop, as SIGTERM does."""
        self._stop.set()

    async def run(self, *, signals: bool = True) -> None:
        """Serve until stopped.

        Raises:
            ConfigError: the address is taken, or another connector uses the same store.
            DatabaseDown: the store cannot be opened.
        """
        with _listener(self._config) as listener:
            self.address = listener.getsockname()[:2]
            failed: BaseException | None = None
            try:
                await self._serve(listener, signals=signals)
            except ExceptionGroup as errors:
                failed = _first(errors)
            if failed is not None:
                raise failed

    async def _serve(self, listener: socket.socket, *, signals: bool) -> None:
        server = serving.build(self._inside.doors, grace_s=2)
        try:
            await self._live(server, listener, signals=signals)
        finally:
            for each in getattr(server, "servers", ()):
                each.close()  # before the socket under it is closed

    async def _live(self, server: Server, listener: socket.socket, *, signals: bool) -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(self._inside.run())
            await self.connector.readiness.wait()
            served = group.create_task(server.serve(sockets=[listener]))
            sweeping = group.create_task(serving.look_after(server))
            loop = asyncio.get_running_loop()
            if signals:
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, self.stop)
                loop.add_signal_handler(
                    signal.SIGHUP, lambda: group.create_task(self.connector.reload())
                )
            self._announce()
            await self._stop.wait()
            running.cancel()
            await asyncio.wait([running], timeout=_STOP_S)
            server.should_exit = True
            await asyncio.wait([served], timeout=_STOP_S)
            served.cancel()
            sweeping.cancel()

    def _announce(self) -> None:
        count = len(self._config.table)
        what = "identity" if count == 1 else "identities"
        host, port = self.address
        event(logger, f"listening on {host}:{port} (contract v{CONTRACT_VERSION}, {count} {what})")
        self.serving.set()


@contextlib.contextmanager
def _listener(config: ConnectorConfig) -> Iterator[socket.socket]:
    """Bind before anything else happens: a taken port must not cost a login."""
    host, port = config.section.host, config.section.port
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1024)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', error)}",
            hint="Is another connector running? RELAY_PORT and RELAY_HOST choose another address.",
        ) from None
    with listener:
        listener.setblocking(False)
        yield listener


@contextlib.contextmanager
def _alone(store: str) -> Iterator[None]:
    """Hold the store's lock: two connectors on one store would answer every message twice."""
    path = Path(store + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file: IO[str] = path.open("w", encoding="ascii")
    except OSError as error:
        raise ConfigError(
            f"the state directory {path.parent} cannot be used: {error.strerror}",
            hint="Set HERMES_BRIDGE_CONNECTOR_STATE_DIR to a directory that is yours.",
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreTaken(
                f"another connector uses the store {store}",
                hint="One connector serves an account. Stop the other one, or give this one a "
                "state directory and accounts of its own.",
            ) from None
        yield


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]


def _first(errors: ExceptionGroup) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, HermesBridgeError) else errors
