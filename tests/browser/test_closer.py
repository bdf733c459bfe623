"""A closer look (turn, trace, parent, older exchanges), and people who need it otherwise."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_bridge.relay.core.exchange import Exchange, Mark, Status
from tests.browser.conftest import Tab
from tests.browser.running import Bot, beaten, ended, relay

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def family() -> list[Exchange]:
    first = ended("a-bot", "b-bot", "hello", conv="c-1", ago=400_000)
    parent = ended("a-bot", "b-bot", "which badge?", conv="c-1", ago=300_000, took=60_000)
    parent.trace, parent.attempt = TRACE, 2
    beaten(parent, (Mark.LOST, 42_000), (Mark.BACK, 46_000), (Mark.AGAIN, 46_000))
    nested = ended("b-bot", "c-bot", "who keeps the badges?", conv="c-2", ago=290_000)
    nested.depth, nested.chain = 1, ("a-bot",)
    return [first, parent, nested]


def test_an_exchange_leads_to_its_trace_its_turn_and_its_parent(tab: Open) -> None:
    ui = {"trace_url": "http://traces.example/t/{trace_id}?from=page"}
    with relay(["a-bot", "b-bot", "c-bot"], ui=ui) as running:
        rows = family()
        running.keep(*rows)
        page = tab(running).go().page
        page.get_by_text("which badge?", exact=True).click()
        row = page.locator("article.ex", has_text="which badge?")
        row.get_by_text("turn 2").wait_for()
        link = row.get_by_role("link", name="Trace")
        target = "http://traces.example/t/0af7651916cd43dd8448eb211c80319c?from=page"
        assert link.get_attribute("href") == target
        page.goto(f"{running.address}/ui/c/c-2")
        page.get_by_role("button", name="asked while answering a-bot").click()
        page.wait_for_url(f"**/ui/c/c-1#r={rows[1].rid}")
        marked = page.locator(".turn.marked")
        assert "which badge?" in marked.inner_text()
        assert "The link was lost once and came back after 4 s." in marked.inner_text()
        assert page.locator(".kv a").get_attribute("href") == target


def test_a_parent_that_is_gone_is_said(tab: Open) -> None:
    with relay(["a-bot", "b-bot", "c-bot"]) as running:
        running.keep(family()[2])
        page = tab(running).go("/ui/c/c-2").page
        page.get_by_role("button", name="asked while answering a-bot").click()
        page.get_by_text("which the relay no longer keeps").wait_for()
        assert page.get_by_role("link", name="Trace").count() == 0


def test_a_long_conversation_goes_back_to_its_beginning(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(
            *(
                ended("a-bot", "b-bot", f"line {n}", conv="c", ago=900_000 - n * 1000)
                for n in range(620)
            )
        )
        look = tab(running).go("/ui/c/c")
        page = look.page
        page.get_by_text("the last 500 exchanges since").wait_for()
        page.get_by_text("line 120", exact=True).first.wait_for()
        assert page.get_by_text("line 119", exact=True).count() == 0
        place = """[...document.querySelectorAll('.turn')]
            .find(el => el.textContent.includes('line 120')).getBoundingClientRect().top"""
        page.evaluate("scrollTo(0, 0)")
        before = page.evaluate(place)
        page.get_by_role("button", name="Load older").click()
        look.until("document.querySelectorAll('.turn').length === 620")
        assert page.get_by_text("620 exchanges since").is_visible()
        assert abs(page.evaluate(place) - before) < 2, "what was read stays where it was"
        assert not page.get_by_role("button", name="Load older").is_visible()
        assert page.locator(".toc li").first.inner_text().startswith("1")


def test_with_less_motion_nothing_moves_but_time_goes_on(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        rid = a.ask("b-bot", "slow work")["request_id"]
        b.woken()
        look = tab(running, reduced_motion="reduce").go()
        page = look.page
        page.locator("article.ex .st", has_text="Working").wait_for()
        b.beat(rid, "still at it")
        page.locator("article.ex", has_text="still at it").wait_for()
        moving = "document.getAnimations().filter(a => a.playState === 'running').length"
        assert page.evaluate(moving) == 0
        assert page.locator(".pulse .ring").count() == 0
        still = page.evaluate(
            """[...document.querySelectorAll('*')]
                .filter(el => parseFloat(getComputedStyle(el).transitionDuration) > 0).length"""
        )
        assert still == 0
        shown = page.locator("article.ex .took").inner_text()
        look.until(f"document.querySelector('article.ex .took').textContent !== {shown!r}")


def test_with_forced_colours_every_state_can_be_told(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(
            ended("a-bot", "b-bot", "good"),
            ended("a-bot", "b-bot", "bad", status=Status.TIMEOUT),
            ended("a-bot", "b-bot", "stopped", status=Status.CANCELLED),
        )
        page = tab(running, forced_colors="active").go().page
        badges = page.locator("article.ex .st")
        badges.nth(2).wait_for()
        for badge in badges.all():
            style = badge.evaluate("el => getComputedStyle(el).borderTopWidth")
            assert style == "1px"
            assert badge.locator("svg").is_visible()
        texts = {badge.inner_text() for badge in badges.all()}
        assert texts == {"Answered", "Timed out", "Cancelled"}
        page.keyboard.press("j")
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) == "solid"


def test_on_a_phone_fingers_find_everything(tab: Open) -> None:
    with relay(["a-bot", "b-bot"], ui={"password": "correct horse battery"}) as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        a.ask("b-bot", "an open one")
        b.woken()
        running.keep(ended("a-bot", "b-bot", "an ended one"))
        look = tab(
            running,
            viewport={"width": 390, "height": 844},
            has_touch=True,
            is_mobile=True,
            device_scale_factor=2,
        )
        look.go("/ui/login")
        page = look.page
        page.get_by_label("Operator password").fill("correct horse battery")
        page.get_by_role("button", name="Sign in").tap()
        page.locator("article.ex").nth(1).wait_for()
        page.get_by_text("an ended one", exact=True).tap()
        page.get_by_role("button", name="Show less").wait_for()
        assert page.locator(".open li .btn", has_text="Cancel ask").is_visible(), "without hover"
        small = page.evaluate(
            """[...document.querySelectorAll('nav a, .bar button, .filters button, .open .btn')]
                .filter(el => {
                    const box = el.getBoundingClientRect();
                    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
                    if (!el.checkVisibility() || x < 0 || x > innerWidth || y > innerHeight) return false;
                    return [-19, 19].some(d => !el.contains(document.elementFromPoint(x, y + d)));
                }).map(el => el.textContent)"""
        )
        assert small == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.get_by_role("link", name="Agents", exact=False).first.tap()
        page.wait_for_url("**/ui/agents")
        page.get_by_role("button", name="Search").tap()
        page.keyboard.type("ended")
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui?q=ended")
        page.locator("article.ex mark", has_text="ended").first.wait_for()


def test_a_connector_that_starts_or_fails_says_so(tab: Open) -> None:
    told: dict[str, Any] = {"status": "starting"}
    with relay(["a-bot"]) as running:
        running.call(lambda: setattr(running.service._ui, "connector", lambda: dict(told)))
        look = tab(running).go("/ui/connector")
        look.page.get_by_text("The connector is starting").wait_for()
        told |= {"status": "down", "cause": "the connector does not run: the store is locked"}
        look.page.get_by_text("The connector does not run", exact=True).wait_for()
        assert "the store is locked" in look.page.locator("main").inner_text()
