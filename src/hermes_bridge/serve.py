"""The composition root: configuration -> store, relay, doors, one server, one task group.

Signals: SIGTERM and SIGINT end the process within 10 s with exit code 0; SIGHUP reads the
configuration again without dropping a link.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hermes_bridge import config as config_file
from hermes_bridge.clock import SystemClock
from hermes_bridge.db.base import Database
from hermes_bridge.db.sqlite import MEMORY, SqliteDatabase
from hermes_bridge.errors import ConfigError, HermesBridgeError
from hermes_bridge.log import configure, event
from hermes_bridge.relay.auth import Tokens
from hermes_bridge.relay.config import DbSection, RelayConfig
from hermes_bridge.relay.doors.asgi import RelayApp
from hermes_bridge.relay.doors.bridge import BridgeDoor
from hermes_bridge.relay.doors.mcp import McpDoor
from hermes_bridge.relay.doors.metrics import MetricsDoor, Series, of_traces
from hermes_bridge.relay.doors.ui import UiDoor
from hermes_bridge.relay.index import SearchIndex
from hermes_bridge.relay.ledger import Ledger
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.verbs import Verbs
from hermes_bridge.web import loop, serving
from hermes_bridge.web.serving import Server

if TYPE_CHECKING:
    from hermes_bridge.connector.process import Inside
    from hermes_bridge.relay.export import Exports, Target
    from hermes_bridge.relay.traces import Tracer

_log = logging.getLogger("hermes_bridge.serve")
_DRAIN_S = 3.0
_FLUSH_S = 1.5
_MEMORY_ROWS = 10_000
_DAY_MS = 86_400_000


class Service:
    """One relay process, from its configuration to its exit."""

    def __init__(
        self,
        config: RelayConfig,
        reload: Callable[[], RelayConfig] | None = None,
        *,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """`reload` reads the configuration again on SIGHUP; `ready` is told the server's address."""
        self._config, self._reload_config, self._tell_ready = config, reload, ready
        self._stopping = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self.clock = SystemClock()
        self.database = database(config.db)
        self.relay = Relay(
            config.roster(), config.limits(), clock=self.clock, ledger=Ledger(self.database)
        )
        tokens = Tokens(config_file.token_digests(config))
        verbs = Verbs(self.relay)
        self._mcp = McpDoor(self.relay, verbs, tokens, origins=frozenset(config.allowed_origins))
        self._bridge = BridgeDoor(self.relay, verbs, tokens)
        self._ui = UiDoor(self.relay, config.ui, open_to_all=_is_loopback(config.listen.host))
        self._ui.keeps = self._keeps
        self._exports: Exports | None = None
        self._tracer: Tracer | None = None
        self._trace_to(_targets(config))
        self._connector = _inside(config)
        sources = [of_traces(lambda: self._exports)]
        if self._connector is not None:
            self._ui.connector = self._connector.report
            figures = self._connector.figures
            sources.append(lambda: (Series(*f[:4], list(f.samples)) for f in figures()))
        metrics = MetricsDoor(self.relay, self._ui.access, sources)
        self._app = RelayApp(
            self.relay,
            self._bridge,
            self._ui,
            metrics,
            beside=self._connector.doors if self._connector else None,
            report=self._connector.report if self._connector else None,
        )

    async def run(self) -> None:
        """Serve until a signal or `stop`. Raises `HermesBridgeError` when it cannot begin."""
        listener = bind(self._config)
        listen = self._config.listen
        server = serving.build(
            self._app,
            direct={b"/mcp": self._mcp},
            tls_cert=listen.tls_cert,
            tls_key=listen.tls_key,
        )
        self._on_signals()
        await self.relay.start()
        async with asyncio.TaskGroup() as group:
            self._group = group
            background = [group.create_task(work) for work in self._background(server)]
            if self._exports is not None:
                group.create_task(self._exports.run())  # `close` below ends it, after a last flush
            served = group.create_task(server.serve(sockets=[listener]))
            while not server.started and not served.done():
                await asyncio.sleep(0.005)
            address = address_of(listener, self._config)
            _settle_memory()
            event(_log, "serve.ready", address=address, pid=os.getpid())
            if self._tell_ready is not None:
                self._tell_ready(address)
            await self._stopping.wait()
            await self._drain(server)
            await served
            for task in background:
                task.cancel()
            if self._exports is not None:
                await self._exports.close(_FLUSH_S)
        await self.database.close()
        event(_log, "serve.stopped", rows_not_stored=len(self.relay.journal))

    def _background(self, server: Server) -> Iterator[Coroutine[Any, Any, None]]:
        """Give what runs beside the server until it has drained."""
        yield self.relay.journal.run()
        yield self.relay.keep_trying_to_load()
        yield SearchIndex(self.relay.ledger).run()
        yield self._forget_old()
        yield self._ui.keep_warm()
        yield serving.look_after(server)
        if self._connector is not None:
            yield self._connector.beside()

    def _trace_to(self, targets: "Sequence[Target]") -> None:
        """Send spans to these from now on. Nothing of it is loaded before there is a first one."""
        if self._exports is not None:
            self._exports.replace(targets)
        elif targets:
            from hermes_bridge.relay.export import Exports

            self._exports = Exports(targets)
            if self._group is not None:
                self._group.create_task(self._exports.run())
        else:
            return
        if self._tracer is not None:
            self.relay.watchers.remove(self._tracer.watch)
        self._tracer = self._exports.tracer(self.relay.book.get)
        self._mcp.tracer = self._bridge.tracer = self._tracer
        if self._tracer is not None:
            self.relay.watchers.append(self._tracer.watch)

    def stop(self) -> None:
        """Begin to end, as SIGTERM does."""
        self._stopping.set()

    def reload(self) -> None:
        """Take agents, tokens, limits, permissions, the page's password and the targets of traces
        from the file again; a bad file changes nothing."""
        if self._reload_config is None:
            return
        try:
            fresh = self._reload_config()
            targets = _targets(fresh)
        except HermesBridgeError as error:
            event(_log, "reload.refused", logging.ERROR, reason=str(error), hint=error.hint)
            return
        tokens = Tokens(config_file.token_digests(fresh))
        gone = self.relay.replace(fresh.roster(), fresh.limits())
        self._mcp.tokens = tokens
        self._bridge.revoke(tokens)
        self._ui.replace(fresh.ui)
        self._trace_to(targets)
        self._config = fresh
        if self._connector is not None and self._group is not None:
            self._group.create_task(self._connector.connector.reload())
        event(_log, "reload.done", agents=len(fresh.agents), removed=",".join(gone) or "none")

    async def _drain(self, server: Server) -> None:
        event(_log, "serve.stopping", exchanges_open=len(self.relay.book))
        self.relay.drain()
        self._ui.close()
        await asyncio.sleep(0.2)  # peers answer the goodbye before their connections are ended
        server.should_exit = True
        if not await self.relay.journal.drain(_DRAIN_S):
            event(_log, "store.not_drained", logging.ERROR, rows=len(self.relay.journal))

    def _keeps(self) -> int:
        """Give for how many days exchanges are kept; 0 = that is not a matter of time."""
        return 0 if self._config.db.driver == "memory" else self._config.retention_days

    async def _forget_old(self) -> None:
        """Keep the store within `retention_days`, or a store in memory within its rows."""
        while True:
            with contextlib.suppress(HermesBridgeError):
                if self._config.db.driver == "memory":
                    await self.relay.ledger.keep_newest(_MEMORY_ROWS)
                elif self._config.retention_days:
                    before = self.clock.now() - self._config.retention_days * _DAY_MS
                    while await self.relay.ledger.forget(before, 500):
                        await asyncio.sleep(0.1)
            await asyncio.sleep(60 if self._config.db.driver == "memory" else 3600)

    def _on_signals(self) -> None:
        on = asyncio.get_running_loop().add_signal_handler
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            on(signal.SIGTERM, self.stop)
            on(signal.SIGINT, self.stop)
            on(signal.SIGHUP, self.reload)


