"""`/bridge/connect`: one WebSocket an agent, opened by the agent (bridge.md, part 1).

Seed adapters say nothing first and get four-field wakes; a client that says `hello` first speaks
version 2. A frame is written at once while the bot reads; behind a bot that does not, a bounded
queue fills, and the link ends before anybody else notices.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_bridge.ids import digest
from hermes_bridge.log import Quiet, event
from hermes_bridge.relay.auth import Tokens, bearer
from hermes_bridge.relay.core import frames
from hermes_bridge.relay.core.exchange import Exchange
from hermes_bridge.relay.core.roster import Link
from hermes_bridge.relay.doors.bridge_calls import Calling, LinkCalls
from hermes_bridge.relay.relay import Relay
from hermes_bridge.relay.verbs import Verbs
from hermes_bridge.web.websocket import SOCKET, DirectSocket

if TYPE_CHECKING:
    from hermes_bridge.relay.traces import Tracer

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

HEARTBEAT_MS = 5_000
_HELLO_WAIT_S = 0.3
"""How long a fresh link may take to say `hello` before it is taken for a seed adapter."""
_QUEUE_FRAMES = 4_096
_QUEUE_BYTES = 16_777_216
"""What may wait on a link beside wakes, which wait as the exchanges that are open anyway."""
_STUCK_S = 30.0
"""How long a bot may leave a full socket unread."""
_CLOSE_S = 3.0
"""How long a peer may take to see that its link is closed."""
_BAD_FRAMES = 100
_LINES_A_MINUTE = 20

_log = logging.getLogger("hermes_bridge.bridge")


class BridgeDoor:
    """Accepts links."""

    def __init__(self, relay: Relay, verbs: Verbs, tokens: Tokens) -> None:
        self.relay, self.verbs, self.tokens = relay, verbs, tokens
        self.quiet = Quiet(_log, relay.clock.now)
        self._links: set[LinkDoor] = set()
        self._came_and_went: dict[str, tuple[int, int]] = {}
        self.unknown_frames = 0
        self.tracer: Tracer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection from its upgrade to its end."""
        header = next((v for k, v in scope["headers"] if k == b"authorization"), None)
        agent = self.tokens.agent(header)
        peer, port = scope.get("client") or ("?", 0)
        await receive()
        if agent is None:
            self.quiet.event("link.refused", "bad token", peer=peer)
            await _unauthorized(send)
            return
        socket: DirectSocket = scope["extensions"][SOCKET]
        await send({"type": "websocket.accept"})
        socket.forget_handshake()
        calling = Calling(agent, peer, port)
        link = LinkDoor(self, calling, digest(bearer(header) or b""), socket, send)
        self._links.add(link)
        link.open()
        code = 1006
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                continue
            code = message.get("code", code)
        finally:
            self._links.discard(link)
            link.ended(code)

    def note(self, name: str, agent: str, **fields: Any) -> None:
        """Log that a link came or went; of an agent that does nothing else, one line a minute."""
        now = self.relay.clock.now()
        since, count = self._came_and_went.get(agent, (now, 0))
        if now - since > 60_000:
            since, count = now, 0
        self._came_and_went[agent] = (since, count + 1)
        if count < _LINES_A_MINUTE:
            event(_log, name, agent=agent, **fields)
        else:
            self.quiet.event("link.flaps", f"{agent} comes and goes", agent=agent)

    def revoke(self, tokens: Tokens) -> None:
        """Take the new tokens; close the links whose token is gone with 4401."""
        gone = set(tokens.revoked_since(self.tokens))
        self.tokens = tokens
        for link in list(self._links):
            if link.token in gone:
                link.close(4401, "this token was revoked")


