"""A played relay and bots that are linked to it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.plugins.bridge.fake_relay import FakeRelay
from tests.plugins.bridge.played import Bot

Start = Callable[..., Awaitable[Bot]]


@pytest.fixture
def relay() -> Iterator[FakeRelay]:
    with FakeRelay(heartbeat_ms=100) as played:
        yield played


@pytest.fixture
async def start(relay: FakeRelay, tmp_path: Path) -> AsyncIterator[Start]:
    bots: list[Bot] = []

    async def make(*, online: bool = True) -> Bot:
        bot = Bot(relay, tmp_path)
        bots.append(bot)
        bot.bridge.start()
        if online:
            async with asyncio.timeout(30):
                await bot.bridge._up.wait()
        return bot

    yield make
    for bot in bots:
        await bot.bridge.close()
