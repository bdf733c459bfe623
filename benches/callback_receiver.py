"""A lean HTTP receiver for the callback benchmark: a process of its own, so that it costs us nothing.

    python callback_receiver.py DELAY_MS      prints its port, then serves

`GET /stats` gives, as JSON, how many requests came and how old their bodies were on arrival (ms): a body's
`content` begins with the sender's monotonic clock.
"""

import asyncio
import json
import sys
import time
from typing import Any

delay = float(sys.argv[1]) / 1000 if len(sys.argv) > 1 else 0.0
ages: list[float] = []
by_path: dict[str, list[float]] = {}
arrivals: dict[str, float] = {}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Door(asyncio.Protocol):
    """One connection; requests come one after another."""

    def connection_made(self, transport: Any) -> None:
        self.wire, self.data = transport, b""

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self.data) < end + 4 + length:
                return
            body, self.data = self.data[end + 4 : end + 4 + length], self.data[end + 4 + length :]
            self.take(head.split(b" ", 2)[1].decode(), body)

    def take(self, path: str, body: bytes) -> None:
        if path == "/stats":
            text = json.dumps({"ages": ages, "paths": by_path, "arrivals": arrivals}).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n".encode()
            self.wire.write(head + text)
            ages.clear()
            by_path.clear()
            arrivals.clear()
            return
        now = time.monotonic()
        start = body.find(b'"content": "')
        if start >= 0:
            first, second = body[start + 12 :].split(b" ", 2)[:2]
            arrivals.setdefault(second.decode("utf-8", "replace")[:12], now)
            try:
                age = (now - float(first)) * 1000
            except ValueError:
                age = 0.0
            ages.append(age)
            by_path.setdefault(path, []).append(now)
        if delay:
            asyncio.get_running_loop().call_later(delay, self.answer)
        else:
            self.answer()

    def answer(self) -> None:
        if not self.wire.is_closing():
            self.wire.write(OK)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Door, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())
