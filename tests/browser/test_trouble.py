"""What the page says when something is wrong, in a real Chromium."""

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.browser.conftest import Tab
from tests.browser.running import PASSWORD, Bot, ended, relay

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]


def test_a_view_that_cannot_load_says_so_and_tries_again(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(ended("a-bot", "b-bot", "well?", conv="c"))
        look = tab(running)
        page = look.page
        for path, api, seen in (
            ("/ui/map?range=1h", "**/ui/api/counts*", "1 ask between"),
            ("/ui/agents?a=b-bot", "**/ui/api/agents/b-bot", "Last errors"),
            ("/ui/c/c", "**/ui/api/conversations/**", "well?"),
            ("/ui?q=well", "**/ui/api/exchanges*", "1 exchange"),
        ):
            page.route(api, lambda route: route.abort())
            look.go(path)
            page.locator("main").get_by_text("Could not load this.").first.wait_for()
            page.unroute(api)
            page.locator("main").get_by_role("button", name="Try again").first.click()
            page.locator("main").get_by_text(seen).first.wait_for()
        look.errors.clear()


def test_a_cancel_that_does_not_get_through_says_why(tab: Open) -> None:
    with relay(["a-bot", "b-bot"], ui={"password": PASSWORD}) as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        a.ask("b-bot", "never mind")
        b.woken()
        look = tab(running).go()
        page = look.page
        page.get_by_label("Operator password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        page.locator(".open li").hover()
        page.locator(".open li").get_by_role("button", name="Cancel ask").click()
        page.route("**/cancel", lambda route: route.abort())
        dialog = page.get_by_role("dialog", name="Cancel this ask?")
        dialog.get_by_role("button", name="Cancel ask").click()
        dialog.get_by_text("That did not work: The relay does not answer.").wait_for()
        page.unroute("**/cancel")
        dialog.get_by_role("button", name="Cancel ask").click()
        page.locator(".toast", has_text="Ask cancelled").wait_for()
        look.errors.clear()


def test_an_address_that_is_malformed_or_too_old_says_so(tab: Open, tmp_path: Path) -> None:
    with relay(db=tmp_path / "relay.db", retention_days=30) as running:
        running.keep(ended(conv="c"))
        look = tab(running)
        look.go("/ui/c/%zz").page.get_by_text("No such conversation").wait_for()
        look.page.get_by_text("It may be older than 30 days.").wait_for()
        look.go("/ui/agents?a=ghost").page.get_by_text("No agent is called ghost.").wait_for()
        look.go("/ui/map?a=ghost").page.get_by_text("No agent is called ghost.").wait_for()
        look.go("/ui/c/c#r=%zz").page.locator(".turn").wait_for()
        look.errors.clear()


def test_what_was_lost_and_a_restart_are_said(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        look = tab(running).go()
        page = look.page
        page.get_by_text("No exchanges yet").wait_for()
        running.call(lambda: setattr(running.relay.journal, "lost", 3))
        page.get_by_text("3 exchanges were not stored during the outage.").wait_for()
        running.call(running.service._ui._hub.close)
        page.locator(".banner", has_text="The relay is restarting.").wait_for()
        page.get_by_role("button", name="Try now").click()
        look.errors.clear()


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
