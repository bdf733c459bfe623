"""One POST on both transports: the guard at connect, redirects, TLS, timeouts, bodies."""

import asyncio
import ipaddress
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.http_callback.receiver import Receiver, Reply

from hermes_bridge.plugins.http_callback.transport import (
    AiohttpTransport,
    Limits,
    Post,
    Transport,
)
from hermes_bridge.plugins.http_callback.transport_httpx import HttpxTransport
from hermes_bridge.plugins.http_callback.urlguard import Guard, read_url
from hermes_bridge.plugins.http_callback.verdict import Answer, Failure

pytestmark = pytest.mark.anyio

CORPUS = json.loads(
    (Path(__file__).parents[2] / "vectors/callback/addresses.json").read_text("utf-8")
)
LOOPBACK = Guard.of(["127.0.0.1"])


@pytest.fixture(params=[AiohttpTransport, HttpxTransport])
def make(request: pytest.FixtureRequest) -> Callable[[], Transport]:
    found: Callable[[], Transport] = request.param
    return found


@asynccontextmanager
async def opened(make: Callable[[], Transport]) -> AsyncIterator[Transport]:
    transport = make()
    try:
        yield transport
    finally:
        await transport.close()


async def post(
    make: Callable[[], Transport], url: str, guard: Guard = LOOPBACK, **limits: Any
) -> Answer:
    chosen = Limits(**({"total": 5.0, "connect": 2.0} | limits))
    async with opened(make) as transport:
        return await transport.post(Post(read_url(url), b"{}", {"X-Id": "1"}, chosen), guard)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What names resolve to; each look-up takes the next answer, as a rebinding server gives."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def look_up(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else host
        if text not in known:
            return real(host, port, *args, **options)
        address = known[text].pop(0) if len(known[text]) > 1 else known[text][0]
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        where = (address, port, 0, 0) if ":" in address else (address, port)
        return [(family, socket.SOCK_STREAM, 6, "", where)]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return known


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every address that this process tries to connect to over IP."""
    tried: list[Any] = []
    real = asyncio.selector_events.BaseSelectorEventLoop.sock_connect

    async def watch(self: Any, sock: socket.socket, address: Any) -> None:
        tried.append(address)
        await real(self, sock, address)

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "sock_connect", watch)
    return tried


@pytest.mark.clause("callback.guard.7")
@pytest.mark.parametrize("ip", CORPUS["refused"])
async def test_no_address_of_the_corpus_is_connected_to_as_literal_or_as_name(
    make: Callable[[], Transport], names: dict[str, list[str]], connects: list[Any], ip: str
) -> None:
    literal = f"[{ip}]" if ":" in ip else ip
    names["innocent.example"] = [ip]
    for url in (f"http://{literal}:9/", "http://innocent.example:9/", "https://innocent.example/"):
        answer = await post(make, url, Guard())
        assert answer.failure is Failure.BLOCKED, answer
        assert "hermes callback allow" in answer.detail
    assert connects == []


@pytest.mark.clause("callback.guard.7")
async def test_a_name_that_rebinds_is_judged_at_every_connection(
    make: Callable[[], Transport], names: dict[str, list[str]], receiver: Receiver
) -> None:
    public_first = ["93.184.216.34", "127.0.0.1"]
    names["rebind.example"] = list(public_first)
    await asyncio.to_thread(socket.getaddrinfo, "rebind.example", 80)
    answer = await post(make, f"http://rebind.example:{receiver.port}/", Guard())
    assert answer.failure is Failure.BLOCKED
    assert receiver.got == []


@pytest.mark.clause("callback.guard.3")
async def test_an_allowed_address_is_reached(
    make: Callable[[], Transport], names: dict[str, list[str]], receiver: Receiver
) -> None:
    names["crm.internal"] = ["127.0.0.1"]
    answer = await post(
        make, f"http://crm.internal:{receiver.port}/cb?a=%7e&b", Guard.of(["crm.internal"])
    )
    assert answer.status == 200
    assert receiver.got[0].path == "/cb?a=%7e&b"
    assert receiver.got[0].headers["host"] == f"crm.internal:{receiver.port}"


@pytest.mark.parametrize("target", ["", "/", "/?x=1", "?x=1", "/a//b/%2e%2E/c", "/;p=1?q=a+b%20c"])
async def test_the_target_on_the_wire_is_the_one_that_was_given(
    make: Callable[[], Transport], receiver: Receiver, target: str
) -> None:
    answer = await post(make, f"http://127.0.0.1:{receiver.port}{target}")
    assert answer.status == 200
    assert receiver.got[0].path == (target if target.startswith("/") else "/" + target)


@pytest.mark.clause("callback.guard.6")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(
    make: Callable[[], Transport], receiver: Receiver, status: int
) -> None:
    with Receiver() as trap:
        receiver.script = lambda got, n: Reply(status, headers={"Location": trap.url})
        answer = await post(make, receiver.url)
        assert (answer.status, trap.got) == (status, [])
        assert answer.location == f"http://127.0.0.1:{trap.port}"


async def test_the_environments_proxy_is_not_used(
    make: Callable[[], Transport], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await post(make, receiver.url)).status == 200


async def test_a_proxy_that_is_set_carries_the_request(
    make: Callable[[], Transport], receiver: Receiver
) -> None:
    proxy = f"http://127.0.0.1:{receiver.port}"
    answer = await post(make, "http://backend.example/cb", Guard(), proxy=proxy)
    assert answer.status == 200
    assert receiver.got[0].headers["host"] == "backend.example"


async def test_cookies_of_a_receiver_are_not_kept(
    make: Callable[[], Transport], receiver: Receiver
) -> None:
    receiver.script = lambda got, n: Reply(headers={"Set-Cookie": "a=b"})
    async with opened(make) as transport:
        for _ in range(2):
            await transport.post(Post(read_url(receiver.url), b"{}", {}), LOOPBACK)
    assert "cookie" not in receiver.got[1].headers


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (Reply(200, b"\xff\xfe"), 200),
        (Reply(200, b"x" * 3_000_000), 200),
        (Reply(503, headers={"Retry-After": "7"}), 503),
        (Reply(200, slow_body=4), 200),
        (Reply(200, headers={"Content-Encoding": "gzip"}, body=b"not gzip"), 200),
    ],
    ids=["bytes", "huge", "busy", "slow", "lies about gzip"],
)
async def test_the_status_is_found_whatever_the_body_is(
    make: Callable[[], Transport], receiver: Receiver, reply: Reply, status: int
) -> None:
    receiver.script = lambda got, n: reply
    answer = await post(make, receiver.url)
    assert (answer.status, answer.failure) == (status, None)
    assert answer.retry_after == reply.headers.get("Retry-After", "")
    assert len(answer.head) <= 1024


@pytest.mark.clause("callback.status.7")
async def test_the_stop_signal_of_a_receiver_is_seen(
    make: Callable[[], Transport], receiver: Receiver
) -> None:
    receiver.script = lambda got, n: Reply(500, headers={"webhook-delivery": "abort-message"})
    assert (await post(make, receiver.url)).abort


async def test_silence_after_the_request_is_a_timeout_and_a_cut_is_a_break(
    make: Callable[[], Transport], receiver: Receiver
) -> None:
    receiver.script = lambda got, n: Reply(hang=5)
    assert (await post(make, receiver.url, total=0.3)).failure is Failure.TIMEOUT
    receiver.script = lambda got, n: Reply(cut=True)
    assert (await post(make, receiver.url)).failure is Failure.BROKEN


async def test_a_refused_connection_and_an_unknown_name_are_told_apart(
    make: Callable[[], Transport], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert (await post(make, f"http://127.0.0.1:{port}/")).failure is Failure.CONNECT

    def unknown(*args: Any, **options: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert (await post(make, "http://nowhere.example/")).failure is Failure.DNS


class _Raw:
    """A socket server that answers every connection with fixed bytes."""

    def __init__(self, answer: bytes, context: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._answer, self._context = answer, context
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            try:
                if self._context:
                    peer = self._context.wrap_socket(peer, server_side=True)
                peer.settimeout(30)
                request = chunk = peer.recv(65_536)
                while chunk and not request.endswith(b"{}"):
                    request += (chunk := peer.recv(65_536))
                peer.sendall(self._answer)
                peer.close()
            except OSError:
                continue

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run([*command, *subject, *files], check=True, capture_output=True)
    return folder


@pytest.fixture
def tls(certificate: Path) -> Iterator[_Raw]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server = _Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", context)
    yield server
    server.close()


async def test_a_certificate_nobody_vouches_for_is_refused_unless_its_ca_is_named(
    make: Callable[[], Transport], tls: _Raw, certificate: Path
) -> None:
    url = f"https://127.0.0.1:{tls.port}/"
    assert (await post(make, url)).failure is Failure.TLS_VERIFY
    trusted = await post(make, url, ca_file=str(certificate / "cert.pem"))
    assert trusted.status == 200


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000,
    ],
    ids=["nothing", "another protocol", "no status", "endless headers"],
)
async def test_a_peer_that_speaks_no_http_is_a_failure_and_not_an_exception(
    make: Callable[[], Transport], answer: bytes
) -> None:
    server = _Raw(answer)
    try:
        found = await post(make, f"http://127.0.0.1:{server.port}/")
    finally:
        server.close()
    assert found.failure in (Failure.BROKEN, Failure.CONNECT), found


async def test_what_a_receiver_says_is_kept_short_and_printable(
    make: Callable[[], Transport], receiver: Receiver
) -> None:
    receiver.script = lambda got, n: Reply(500, b"\x1b[31mboo\x00\r" + b"y" * 9_000)
    head = (await post(make, receiver.url)).head
    assert len(head) <= 1024
    assert "\x1b" not in head
    assert "boo" in head


def test_the_corpus_is_as_large_as_promised() -> None:
    assert len(CORPUS["refused"]) >= 58
    for ip in CORPUS["refused"]:
        ipaddress.ip_address(ip)
