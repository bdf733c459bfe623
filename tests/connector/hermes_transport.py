"""Run inside a Hermes environment: its own relay transport against a connector. Prints JSON.

python hermes_transport.py URL GATEWAY SECRET BOT CHAT
"""

import asyncio
import json
import sys

from gateway.relay.ws_transport import WebSocketRelayTransport


async def main(url: str, gateway: str, secret: str, bot: str, chat: str) -> None:
    transport = WebSocketRelayTransport(
        url, "agentschat", bot, gateway_id=gateway, upgrade_secret=secret, reconnect=True
    )
    got: asyncio.Queue = asyncio.Queue()

    async def inbound(event: object) -> None:
        await got.put(event)

    transport.set_inbound_handler(inbound)
    await transport.connect()
    descriptor = await transport.handshake()
    print(
        json.dumps({"platform": descriptor.platform, "edit": descriptor.supports_edit}), flush=True
    )
    event = await asyncio.wait_for(got.get(), 20)
    action = {"op": "send", "chat_id": chat, "content": "heard: " + event.text, "metadata": {}}
    sent = await transport.send_outbound(action)
    info = await transport.get_chat_info(chat)
    idle = await transport.go_idle(5.0)
    print(json.dumps({"text": event.text, "source": str(event.source.chat_id), "sent": sent,
                      "info": info, "idle": idle}), flush=True)  # fmt: skip
    await transport.disconnect()


asyncio.run(main(*sys.argv[1:]))
