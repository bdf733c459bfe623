"""A backend that receives callbacks, with Starlette (FastAPI is the same: it is Starlette inside).

Run it:      CALLBACK_SECRET=... uvicorn examples.callback_receiver_starlette:app
Check it:    python examples/callback_receiver_starlette.py
"""

import base64
import hashlib
import hmac
import json
import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hermes_bridge.callback.receiver import Refused, Seen, Verifier
from hermes_bridge.clock import wall_ms

verifier = Verifier(os.environ.get("CALLBACK_SECRET", "for-this-example-only"))
seen = Seen()
answers: list[str] = []


async def callback(request: Request) -> Response:
    """Check the raw body, act once, answer fast."""
    body = await request.body()
    try:
        found = verifier.verify(request.headers.items(), body)
    except Refused as refused:
        return JSONResponse({"error": str(refused)}, refused.status)
    if seen.first(found.id):
        # Here a real backend hands the text to its customer, in the conversation it belongs to.
        answers.append(found.content)
    return JSONResponse({"status": "ok"})


app = Starlette(routes=[Route("/callback", callback, methods=["POST"])])


def main() -> None:
    """Send one callback twice, then a forged one."""
    from starlette.testclient import TestClient

    body = json.dumps({"content": "olá 😊", "reply_to": None, "metadata": {}}).encode()
    stamp = str(wall_ms() // 1000)
    signed = hmac.new(b"for-this-example-only", f"msg_1.{stamp}.".encode() + body, hashlib.sha256)
    headers = {
        "webhook-id": "msg_1",
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + base64.b64encode(signed.digest()).decode(),
    }
    client = TestClient(app)
    assert client.post("/callback", content=body, headers=headers).status_code == 200
    assert client.post("/callback", content=body, headers=headers).status_code == 200
    assert client.post("/callback", content=body + b" ", headers=headers).status_code == 401
    assert answers == ["olá 😊"]
    print("one answer taken, its repetition ignored, a forged one refused")


if __name__ == "__main__":
    main()
