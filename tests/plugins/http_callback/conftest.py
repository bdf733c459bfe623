"""Homes, receivers and running services for the plugin's tests."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.http_callback.receiver import Receiver

from hermes_bridge.plugins.http_callback.intake import Call, Origin
from hermes_bridge.plugins.http_callback.outbox import Receipt
from hermes_bridge.plugins.http_callback.service import service_for

QUICK = {"schedule": [0, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05, 0.05], "allow": ["127.0.0.1"]}


@pytest.fixture(autouse=True)
def no_secrets_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CAPTAIN_HTTP_CALLBACK_SECRET", "HTTP_CALLBACK_SECRET", "HTTP_CALLBACK_ALLOW"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HTTP_CALLBACK_HOME_URL", raising=False)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


class Plugin:
    """A service in a home of its own, without Hermes."""

    def __init__(self, home: Path, extra: dict[str, Any] | None = None) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self.write({**QUICK, **(extra or {})})
        self.service = service_for(home)

    def write(self, extra: dict[str, Any]) -> None:
        config = {"platforms": {"http_callback": {"extra": extra}}}
        (self.home / "config.yaml").write_text(json.dumps(config), "utf-8")

    def start(self) -> "Plugin":
        self.service.start()
        return self

    def send(self, url: str, content: str, **options: Any) -> Receipt:
        """Send as `hermes send` does: not on the webhook path."""
        return asyncio.run(self.service.accept(Call(url, content, **options)))

    def answer(self, url: str, content: str, chat: str = "webhook:r:1", **origin: Any) -> Receipt:
        """Send as the agent's final answer on the webhook path."""
        call = Call(url, content, origin=Origin(chat, notify=True, **origin))
        return asyncio.run(self.service.accept(call))

    def row(self, id: str) -> dict[str, Any]:
        return self.service.desk.submit(lambda outbox, custody: custody.show(id)).result(10)

    def states(self) -> dict[str, int]:
        def look(outbox: Any, custody: Any) -> dict[str, int]:
            return {key: n for key, n in custody.status(0)["states"].items() if n}

        return self.service.desk.submit(look).result(10)

    def wait_state(self, id: str, state: str, seconds: float = 20.0) -> dict[str, Any]:
        """Wait until a row has a state. The outbox has no event to wait for: it is asked."""

        async def ask() -> dict[str, Any]:
            async with asyncio.timeout(seconds):
                while (row := await asyncio.to_thread(self.row, id))["state"] != state:
                    await asyncio.sleep(0.02)
            return row

        try:
            return asyncio.run(ask())
        except TimeoutError:
            raise AssertionError(f"{id} is not {state}: {self.row(id)}") from None

    def wait_ready(self, seconds: float = 30.0) -> None:
        """Wait until the worker delivers (it tells nobody)."""
        worker, end = self.service.worker, time.monotonic() + seconds
        assert worker is not None
        while not worker.turns.open:
            assert time.monotonic() < end, "the worker never started"
            time.sleep(0.01)

    def stop(self) -> None:
        worker = self.service.worker
        if worker is not None:
            self.service.stop()
        self.service.desk.close()


@pytest.fixture
def plugins(tmp_path: Path) -> Iterator[Callable[..., Plugin]]:
    """Make running plugins: `plugins(start=True, home="home", **settings)`."""
    made: list[Plugin] = []

    def make(*, start: bool = True, home: str = "home", **extra: Any) -> Plugin:
        plugin = Plugin(tmp_path / home, extra)
        made.append(plugin)
        return plugin.start() if start else plugin

    yield make
    for plugin in made:
        plugin.stop()
