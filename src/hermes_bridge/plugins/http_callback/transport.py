"""One POST: guarded at connect, never redirected, judged by its status line.

aiohttp when it is there, else httpx: both are what Hermes ships. The guard sees the concrete
address of every connection, names and literals alike, after DNS and before the first byte.
"""

import asyncio
import functools
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from .urlguard import Guard, Place, as_ip, read_url
from .verdict import Answer, Failure

MAX_READ = 65_536
MAX_HEAD = 1_024


class Blocked(OSError):
    """The guard refused the address of a connection."""


@dataclass(frozen=True)
class Limits:
    """Seconds, and how the connection is made."""

    total: float = 15.0
    connect: float = 5.0
    ca_file: str = ""
    proxy: str = ""
    fresh: bool = False
    """Open a connection for each call: none can have gone stale unnoticed."""


@dataclass
class Dial:
    """What the guard must know while one request is connecting, and what it said."""

    guard: Guard
    place: Place
    refusal: str = ""


present_dial: ContextVar[Dial | None] = ContextVar("http_callback_dial", default=None)


def check_address(host: str, dial: Dial) -> None:
    """Judge one resolved address.

    Raises:
        Blocked: it must not be connected to.
    """
    ip = as_ip(host.partition("%")[0])
    found = None if ip is None else dial.guard.refuses(ip, dial.place.host, dial.place.port)
    if ip is None or found is not None:
        dial.refusal = found.words(dial.place.origin) if found else f"{host} is not an IP address"
        raise Blocked(dial.refusal)


@dataclass(frozen=True)
class Post:
    """A request, ready to go."""

    place: Place
    body: bytes = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    limits: Limits = Limits()


