"""The bot's memory of its exchanges over a restart: a file of JSON lines in the Hermes home.

A line says what one exchange has become; the last line of an id counts. It is written by one
thread, so that a slow disk never holds the gateway's loop. A disk that fails costs the memory over
a restart and nothing else: one warning, and the bot works on.
"""

import json
import logging
import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

from .frames import BadFrame, wake_from, wake_to
from .inbox import Exchange, Reply, State

MAX_BYTES = 8_388_608
"""Over this, the file is written anew with the last line of each exchange."""

_log = logging.getLogger(__name__)


class Journal:
    """Append, and read at the start."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None
        self._bytes = 0
        self._warned = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hermes-bridge-journal")

    def load(self) -> list[Exchange]:
        """Read what is there, oldest first; broken lines (a crash in mid-write) are passed over."""
        found: dict[str, Exchange] = {}
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            self._warn(error)
            return []
        for line in lines:
            try:
                exchange = _exchange(json.loads(line))
            except (ValueError, KeyError, TypeError, BadFrame):
                continue
            found[exchange.wake.request_id] = exchange
        return list(found.values())

    def keep(self, exchange: Exchange) -> "Future[None]":
        """Write what the exchange is now; the future is done when the system has it."""
        return self._thread.submit(self._append, _line(exchange))

    def rewrite(self, exchanges: Iterable[Exchange]) -> "Future[None]":
        """Replace the file by these exchanges alone."""
        whole = b"".join(_line(exchange) for exchange in exchanges)
        return self._thread.submit(self._replace, whole)

    @property
    def too_long(self) -> bool:
        """Whether it is time for `rewrite`."""
        return self._bytes > MAX_BYTES

    def close(self) -> None:
        """Write what is waiting and let go of the file."""
        self._thread.shutdown(wait=True)
        self._shut()

    def _append(self, line: bytes) -> None:
        try:
            file = self._file or self._open()
            file.write(line)
            self._bytes += len(line)
        except OSError as error:
            self._shut()
            self._warn(error)

    def _open(self) -> BinaryIO:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = file = os.fdopen(handle, "ab", buffering=0)
        self._bytes = os.fstat(handle).st_size
        return file

    def _replace(self, whole: bytes) -> None:
        beside = self.path.with_suffix(".new")
        try:
            self._shut()
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(whole)
            beside.replace(self.path)
            self._bytes = len(whole)
        except OSError as error:
            self._warn(error)

    def _shut(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            _log.warning(
                "hermes-bridge cannot use %s (%s): questions that are open now are forgotten "
                "when this gateway restarts",
                self.path,
                error.strerror or error,
            )


def _line(exchange: Exchange) -> bytes:
    row: dict[str, Any] = {
        "at": exchange.arrived,
        "state": exchange.state.value,
        "starts": exchange.starts,
        "confirmed": exchange.confirmed,
        "wake": wake_to(exchange.wake),
    }
    if exchange.reply is not None:
        reply = exchange.reply
        row["reply"] = {"text": reply.text, "failure": reply.failure, "data": reply.data}
    if exchange.state is State.SETTLED:
        row["wake"]["message"] = "-"  # it will not run again
        row["wake"]["data"] = None
        if exchange.confirmed:
            row["wake"]["trace"] = None
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _exchange(row: dict[str, Any]) -> Exchange:
    reply = row.get("reply")
    return Exchange(
        wake=wake_from(row["wake"]),
        arrived=float(row["at"]),
        state=State(row["state"]),
        starts=int(row["starts"]),
        reply=Reply(reply["text"], bool(reply["failure"]), reply.get("data")) if reply else None,
        confirmed=bool(row["confirmed"]),
    )