class LinkDoor:
    """One link: reads frames in order, writes them in order. It is the relay's `LinkPort`."""

    def __init__(
        self, door: BridgeDoor, calling: Calling, token: bytes, socket: DirectSocket, send: Send
    ) -> None:
        self._door, self._relay = door, door.relay
        self.agent, self.token = calling.agent, token
        self._calls = LinkCalls(door, calling, self.send, self._run)
        self._socket, self._send_asgi = socket, send
        self._waiting: list[bytes | Exchange] = []
        self._waiting_frames = self._waiting_bytes = 0
        self._closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._stuck: asyncio.TimerHandle | None = None
        self._bad = 0
        self._greeted = False
        self._link: Link

    def open(self) -> None:
        """Take the agent's seat; wakes go out after `hello`, or when none comes."""
        self._link = self._relay.link_up(self.agent, self)
        self._socket.on_writable = self._flush
        self._socket.sink = self._take
        self._later(_HELLO_WAIT_S, self._ready)
        self._door.note("link.up", self.agent, link=self._link.generation)

    def ended(self, code: int) -> None:
        """The connection is gone: leave the seat, unless a newer link has it."""
        self._closed = True
        for timer in (*self._timers, *([self._stuck] if self._stuck else [])):
            timer.cancel()
        self._calls.close()
        current = self._relay.link_down(self.agent, self._link.generation)
        self._door.note(
            "link.down", self.agent, link=self._link.generation, code=code, current=current
        )

    # The relay's side: LinkPort

    def send(self, frame: bytes) -> None:
        """Write a frame, or queue it behind others that wait; over the bound the link is given up."""
        if self._closed or (not self._waiting and self._socket.write(frame)):
            return
        self._queue(frame)
        self._waiting_frames += 1
        self._waiting_bytes += len(frame)
        if self._waiting_frames > _QUEUE_FRAMES or self._waiting_bytes > _QUEUE_BYTES:
            self._give_up("too much waits for it to be read")

    def wake(self, exchange: Exchange) -> None:
        """Write a wake, or queue its exchange: however many wait, their texts are held once."""
        if self._closed or (not self._waiting and self._socket.write(self._spell_wake(exchange))):
            return
        self._queue(exchange)

    def _spell_wake(self, exchange: Exchange) -> bytes:
        protocol, now = self._link.protocol, self._relay.clock.now()
        return frames.wake(exchange, protocol=protocol, now=now)

    def _queue(self, what: bytes | Exchange) -> None:
        self._waiting.append(what)
        if self._stuck is None:
            self._stuck = self._stuck_timer()

    def _stuck_timer(self) -> asyncio.TimerHandle:
        loop = asyncio.get_running_loop()
        return loop.call_later(_STUCK_S, self._give_up, "it did not read for too long")

    def close(self, code: int, reason: str) -> None:
        """Close the link; what waits for the bot is sent again on its next one."""
        if self._closed:
            return
        self._closed = True
        self._waiting.clear()
        self._run(self._send_asgi({"type": "websocket.close", "code": code, "reason": reason}))
        self._later(_CLOSE_S, self._socket.abort)

    def _give_up(self, why: str) -> None:
        self._door.quiet.event("link.stuck", why, agent=self.agent)
        self._closed = True
        self._waiting.clear()
        self._socket.abort()

    def _flush(self) -> None:
        """The bot reads again."""
        if self._closed or self._stuck is None:
            return
        self._stuck.cancel()
        gone = 0
        for what in self._waiting:
            if isinstance(what, bytes):
                if not self._socket.write(what):
                    break
                self._waiting_frames -= 1
                self._waiting_bytes -= len(what)
            elif not (what.ended or self._socket.write(self._spell_wake(what))):
                break
            gone += 1
        del self._waiting[:gone]
        self._stuck = self._stuck_timer() if self._waiting else None

    # The bot's side

    def _take(self, text: str | None) -> None:
        """Read one frame; None is a binary one."""
        if self._closed:
            return
        if text is None:
            self._misuse("a binary frame")
            return
        try:
            frame = frames.decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            self._misuse("a frame that is not a JSON object with a type")
            return
        handle = _HANDLERS.get(frame.type)
        if handle is None:
            self._door.unknown_frames += 1
        else:
            handle(self, frame)

    def _misuse(self, what: str) -> None:
        self._bad += 1
        self._door.quiet.event("frame.bad", what, agent=self.agent)
        if self._bad >= _BAD_FRAMES:
            self.close(1008, "too many frames that are not understood")

    def _ready(self) -> None:
        if not self._closed and not self._link.ready:
            self._relay.link_ready(self.agent, self._link.generation)

    def _hello(self, frame: frames.Frame) -> None:
        if self._greeted:
            self._misuse("a second hello")
            return
        self._greeted = True
        limits = self._relay.book.limits
        current = self._relay.roster.greet(
            self.agent,
            self._link.generation,
            protocol=min(frames.PROTOCOL, max(1, frame.protocol)),
            client=_plain(frame.client, 100),
            description=_plain(frame.description, 2_000),
            skills=tuple(_plain(s, 100) for s in frame.skills[:50] if isinstance(s, str)),
        )
        if not current:
            return
        self.send(
            frames.welcome(
                self.agent,
                heartbeat_ms=min(HEARTBEAT_MS, max(100, limits.ask_timeout_ms // 4)),
                window_ms=limits.ask_timeout_ms,
                max_message_bytes=limits.max_message_bytes,
            )
        )
        self._relay.link_ready(self.agent, self._link.generation)

    def _heartbeat(self, frame: frames.Frame) -> None:
        if frame.request_id:
            self._relay.beat(frame.request_id, self.agent, frame.note)

    def _ack(self, frame: frames.Frame) -> None:
        if frame.request_id:
            self._relay.ack(frame.request_id, self.agent)

    def _call(self, frame: frames.Frame) -> None:
        self._calls.take(frame)

    def _later(self, seconds: float, do: Callable[[], None]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(seconds, do))

    def _run(self, work: Coroutine[Any, Any, None] | Awaitable[None]) -> None:
        async def quietly() -> None:
            try:
                await work
            except Exception as error:  # noqa: BLE001 - a lost connection; its end is handled elsewhere
                if not self._closed:
                    self._door.quiet.event("link.failed", type(error).__name__, agent=self.agent)

        task = asyncio.get_running_loop().create_task(quietly())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_HANDLERS: dict[str, Callable[[LinkDoor, frames.Frame], None]] = {
    "hello": LinkDoor._hello,
    "heartbeat": LinkDoor._heartbeat,
    "ack": LinkDoor._ack,
    "call": LinkDoor._call,
}


def _plain(text: str, longest: int) -> str:
    """Give what may be shown and stored of a text that a bot says of itself."""
    return text[:longest].replace("\0", "")


async def _unauthorized(send: Send) -> None:
    content = (
        b'{"error":"unauthorized","hint":"Send Authorization: Bearer <the token of this agent>."}'
    )
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(content)),
        (b"www-authenticate", b'Bearer realm="hermes-bridge"'),
    ]
    await send({"type": "websocket.http.response.start", "status": 401, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": content})