class Transport(Protocol):
    """Sends posts until it is closed. Never raises: trouble is an `Answer` too."""

    async def post(self, post: Post, guard: Guard) -> Answer:
        """Send one request and say what came of it."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def choose() -> Transport:
    """Give the best transport this installation has.

    Raises:
        RuntimeError: it has neither aiohttp nor httpx.
    """
    try:
        return AiohttpTransport()
    except ImportError:
        from .transport_httpx import HttpxTransport

        return HttpxTransport()


def available() -> bool:
    """Tell whether `choose` would work."""
    from importlib.util import find_spec

    return any(find_spec(name) is not None for name in ("aiohttp", "httpx"))


@functools.cache
def tls_context(ca_file: str) -> ssl.SSLContext:
    """Give the context that verifies receivers, with a CA of one's own or the system's."""
    return ssl.create_default_context(cafile=ca_file or None)


def dial_of(post: Post, guard: Guard) -> Dial:
    """Say whom a request connects to, and by which rules."""
    # Through a proxy the guard judges the proxy's address; the proxy judges the rest.
    place = read_url(post.limits.proxy) if post.limits.proxy else post.place
    if post.limits.proxy:
        guard = Guard.of([post.limits.proxy, place.host])
    return Dial(guard, place)


def answer_of(status: int, headers: Any, head: str, started: float) -> Answer:
    """Take from a response what a verdict needs."""
    location = headers.get("location", "")
    if location:
        try:
            location = read_url(location).origin
        except ValueError:
            location = "another place"
    return Answer(
        status=status,
        retry_after=headers.get("retry-after", ""),
        abort="abort-message" in headers.get("webhook-delivery", "").lower(),
        location=location,
        head=head,
        ms=_ms(started),
    )


def _ms(started: float) -> int:
    return int((time.monotonic() - started) * 1000)


def printable(raw: bytes) -> str:
    """Keep what a receiver said short and harmless for a terminal."""
    text = raw[:MAX_HEAD].decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)


def failure_of(error: BaseException, dial: Dial, started: float, *, sent: bool) -> Answer:
    """Say what an exception of a client library means."""
    return Answer(
        failure=_kind(error, dial, sent=sent), detail=_words(error, dial), ms=_ms(started)
    )


def _kind(error: BaseException, dial: Dial, *, sent: bool) -> Failure:
    causes = list(_causes(error))
    if dial.refusal and not sent:
        return Failure.BLOCKED
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return Failure.TLS_VERIFY
    if any(isinstance(cause, ssl.SSLError) for cause in causes) and not sent:
        return Failure.TLS
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Failure.DNS
    if "timeout" in type(error).__name__.lower():
        return Failure.TIMEOUT if sent else Failure.CONNECT
    return Failure.BROKEN if sent else Failure.CONNECT


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    for _ in range(8):
        if error is None:
            return
        yield error
        inner = getattr(error, "os_error", None)
        error = inner if isinstance(inner, OSError) else error.__cause__ or error.__context__


def _words(error: BaseException, dial: Dial) -> str:
    if dial.refusal:
        return dial.refusal
    cause = getattr(error, "os_error", None) or error.__cause__ or error
    text = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
    return f"{dial.place.origin}: {str(text)[:200]}"


async def attempt(
    post: Post,
    guard: Guard,
    exchange: "Callable[[Post, Marks, float], Awaitable[Answer]]",
    errors: type[Exception],
) -> Answer:
    """Make one exchange under a guard; a failure (`errors` are the library's) is an answer too."""
    started = time.monotonic()
    dial = dial_of(post, guard)
    marks = Marks()
    token = present_dial.set(dial)
    try:
        return await exchange(post, marks, started)
    except (errors, OSError, TimeoutError, ValueError) as error:
        return failure_of(error, dial, started, sent=marks.sent)
    finally:
        present_dial.reset(token)


class AiohttpTransport:
    """The transport on aiohttp. Made and used inside one event loop."""

    def __init__(self) -> None:
        """Import aiohttp; sessions open on first use."""
        import aiohttp
        import yarl

        self._aiohttp: Any = aiohttp
        self._url: Any = yarl.URL
        self._body: Any = _marking(aiohttp)
        self._sessions: dict[tuple[str, bool], Any] = {}

    def _session(self, limits: Limits) -> Any:
        key = (limits.ca_file, limits.fresh)
        session = self._sessions.get(key)
        if session is None:
            aiohttp = self._aiohttp
            # Shorter than what servers allow: a call on a connection that the other side is
            # closing ends without a status, and nobody knows whether it arrived.
            keep = {"force_close": True} if limits.fresh else {"keepalive_timeout": 1.5}
            connector = aiohttp.TCPConnector(
                socket_factory=_guarded_socket,
                limit=0,
                ssl=tls_context(limits.ca_file) if limits.ca_file else True,
                **keep,
            )
            session = self._sessions[key] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
            )
        return session

    async def post(self, post: Post, guard: Guard) -> Answer:
        """Send one request and say what came of it."""
        return await attempt(post, guard, self._exchange, self._aiohttp.ClientError)

    async def _exchange(self, post: Post, marks: "Marks", started: float) -> Answer:
        limits = post.limits
        timeout = self._aiohttp.ClientTimeout(total=limits.total, sock_connect=limits.connect)
        response = await self._session(limits).post(
            self._url(post.place.url, encoded=True),
            data=self._body(post.body, marks),
            headers=post.headers,
            allow_redirects=False,
            timeout=timeout,
            proxy=limits.proxy or None,
        )
        head = b""
        try:
            # The verdict is in the status line already: a slow or broken body changes nothing.
            if response.content.is_eof():
                head = response.content.read_nowait()
            else:
                async with asyncio.timeout(min(2.0, limits.total)):
                    head = await _read_some(response.content)
        except Exception:  # noqa: BLE001 - whatever is wrong with a body, the status stands
            response.close()
        response.release()
        return answer_of(response.status, response.headers, printable(head), started)

    async def close(self) -> None:
        """Close the connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()


async def _read_some(stream: Any) -> bytes:
    # `readany` joins what has arrived already; a body of the usual size is one read.
    found = b""
    while not stream.at_eof() and len(found) < MAX_READ:
        found += await stream.readany()
    if not stream.at_eof():
        raise ValueError("more than is read")
    return found


@dataclass
class Marks:
    """Whether the request began to go out: from then on, an end without a status is ambiguous."""

    sent: bool = False


def _marking(aiohttp: Any) -> Any:
    """Build the body that notes when it begins to go out: from then on an end is ambiguous."""

    class Body(aiohttp.payload.BytesPayload):  # type: ignore[misc]
        def __init__(self, body: bytes, marks: Marks) -> None:
            super().__init__(body)
            self._marks = marks

        async def write(self, writer: Any) -> None:
            self._marks.sent = True
            await super().write(writer)

        async def write_with_length(self, writer: Any, content_length: int | None) -> None:
            self._marks.sent = True
            await super().write_with_length(writer, content_length)

    return Body


def _guarded_socket(addr_info: tuple[Any, ...]) -> socket.socket:
    family, kind, proto, _, address = addr_info
    dial = present_dial.get()
    if dial is None:
        raise Blocked("a connection was asked for outside a callback")
    check_address(str(address[0]), dial)
    return socket.socket(family=family, type=kind, proto=proto)
