"""The connector: owns the table, the inbox and the accounts, and performs what the cores decide.

`run` is its life: it serves until cancelled, and leaves nothing half written. Doors bring it
connections and frames; platforms bring it messages.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from hermes_bridge.clock import Clock, SystemClock, wall_ms
from hermes_bridge.connector import legacy
from hermes_bridge.connector.actions import Actions, shown
from hermes_bridge.connector.backfill import ALIVE_MARGIN_MS, Backfill
from hermes_bridge.connector.config import ConnectorConfig, reread
from hermes_bridge.connector.core.cursor import Cursors, stamp
from hermes_bridge.connector.core.dedup import delivery_key
from hermes_bridge.connector.core.guard import Redactor, is_stop
from hermes_bridge.connector.core.identity import Identity, IdentityTable, account_moved, difference
from hermes_bridge.connector.core.inbox import ACKED, Deliver, Done, Entry, Parked, Wake
from hermes_bridge.connector.core.message import Message
from hermes_bridge.connector.core.route import MIRRORED, NOT_ADDRESSED, TYPING, policies_of
from hermes_bridge.connector.gateways import Gateways
from hermes_bridge.connector.lanes import Lanes
from hermes_bridge.connector.lease import Lease
from hermes_bridge.connector.platforms import find
from hermes_bridge.connector.platforms.base import ONLINE, Platform
from hermes_bridge.connector.readiness import Readiness
from hermes_bridge.connector.state import State, logger
from hermes_bridge.connector.store import Account, Store
from hermes_bridge.connector.wake import poke
from hermes_bridge.db.base import Database
from hermes_bridge.errors import ConfigError
from hermes_bridge.log import event

_ORDERS_S = 5.0
_PLATFORM_AGAIN_S = 5.0
_ALIVE_S = 30.0
_SWEEP_S = 60.0
_PRUNE_S = 600.0
_KEEP_OVER_MS = 7 * 24 * 3600 * 1000
_QUIET_REASONS = frozenset({MIRRORED, NOT_ADDRESSED, TYPING})


class Connector:
    """One connector process."""

    def __init__(
        self,
        config: ConnectorConfig,
        database: Database,
        *,
        platforms: Mapping[str, Platform] | None = None,
        clock: Clock | None = None,
        lease: Lease | None = None,
    ) -> None:
        """`platforms` by name; those that the table needs and that are not given are looked up."""
        clock = clock or SystemClock()
        self.state = State(config, Store(database, clock), clock)
        self._lease = lease or Lease(database)
        self.state.spawn, self.state.settle = self._spawn, self.settle
        self.state.platforms.update(platforms or {})
        self._lanes = Lanes(self.state)
        self.gateways = Gateways(self.state, Actions(self.state))
        self._backfill = Backfill(self.state, self._take)
        self._group: asyncio.TaskGroup | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0
        self._settling = False
        self._runners: dict[str, asyncio.Task[None]] = {}
        self._marks: dict[str, Account] = {}
        self.readiness = Readiness()

    # -- life ------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until cancelled.

        Raises:
            DatabaseDown: the store cannot be opened at start.
            StoreTaken: another connector uses the store, or has taken it over.
        """
        await self._load()
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._lease.keep())
                for name in sorted(self.state.table.platforms):
                    self._run_platform(name)
                group.create_task(self.state.store.run(self._stored))
                group.create_task(self._every(self._flush_s(), self._save_cursors))
                group.create_task(self._every(_ORDERS_S, self._obey))
                group.create_task(self._every(_ALIVE_S, self._mark_alive))
                group.create_task(self._every(_SWEEP_S, self._sweep))
                group.create_task(self._every(_PRUNE_S, self._prune))
                for identity in self.state.table.rows:
                    self._start(identity)
                self.readiness.serves()
        finally:
            self.readiness.down("the connector is stopping")
            self._group = None
            if self._timer is not None:
                self._timer.cancel()
            await self._stop()

    async def _load(self) -> None:
        await self.state.store.open()
        await self._lease.take()
        kept = await self.state.store.load()
        state, now = self.state, self.state.clock.now()
        for bot_id, channel, message_id, _ in kept.seen:
            state.router.seen.take(delivery_key(bot_id, channel, message_id), now)
        state.cursors = {bot_id: Cursors(marks) for bot_id, marks in kept.cursors.items()}
        for bot_id, account in kept.accounts.items():
            state.alive[bot_id] = account.alive
            state.inbox.learned(bot_id, finals=account.finals, types=account.types)
        state.declared = kept.policies
        state.router.policies = policies_of(state.table, state.declared)
        for entry in kept.waiting:
            state.inbox.add(entry, now)
        if kept.waiting:
            event(logger, "inbox.loaded", waiting=len(kept.waiting))

    async def _stop(self) -> None:
        await self._mark_alive()
        await self._save_cursors()
        for link in list(self.state.links.values()):
            link.close(1001, "connector shutdown")
        await self.state.store.flush()
        await self._lease.give_back()
        for platform in self.state.platforms.values():
            await platform.close()
        self.state.shelf.close()
        event(logger, "connector.stopped")

    def _run_platform(self, name: str) -> None:
        if name not in self.state.platforms:
            self.state.platforms[name] = find(name, self.state.config.settings)
        if name not in self._runners and self._group is not None:
            self._runners[name] = self._group.create_task(self._keep_running(name))

    async def _keep_running(self, name: str) -> None:
        """Run a platform's background work; a fault in it costs a pause, not the connector."""
        while True:
            try:
                await self.state.platforms[name].run()
            except Exception as error:  # noqa: BLE001  platforms may be somebody else's
                event(logger, "platform.failed", logging.ERROR, platform=name,
                      cause=f"{type(error).__name__}: {error}"[:300])  # fmt: skip
            await asyncio.sleep(_PLATFORM_AGAIN_S)

    def _start(self, identity: Identity) -> None:
        bot_id = identity.bot_id
        known = bot_id in self.state.alive or bot_id in self.state.cursors
        directory = self.state.config.cursor_dir
        if not known and directory:
            marks, alive = legacy.read(directory, bot_id)
            self.state.cursors[bot_id] = Cursors(marks)
            self.state.store.cursors(bot_id, marks)
            if alive:
                self.state.alive[bot_id] = alive
        self.state.platform_of(identity).start(identity, self)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        guarded = _guarded(work)
        try:
            if self._group is not None:
                self._group.create_task(guarded)
                return
        except RuntimeError:
            pass  # the group is ending: nothing new begins
        guarded.close()
        work.close()

    async def _every(self, seconds: float, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await work()

    # -- what platforms say (Sink) --------------------------------------------------------

    def received(self, bot_id: str, message: Message) -> None:
        """A message came in on an account."""
        if not self._backfill.hold(bot_id, message):
            self._take(bot_id, message, True)

    def joining(self, bot_id: str, channels: Sequence[str]) -> None:
        """An account is about to listen to channels."""
        self._backfill.joining(bot_id, channels)

    def joined(self, bot_id: str, channels: Sequence[str]) -> None:
        """An account listens to channels."""
        self._backfill.joined(bot_id, channels)

    def _take(self, bot_id: str, message: Message, live: bool) -> None:
        """Plan a message, keep what it leads to, and only then let the cursor pass it."""
        state, now = self.state, self.state.clock.now()
        plan = state.router.plan(message, bot_id, now)
        for target in plan.bots:
            identity = state.table.get(target)
            urgent = identity is not None and identity.owned_by(message.sender)
            entry = Entry(
                state.store.new_id(), target, message.channel, plan.message_id, message, now,
                urgent=urgent and is_stop(message.text),
            )  # fmt: skip
            state.store.add(entry)
        for skip in plan.skips:
            state.counts[f"skipped.{skip.reason}"] += 1
            level = logging.DEBUG if skip.reason in _QUIET_REASONS else logging.INFO
            if logger.isEnabledFor(level):
                event(logger, "inbound.skipped", level, reason=skip.reason,
                      bot=skip.bot_id or bot_id, message=shown(message.id))  # fmt: skip
        if live and message.channel and message.text != "__typing__":
            state.cursors.setdefault(bot_id, Cursors()).planned(message.channel, message.at)

    def _stored(self, entries: list[Entry]) -> None:
        now = self.state.clock.now()
        for entry in entries:
            self.state.inbox.add(entry, now)
        self.settle()

    # -- effects and time ---------------------------------------------------------------------

    def settle(self) -> None:
        """Perform what the inbox decided, until it has nothing more to say."""
        if self._settling:
            return
        self._settling = True
        try:
            while effects := self.state.inbox.take():
                for effect in effects:
                    self._perform(effect)
        finally:
            self._settling = False
        self._set_timer()

    def _perform(self, effect: Deliver | Done | Parked | Wake) -> None:
        match effect:
            case Deliver(entry):
                self._lanes.start(entry)
            case Done(entry, reason):
                self.state.store.over(entry)
                self.state.counts[f"inbound.{reason}"] += 1
                if reason != ACKED:
                    event(logger, "inbound.over", logging.DEBUG, bot=entry.bot_id,
                          reason=reason, buffer_id=entry.id)  # fmt: skip
            case Parked(entry):
                self.state.store.park(entry)
                self.state.counts["inbound.parked"] += 1
                event(logger, "inbound.parked", logging.ERROR, bot=entry.bot_id,
                      buffer_id=entry.id, tries=entry.tries)  # fmt: skip
            case Wake(bot_id):
                identity = self.state.table.get(bot_id)
                if identity is not None and identity.wake_url:
                    self._spawn(self._poke(identity))

    async def _poke(self, identity: Identity) -> None:
        trouble = await poke(identity.wake_url)
        event(logger, "gateway.woken", bot=identity.bot_id, trouble=trouble or "none")

    def _set_timer(self) -> None:
        deadline = self.state.inbox.next_deadline()
        if deadline is None or self._group is None:
            return
        if self._timer is not None and self._timer_at <= deadline:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        wait = max(0, deadline - self.state.clock.now()) / 1000
        self._timer = asyncio.get_running_loop().call_later(wait + 0.001, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.state.inbox.expire(self.state.clock.now())
        self.settle()

    def _flush_s(self) -> float:
        return max(500, self.state.config.section.cursor_flush_ms) / 1000

    async def _save_cursors(self) -> None:
        moved = {bot: cursors.take_dirty() for bot, cursors in self.state.cursors.items()}
        moved = {bot: marks for bot, marks in moved.items() if marks}
        for bot_id, marks in moved.items():
            self.state.store.cursors(bot_id, marks)
        if moved and self.state.config.cursor_dir:
            whole = {bot: dict(self.state.cursors[bot].marks) for bot in moved}
            await legacy.write(self.state.config.cursor_dir, whole)

    async def _mark_alive(self) -> None:
        """Note until when each account has listened: what a later start reads new channels from."""
        alive = stamp(wall_ms() - ALIVE_MARGIN_MS)
        for identity in self.state.table.rows:
            bot_id = identity.bot_id
            if self.state.platform_of(identity).account(bot_id).state == ONLINE:
                self.state.alive[bot_id] = alive
            finals, types = self.state.inbox.traits(bot_id)
            kept = Account(self.state.alive.get(bot_id, ""), finals, types)
            if kept != self._marks.get(bot_id):
                self._marks[bot_id] = kept
                self.state.store.account(bot_id, kept)

    async def _sweep(self) -> None:
        self.state.inbox.sweep(self.state.clock.now())
        self.state.shelf.sweep()
        self.settle()

    async def _prune(self) -> None:
        await self.state.store.prune(self.state.clock.now(), age_ms=_KEEP_OVER_MS)

    async def _obey(self) -> None:
        """Do what an operator ordered with `connector inbox`."""
        for entry, again in await self.state.store.orders():
            known = self.state.inbox.entry(entry.id)
            if again and known is None:
                self.state.store.revive(entry)
                self.state.inbox.add(entry, self.state.clock.now())
            elif not again and known is not None:
                self.state.inbox.dropped(known, "dropped", self.state.clock.now())
            elif not again:
                self.state.store.over(entry)
            event(logger, "inbox.ordered", buffer_id=entry.id, again=again)
        self.settle()

    # -- reload -----------------------------------------------------------------------------

    async def reload(self, table: IdentityTable | None = None) -> str:
        """Put a new table in force; give one sentence that says what changed or why nothing did."""
        try:
            table = table or reread(self.state.config)
        except ConfigError as error:
            event(logger, "reload.failed", logging.ERROR, cause=str(error), kept="previous table")
            return f"hot-reload FAILED (keeping previous identities): {error}"
        changes = difference(self.state.table, table)
        self._replace(table)
        for identity in changes.removed:
            await self.state.platform_of(identity).stop(identity.bot_id)
        for before, after in changes.changed:
            if account_moved(before, after):
                await self.state.platform_of(before).stop(before.bot_id)
                self._run_platform(after.platform)
                self._start(after)
        for identity in changes.added:
            self._run_platform(identity.platform)
            self._start(identity)
        event(logger, "reload.done", identities=len(table), added=len(changes.added),
              removed=len(changes.removed), changed=len(changes.changed))  # fmt: skip
        return (
            f"hot-reload complete: {len(table)} identities "
            f"({len(changes.added)} added, {len(changes.removed)} removed)"
        )

    def _replace(self, table: IdentityTable) -> None:
        state, now = self.state, self.state.clock.now()
        state.table = table
        state.redactor = Redactor(table.all_secrets())
        state.router.reloaded(table)
        state.router.policies = policies_of(table, state.declared)
        for link in list(state.links.values()):
            lost = link.session.reloaded(table)
            for bot_id in lost:
                state.inbox.link_down(bot_id, link.number, now)
            if lost or not link.session.still_valid(table):
                link.close(1002, "identity removed or its credentials changed; connect again")
                for bot_id in link.session.bots:
                    state.inbox.link_down(bot_id, link.number, now)
        self.settle()


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    """Run one piece of work; a fault of ours in it is logged and ends nothing else."""
    try:
        await work
    except Exception as error:  # noqa: BLE001  the one place where our own faults are contained
        event(
            logger, "connector.bug", logging.ERROR, cause=f"{type(error).__name__}: {error}"[:300]
        )
