"""A backend that receives callbacks, with nothing but WSGI (Flask and Django sit on the same).

Run it:      CALLBACK_SECRET=... python -m wsgiref.simple_server   (or any WSGI server: `app`)
Check it:    python examples/callback_receiver_wsgi.py
"""

import hashlib
import hmac
import io
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from hermes_bridge.callback.receiver import Refused, Seen, Verifier

MOST = 1_000_000
verifier = Verifier(os.environ.get("CALLBACK_SECRET", "for-this-example-only"))
seen = Seen()
answers: list[str] = []


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Check the raw body, act once, answer fast."""

    def answer(status: str, value: dict[str, str]) -> list[bytes]:
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(value).encode()]

    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > MOST:
        return answer("413 Content Too Large", {"error": "too large"})
    body = environ["wsgi.input"].read(length)
    headers = {name[5:]: value for name, value in environ.items() if name.startswith("HTTP_")}
    try:
        found = verifier.verify(headers, body)
    except Refused as refused:
        return answer(f"{refused.status} Refused", {"error": str(refused)})
    if seen.first(found.id):
        answers.append(found.content)
    return answer("200 OK", {"status": "ok"})


def main() -> None:
    """Send one callback with the original's signature, then a forged one."""
    body = json.dumps({"content": "hello", "reply_to": None, "metadata": {}}).encode()
    proof = hmac.new(b"for-this-example-only", body, hashlib.sha256).hexdigest()
    statuses: list[str] = []
    for sent in (body, body + b" "):
        environ = {
            "CONTENT_LENGTH": str(len(sent)),
            "wsgi.input": io.BytesIO(sent),
            "HTTP_X_HERMES_CALLBACK_SIGNATURE": f"sha256={proof}",
            "HTTP_IDEMPOTENCY_KEY": "msg_1",
        }
        list(app(environ, lambda status, headers: statuses.append(status)))
    assert [status[:3] for status in statuses] == ["200", "401"]
    assert answers == ["hello"]
    print("one answer taken, a forged one refused")


if __name__ == "__main__":
    main()
