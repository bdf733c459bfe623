"""A hub and a real connector in one process, with real sockets between them."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.connector.hub import Hub
from tests.connector.probe import Gateway
from tests.harness.waits import eventually

from hermes_bridge.connector.config import configure
from hermes_bridge.connector.process import Process


class Rig:
    """Bots `a`, `b`, ... with gateways `gw-a`, ..., a room with all of them and `ada`, DMs of `ada`."""

    def __init__(self, directory: Path, bots: tuple[str, ...], settings: dict[str, Any]) -> None:
        self.directory, self.bots, self.settings = directory, bots, settings
        self.hub = Hub()
        self.process: Process | None = None
        self.rows: list[dict[str, Any]] = [
            {"botId": bot, "token": f"tok-{bot}-0123456789", "gatewayId": f"gw-{bot}",
             "secret": f"secret-of-{bot}"}
            for bot in bots
        ]  # fmt: skip
        for row in self.rows:
            self.hub.account(row["botId"], row["token"])
            self.hub.room(f"dm-{row['botId']}", "ada", row["botId"])
        self.hub.room("room", "ada", *bots)
        self._stack = AsyncExitStack()
        self._running: asyncio.Task[None] | None = None
        self.gateways: list[Gateway] = []

    @property
    def file(self) -> Path:
        return self.directory / "identities.json"

    @property
    def url(self) -> str:
        assert self.process is not None
        return f"ws://127.0.0.1:{self.process.address[1]}/relay"

    @property
    def base(self) -> str:
        return self.url.replace("ws:", "http:").removesuffix("/relay")

    @property
    def connector(self) -> Any:
        assert self.process is not None
        return self.process.connector

    def write(self) -> None:
        self.file.write_text(json.dumps(self.rows), "utf-8")

    async def start(self, *, wait: bool = True) -> None:
        """Start a connector; wait until every account listens everywhere."""
        self.write()
        section = {
            "identities_file": str(self.file),
            "port": 0,
            "state_dir": str(self.directory),
            "api_url": f"http://127.0.0.1:{self.hub.port}",
            "cursor_flush_ms": 500,
        } | self.settings
        self.process = Process(configure(section, {}))
        self._running = asyncio.create_task(self.process.run(signals=False))
        async with asyncio.timeout(30):
            serving = asyncio.create_task(self.process.serving.wait())
            await asyncio.wait([serving, self._running], return_when=asyncio.FIRST_COMPLETED)
        if self._running.done():
            serving.cancel()
            await self._running
        if wait:
            await self.listening()

    async def listening(self) -> None:
        places = [
            (bot, room.id)
            for bot in self.bots
            for room in self.hub.rooms.values()
            if bot in room.members
        ]
        await self.hub.until(lambda: all(self.hub.listens(*place) for place in places))
        await eventually(
            lambda: not self.connector._backfill._running and self._online(), "listening"
        )

    def _online(self) -> bool:
        platforms = self.connector.state.platforms
        return all(platforms["agentschat"].account(bot).state == "online" for bot in self.bots)

    async def stop(self) -> None:
        if self.process is not None and self._running is not None:
            self.process.stop()
            async with asyncio.timeout(20):
                await self._running
        self.process = self._running = None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    def gateway(
        self, bot: str, *, acks: bool = True, secret: str = "", gateway: str = ""
    ) -> Gateway:
        made = Gateway(self.url, gateway or f"gw-{bot}", secret or f"secret-of-{bot}", acks=acks)
        self.gateways.append(made)
        return made

    async def joined(self, bot: str, **options: Any) -> Gateway:
        return await self.gateway(bot, **options).join(bot)

    async def settled(self) -> None:
        """Wait until everything that is owed was acknowledged."""
        depth = self.connector.state.inbox.depth
        await eventually(lambda: not any(depth(bot)[0] for bot in self.bots), "settled")

    async def close(self) -> None:
        for gateway in self.gateways:
            await gateway.close()
        await self.stop()


@asynccontextmanager
async def rig(
    directory: Path, *bots: str, start: bool = True, **settings: Any
) -> AsyncIterator[Rig]:
    """Give a running hub and connector."""
    made = Rig(directory, bots or ("a", "b"), settings)
    async with made.hub.serve():
        try:
            if start:
                await made.start()
            yield made
        finally:
            await made.close()
