"""One POST: guarded at connect, never redirected, judged by its status line.

aiohttp when it is there, else httpx: both are what Hermes ships. The guard sees the concrete
address of every connection, names and literals alike, after DNS and before the first byte.
"""

import asyncio
import functools
import socket
import ssl
import time
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from http.cookiejar import CookieJar, DefaultCookiePolicy
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
class _Dial:
    """What the guard must know while one request is connecting, and what it said."""

    guard: Guard
    place: Place
    refusal: str = ""


_dial: ContextVar[_Dial | None] = ContextVar("http_callback_dial", default=None)


def check_address(host: str, dial: _Dial) -> None:
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
        return HttpxTransport()


def available() -> bool:
    """Tell whether `choose` would work."""
    from importlib.util import find_spec

    return any(find_spec(name) is not None for name in ("aiohttp", "httpx"))


@functools.cache
def _tls(ca_file: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca_file or None)


def _proxy_dial(post: Post, guard: Guard) -> _Dial:
    # Through a proxy the guard judges the proxy's address; the proxy judges the rest.
    place = read_url(post.limits.proxy) if post.limits.proxy else post.place
    if post.limits.proxy:
        guard = Guard.of([post.limits.proxy, place.host])
    return _Dial(guard, place)


def _from_headers(status: int, headers: Any, head: str, started: float) -> Answer:
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


def _printable(raw: bytes) -> str:
    text = raw[:MAX_HEAD].decode("utf-8", "replace")
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)


def _failure(error: BaseException, dial: _Dial, started: float, *, sent: bool) -> Answer:
    return Answer(
        failure=_kind(error, dial, sent=sent), detail=_words(error, dial), ms=_ms(started)
    )


def _kind(error: BaseException, dial: _Dial, *, sent: bool) -> Failure:
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


def _words(error: BaseException, dial: _Dial) -> str:
    if dial.refusal:
        return dial.refusal
    cause = getattr(error, "os_error", None) or error.__cause__ or error
    text = getattr(cause, "strerror", None) or str(cause) or type(error).__name__
    return f"{dial.place.origin}: {str(text)[:200]}"


