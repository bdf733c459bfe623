"""One account's socket at AgentsChat: log in, join, listen, stay alive, come back."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Protocol

import aiohttp
import msgspec

from hermes_bridge.backoff import delays
from hermes_bridge.clock import wall_ms
from hermes_bridge.connector.core.cursor import stamp
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.platforms.agentschat import wire
from hermes_bridge.connector.platforms.agentschat.rings import Rings
from hermes_bridge.connector.platforms.base import (
    ONLINE,
    OPERATION,
    TIMEOUT,
    Account,
    PlatformError,
    Settings,
    Sink,
)
from hermes_bridge.log import event

_logger = logging.getLogger("hermes_bridge.connector.agentschat")
_MAX_FRAME = 16 * 1024 * 1024
_PROOF_S = 5.0
_SETTLE_S = 2.0
_STEADY_S = 10.0
_HURRY_S = 0.2

CONNECTING, LOGGING_IN, REFUSED, OFFLINE = "connecting", "logging_in", "refused", "offline"


class Memberships(Protocol):
    """Where an account's channels are asked for."""

    async def channels(self, identity: Identity) -> list[wire.Channel]:
        """Give them, or raise `PlatformError`."""
        ...


class _Refused(Exception):
    """The hub does not accept the login."""


class Feed:
    """Keeps one account logged in. `run` never returns by itself."""

    def __init__(
        self,
        identity: Identity,
        sink: Sink,
        session: aiohttp.ClientSession,
        api: Memberships,
        rings: Rings,
        pushes: wire.Pushes,
        settings: Settings,
    ) -> None:
        self.identity = identity
        self._sink, self._session, self._api, self._settings = sink, session, api, settings
        self._rings, self._pushes = rings, pushes
        self._ws: aiohttp.ClientWebSocketResponse | None = None
        self._group: asyncio.TaskGroup | None = None
        self._state, self._reason = CONNECTING, ""
        self._heard = self._pinged = 0.0
        self._hurry = False
        self._pong = asyncio.Event()
        self._proofs: dict[tuple[str, str], list[asyncio.Future[None]]] = {}
        self.channels: dict[str, None] = {}

    @property
    def account(self) -> Account:
        """How it is doing."""
        return Account(self._state, self._reason, len(self.channels))

    async def run(self) -> None:
        """Connect, serve, and connect again, for ever."""
        lost = delays(first=1.0, cap=30.0)
        refused = delays(first=2.0, cap=300.0)
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            try:
                await self._once()
                self._set(OFFLINE, "the hub closed the connection")
            except _Refused as error:
                self._set(REFUSED, str(error))
                await asyncio.sleep(next(refused))
                continue
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._set(OFFLINE, f"the hub does not answer ({type(error).__name__})")
            refused = delays(first=2.0, cap=300.0)
            if loop.time() - started > _STEADY_S:
                lost = delays(first=1.0, cap=30.0)
            await asyncio.sleep(_HURRY_S if self._hurry else next(lost))

    async def try_login(self) -> str:
        """Log in and leave; give the reason of a refusal, or an empty text."""
        ws = await self._session.ws_connect(self._settings.ws_url, compress=0)
        try:
            await self._log_in(ws)
        except _Refused as error:
            return str(error)
        finally:
            await ws.close()
        return ""

    async def _once(self) -> None:
        self._hurry = False
        async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
            ws = await self._session.ws_connect(
                self._settings.ws_url, autoping=True, compress=0, max_msg_size=_MAX_FRAME
            )
        try:
            self._set(LOGGING_IN, "")
            await self._log_in(ws)
            self._ws = ws
            self._heard = self._pinged = asyncio.get_running_loop().time()
            self._set(ONLINE, "")
            await self._serve(ws)
        finally:
            self._ws = self._group = None
            self._rings.lost(self.identity.bot_id)
            self._fail_proofs()
            await ws.close()

    async def _serve(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                joining = group.create_task(self._join_all())
                try:
                    await self._listen(ws)
                finally:
                    joining.cancel()
        except ExceptionGroup as errors:
            _, others = errors.split((aiohttp.ClientError, OSError))
            if others is not None:
                raise
            raise ConnectionError("the connection to the hub was lost") from None

    async def _log_in(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        await ws.send_str(wire.auth(self.identity.agent_id, self.identity.token))
        async with asyncio.timeout(self._settings.connect_timeout_ms / 1000):
            async for message in ws:
                frame = _frame(message)
                if frame is None:
                    continue
                if frame.type == "auth_ok":
                    return
                if frame.type == "error":
                    raise _Refused(_words(frame))
        raise _Refused("the hub closed the connection during the login")

    async def _join_all(self) -> None:
        pause = delays(first=1.0, cap=60.0)
        while True:
            try:
                rows = await self._api.channels(self.identity)
                break
            except PlatformError as error:
                self._reason = f"the list of channels cannot be read: {error}"
                event(_logger, "account.channels_unreadable", logging.WARNING,
                      bot=self.identity.bot_id, cause=str(error))  # fmt: skip
                await asyncio.sleep(next(pause))
        self._reason = ""
        await self._join([row.key for row in rows if row.key])

    async def _join(self, channels: Sequence[str]) -> None:
        """Join, and tell the sink when the hub has done so: it answers frames in order."""
        ws = self._ws
        if ws is None:
            return
        self.channels |= dict.fromkeys(channels)
        self._sink.joining(self.identity.bot_id, channels)
        for channel in channels:
            await ws.send_str(wire.join(channel, self.identity.agent_id))
        self._pong.clear()
        await ws.send_str(wire.ping(stamp(wall_ms())))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                await self._pong.wait()
            if self._ws is ws:
                for channel in channels:
                    self._rings.listening(self.identity.bot_id, channel)
        self._sink.joined(self.identity.bot_id, channels)

    async def _listen(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        clock = asyncio.get_running_loop().time
        async for data in ws:
            read = self._pushes.read(data.data) if data.type is aiohttp.WSMsgType.TEXT else None
            if read is None:
                continue
            self._heard = clock()
            frame, message = read
            if message is not None:
                self._rings.heard(message)
                self._sink.received(self.identity.bot_id, message)
            elif frame.type == "shard_moved":
                self._hurry = True
                return
            else:
                self._other(frame.type, frame)

    def _other(self, kind: str, frame: wire.Frame) -> None:
        if kind == "pong":
            self._pong.set()
        elif kind == "channel_created":
            channel = wire.text(frame.channel_id)
            if channel and channel not in self.channels and self._group is not None:
                self._group.create_task(self._join([channel]))
        elif kind in ("message_edited", "message_deleted", "reaction_update"):
            self._changed(kind, frame)
            for proof in self._proofs.pop((kind, wire.text(frame.message_id)), ()):
                if not proof.done():
                    proof.set_result(None)
        elif kind == "error":
            event(_logger, "account.hub_error", logging.WARNING,
                  bot=self.identity.bot_id, reason=_words(frame))  # fmt: skip
            self._refused_proof(_words(frame))

    def _refused_proof(self, words: str) -> None:
        """An error names no frame: it is the answer of a proof only while that one waits alone."""
        waiting = [proof for proofs in self._proofs.values() for proof in proofs]
        if len(waiting) == 1 and not waiting[0].done():
            waiting[0].set_exception(PlatformError(words, code=OPERATION, ambiguous=False))

    def _changed(self, kind: str, frame: wire.Frame) -> None:
        channel, message_id = wire.text(frame.channel_id), wire.text(frame.message_id)
        if kind == "message_edited":
            self._rings.edited(channel, message_id, wire.text(frame.new_content))
        elif kind == "message_deleted":
            self._rings.deleted(channel, message_id)

    def tick(self, now: float) -> None:
        """Time has passed (loop seconds): ping when due, let go of a silent hub."""
        ws = self._ws
        if ws is None or self._group is None:
            return
        if now - self._heard > self._settings.pong_timeout_ms / 1000:
            event(_logger, "account.hub_silent", logging.WARNING, bot=self.identity.bot_id)
            self._hurry, self._heard = True, now
            self._group.create_task(self._drop(ws))
        elif now - self._pinged >= self._settings.ping_ms / 1000:
            self._pinged = now
            self._say(wire.ping(stamp(wall_ms())))

    async def _drop(self, ws: aiohttp.ClientWebSocketResponse) -> None:
        async with asyncio.timeout(1.0):
            await ws.close()

    def typing(self, channel: str) -> None:
        """Show that the agent is at work, if the socket is there."""
        self._say(wire.typing(channel, self.identity.agent_id))

    async def prove(self, frame: str, kind: str, message_id: str) -> None:
        """Send a frame that has no answer, and wait for the broadcast that proves it."""
        ws = self._ws
        if ws is None:
            raise PlatformError(
                "agentschat is unreachable; nothing was sent", code=OPERATION, ambiguous=False
            )
        proof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._proofs.setdefault((kind, message_id), [])
        waiting.append(proof)
        try:
            await ws.send_str(frame)
            async with asyncio.timeout(_PROOF_S):
                await proof
        except TimeoutError:
            raise PlatformError(
                "agentschat did not confirm it; timed out", code=TIMEOUT, ambiguous=True
            ) from None
        except (aiohttp.ClientError, OSError):
            raise PlatformError(
                "the connection to agentschat was lost; outcome unknown",
                code=OPERATION,
                ambiguous=True,
            ) from None
        finally:
            if proof in waiting:
                waiting.remove(proof)

    def _say(self, frame: str) -> None:
        ws, group = self._ws, self._group
        if ws is None or group is None or ws.closed:
            return
        sending = self._send(ws, frame)
        try:
            group.create_task(sending)
        except RuntimeError:
            sending.close()  # the account is being logged out

    async def _send(self, ws: aiohttp.ClientWebSocketResponse, frame: str) -> None:
        try:
            await ws.send_str(frame)
        except (aiohttp.ClientError, OSError):
            return  # the reader notices the loss and connects again

    def _fail_proofs(self) -> None:
        for proofs in self._proofs.values():
            for proof in proofs:
                if not proof.done():
                    proof.set_exception(OSError("connection lost"))
        self._proofs.clear()

    def _set(self, state: str, reason: str) -> None:
        if (state, reason) != (self._state, self._reason):
            if state in (ONLINE, REFUSED, OFFLINE):
                level = logging.INFO if state == ONLINE else logging.WARNING
                more = {"reason": reason} if reason else {}
                event(_logger, f"account.{state}", level, bot=self.identity.bot_id, **more)
            self._state, self._reason = state, reason


def _frame(message: aiohttp.WSMessage) -> wire.Frame | None:
    if message.type is not aiohttp.WSMsgType.TEXT:
        return None
    try:
        return wire.frames.decode(message.data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _words(frame: wire.Frame) -> str:
    said = wire.text(frame.message)[:120]
    code = frame.code if isinstance(frame.code, int) else ""
    return f"the hub says: {said or 'no reason given'}" + (f" (code {code})" if code else "")
