"""A Hermes that the test plays, and a bot whose bridge runs in it."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anyio import to_thread
from tests.plugins.bridge.fake_relay import FakeRelay

from hermes_bridge.plugins.bridge.bridge import Bridge
from hermes_bridge.plugins.bridge.frames import Wake
from hermes_bridge.plugins.bridge.inbox import Reply
from hermes_bridge.plugins.bridge.journal import Journal
from hermes_bridge.plugins.bridge.settings import Settings


class PlayedHermes:
    """A host: notes what it is told; turns end when the test says so."""

    def __init__(self) -> None:
        self.is_ready = True
        self.begun: asyncio.Queue[tuple[Wake, str]] = asyncio.Queue()
        self.interrupted: asyncio.Queue[str] = asyncio.Queue()
        self.states: list[tuple[bool, str, str]] = []
        self.turns: set[str] = set()

    def ready(self, conversation: str) -> bool:
        return self.is_ready

    def busy(self, conversation: str) -> bool:
        return conversation in self.turns

    async def begin(self, wake: Wake, text: str) -> None:
        self.turns.add(wake.conversation_id)
        self.begun.put_nowait((wake, text))

    async def interrupt(self, conversation: str) -> None:
        self.interrupted.put_nowait(conversation)

    def show(self, online: bool, code: str, words: str) -> None:
        self.states.append((online, code, words))


class Bot:
    """A bridge, its host, and what a test wants to do with them."""

    def __init__(self, relay: FakeRelay, home: Path) -> None:
        self.relay, self.home = relay, home
        self.host = PlayedHermes()
        self.token = relay.token
        self.bridge = Bridge(self.host, self.settings, Journal(home / "exchanges.jsonl"))

    def settings(self) -> Settings:
        return Settings(self.relay.url, self.token)

    async def turn(self) -> tuple[Wake, str]:
        async with asyncio.timeout(30):
            return await self.host.begun.get()

    async def end(self, wake: Wake, answer: str | None) -> None:
        if answer is not None:
            await self.bridge.final(wake.request_id, Reply(answer))
        self.host.turns.discard(wake.conversation_id)
        self.bridge.turn_over(wake.request_id)


async def at(work: Callable[..., Any], *args: Any, **kw: Any) -> Any:
    return await to_thread.run_sync(lambda: work(*args, **kw))