class AiohttpTransport:
    """The transport on aiohttp. Made and used inside one event loop."""

    def __init__(self) -> None:
        """Import aiohttp; sessions open on first use."""
        import aiohttp
        import yarl

        self._aiohttp: Any = aiohttp
        self._url: Any = yarl.URL
        self._sessions: dict[tuple[str, bool], Any] = {}

    def _session(self, limits: Limits) -> Any:
        key = (limits.ca_file, limits.fresh)
        session = self._sessions.get(key)
        if session is None:
            aiohttp = self._aiohttp
            trace = aiohttp.TraceConfig()
            trace.on_request_headers_sent.append(_mark_sent)
            # Shorter than what servers allow: a call on a connection that the other side is
            # closing ends without a status, and nobody knows whether it arrived.
            keep = {"force_close": True} if limits.fresh else {"keepalive_timeout": 1.5}
            connector = aiohttp.TCPConnector(
                socket_factory=_guarded_socket, limit=0, ssl=_tls(limits.ca_file), **keep
            )
            session = self._sessions[key] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                trace_configs=[trace],
            )
        return session

    async def post(self, post: Post, guard: Guard) -> Answer:
        """Send one request and say what came of it."""
        started = time.monotonic()
        dial = _proxy_dial(post, guard)
        marks = _Marks()
        token = _dial.set(dial)
        try:
            return await self._exchange(post, marks, started)
        except (self._aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return _failure(error, dial, started, sent=marks.sent)
        finally:
            _dial.reset(token)

    async def _exchange(self, post: Post, marks: "_Marks", started: float) -> Answer:
        limits = post.limits
        timeout = self._aiohttp.ClientTimeout(total=limits.total, sock_connect=limits.connect)
        response = await self._session(limits).post(
            self._url(post.place.url, encoded=True),
            data=post.body,
            headers=post.headers,
            allow_redirects=False,
            timeout=timeout,
            proxy=limits.proxy or None,
            trace_request_ctx=marks,
        )
        head = b""
        try:
            # The verdict is in the status line already: a slow or broken body changes nothing.
            async with asyncio.timeout(min(2.0, limits.total)):
                head = await _read_some(response.content)
        except Exception:  # noqa: BLE001 - whatever is wrong with a body, the status stands
            response.close()
        response.release()
        return _from_headers(response.status, response.headers, _printable(head), started)

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
class _Marks:
    sent: bool = False


async def _mark_sent(_session: Any, context: Any, _params: Any) -> None:
    if context.trace_request_ctx is not None:
        context.trace_request_ctx.sent = True


def _guarded_socket(addr_info: tuple[Any, ...]) -> socket.socket:
    family, kind, proto, _, address = addr_info
    dial = _dial.get()
    if dial is None:
        raise Blocked("a connection was asked for outside a callback")
    check_address(str(address[0]), dial)
    return socket.socket(family=family, type=kind, proto=proto)


class HttpxTransport:
    """The transport on httpx, with its own dialer: names are resolved here, then judged."""

    def __init__(self) -> None:
        """Import httpx; clients open on first use."""
        try:
            import httpcore
            import httpx
        except ImportError:
            raise RuntimeError("http_callback needs aiohttp or httpx; Hermes ships both") from None
        self._httpx: Any = httpx
        self._httpcore: Any = httpcore
        self._clients: dict[tuple[str, str], Any] = {}

    def _client(self, limits: Limits) -> Any:
        key = (limits.ca_file, limits.proxy)
        client = self._clients.get(key)
        if client is None:
            httpx, core = self._httpx, self._httpcore
            context = _tls(limits.ca_file)
            wires = httpx.AsyncHTTPTransport(verify=context, proxy=limits.proxy or None)
            # httpx has no public place for a dialer; its pool has one.
            wires._pool._network_backend = _dialer(core)
            # A jar that takes nothing: no receiver learns what another one set.
            jar = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
            client = self._clients[key] = httpx.AsyncClient(
                transport=wires, trust_env=False, follow_redirects=False, cookies=jar
            )
        return client

    async def post(self, post: Post, guard: Guard) -> Answer:
        """Send one request and say what came of it."""
        started = time.monotonic()
        dial = _proxy_dial(post, guard)
        marks = _Marks()
        token = _dial.set(dial)
        try:
            async with asyncio.timeout(post.limits.total):
                return await self._exchange(post, marks, started)
        except (self._httpx.HTTPError, OSError, TimeoutError, ValueError) as error:
            return _failure(error, dial, started, sent=marks.sent)
        finally:
            _dial.reset(token)

    async def _exchange(self, post: Post, marks: _Marks, started: float) -> Answer:
        httpx, limits = self._httpx, post.limits
        client = self._client(limits)

        async def trace(event: str, _info: Any) -> None:
            if event.endswith("send_request_body.complete"):
                marks.sent = True

        request = client.build_request(
            "POST",
            httpx.URL(post.place.url),
            content=post.body,
            headers=post.headers,
            timeout=httpx.Timeout(limits.total, connect=limits.connect),
            extensions={"trace": trace},
        )
        # httpx would encode the path again; the URL must stay byte for byte.
        target = post.place.url.split("://", 1)[1]
        slash = min((at for at in map(target.find, "/?") if at >= 0), default=-1)
        raw = target[slash:] if slash >= 0 else "/"
        request.extensions["target"] = (raw if raw.startswith("/") else "/" + raw).encode()
        response = await client.send(request, stream=True)
        head = b""
        try:
            async with asyncio.timeout(min(2.0, limits.total)):
                async for chunk in response.aiter_raw():
                    head += chunk
                    if len(head) >= MAX_READ:
                        break
        except Exception:  # noqa: BLE001 - whatever is wrong with a body, the status stands
            head = head[:MAX_HEAD]
        await response.aclose()
        return _from_headers(response.status_code, response.headers, _printable(head), started)

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


def _dialer(core: Any) -> Any:
    """Build the network backend that resolves a name, judges each address, and dials one."""
    inner = core.AnyIOBackend()

    class Dialer(core.AsyncNetworkBackend):  # type: ignore[misc]
        async def connect_tcp(self, host: str, port: int, **options: Any) -> Any:
            dial = _dial.get()
            if dial is None:
                raise Blocked("a connection was asked for outside a callback")
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            error: Exception = Blocked("no address")
            for address in dict.fromkeys(str(info[4][0]) for info in found):
                try:
                    check_address(address, dial)
                    return await inner.connect_tcp(address, port, **options)
                except (OSError, core.NetworkError, core.TimeoutException) as failed:
                    error = failed
            raise error

        async def connect_unix_socket(self, path: str, **options: Any) -> Any:
            raise Blocked("callbacks do not go to unix sockets")

        async def sleep(self, seconds: float) -> None:
            await inner.sleep(seconds)

    return Dialer()
