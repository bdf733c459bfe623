"""What the page says when something is wrong, in a real Chromium."""

import re
from collections.abc import Callable

import msgspec
import pytest

from tests.browser.conftest import Tab
from tests.browser.running import Bot, relay

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]


def test_a_lost_link_is_told_in_seconds(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        asked = a.ask("b-bot", "are you there?")
        b.woken()
        page = tab(running).go(f"/ui/c/{asked['conversation_id']}").page
        page.locator(".turn .st", has_text="Working").wait_for()
        b.close()
        facts = page.locator(".turn .facts").first
        facts.get_by_text("Link lost 0:0").wait_for()
        left = re.search(r"Link lost 0:\d\d, ends in 0:(\d\d)", facts.inner_text())
        assert left and int(left[1]) <= 30, "its end is the grace, no longer the window"
        label = page.locator(".turn svg.pulse").get_attribute("aria-label")
        assert re.fullmatch(
            r"Link lost [\d.]+ seconds? ago\. Ends in \d+ seconds unless it comes back\.", label
        )
        b = Bot(running, "b-bot")
        page.get_by_text(
            re.compile(r"The link was lost once and came back after \d+ (m?s)\.")
        ).wait_for()
        page.get_by_text(re.compile(r"Silent 0:\d\d, times out in 1:")).wait_for()
        book = running.relay.book
        brief = msgspec.structs.replace(book.limits, reconnect_grace_ms=1000)
        running.call(lambda: setattr(book, "limits", brief))
        b.close()
        stop = page.locator(".stop", has_text="Link lost.")
        stop.wait_for()
        assert "The link of b-bot was lost and did not come back within 1 s." in stop.inner_text()
