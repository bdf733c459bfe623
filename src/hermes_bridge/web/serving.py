"""How a process of ours runs uvicorn: our protocols, no signals of its own, connections looked after."""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import uvicorn

from hermes_bridge.errors import ConfigError
from hermes_bridge.web.files import FileWatch, take_all
from hermes_bridge.web.server import IDLE_S, BoundedHttp, DirectDoor, ServerConfig, sweep
from hermes_bridge.web.websocket import BoundedWebSocket

MAX_FRAME = 1_048_576
"""Bytes of one WebSocket frame: what bots and gateways read, and so what we take."""
PING_S = 20.0
"""Between two pings, and how long one may stay unanswered: a dead peer is gone within 60 s."""
_LOOK_S = 1.0
_LOOKS_A_SWEEP = 5


class Server(uvicorn.Server):
    """uvicorn's server without its signal handling: the process drains first."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the process."""
        yield


def build(
    app: Any,
    *,
    direct: Mapping[bytes, DirectDoor] | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    grace_s: int = 3,
) -> Server:
    """Give a server for an ASGI application, and for the doors of the direct lane by path.

    Raises `ConfigError` for a certificate or a key that cannot be used.
    """
    config = ServerConfig(
        app,
        http=BoundedHttp,
        ws=BoundedWebSocket,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        ws_max_size=MAX_FRAME,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        ws_per_message_deflate=False,
        timeout_keep_alive=int(IDLE_S),
        timeout_graceful_shutdown=grace_s,
        backlog=2048,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )
    config.direct = dict(direct or {})
    take_all()
    _load(config)
    return Server(config)


def _load(config: ServerConfig) -> None:
    try:
        config.load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"The TLS certificate or its key cannot be used: {type(error).__name__}.",
            hint="Check listen.tls_cert and listen.tls_key: PEM files that belong together and "
            "that this user may read.",
        ) from None


async def look_after(server: Server) -> None:
    """End idle connections and requests that do not arrive, say when no file is left; for ever."""
    files = FileWatch()
    while True:
        for _ in range(_LOOKS_A_SWEEP):
            await asyncio.sleep(_LOOK_S)
            files.look()
        sweep(server)
