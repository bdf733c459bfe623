"""The transport for a Hermes without aiohttp: httpx, with a dialer that the guard watches."""

import asyncio
import socket
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

from .transport import (
    MAX_HEAD,
    MAX_READ,
    Blocked,
    Limits,
    Marks,
    Post,
    answer_of,
    attempt,
    check_address,
    present_dial,
    printable,
    tls_context,
)
from .urlguard import Guard
from .verdict import Answer


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
            context = tls_context(limits.ca_file)
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
        return await attempt(post, guard, self._in_time, self._httpx.HTTPError)

    async def _in_time(self, post: Post, marks: Marks, started: float) -> Answer:
        async with asyncio.timeout(post.limits.total):
            return await self._exchange(post, marks, started)

    async def _exchange(self, post: Post, marks: Marks, started: float) -> Answer:
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
        return answer_of(response.status_code, response.headers, printable(head), started)

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
            dial = present_dial.get()
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
