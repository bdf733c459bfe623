"""The bot's one connection: dialled outwards, for ever, and never in anybody's way.

It connects in the background, says hello, waits for the welcome, hands frames over and writes what
it is given. What happens to a frame is not its business.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
)

from . import frames
from .dial import Cause, Dial, Retry
from .settings import Settings

MAX_SIZE = 4 * frames.MAX_FRAME_BYTES
WELCOME_S = 10.0
PING_S = 20.0
URGENT_S = 3.0
"""The longest wait between dials while questions are open: well under the relay's grace (30 s)."""
_CLOSED = {4401: Cause.REFUSED, 4409: Cause.SUPERSEDED}

_log = logging.getLogger(__name__)


class Link:
    """`run()` keeps the link up; `send()` writes to it when there is one."""

    def __init__(
        self,
        settings: Callable[[], Settings],
        *,
        on_frame: Callable[[frames.Frame], None],
        on_state: Callable[[], None],
        urgent: Callable[[], bool] = lambda: False,
        dial: Dial | None = None,
    ) -> None:
        self.dial = dial or Dial()
        self.welcome: frames.Welcome | None = None
        self._settings = settings
        self._on_frame, self._on_state, self._urgent = on_frame, on_state, urgent
        self._out: asyncio.Queue[str] | None = None
        self._told: set[str] = set()

    @property
    def online(self) -> bool:
        """Whether the relay has welcomed this link."""
        return self.dial.online

    def send(self, frame: str) -> bool:
        """Write a frame; false when there is no link (nothing is kept for later here)."""
        if self._out is None or not self.online:
            return False
        self._out.put_nowait(frame)
        return True

    async def run(self) -> None:
        """Dial, serve, wait, dial again, until cancelled."""
        while True:
            retry = await self._once(self._settings())
            self._out = None
            if retry.news:
                _log.warning("hermes-bridge: %s", retry.words)
            self._on_state()
            await asyncio.sleep(self._wait(retry))

    def _wait(self, retry: Retry) -> float:
        """While somebody waits for this bot a relay that restarts is not kept waiting for it."""
        hurry = retry.cause in (Cause.LOST, Cause.DOWN) and self._urgent()
        return min(retry.wait, URGENT_S) if hurry else retry.wait

    async def _once(self, settings: Settings) -> Retry:
        cause, detail = Cause.DOWN, ""
        try:
            async with _connection(settings) as socket:
                cause, detail = await self._serve(socket, settings)
        except InvalidStatus as refused:
            cause, detail = _of_status(refused.response.status_code)
        except (InvalidURI, ValueError, UnicodeError) as error:
            cause, detail = Cause.BAD_ADDRESS, _short(error)
        except ssl.SSLCertVerificationError as error:
            cause, detail = Cause.UNTRUSTED, _short(error)
        except (InvalidHandshake, EOFError) as error:
            cause, detail = Cause.NO_BRIDGE, _short(error)
        except (OSError, TimeoutError) as error:
            detail = _short(error)
        except Exception as error:  # noqa: BLE001 - nothing may end the loop that dials
            _log.warning("hermes-bridge: the link ended with %s: %s", type(error).__name__, error)
        return self.dial.failed(cause, url=settings.url, detail=detail)

    async def _serve(self, socket: ClientConnection, settings: Settings) -> tuple[Cause, str]:
        """Say hello and read until the end. Gives why it ended."""
        try:
            await socket.send(frames.hello(settings.description, settings.skills))
            async with asyncio.timeout(WELCOME_S):
                early = await self._welcomed(socket)
        except TimeoutError:
            return Cause.NO_WELCOME, ""
        except ConnectionClosed as closed:
            return _of_close(closed, Cause.DOWN)
        self._out = asyncio.Queue()
        writer = asyncio.create_task(self._write(socket, self._out))
        try:
            if self.dial.welcomed():
                agent = self.welcome.agent if self.welcome else "?"
                _log.info("hermes-bridge: connected to the relay as %s", agent)
            self._on_state()
            for frame in early:
                self._on_frame(frame)
            while True:
                self._take(await socket.recv())
        except ConnectionClosed as closed:
            return _of_close(closed, Cause.LOST)
        finally:
            writer.cancel()

    async def _welcomed(self, socket: ClientConnection) -> list[frames.Frame]:
        """Read up to the welcome; frames that overtook it are given back."""
        early: list[frames.Frame] = []
        while True:
            frame = self._decoded(await socket.recv())
            if isinstance(frame, frames.Welcome):
                self.welcome = frame
                return early
            if frame is not None:
                early.append(frame)

    async def _write(self, socket: ClientConnection, out: "asyncio.Queue[str]") -> None:
        while True:
            frame = await out.get()
            try:
                await socket.send(frame)
            except ConnectionClosed:
                return
            except UnicodeEncodeError:
                _log.warning("hermes-bridge: a frame with characters that are none was not sent")

    def _take(self, text: str | bytes) -> None:
        frame = self._decoded(text)
        if frame is None:
            return
        try:
            self._on_frame(frame)
        except Exception:  # noqa: BLE001 - it is logged, and Hermes goes on
            _log.exception("hermes-bridge: a frame of the relay was not handled")

    def _decoded(self, text: str | bytes) -> frames.Frame | None:
        try:
            return frames.decode(text)
        except frames.BadFrame as error:
            if str(error) not in self._told:
                self._told.add(str(error))
                _log.warning("hermes-bridge: ignored a frame of the relay: %s", error)
            return None


class _NoRedirect(connect):
    """A redirect would carry the token to another host: it is an error here."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow nothing."""
        return exc


def _connection(settings: Settings) -> Any:
    return _NoRedirect(
        settings.url,
        additional_headers={"Authorization": f"Bearer {settings.token}"},
        user_agent_header=frames.CLIENT,
        compression=None,  # questions are short; a window per link is not worth its memory
        max_size=MAX_SIZE,
        open_timeout=15,
        ping_interval=PING_S,
        ping_timeout=PING_S,
        close_timeout=3,
    )


def _of_status(status: int) -> tuple[Cause, str]:
    if status in (401, 403):
        return Cause.REFUSED, f"HTTP {status}"
    if status >= 500 or status == 429:
        return Cause.DOWN, f"HTTP {status}"
    return Cause.NO_BRIDGE, f"HTTP {status}"


def _of_close(closed: ConnectionClosed, default: Cause) -> tuple[Cause, str]:
    code = closed.rcvd.code if closed.rcvd else 1006
    return _CLOSED.get(code, default), f"close code {code}"


def _short(error: Exception) -> str:
    text = str(error).partition("\n")[0] or type(error).__name__
    return text[:200]
