"""The lean HTTP client against a server that behaves in every way that bytes allow.

Planted mutants that these tests kill (each was seen to fail): an answer that nobody asked for is
kept for the next call; a post is sent again; a broken answer is asked for again; a call that is
given up keeps its connection.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hermes_bridge.connector.platforms.agentschat.http import Broken, Pool, TooLarge, Unreachable

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Server:
    """Answers the n-th request it ever gets with the n-th of `answers`; None ends the connection."""

    def __init__(self, *answers: bytes | None, then_close: bool = False) -> None:
        self.answers, self.then_close = list(answers), then_close
        self.requests: list[bytes] = []
        self.connections = 0
        self.came = asyncio.Event()
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.requests.append(head + await reader.readexactly(int(length or 0)))
                self.came.set()
                answer = self.answers.pop(0) if self.answers else OK
                if answer is None:
                    break
                writer.write(answer)
                if self.then_close:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        writer.close()


@asynccontextmanager
async def pool(server: Server) -> AsyncIterator[Pool]:
    running = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    made = Pool(f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}")
    async with asyncio.timeout(30):
        yield made
    made.close()
    running.close()


async def ask(made: Pool, method: str = "GET", body: bytes = b"", limit: int = 1000) -> bytes:
    answer = await made.call(method, "/x?a=b", "x-one: 1\r\n", body, limit=limit)
    return b"%d " % answer.status + answer.body


async def test_calls_share_a_connection_and_carry_what_they_should() -> None:
    server = Server(OK, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
    async with pool(server) as made:
        assert await ask(made, "POST", b"hello") == b"200 ok"
        assert await ask(made) == b"404 "
        assert await ask(made) == b"200 ok"
    assert server.connections == 1
    first = server.requests[0].decode()
    assert first.startswith("POST /x?a=b HTTP/1.1\r\nhost: 127.0.0.1:")
    assert "x-one: 1\r\n" in first
    assert first.endswith("content-length: 5\r\n\r\nhello")
    assert "content-length" not in server.requests[1].decode()


@pytest.mark.parametrize(
    ("answer", "close", "found"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
         False, b"200 abcd"),
        (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK, False, b"200 ok"),
        (b"HTTP/1.1 200 OK\r\n\r\nto the end", True, b"200 to the end"),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\nx", True, b"200 x"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", False, b"204 "),
    ],
)  # fmt: skip
async def test_every_form_of_answer_is_understood(answer: bytes, close: bool, found: bytes) -> None:
    async with pool(Server(answer, then_close=close)) as made:
        assert await ask(made) == found
        assert await ask(made) == b"200 ok"


@pytest.mark.parametrize(
    ("answer", "close"),
    [
        (b"no http at all\r\n\r\n", False),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort", True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nab", True),
        (None, True),
    ],
)
async def test_a_broken_answer_is_told_and_the_connection_is_not_used_again(
    answer: bytes | None, close: bool
) -> None:
    server = Server(answer, then_close=close)
    async with pool(server) as made:
        with pytest.raises(Broken):
            await ask(made, "POST", b"x")
        server.then_close = False
        assert await ask(made) == b"200 ok"
    assert server.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 2000\r\n\r\n" + b"x" * 2000,
        b"HTTP/1.1 200 OK\r\nx-long: " + b"x" * 70_000 + b"\r\n\r\n",
    ],
)
async def test_an_answer_without_measure_is_refused(answer: bytes) -> None:
    async with pool(Server(answer)) as made:
        with pytest.raises(TooLarge):
            await ask(made)
        assert await ask(made) == b"200 ok"


async def test_a_second_answer_to_one_call_is_never_taken_for_the_next_calls() -> None:
    forged = OK.replace(b"ok", b"no")
    server = Server(OK + forged)
    async with pool(server) as made:
        assert await ask(made) == b"200 ok"
        assert await ask(made) == b"200 ok"
    assert server.connections == 2


async def test_a_kept_connection_that_ended_costs_a_reading_nothing_and_a_post_its_certainty() -> (
    None
):
    server = Server(OK, None, OK, None)
    async with pool(server) as made:
        assert await ask(made) == b"200 ok"
        assert await ask(made) == b"200 ok"
        with pytest.raises(Broken):
            await ask(made, "POST", b"x")
    assert len(server.requests) == 4
    assert server.connections == 2


async def test_an_answer_that_ends_in_its_middle_is_not_asked_for_again() -> None:
    server = Server(OK, b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort")
    async with pool(server) as made:
        assert await ask(made) == b"200 ok"
        server.then_close = True
        with pytest.raises(Broken):
            await ask(made)
    assert len(server.requests) == 2


async def test_a_call_that_is_given_up_ends_its_connection() -> None:
    server = Server(b"")
    async with pool(server) as made:
        call = asyncio.create_task(ask(made))
        await server.came.wait()
        call.cancel()
        await server.left.wait()
        assert await ask(made) == b"200 ok"
    assert server.connections == 2


async def test_where_nobody_listens_nothing_was_sent() -> None:
    running = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = running.sockets[0].getsockname()[1]
    running.close()
    await running.wait_closed()
    made = Pool(f"http://127.0.0.1:{port}")
    with pytest.raises(Unreachable):
        await ask(made)


async def test_no_more_connections_than_allowed_are_opened() -> None:
    gate, waiting = asyncio.Event(), asyncio.Event()

    class Slow(Server):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            waiting.set()
            await gate.wait()
            await super().serve(reader, writer)

    server = Slow()
    running = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    made = Pool(f"http://127.0.0.1:{running.sockets[0].getsockname()[1]}", most=3)
    calls = [asyncio.create_task(ask(made)) for _ in range(10)]
    async with asyncio.timeout(30):
        await waiting.wait()
        gate.set()
        assert await asyncio.gather(*calls) == [b"200 ok"] * 10
    assert server.connections == 3, "the ten shared three"
    made.close()
    running.close()
