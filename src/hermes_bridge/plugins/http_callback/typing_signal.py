"""The typing signal: "on" when a webhook event starts a turn, "off" when its answer is stored.

Best effort: never stored, three seconds at most, and nothing waits for it.
"""

import asyncio
import json
import logging
import threading
from typing import Any

from . import signing
from .clock import now_ms, wall_seconds
from .commons import shared
from .intake import new_id
from .service import Service
from .targets import BadTarget, Target, resolve, typing_url
from .transport import Limits, Post, choose
from .urlguard import BadUrl, read_url

logger = logging.getLogger(__name__)

MOST_AT_ONCE, LONGEST_MS = 64, 30 * 60_000
_on: dict[str, tuple[Service, Target, int]] = shared("typing", dict)


def on(service: Service, chat: str, delivery: dict[str, Any]) -> None:
    """Say that an answer is being written, when the endpoint wants to know."""
    extra = delivery.get("deliver_extra") or {}
    try:
        target = resolve(str(extra.get("chat_id") or extra.get("url") or ""), service.settings)
    except BadTarget:
        return
    now = now_ms()
    for old in [known for known, (_, _, at) in _on.items() if at < now - LONGEST_MS]:
        _on.pop(old, None)  # its turn ended without an answer
    if not typing_url(target) or chat in _on or len(_on) >= MOST_AT_ONCE:
        return
    _on[chat] = (service, target, now)
    _send(service, target, "on")


def off(chat: str) -> None:
    """Say that the answer is there."""
    known = _on.pop(chat, None)
    if known is not None:
        _send(known[0], known[1], "off")


def _send(service: Service, target: Target, status: str) -> None:
    threading.Thread(
        target=_deliver, args=(service, target, status), name="http-callback-typing", daemon=True
    ).start()


def _deliver(service: Service, target: Target, status: str) -> None:
    try:
        asyncio.run(signal(service, target, status))
    except Exception as error:  # noqa: BLE001 - a typing signal is never worth a failure
        logger.debug("http_callback: typing signal: %s", error)


async def signal(service: Service, target: Target, status: str) -> int | None:
    """Send one signal; give the receiver's status."""
    settings, endpoint = service.settings, target.endpoint
    typing = endpoint.typing
    if typing is None:
        return None
    try:
        place = read_url(typing_url(target))
    except BadUrl as error:
        logger.warning("http_callback: the typing URL cannot be used: %s", error)
        return None
    if refusal := settings.guard.refuses_place(place, named=bool(endpoint.name)):
        logger.warning("http_callback: typing signal not sent: %s", refusal)
        return None
    body = json.dumps({"typing_status": typing.on if status == "on" else typing.off}).encode()
    letter = signing.Letter(new_id(), body, wall_seconds(), 1)
    headers = signing.headers(
        endpoint.profile,
        settings.keyring(endpoint, wall_seconds()),
        letter,
        "hermes-http-callback/1.0",
    )
    transport = choose()
    try:
        limits = Limits(total=3.0, connect=3.0, ca_file=endpoint.ca_file, proxy=endpoint.proxy)
        return (await transport.post(Post(place, body, headers, limits), settings.guard)).status
    finally:
        await transport.close()
