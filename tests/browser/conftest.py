"""A real Chromium that must not reach anything but the relay under test."""

import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser.running import Running
from tests.conftest import missing

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """One browser a module: its driver keeps an event loop running, which other tests cannot have."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        missing("chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=_FLAGS)
        yield browser
        browser.close()


class Tab:
    """One page with a record of what went wrong in it."""

    def __init__(self, page: Any, running: Running) -> None:
        self.page, self.running = page, running
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._console)
        page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and "status of 4" not in message.text:
            self.errors.append(message.text)

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.running.address, "data:", "blob:")):
            self.foreign.append(request.url)

    def go(self, path: str = "/ui") -> "Tab":
        self.page.goto(self.running.address + path)
        return self

    def until(self, expression: str, seconds: float = 30) -> None:
        """Wait until a JavaScript expression is true (the page's policy forbids the usual way)."""
        for _ in range(int(seconds * 20)):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"not true within {seconds} s: {expression}")

    def clean(self) -> None:
        assert not self.errors
        assert not self.foreign


def midday() -> str:
    """A zone in which it is about noon: a page of the last hours has one day, whenever tests run."""
    east = 12 - time.gmtime().tm_hour
    return f"Etc/GMT{-east:+d}" if east else "Etc/GMT"


@pytest.fixture
def tab(chromium: Any) -> Iterator[Callable[..., Tab]]:
    """Open a tab of its own context; afterwards nothing may have failed in it."""
    tabs: list[Tab] = []

    def make(running: Running, **options: Any) -> Tab:
        options.setdefault("viewport", {"width": 1280, "height": 800})
        options.setdefault("timezone_id", midday())
        context = chromium.new_context(**options)
        context.set_default_timeout(60_000)
        running.before_end.append(context.close)
        tabs.append(Tab(context.new_page(), running))
        return tabs[-1]

    yield make
    for made in tabs:
        made.clean()
