"""What somebody reads, holds or looks for stays theirs while the page lives on."""

import re
from collections.abc import Callable

import pytest

from hermes_bridge.relay.core.exchange import Status
from tests.browser.conftest import Tab
from tests.browser.running import Bot, ended, relay

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]
FOCUSED = "document.activeElement.textContent"


def test_focus_and_selection_stay_when_an_unfolded_ask_is_answered(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        asked = a.ask("b-bot", "what is the answer?")
        b.woken()
        page = tab(running).go().page
        row = page.locator("article.ex")
        row.get_by_text("what is the answer?", exact=True).click()
        row.get_by_role("button", name="Copy link").focus()
        page.evaluate("getSelection().selectAllChildren(document.querySelector('.ex .say .text'))")
        b.reply(asked["request_id"], "forty-two")
        row.locator(".bubble", has_text="forty-two").wait_for()
        assert page.evaluate(FOCUSED) == "Copy link"
        assert page.evaluate("String(getSelection())") == "what is the answer?"
        page.get_by_role("link", name="Open conversation").click()
        asked = a.ask("b-bot", "and now?", conversation_id=asked["conversation_id"])
        b.woken()
        turn = page.locator(".turn", has_text="and now?")
        turn.wait_for()
        page.evaluate(
            "getSelection().selectAllChildren([...document.querySelectorAll('.turn .text')].at(-1))"
        )
        b.reply(asked["request_id"], "still")
        turn.locator(".bubble", has_text="still").wait_for()
        assert page.evaluate("String(getSelection())") == "and now?"


def test_the_table_of_agents_is_patched_under_the_reader(tab: Open) -> None:
    with relay([f"bot-{n}" for n in range(1, 4)]) as running:
        a = Bot(running, "bot-1")
        look = tab(running).go("/ui/agents?a=bot-2")
        page = look.page
        page.get_by_text("Links since the relay started").wait_for()
        row = page.locator("tr", has=page.get_by_role("button", name="bot-2"))
        row.get_by_role("link", name="0", exact=True).first.focus()
        a.ask("bot-2", "one")
        look.until(f"{FOCUSED} === '1'")
        assert page.locator(".facets").is_visible()
        assert page.evaluate("document.activeElement.closest('tr').dataset.key") == "bot-2"
        (
            page.locator(".facets .errors", has_text="Agent offline").wait_for(),
            "it is kept up to date",
        )


def test_the_agent_that_a_link_names_is_on_the_screen_unfolded(tab: Open) -> None:
    names = [f"bot-{n}" for n in range(60)]
    with relay(names) as running:
        running.keep(ended("bot-1", "bot-50", "hello", status=Status.TIMEOUT))
        inside = """(() => { const box = document.querySelector('.facets').getBoundingClientRect();
            return box.top > 0 && box.top < innerHeight; })()"""
        for size in ({"width": 1280, "height": 800}, {"width": 390, "height": 844}):
            look = tab(running, viewport=size).go()
            page = look.page
            page.locator("article.ex").get_by_role("link", name="bot-50").click()
            page.wait_for_url("**/ui/agents?a=bot-50")
            facets = page.locator(".facets >> visible=true")
            facets.get_by_text("Last errors").wait_for()
            look.until(
                inside.replace(
                    "document.querySelector('.facets')",
                    "[...document.querySelectorAll('.facets')].find(el => el.checkVisibility())",
                )
            )
            assert "Timed out" in facets.inner_text()
            page.get_by_role("link", name="Show its exchanges").click()
            page.wait_for_url("**/ui?agent=bot-50")


def test_back_finds_the_place_in_every_view(tab: Open) -> None:
    names = [f"bot-{n}" for n in range(60)]
    with relay(names) as running:
        running.keep(ended("bot-1", "bot-50", "hello", status=Status.TIMEOUT))
        look = tab(running).go("/ui/agents")
        page = look.page
        row = page.locator("tr", has=page.get_by_role("button", name="bot-50"))
        row.get_by_role("link", name="Timed out").click()
        page.wait_for_url("**/ui?agent=bot-50**")
        page.go_back()
        page.wait_for_url("**/ui/agents")
        look.until("scrollY > 1000")
        assert row.get_by_role("button", name="bot-50").bounding_box()["y"] < 800
        page.go_forward()
        page.locator("article.ex").wait_for()


def test_the_keys_work_in_every_view(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        rows = [ended("a-bot", "b-bot", f"n{n}", conv="c", ago=90_000 - n * 1000) for n in range(3)]
        running.keep(*rows)
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        look = tab(running, permissions=["clipboard-read", "clipboard-write"]).go("/ui/c/c")
        page = look.page
        page.locator(".turn").nth(2).wait_for()
        page.keyboard.press("j")
        page.wait_for_url(f"**/ui/c/c#r={rows[1].rid}")
        assert "n1" in page.locator(".toc [aria-current]").inner_text()
        page.keyboard.press("c")
        page.locator(".toast", has_text="Link copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == page.url
        asked = a.ask("b-bot", "open one")
        b.woken()
        page.keyboard.press("g")
        page.keyboard.press("a")
        page.wait_for_url("**/ui/agents")
        page.get_by_role("button", name="b-bot").wait_for()
        page.keyboard.press("j")
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.dataset.agent") == "b-bot"
        page.locator("tr", has_text="for a-bot").wait_for()
        page.keyboard.press(".")
        page.wait_for_url(f"**/ui/c/{asked['conversation_id']}#r=*")
        page.goto(running.address + "/ui?q=n1")
        page.get_by_text("1 exchange", exact=True).wait_for()
        page.keyboard.press("Escape")
        page.get_by_text("4 exchanges", exact=True).wait_for()
        assert page.url == running.address + "/ui"


def test_the_skip_link_leads_to_the_content_and_leaves_the_address(tab: Open) -> None:
    with relay() as running:
        page = tab(running).go("/ui?q=x").page
        page.get_by_text("No exchange matches").wait_for()
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"
        assert page.url == running.address + "/ui?q=x"


def test_focus_goes_as_the_screen_does_at_each_width(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(ended("a-bot", "b-bot", "well?"))
        look = tab(running).go()
        page = look.page
        page.locator("article.ex").wait_for()
        first = """document.querySelector('.rail').compareDocumentPosition(document.querySelector('.feed'))
            & Node.DOCUMENT_POSITION_FOLLOWING ? 'rail' : 'feed'"""
        assert page.evaluate(first) == "feed"
        for width in (768, 390):
            page.set_viewport_size({"width": width, "height": 844})
            look.until(f"({first}) === 'rail'")
            tops = "['.rail', '.feed'].map(one => document.querySelector(one).getBoundingClientRect().top)"
            rail, feed = page.evaluate(tops)
            assert rail < feed


def test_a_link_is_spoken_of_and_kept_up_to_date_everywhere(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(ended("a-bot", "b-bot", "well?", conv="c"))
        a = Bot(running, "a-bot")
        page = tab(running).go().page
        row = page.locator("article.ex")
        row.get_by_role("link", name="a-bot (online)").wait_for()
        row.get_by_role("link", name="b-bot (offline)").wait_for()
        page.get_by_role("button", name="b-bot (offline)").wait_for()
        b = Bot(running, "b-bot")
        row.get_by_role("link", name="b-bot (online)").wait_for()
        row.click()
        page.get_by_role("link", name="Open conversation").click()
        head = page.get_by_role("heading", level=1)
        head.get_by_role("link", name="b-bot (online)").wait_for()
        a.close()
        b.close()
        head.get_by_role("link", name="b-bot (reconnecting)").wait_for()
        head.get_by_role("link", name="a-bot (reconnecting)").wait_for()


def test_a_hit_that_the_row_does_not_show_is_shown_around_it(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        far = "x " * 3000 + "the needle lies here " + "y " * 3000
        running.keep(
            ended(
                "a-bot", "b-bot", "second line", ago=9000, answer="first\nthe needle of an answer"
            ),
            ended("a-bot", "b-bot", far, ago=8000),
        )
        page = tab(running).go("/ui?q=needle").page
        marks = page.locator("article.ex mark", has_text="needle")
        marks.nth(1).wait_for()
        texts = page.locator("article.ex").all_inner_texts()
        assert "the needle lies here" in texts[0]
        assert "the needle of an answer" in texts[1]


def test_every_figure_has_its_list(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(
            *(ended("a-bot", "b-bot", f"n{n}", ago=9000 + n) for n in range(3)),
            ended("a-bot", "b-bot", "bad", ago=8000, status=Status.TIMEOUT),
        )
        page = tab(running).go().page
        figures = page.get_by_role("region", name="Last hour")
        figures.get_by_role("link", name="75.0 %").click()
        page.wait_for_url("**/ui?status=answered&from=-1h")
        page.get_by_text("3 exchanges", exact=True).wait_for()
        assert page.get_by_role("button", name="Clear filters").count() == 1
        page.get_by_role("button", name="Clear filters").click()
        page.wait_for_url("**/ui")
        bar = page.get_by_role("link", name=re.compile(r"4 asks, 1 without an answer|[1-3] asks"))
        bar.last.focus()
        assert page.evaluate("document.activeElement.dataset.start")
        page.goto(running.address + "/ui/map?range=1h")
        page.get_by_role("link", name="25.0 % failed").click()
        page.wait_for_url("**/ui?status=unanswered&from=-1h")
        page.get_by_text("1 exchange", exact=True).wait_for()
        page.get_by_role("button", name="Time Last hour").wait_for()


def test_at_midnight_today_becomes_yesterday(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(ended("a-bot", "b-bot", "well?", ago=9000))
        page = tab(running).go().page
        page.locator(".day", has_text="Today").wait_for()
        page.evaluate(
            """async () => {
                const base = document.querySelector('script[type=module]').src;
                const { setClock } = await import(new URL('time.js', base));
                setInterval(() => setClock(Date.now() + 86400000), 50); // the relay's own would win
            }"""
        )
        page.locator(".day", has_text="Yesterday").wait_for()
