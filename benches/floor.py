"""The floor: the same walk of an ask with nothing in it, on the same server and libraries.

No rules, no store, no checks: what HTTP, WebSocket and JSON alone cost on this machine. Figures of
the relay are given as multiples of it, because absolute ones depend on the machine and its
neighbours. Run by `relay.py` through uvicorn; TOKENS names a JSON file {agent: token}.
"""

import asyncio
import json
import os
import uuid
from pathlib import Path
from typing import Any

import msgspec

_TOKENS = json.loads(Path(os.environ["TOKENS"]).read_text())
_WHO = {f"Bearer {token}".encode(): name for name, token in _TOKENS.items()}
_links: dict[str, Any] = {}
_waiting: dict[str, asyncio.Future[str]] = {}
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


async def _answer(send: Any, rid: Any, value: Any) -> None:
    text = _encode(value).decode()
    body = _encode(
        {"jsonrpc": "2.0", "id": rid, "result": {"content": [{"type": "text", "text": text}]}}
    )
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Serve one request or link."""
    who = next((_WHO.get(v) for k, v in scope["headers"] if k == b"authorization"), None)
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        _links[who or ""] = send
        while (await receive())["type"] != "websocket.disconnect":
            continue
        return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    if not body:
        await _answer(send, None, {"status": "ok"})
        return
    request = _decode(body)
    arguments = request["params"]["arguments"]
    if request["params"]["name"] == "reply":
        _waiting.pop(arguments["request_id"]).set_result(arguments["answer"])
        await _answer(send, request["id"], {"ok": True})
        return
    rid, conversation = str(uuid.uuid4()), str(uuid.uuid4())
    future = _waiting[rid] = asyncio.get_running_loop().create_future()
    wake = {
        "request_id": rid,
        "conversation_id": conversation,
        "from": who,
        "message": arguments["message"],
    }
    await _links[arguments["to"]]({"type": "websocket.send", "text": _encode(wake).decode()})
    answer = await future
    await _answer(send, request["id"], {"ok": True, "answer": answer})
