"""Your own chat platform in 60 lines: a room on a TCP port. People use `nc`, bots use Hermes.

python examples/own_platform.py        runs a person, a bot and a connector, and checks itself
"""

import asyncio
import json
import tempfile
import time
from datetime import UTC, datetime
from itertools import count

import websockets

from hermes_bridge.clock import wall_ms
from hermes_bridge.connector.config import configure
from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.message import Message
from hermes_bridge.connector.platforms.base import BarePlatform, Post, Sink
from hermes_bridge.connector.process import Process
from hermes_bridge.contract.descriptor import SEND, Capabilities
from hermes_bridge.contract.token import mint


class TcpRoom(BarePlatform):
    """One room. The first line of a person is the name, every other line is said."""

    capabilities = Capabilities(platform="tcproom", label="TCP room", ops=(SEND,))

    def __init__(self) -> None:
        self.accounts: dict[str, Sink] = {}
        self.people: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.open = asyncio.Event()
        self._numbers = count(1)

    async def run(self) -> None:
        """Serve people until the connector stops."""
        server = await asyncio.start_server(self._person, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.open.set()
        async with server:
            await server.serve_forever()

    def start(self, identity: Identity, sink: Sink) -> None:
        """A bot is in the room at once, and has missed nothing."""
        self.accounts[identity.bot_id] = sink
        sink.joining(identity.bot_id, ["room"])
        sink.joined(identity.bot_id, ["room"])

    async def send(self, identity: Identity, post: Post) -> str:
        """A bot says something."""
        return self._said(identity.agent_id, post.text, bot=True)

    async def _person(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.people.add(writer)
        name = (await reader.readline()).decode(errors="replace").strip() or "somebody"
        while line := await reader.readline():
            self._said(name, line.decode(errors="replace").strip())
        self.people.discard(writer)

    def _said(self, who: str, text: str, *, bot: bool = False) -> str:
        at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        message_id = f"{time.time_ns()}.{next(self._numbers)}"  # unique over restarts
        message = Message("tcproom", "room", message_id, who, text, at=at, from_bot=bot)
        for bot_id, sink in self.accounts.items():
            sink.received(bot_id, message)
        for writer in self.people:
            writer.write(f"{who}: {text}\n".encode())
        return message_id


async def main() -> None:
    """A person mentions a bot; the bot's gateway hears it and answers; the person reads it."""
    room = TcpRoom()
    row = {"platform": "tcproom", "botId": "robo", "token": "none", "gatewayId": "gw",
           "secret": "gateway-secret"}  # fmt: skip
    with tempfile.TemporaryDirectory() as state:
        config = configure({"identities": [row], "port": 0, "state_dir": state}, {})
        process = Process(config, platforms={"tcproom": room})
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            group.create_task(process.run(signals=False))
            await process.serving.wait()
            await room.open.wait()
            reader, writer = await asyncio.open_connection("127.0.0.1", room.port)
            writer.write(b"ada\n@robo good morning\n")
            await gateway(process.address[1])
            while b"robo: good morning, ada" not in (line := await reader.readline()):
                assert line, "the room closed before the answer came"
            print("the person reads:", line.decode().strip())
            writer.close()
            process.stop()


async def gateway(port: int) -> None:
    """What Hermes does: dial, declare the bot, take a message, acknowledge it, answer."""
    token = mint("gw", "gateway-secret", wall_ms() // 1000 + 300)
    headers = {"Authorization": f"Bearer {token}"}
    async with websockets.connect(f"ws://127.0.0.1:{port}/relay", additional_headers=headers) as ws:
        await ws.send('{"type": "hello", "platform": "tcproom", "botId": "robo"}\n')
        async for chunk in ws:
            for frame in map(json.loads, str(chunk).splitlines()):
                if frame["type"] == "outbound_result":
                    assert frame["result"]["success"], frame
                    return
                if frame["type"] == "inbound":
                    await ws.send(
                        json.dumps({"type": "inbound_ack", "bufferId": frame["bufferId"]}) + "\n"
                    )
                    words = f"good morning, {frame['event']['source']['user_name']}"
                    action = {"op": "send", "chat_id": "room", "content": words}
                    await ws.send(
                        json.dumps({"type": "outbound", "requestId": "1", "action": action}) + "\n"
                    )


if __name__ == "__main__":
    asyncio.run(main())
