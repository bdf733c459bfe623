"""The outbox's thread: all SQLite work of a process, one transaction for all that is waiting.

`submit` may be called from any thread and any event loop; it gives a future of the standard
library's kind. Work that must be durable and work that need not be share the strictest commit.
"""

import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from .custody import Custody
from .outbox import Offer, Outbox
from .store import OutboxUnavailable, Store, is_damage

logger = logging.getLogger(__name__)

T = TypeVar("T")
MOST_AT_ONCE = 64
IDLE_S, MOST_COMMITS = 0.3, 4_000


@dataclass(frozen=True)
class _Task:
    work: Callable[[Outbox, Custody], Any]
    durable: bool
    future: "Future[Any]"


class Desk:
    """Owns the connection.

    `on_change` is told, on its thread, what a commit gave (nothing, when it failed), before those
    who wait for it are. `offer` may promise a row a turn while it is stored.
    """

    def __init__(self, path: Path, owner: str, *, checkpoints: bool = True) -> None:
        """Name the file; nothing is opened before the first use."""
        self.path = path
        self.owner = owner
        self._checkpoints = checkpoints
        self._tasks: deque[_Task] = deque()
        self._ready = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._store: Store | None = None
        self._commits = 0
        self._trouble = ""
        self.on_change: Callable[[list[Any]], None] | None = None
        self.offer: Offer | None = None

    @property
    def trouble(self) -> str:
        """Say what is wrong with the outbox now; "" when nothing is."""
        return self._trouble

    def submit(self, work: Callable[[Outbox, Custody], T], *, durable: bool = False) -> "Future[T]":
        """Run `work` in a transaction. Its future ends with OutboxUnavailable when that fails."""
        future: Future[T] = Future()
        with self._ready:
            if self._closing:
                future.set_exception(OutboxUnavailable("outbox unavailable: it is closed"))
                return future
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="http-callback-outbox", daemon=True
                )
                self._thread.start()
            self._tasks.append(_Task(work, durable, future))
            self._ready.notify()
        return future

    def close(self, timeout: float = 10.0) -> None:
        """Finish what is queued and close the file."""
        with self._ready:
            self._closing = True
            self._ready.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while not self._closing or self._tasks:
            if batch := self._next_batch():
                self._do(batch)
            if self._commits and (not batch or self._commits > MOST_COMMITS):
                # Off the path of whoever waits: moving the log costs several disk syncs.
                self._commits = 0
                if self._store is not None:
                    self._store.checkpoint()
        if self._store is not None:
            self._store.close()

    def _next_batch(self) -> list[_Task]:
        with self._ready:
            while not self._tasks and not self._closing:
                idle = not self._ready.wait(IDLE_S if self._commits else None)
                if idle or self._commits > MOST_COMMITS:
                    break
            return [self._tasks.popleft() for _ in range(min(MOST_AT_ONCE, len(self._tasks)))]

    def _do(self, batch: list[_Task]) -> None:
        try:
            answers = self._transact(batch)
        except OutboxUnavailable as error:
            self._failed(batch, error)
            return
        if self._trouble:
            logger.warning("http_callback: the outbox works again")
            self._trouble = ""
        # The worker first: what was stored is on its way before anybody hears that it is stored.
        if self.on_change is not None:
            self.on_change([value for value, _ in answers])
        for task, (value, problem) in zip(batch, answers, strict=True):
            # A caller that gave up has cancelled its future; the row is stored all the same.
            if task.future.set_running_or_notify_cancel():
                if problem is None:
                    task.future.set_result(value)
                else:
                    task.future.set_exception(problem)

    def _transact(self, batch: list[_Task]) -> list[tuple[Any, BaseException | None]]:
        if self._store is None:
            self._store = Store(self.path, checkpoints=self._checkpoints)
        outbox = Outbox(self._store, self.owner, self.offer)
        custody = Custody(outbox)
        answers: list[tuple[Any, BaseException | None]] = []
        with self._store.transaction(durable=any(task.durable for task in batch)) as db:
            for task in batch:
                db.execute("SAVEPOINT task")
                try:
                    answers.append((task.work(outbox, custody), None))
                except sqlite3.DatabaseError:
                    # The file, not the work: the whole batch fails and is told so.
                    raise
                except Exception as error:  # noqa: BLE001 - it belongs to the caller's future
                    db.execute("ROLLBACK TO task")
                    answers.append((None, error))
                db.execute("RELEASE task")
        self._commits += 1
        return answers

    def _failed(self, batch: list[_Task], error: OutboxUnavailable) -> None:
        cause = error.__cause__
        if self._store is not None and cause is not None and is_damage(cause):
            self._recover(str(cause))
        if not self._trouble:
            logger.error("http_callback: %s; callbacks wait until it works again", error)
        self._trouble = str(error)
        if self.on_change is not None:
            self.on_change([])
        for task in batch:
            if task.future.set_running_or_notify_cancel():
                task.future.set_exception(error)

    def _recover(self, reason: str) -> None:
        store = self._store
        if store is None:
            return
        try:
            store.set_aside(reason)
        except OutboxUnavailable:
            self._store = None
