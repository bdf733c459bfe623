"""A bot's side of the seed's protocol inside a real Hermes: four-field wakes in, heartbeats out.

Written for the tests. It says no hello, acks nothing, and answers nothing by itself: the model has
to call the relay's `reply` tool over MCP, as the seed's bots do.
"""

import asyncio
import contextlib
import json
import os
from typing import Any

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, MessageEvent, MessageType, SendResult
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

NAME = "seed-adapter"


class SeedAdapter(BasePlatformAdapter):
    def __init__(self, config: Any) -> None:
        super().__init__(config, Platform(NAME))
        self._running_turns: dict[str, asyncio.Task[None]] = {}
        self._socket: Any = None

    @property
    def authorization_is_upstream(self) -> bool:
        return True

    async def connect(self, *, is_reconnect: bool = False) -> bool:
        self._dialling = asyncio.create_task(self._dial())
        self._mark_connected()
        return True

    async def disconnect(self) -> None:
        self._dialling.cancel()
        self._mark_disconnected()

    async def send(
        self, chat_id: str, content: str, reply_to: Any = None, metadata: Any = None
    ) -> SendResult:
        return SendResult(success=True, message_id="none")

    async def get_chat_info(self, chat_id: str) -> dict[str, str]:
        return {"name": chat_id, "type": "dm"}

    async def on_processing_complete(self, event: MessageEvent, outcome: Any) -> None:
        beating = self._running_turns.pop(str(event.message_id), None)
        if beating is not None:
            beating.cancel()

    async def _dial(self) -> None:
        headers = {"Authorization": "Bearer " + os.environ["SEED_TOKEN"]}
        while True:
            with contextlib.suppress(OSError, WebSocketException):
                async with connect(os.environ["SEED_URL"], additional_headers=headers) as socket:
                    self._socket = socket
                    async for text in socket:
                        await self._wake(json.loads(text))
            await asyncio.sleep(0.3)

    async def _wake(self, wake: dict[str, str]) -> None:
        rid, conversation = wake["request_id"], wake["conversation_id"]
        self._running_turns[rid] = asyncio.create_task(self._beat(rid))
        source = self.build_source(
            chat_id=f"{NAME}:{conversation}",
            chat_name=wake["from"],
            chat_type="dm",
            user_id=wake["from"],
            user_name=wake["from"],
        )
        text = f"[{NAME}] {wake['from']} (request_id={rid}, conversation_id={conversation}): "
        text += wake["message"]
        event = MessageEvent(
            text=text, message_type=MessageType.TEXT, source=source, message_id=rid, internal=True
        )
        await self.handle_message(event)

    async def _beat(self, rid: str) -> None:
        while True:
            with contextlib.suppress(OSError, WebSocketException):
                await self._socket.send(json.dumps({"type": "heartbeat", "request_id": rid}))
            await asyncio.sleep(0.5)


def register(ctx: Any) -> None:
    ctx.register_platform(
        name=NAME,
        label="Seed adapter",
        adapter_factory=SeedAdapter,
        check_fn=lambda: bool(os.environ.get("SEED_TOKEN")),
    )
