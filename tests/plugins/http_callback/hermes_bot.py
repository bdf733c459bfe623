"""A bot with the plugin in a real Hermes: its routes, events, receiver and stored callbacks."""

import base64
import hashlib
import hmac
import json
import sqlite3
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.harness.gateway import Gateway
from tests.harness.relay import free_port
from tests.harness.waits import until
from tests.plugins.http_callback.receiver import SECRET, Got, Receiver

PLUGIN = Path(__file__).parents[3] / "src/hermes_bridge/plugins/http_callback"
INBOUND = "inbound-secret"
PROMPT = "Customer said: {message}"
Gateways = Callable[..., Gateway]
Row = dict[str, Any]


def route(deliver: str = "http_callback", **more: Any) -> dict[str, Any]:
    return {"secret": INBOUND, "prompt": PROMPT, "deliver": deliver, **more}


class Bot:
    """A gateway with the plugin, a webhook port, a receiver, and the CLI of its home."""

    def __init__(
        self,
        gateways: Gateways,
        receiver: Receiver,
        *,
        bare: bool = False,
        routes: dict[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        self.port = free_port()
        self.receiver = receiver
        webhook = {"host": "127.0.0.1", "port": self.port, "routes": routes or {}}
        settings = {"allow": [f"127.0.0.1:{receiver.port}"], "schedule": [0, *[0.5] * 60], **extra}
        self.gateway = gateways(
            "bot",
            start=False,
            plugins={} if bare else {"http_callback": PLUGIN},
            config={
                "plugins": {"enabled": [] if bare else ["http_callback"]},
                "platforms": {
                    "webhook": {"enabled": True, "extra": webhook},
                    "http_callback": {"extra": settings},
                },
            },
            env={} if bare else {"CAPTAIN_HTTP_CALLBACK_SECRET": SECRET},
        )

    def start(self) -> "Bot":
        self.gateway.start(120)
        self.gateway.wait_platform("http_callback", timeout=60)
        self.gateway.wait_platform("webhook", timeout=60)
        return self

    def subscribe(self, url: str, route: str = "support", *more: str) -> None:
        arguments = ["--prompt", PROMPT, "--deliver", "http_callback"]
        done = self.gateway.cli(
            *["webhook", "subscribe", route, *arguments],
            *["--deliver-chat-id", url, "--secret", INBOUND, *more],
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def post(self, event: str, route: str = "support", prefix: str = "", **payload: Any) -> int:
        """Be the customer's system: an event whose message is its own name, unless another is given."""
        usual = {"conversation": {"id": 55}} if route == "support" else {}  # its URL names it
        body = json.dumps({"message": event, **usual, **payload}).encode()
        stamp = str(int(time.time()))
        signed = hmac.new(INBOUND.encode(), stamp.encode() + b"." + body, hashlib.sha256)
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{prefix}/webhooks/{route}",
            data=body,
            headers={
                "Content-Type": "application/json",
                "X-Request-ID": event,
                "X-Webhook-Timestamp": stamp,
                "X-Webhook-Signature-V2": signed.hexdigest(),
            },
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            status: int = response.status
            return status

    def wait_got(self, word: str, count: int = 1, *, accepted: bool = False) -> list[Got]:
        """Wait for so many requests that hold a word in their path or body."""
        return self.receiver.wait(count, 90, accepted=accepted, where=holding(word))

    def got(self, word: str) -> list[Got]:
        return list(filter(holding(word), self.receiver.got))

    def rows(self, word: str) -> list[Row]:
        """The stored callbacks that name a word, oldest first, as the file has them."""
        file = self.gateway.home / "http_callback" / "outbox.db"
        if not file.exists():
            return []
        db = sqlite3.connect(file, timeout=10)
        db.row_factory = sqlite3.Row
        try:
            found = db.execute("SELECT * FROM deliveries ORDER BY seq").fetchall()
        finally:
            db.close()
        return [dict(row) for row in found if word in f"{event_of(row['chat'])} {row['url']}"]

    def wait_rows(self, word: str, condition: Callable[[list[Row]], bool]) -> list[Row]:
        until(lambda: condition(self.rows(word)), lambda: f"so: {self.rows(word)}", 60)
        return self.rows(word)

    def wait_delivered(self, word: str, count: int = 1) -> list[Row]:
        """Wait until so many callbacks and no other (notices aside) were delivered."""

        def so(rows: list[Row]) -> bool:
            return [row["state"] for row in rows if row["state"] != "suppressed"] == [
                "delivered"
            ] * count

        return self.wait_rows(word, so)


def event_of(chat: str) -> str:
    """The event in the chat of a webhook; 0.22 wraps it: `webhook:v2:` and JSON in base64."""
    last = chat.rpartition(":")[2]
    if ":v2:" not in chat:
        return last
    return str(json.loads(base64.urlsafe_b64decode(last + "=" * (-len(last) % 4)))[-1])


def holding(word: str) -> Callable[[Got], bool]:
    return lambda one: word in one.path or word.encode() in one.body
