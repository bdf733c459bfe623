"""The view Exchanges in a real Chromium."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_bridge.relay.core.exchange import Status
from tests.browser.conftest import Tab
from tests.browser.running import Bot, ended, relay

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]
LONG = "Is the loading dock free on Monday? " + "Two pallets of desks arrive. " * 12


def rows(tab: Tab) -> Any:
    return tab.page.locator("article.ex")


def test_exchanges_stand_newest_first_with_route_status_and_duration(tab: Open) -> None:
    with relay(["sales-bot", "stock-bot"]) as running:
        Bot(running, "sales-bot")
        running.keep(
            ended("sales-bot", "stock-bot", "first?", ago=90_000, took=3_100, answer="312"),
            ended(
                "sales-bot", "stock-bot", "second?", ago=60_000, took=48_230, status=Status.TIMEOUT
            ),
            ended("sales-bot", "ghost", "third?", ago=30_000, took=0, status=Status.UNKNOWN_AGENT),
        )
        page = tab(running).go()
        rows(page).nth(2).wait_for()
        texts = [text.replace("\n", " ") for text in rows(page).all_inner_texts()]
        assert (
            "third?" in texts[0]
            and "Unknown agent" in texts[0]
            and "No agent is called ghost." in texts[0]
        )
        assert "second?" in texts[1] and "Timed out" in texts[1] and "48.2 s" in texts[1]
        assert "No sign of life for 120 s." in texts[1]
        assert (
            "first?" in texts[2]
            and "Answered" in texts[2]
            and "3.1 s" in texts[2]
            and "312" in texts[2]
        )
        strip = page.page.locator(".strip")
        assert "1 of 2 online" in strip.inner_text()
        assert [chip.inner_text().split("\n")[-1] for chip in strip.locator(".chip bdi").all()] == [
            "sales-bot",
            "stock-bot",
        ]


def test_a_long_message_is_cut_and_show_more_reveals_it_with_the_answer(tab: Open) -> None:
    with relay() as running:
        running.keep(ended(message=LONG, answer="Yes.\nUntil noon."))
        page = tab(running).go()
        row = rows(page).first
        row.wait_for()
        shown = row.locator(".say .text").inner_text()
        assert shown.endswith("…")
        assert 160 <= len(shown) <= 181
        assert "Until noon" not in row.inner_text()
        row.get_by_role("button", name="Show more").click()
        assert row.locator(".say .text").inner_text() == LONG
        assert row.locator(".bubble").inner_text() == "Yes.\nUntil noon."
        row.get_by_role("button", name="Show less").click()
        assert row.locator(".say .text").inner_text() == shown


def test_a_pending_exchange_waits_for_its_answer_and_settles_in_place(tab: Open) -> None:
    with relay() as running:
        asker, target = Bot(running, "asker"), Bot(running, "target")
        rid = asker.ask("target", "what is the answer?")["request_id"]
        page = tab(running).go()
        row = rows(page).first
        row.get_by_text("Waiting for the answer").wait_for()
        row.get_by_text("Sent", exact=True).wait_for()
        target.woken()
        row.get_by_text("Working").wait_for()
        target.beat(rid, "looking it up")
        row.get_by_text("looking it up").wait_for()
        assert row.locator("svg.pulse").get_attribute("aria-label").startswith("Silent for")
        target.reply(rid, "forty-two")
        row.get_by_text("Answered").wait_for()
        row.get_by_text("forty-two").wait_for()
        assert row.locator("svg.pulse").count() == 0


def test_updates_keep_search_filter_focus_and_unfolded_cards(tab: Open) -> None:
    with relay(["a-bot", "b-bot", "c-bot"]) as running:
        running.keep(
            ended("a-bot", "b-bot", "badge for Lyon?", ago=50_000, answer="LYO-2"),
            ended("b-bot", "c-bot", "badge for Nantes?", ago=40_000),
            ended("a-bot", "b-bot", "lunch?", ago=30_000),
        )
        bots = {name: Bot(running, name) for name in ("a-bot", "b-bot", "c-bot")}
        page = tab(running).go()
        rows(page).nth(2).wait_for()
        page.page.keyboard.press("/")
        page.page.keyboard.type("BADGE")
        page.page.locator(".chip", has_text="a-bot").click()
        page.page.wait_for_url("**/ui?q=BADGE&agent=a-bot")
        assert rows(page).count() == 1
        row = rows(page).first
        assert [mark.inner_text() for mark in row.locator("mark").all()] == ["badge"]
        row.get_by_role("button", name="Show more").click()
        row.get_by_role("button", name="Show less").focus()
        bots["c-bot"].ask("b-bot", "badge, but of others")
        bots["a-bot"].ask("c-bot", "a new badge?")
        page.page.get_by_role("button", name="1 new").wait_for()
        assert rows(page).count() == 1
        assert page.page.locator(".find input").input_value() == "BADGE"
        assert row.locator(".bubble").inner_text() == "LYO-2"
        assert page.page.evaluate("document.activeElement.textContent").startswith("Show less")
        page.page.get_by_role("button", name="1 new").click()
        page.page.get_by_text("a new badge?").wait_for()
        assert rows(page).count() == 2
        assert rows(page).nth(1).locator(".bubble").inner_text() == "LYO-2"
        page.page.reload()
        rows(page).nth(1).wait_for()
        assert page.page.locator(".find input").input_value() == "BADGE"


def test_hostile_text_is_shown_as_text(tab: Open) -> None:
    evil = "<script>window.hit=1</script><img src=x onerror=window.hit=1> \u202egnp.exe \u200b\x07 {{base}}"
    with relay(["<b>asker</b>", "target"]) as running:
        running.keep(
            ended("<b>asker</b>", "target", evil, answer=f"</script>{evil}", ago=9000),
            ended(
                "<b>asker</b>",
                "target",
                "Z\u0352\u035a" * 400 + "شلونك 👩‍👩‍👧",
                answer="\U0001f9d1" * 200,
                ago=8000,
            ),
            ended("<b>asker</b>", "x" * 64, "x" * 200_000, status=Status.UNKNOWN_AGENT, ago=7000),
        )
        page = tab(running).go()
        rows(page).nth(2).wait_for()
        for row in rows(page).all():
            row.get_by_role("button", name="Show more").click()
        assert "<script>window.hit=1</script>" in rows(page).nth(2).inner_text()
        assert rows(page).nth(2).locator(".ctl").count() >= 3
        assert page.page.evaluate("window.hit") is None
        assert page.page.locator("main script, main img").count() == 0
        page.page.get_by_role("button", name="Show all (200 KB)").click()
        page.page.locator(".text.tall").wait_for()
        assert page.page.locator(".text.tall").evaluate("el => el.textContent.length") == 200_000
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_filters_by_status_and_time_are_in_the_address(tab: Open) -> None:
    with relay() as running:
        running.keep(
            ended(message="recent and fine", ago=60_000),
            ended(message="recent and late", ago=50_000, status=Status.TIMEOUT),
            ended(message="old and late", ago=90_000_000, status=Status.TIMEOUT),
        )
        page = tab(running).go()
        rows(page).nth(2).wait_for()
        page.page.get_by_role("button", name="Status", exact=False).first.click()
        page.page.get_by_label("No answer").check()
        page.page.keyboard.press("Escape")
        assert rows(page).count() == 2
        page.page.get_by_role("button", name="Time", exact=False).first.click()
        page.page.get_by_role("radio", name="Last hour").check()
        page.page.wait_for_url("**/ui?status=unanswered&from=-1h")
        assert "recent and late" in rows(page).first.inner_text()
        assert rows(page).count() == 1
        page.page.keyboard.press("Escape")
        page.page.get_by_role("button", name="Any status").click()
        page.page.get_by_text("recent and fine").wait_for()


def test_a_filter_menu_is_for_the_keyboard_too(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(ended("a-bot", "b-bot", "well?"))
        page = tab(running).go().page
        rows_ = page.locator("article.ex")
        rows_.wait_for()
        inside = "document.activeElement.closest('.menu') !== null"
        page.keyboard.press("f")
        page.keyboard.press("Enter")
        menu = page.get_by_role("dialog", name="Agent")
        menu.wait_for()
        assert page.evaluate(inside), "it has the focus"
        for _ in range(3):
            page.keyboard.press("Tab")
        page.keyboard.press("Space")
        page.wait_for_url("**/ui?agent=a-bot")
        page.keyboard.press("Escape")
        menu.wait_for(state="hidden")
        assert page.evaluate("document.activeElement.textContent.trim()") == "Agent a-bot"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui")


def test_a_lost_relay_is_said_and_the_page_goes_on_showing(tab: Open) -> None:
    with relay() as running:
        running.keep(ended(message="kept"))
        page = tab(running)
        page.go()
        rows(page).first.wait_for()
        page.page.context.set_offline(True)
        page.page.get_by_text("Connection to the relay lost.").wait_for()
        assert "kept" in rows(page).first.inner_text()
        page.page.context.set_offline(False)
        page.page.get_by_text("Connection to the relay lost.").wait_for(state="hidden")
        page.errors.clear()
