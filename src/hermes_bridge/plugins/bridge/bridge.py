"""The plugin's shell, without Hermes: it owns the inbox, the journal, the calls and the link.

Effects of the inbox are performed here, in order. What Hermes has to do goes through `Host`, so
that the tests can play Hermes and the adapter stays thin.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol

from . import frames, inbox as box
from .calls import Calls
from .journal import Journal
from .link import Link
from .pulse import Pulse
from .settings import Settings
from .trace import Trace, within
from .verdict import NO_TEXT, NOT_STARTED
from .wake import framed

POSTPONE_S = 0.25
PATIENCE_S = 10.0
"""How long a call waits for a link before it says that the relay cannot be reached."""
OUTAGE_S = 120.0
"""How long a call that was sent waits for the link to come back."""
_SHORTER = "Say it in fewer words, or in several messages of one conversation."
_AGAIN = frozenset({"shutting_down", "rate_limited"})

_log = logging.getLogger(__name__)


class Host(Protocol):
    """What the bridge needs of Hermes."""

    def ready(self, conversation: str) -> bool:
        """Whether a turn may be begun in this conversation now."""

    def busy(self, conversation: str) -> bool:
        """Whether Hermes runs a turn in this conversation."""

    async def begin(self, wake: frames.Wake, text: str) -> None:
        """Begin the turn; returns at once."""

    async def interrupt(self, conversation: str) -> None:
        """Stop the turn."""

    def show(self, online: bool, code: str, words: str) -> None:
        """Show the state of the link to the operator."""


def steady() -> Callable[[], float]:
    """Give a clock that is comparable over restarts and does not jump within one process."""
    base = time.time() - time.monotonic()
    return lambda: base + time.monotonic()


class Bridge:
    """Everything between a Hermes gateway and the relay."""

    def __init__(
        self,
        host: Host,
        settings: Callable[[], Settings],
        journal: Journal,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.inbox = box.Inbox()
        self.calls = Calls()
        self.link = Link(
            settings, on_frame=self._on_frame, on_state=self._on_state, urgent=self._urgent
        )
        self.loop: asyncio.AbstractEventLoop
        self._host, self._journal, self._now = host, journal, now or steady()
        self._pulse = Pulse(self._beat)
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._idle: dict[str, int] = {}
        self._up = asyncio.Event()
        self._down_since = 0.0
        self._closed = False

    def start(self) -> None:
        """Go on where the last process stopped, and dial in the background."""
        self.loop = asyncio.get_running_loop()
        self._down_since = self.loop.time()
        self._spawn(self._open())

    async def close(self) -> None:
        """Close the link and write down what is open; the next process goes on with it."""
        self._closed = True
        self._pulse.stop()
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.wait(self._tasks, timeout=5) if self._tasks else None
        await asyncio.to_thread(self._journal.close)

    # Hermes' side

    async def final(self, request_id: str, reply: box.Reply) -> bool:
        """The bot answered; returns once that is on disk. False when it is not the first answer."""
        effects = self.inbox.replied(request_id, reply)
        kept = self._perform(effects)
        if kept is not None:
            await asyncio.wrap_future(kept)
        return bool(effects)

    def turn_over(self, request_id: str, reason: str = NO_TEXT) -> None:
        """Hermes ended a turn."""
        self._perform(self.inbox.turn_over(request_id, self._now(), reason))

    async def call(
        self,
        call_id: str,
        tool: str,
        args: dict[str, Any],
        turn: str | None = None,
        trace: Trace | None = None,
    ) -> Any:
        """Call a verb of the relay and wait for its result, over lost links if need be.

        `trace` is where the caller is in its trace; without it the turn's own context counts.
        """
        if not self.link.online:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._up.wait()
            except TimeoutError:
                return self._unreachable()
        trace = within(self.trace_of(turn), trace)
        future = self._send_call(call_id, tool, args, turn, trace)
        try:
            while True:
                done, _ = await asyncio.wait({future}, timeout=5)
                if done:
                    return future.result()
                if not self.link.online and self.loop.time() - self._down_since > OUTAGE_S:
                    return self._unreachable()
        finally:
            self.calls.drop(call_id)

    def trace_of(self, request_id: str | None) -> Trace | None:
        """Give the trace context that an exchange came with."""
        exchange = self.inbox.get(request_id) if request_id else None
        return exchange.wake.trace if exchange is not None else None

    def abandon_ask(self, call_id: str, args: dict[str, Any], turn: str | None) -> None:
        """Cancel an ask whose own turn was cancelled: find it by its key, then cancel it."""
        self._spawn(self._abandon(call_id, args, turn))

    # The relay's side

    def _on_frame(self, frame: frames.Frame) -> None:
        match frame:
            case frames.Wake():
                self._perform(self.inbox.arrived(frame, self._now()))
            case frames.Cancel(request_id=request_id):
                self._perform(self.inbox.cancelled(request_id))
            case frames.Result(id=call_id, result=result):
                self.calls.ended(call_id, result)
            case frames.Welcome():
                self._pulse.retune(frame.heartbeat_ms / 1000)

    def _on_state(self) -> None:
        dial = self.link.dial
        if dial.online and not self._up.is_set():
            self._up.set()
            if self.link.welcome is not None:
                self._pulse.retune(self.link.welcome.heartbeat_ms / 1000)
            for frame in self.calls.frames():
                self.link.send(frame)
            self._beat()
        elif not dial.online and self._up.is_set():
            self._up.clear()
            self._down_since = self.loop.time()
        self._host.show(dial.online, dial.cause.value if dial.cause else "", dial.words)

    def _urgent(self) -> bool:
        return bool(self.inbox.open() or len(self.calls))

    # Effects

    def _perform(self, effects: list[box.Effect]) -> "Future[None] | None":
        """Perform effects in order; gives the last write to wait for."""
        kept: Future[None] | None = None
        written: set[str] = set()
        for effect in effects:
            match effect:
                case box.Keep(request_id):
                    if request_id not in written:  # the first line says all: the core is ahead
                        written.add(request_id)
                        kept = self._keep(request_id) or kept
                case box.Ack(request_id):
                    self._ack(request_id, kept)
                case box.Start(wake):
                    self._spawn(self._begin(wake))
                case box.Interrupt(conversation, _):
                    self._spawn(self._host.interrupt(conversation))
                case box.Send(request_id, reply):
                    self._spawn(self._deliver(request_id, reply))
        if not self._closed:
            self._arm()
            self._pulse.stir()
        return kept

    def _keep(self, request_id: str) -> "Future[None] | None":
        exchange = self.inbox.get(request_id)
        if exchange is None:
            return None
        if self._journal.too_long:
            return self._journal.rewrite(self.inbox.all())
        return self._journal.keep(exchange)

    def _ack(self, request_id: str, kept: "Future[None] | None") -> None:
        frame = frames.ack(request_id)
        if kept is None:
            self.link.send(frame)
        else:
            kept.add_done_callback(lambda _: self.loop.call_soon_threadsafe(self.link.send, frame))

    async def _begin(self, wake: frames.Wake) -> None:
        rid, conversation = wake.request_id, wake.conversation_id
        exchange = self.inbox.get(rid)
        if exchange is None or exchange.state is not box.State.RUNNING:
            self.turn_over(rid)
        elif not self._host.ready(conversation):
            self._perform(self.inbox.postponed(rid, self._now() + POSTPONE_S))
        else:
            try:
                await self._host.begin(wake, framed(wake, secrets.token_hex(4)))
            except Exception:  # noqa: BLE001 - it is logged, and Hermes goes on
                _log.exception("hermes-bridge: Hermes did not take the question %s", rid)
                self.turn_over(rid, NOT_STARTED)

    async def _deliver(self, request_id: str, reply: box.Reply) -> None:
        """Repeat a reply until the relay has it."""
        call_id, text = f"reply:{request_id}", reply.text
        kind = "failure" if reply.failure else "answer"
        while True:
            limit = self.link.welcome.max_message_bytes if self.link.welcome else 262_144
            answer = frames.fitted(text, limit)
            args: dict[str, Any] = {"request_id": request_id, "answer": answer, "kind": kind}
            if reply.data is not None and call_id == f"reply:{request_id}":
                args["data"] = reply.data  # left out when the first try was too large
            trace = self.trace_of(request_id)
            result = await self._send_call(call_id, "reply", args, None, trace)
            error = result.get("error") if isinstance(result, dict) else None
            if error == "message_too_large" and "data" in args:
                call_id += "+"
            elif error == "message_too_large" and len(text) > 1_000:
                call_id, text = call_id + "+", frames.fitted(text, len(text.encode()) // 2)
            elif error in _AGAIN:
                await asyncio.sleep(5)
            else:
                break
        if error not in (None, "already_answered"):
            _log.warning("hermes-bridge: the answer to %s was refused: %s", request_id, error)
        self._perform(self.inbox.confirmed(request_id))

    # Time

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.inbox.next_deadline()
        if deadline is not None:
            wait = max(0.0, deadline - self._now())
            self._timer = self.loop.call_later(wait + 0.001, self._due)

    def _due(self) -> None:
        self._timer = None
        self._perform(self.inbox.due(self._now()))

    def _beat(self) -> bool:
        for rid in self.inbox.open():
            exchange = self.inbox.get(rid)
            queued = exchange is not None and exchange.state is box.State.QUEUED
            self.link.send(frames.heartbeat(rid, "queued" if queued else None))
        for conversation, rid in self.inbox.turns():
            self._idle[rid] = 0 if self._host.busy(conversation) else self._idle.get(rid, 0) + 1
            if self._idle[rid] > 2:  # Hermes ended the turn and did not say so
                del self._idle[rid]
                self.turn_over(rid)
        turns = self.inbox.turns()
        self._idle = {rid: n for rid, n in self._idle.items() if any(r == rid for _, r in turns)}
        return bool(turns or self.inbox.open())

    # How

    async def _open(self) -> None:
        exchanges = await asyncio.to_thread(self._journal.load)
        effects = self.inbox.loaded(exchanges, self._now())
        await asyncio.wrap_future(self._journal.rewrite(self.inbox.all()))
        self._perform(effects)
        await self.link.run()

    async def _abandon(self, call_id: str, args: dict[str, Any], turn: str | None) -> None:
        found = await self.call(call_id, "ask_agent", {**args, "wait_ms": 0}, turn)
        if isinstance(found, dict) and found.get("request_id"):
            asked = {"request_id": found["request_id"]}
            await self.call(secrets.token_hex(16), "cancel_ask", asked)

    def _send_call(
        self,
        call_id: str,
        tool: str,
        args: dict[str, Any],
        turn: str | None,
        trace: Trace | None,
    ) -> "asyncio.Future[Any]":
        """Begin a call; one that would cost the link (the relay closes it) is refused here."""
        frame, future = self.calls.begin(call_id, tool, args, turn, trace)
        if len(frame.encode()) > frames.MAX_FRAME_BYTES - 1_024:
            self.calls.ended(call_id, {"ok": False, "error": "message_too_large", "hint": _SHORTER})
        else:
            self.link.send(frame)
        return future

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("hermes-bridge: a background task ended", exc_info=task.exception())

    def _unreachable(self) -> dict[str, Any]:
        return {
            "ok": False,
            "error": "relay_unreachable",
            "hint": "This bot has no connection to the bridge at the moment; go on without the "
            "other agent, or try again later.",
            "reason": self.link.dial.words,
        }
