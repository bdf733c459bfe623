"""Homes, receivers and running services for the plugin's tests."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.harness.waits import until
from tests.plugins.http_callback.receiver import Receiver

from hermes_bridge.plugins.http_callback.intake import Call, Origin
from hermes_bridge.plugins.http_callback.outbox import Outbox, Receipt
from hermes_bridge.plugins.http_callback.service import service_for
from hermes_bridge.plugins.http_callback.store import Store

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

    def wait_state(self, id: str, state: str) -> dict[str, Any]:
        """Wait until a row has a state. The outbox has no event to wait for: it is asked."""
        until(lambda: self.row(id)["state"] == state, lambda: f"{state}: {self.row(id)}")
        return self.row(id)

    def wait_ready(self) -> None:
        """Wait until the worker delivers (it tells nobody)."""
        worker = self.service.worker
        assert worker is not None
        until(lambda: worker.turns.open, "the worker ready")

    def stop(self) -> None:
        worker = self.service.worker
        if worker is not None:
            self.service.stop()
        self.service.desk.close()


Plugins = Callable[..., Plugin]


@pytest.fixture
def plugins(tmp_path: Path) -> Iterator[Plugins]:
    """Make running plugins: `plugins(start=True, home="home", **settings)`."""
    made: list[Plugin] = []

    def make(*, start: bool = True, home: str = "home", **extra: Any) -> Plugin:
        plugin = Plugin(tmp_path / home, extra)
        made.append(plugin)
        return plugin.start() if start else plugin

    yield make
    for plugin in made:
        plugin.stop()


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[Outbox]:
    store = Store(tmp_path / "http_callback" / "outbox.db")
    yield Outbox(store, "me")
    store.close()