def _inside(config: RelayConfig) -> "Inside | None":
    """Give the connector of this process, if the file has one. Imported only then."""
    if config.connector is None:
        return None
    from hermes_bridge.connector.config import configure as configure_connector
    from hermes_bridge.connector.process import Inside

    return Inside(configure_connector(config.connector, os.environ))


def _targets(config: RelayConfig) -> "list[Target]":
    """Give where spans go. Raises `ConfigError` for an address that is none."""
    if not config.otlp and config.langfuse is None:
        return []
    from hermes_bridge.relay.export import targets

    return targets(config)


def database(section: DbSection) -> Database:
    """Give the store that the configuration names."""
    if section.driver == "memory":
        return SqliteDatabase(MEMORY)
    if section.driver == "postgres":
        return _postgres(section.connection_string or "")
    return SqliteDatabase(section.path)


def _postgres(dsn: str) -> Database:
    if not dsn.startswith(("postgresql://", "postgres://", "postgresql+asyncpg://")):
        raise ConfigError(
            "db.connection_string (or DATABASE_URL) is not a PostgreSQL address.",
            hint="It begins with postgresql://, as in postgresql://user:password@host:5432/name.",
        )
    try:
        from hermes_bridge.db.postgres import PostgresDatabase
    except ImportError:
        raise ConfigError(
            "PostgreSQL needs a package that is not installed.",
            hint="Install it with `pip install 'hermes-bridge[postgres]'`.",
        ) from None
    return PostgresDatabase(dsn)


def bind(config: RelayConfig) -> socket.socket:
    """Open the listening socket. Raises `ConfigError` with words when it cannot be had."""
    host, port = config.listen.host, config.listen.port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        raise ConfigError(
            f"Cannot listen on {host} port {port}: {error.strerror or error}.",
            hint="Another process may use the port: choose one with listen.port or PORT.",
        ) from None
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket, config: RelayConfig) -> str:
    """Give the address a person on this machine can open."""
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = "127.0.0.1"
    scheme = "https" if config.listen.tls_cert else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _settle_memory() -> None:
    """Keep the collector from walking what start-up made; asks make little that only it can free."""
    gc.collect()
    _give_back()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _give_back() -> None:
    """Give the memory that start-up needed for a moment back to the system, where the C library can."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def run(
    path: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Run a relay in this process until it is told to stop."""
    env = os.environ if env is None else env

    def load() -> RelayConfig:
        return config_file.load(path, env)

    first = load()
    configure(level=first.log.level, form=first.log.format)

    async def main() -> None:
        await Service(first, load, ready=ready).run()

    loop.run(main())
