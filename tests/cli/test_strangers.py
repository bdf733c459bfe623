"""The command line when something else answers than a relay of ours, or nothing that makes sense."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.cli.conftest import Cli

TOKEN = {"HERMES_BRIDGE_TOKEN": "t" * 16}
JSON = b"content-type: application/json\r\n"
STREAM = b"content-type: text/event-stream\r\n"


@contextmanager
def answering(head: bytes, body: bytes, *, length: int | None = None) -> Iterator[str]:
    """Answer every request so; a `length` that is not the body's cuts the answer short."""
    size = len(body) if length is None else length
    whole = b"HTTP/1.1 %bcontent-length: %d\r\nconnection: close\r\n\r\n%b" % (head, size, body)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            with peer:
                peer.recv(65_536)
                peer.sendall(whole)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (b"200 OK\r\n" + JSON, b"<html>hello</html>"),
        (b"200 OK\r\n" + JSON, b"[1]"),
        (b"200 OK\r\n" + STREAM, b"data: {}\n\n"),
        (b"200 OK\r\n" + STREAM, b"data: nonsense\n\n"),
        (b"500 No\r\n" + JSON, b'{"error":"internal error"}'),
        (b"404 Not Found\r\n", b"nothing here"),
        (b"413 Too Large\r\n", b"too large"),
    ],
    ids=["a page", "a list", "an empty event", "no JSON", "an error", "nothing", "a refusal"],
)
def test_an_ask_of_something_else_says_that_it_is_no_relay(
    cli: Cli, head: bytes, body: bytes
) -> None:
    with answering(head, body) as url:
        ran = cli("ask", "b", "?", "--relay-url", url, **TOKEN)
    assert (ran.code, ran.out) == (1, "")
    assert f"What answers at {url} is not a hermes-bridge relay" in ran.err
    assert "--relay-url" in ran.err


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b"7"])
def test_a_tail_of_something_else_says_so_too(cli: Cli, body: bytes) -> None:
    with answering(b"200 OK\r\n", body) as url:
        ran = cli("tail", "--once", "--relay-url", url)
    assert ran.code == 1
    assert "is not a hermes-bridge relay" in ran.err


def test_an_answer_that_is_cut_short_is_no_traceback(cli: Cli) -> None:
    with answering(b"200 OK\r\n" + JSON, b'{"jsonrpc":', length=5000) as url:
        asked = cli("ask", "b", "?", "--relay-url", url, **TOKEN)
        tailed = cli("tail", "--once", "--relay-url", url)
    assert asked.code == tailed.code == 1
    assert "broke during the call" in asked.err and "--key" in asked.err
    assert "try again" in tailed.err


@pytest.mark.parametrize("url", ["http://x:99999", "http://x:y", "http://[", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused_with_an_example(cli: Cli, url: str) -> None:
    for args in (
        ("ask", "b", "?", "--relay-url", url),
        ("install", "bridge", "--token=t", f"--relay-url={url}", f"--hermes-home={cli.folder}"),
    ):
        ran = cli(*args, **TOKEN)
        assert ran.code == 2
        assert "://" in ran.err.partition("\n")[2], "no example"
