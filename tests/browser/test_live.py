"""Updates, long lists and trouble in a real Chromium."""

from collections.abc import Callable
from typing import Any

import pytest

from hermes_bridge.relay.core.admission import Ask
from tests.browser.conftest import Tab
from tests.browser.running import Bot, ended, relay

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]


_BOTTOM = """async () => {
    // Follow the end as a reader does who holds the key down: every frame, until it says so.
    const end = () => document.querySelector('.tail-row').textContent.startsWith('That is everything');
    let most = 0;
    const until = performance.now() + 250000;
    while (!end() && performance.now() < until) {
        scrollTo(0, document.body.scrollHeight);
        await new Promise(requestAnimationFrame);
        most = Math.max(most, document.querySelectorAll('article.ex').length);
    }
    return [end(), most];
}"""
_TOP = """async () => {
    // Page up again: at every stop there must be rows on the screen.
    let bare = 0, most = 0;
    for (let stop = 0; scrollY > 0 && stop < 20000; stop += 1) {
        scrollBy(0, -20 * innerHeight);
        for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
        if (!document.elementFromPoint(300, innerHeight - 60).closest('article.ex, .day')) bare += 1;
        most = Math.max(most, document.querySelectorAll('article.ex').length);
    }
    return [scrollY, bare, most];
}"""


@pytest.mark.timeout(400)
def test_ten_thousand_exchanges_scroll_without_filling_the_page(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        rows = (
            ended("a-bot", "b-bot", f"question {n}", ago=60_000 + n * 300) for n in range(10_000)
        )
        running.keep(*rows)
        look = tab(running).go()
        page = look.page
        page.get_by_text("question 0", exact=True).click()
        page.get_by_text("10,000 exchanges").wait_for()
        at_end, most = page.evaluate(_BOTTOM)
        assert at_end
        assert page.get_by_text("question 9999", exact=True).is_visible()
        assert most <= 1200, "far blocks are emptied"
        look.until("[...document.querySelectorAll('article.ex')].at(-1).ariaPosInSet === '10000'")
        height = page.evaluate("document.body.scrollHeight")
        place, bare, most = page.evaluate(_TOP)
        assert (place, bare) == (0, 0)
        assert most <= 1200
        assert abs(page.evaluate("document.body.scrollHeight") - height) < height * 0.02
        first = page.locator("article.ex").first
        assert first.get_by_role("button", name="Show less").is_visible(), "it stays unfolded"
        first.get_by_role("button", name="Show less").focus()
        page.keyboard.press("j")
        assert page.evaluate("document.activeElement.textContent.includes('question 1')")


def test_a_new_row_goes_straight_in_when_nobody_reads(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(ended("a-bot", "b-bot", "old"))
        a = Bot(running, "a-bot")
        page = tab(running).go().page
        page.get_by_text("old", exact=True).wait_for()
        page.bring_to_front()
        a.ask("nobody", "fresh")
        page.locator("article.ex", has_text="fresh").wait_for()
        assert page.locator("article.ex").first.locator(".say .text").inner_text() == "fresh"


def test_a_selection_and_a_scroll_position_survive_a_burst(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(*(ended("a-bot", "b-bot", f"n{n}", ago=60_000 + n * 1000) for n in range(60)))
        a = Bot(running, "a-bot")
        page = tab(running).go().page
        page.locator("article.ex").nth(49).wait_for()
        page.evaluate(
            """() => {
                const text = document.querySelectorAll('article.ex .say .text')[5];
                getSelection().selectAllChildren(text);
                scrollTo(0, 300);
            }"""
        )
        for n in range(120):
            a.ask("nobody", f"burst {n}")
        page.get_by_role("button", name="99+ new").wait_for()
        assert page.evaluate("String(getSelection())") == "n5"
        assert page.evaluate("scrollY") == 300
        assert page.locator("article.ex", has_text="burst").count() == 0


def test_without_the_stream_the_page_polls_and_says_so(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        a = Bot(running, "a-bot")
        page = tab(running)
        page.page.route("**/ui/api/events*", lambda route: route.abort())
        page.go().page.get_by_text("Polling every 3 s").wait_for()
        a.ask("nobody", "heard by polling")
        page.page.locator("article.ex", has_text="heard by polling").wait_for()
        page.page.unroute("**/ui/api/events*")
        page.page.get_by_text("Live", exact=True).wait_for(timeout=40_000)
        page.errors.clear()


def test_a_stream_that_says_nothing_is_given_up_for_polling(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        look = tab(running)
        page = look.page
        page.route("**/ui/api/events*", lambda route: None)  # a proxy that holds everything back
        page.clock.install()
        look.go()
        for _ in range(60):
            page.clock.fast_forward(3100)
            page.wait_for_timeout(100)
            if page.get_by_text("Polling every 3 s").is_visible():
                break
        page.get_by_text("Polling every 3 s").wait_for()
        page.unroute_all(behavior="ignoreErrors")


def test_a_stream_that_breaks_goes_on_where_it_was(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        a = Bot(running, "a-bot")
        look = tab(running)
        page = look.page
        asked: list[str] = []
        page.on("request", lambda r: asked.append(r.url) if "/ui/api/events" in r.url else None)
        look.go()
        page.get_by_text("No exchanges yet").wait_for()
        a.ask("nobody", "the first")
        page.locator("article.ex", has_text="the first").wait_for()
        page.context.set_offline(True)
        page.get_by_text("Connection to the relay lost.").wait_for()
        a.ask("nobody", "meanwhile")
        page.context.set_offline(False)
        page.locator("article.ex", has_text="meanwhile").wait_for()
        look.until("document.querySelector('.live').innerText === 'Live'")
        assert "?after=" in asked[-1]
        look.errors.clear()


def test_a_dead_store_is_said_in_a_banner(tab: Open, tmp_path: Any) -> None:
    (tmp_path / "taken").mkdir()
    with relay(["a-bot", "b-bot"], db=tmp_path / "taken") as running:
        Bot(running, "a-bot").ask("nobody", "kept in memory")
        page = tab(running).go().page
        page.get_by_text("The database does not answer.").wait_for()
        assert "Asks go on. History older than" in page.locator(".banner").inner_text()
        page.locator("article.ex", has_text="kept in memory").wait_for()


def test_the_first_look_is_small(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        said = "What an agent asks is two or three sentences long. " * 5
        running.keep(
            *(ended("a-bot", "b-bot", said, answer=said, ago=60_000 + n * 1000) for n in range(260))
        )
        page = tab(running)
        sizes: list[int] = []
        page.page.on("requestfinished", lambda r: sizes.append(r.sizes()["responseBodySize"]))
        page.go().page.locator("article.ex").nth(49).wait_for()
        page.page.wait_for_timeout(500)
        paints = page.page.evaluate(
            "performance.getEntriesByType('paint').map(entry => [entry.name, entry.startTime])"
        )
        assert {name for name, _ in paints} >= {"first-paint"}
        assert sum(sizes) < 150_000


def test_a_gap_leaves_no_hole_in_the_list(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(ended("a-bot", "b-bot", "old", ago=60_000))
        page = tab(running).go().page
        page.get_by_text("old", exact=True).click()
        page.get_by_role("button", name="Show less").focus()

        def burst() -> None:
            for n in range(700):
                running.relay.open(Ask(asker="a-bot", target="nobody", message=f"burst {n}"))

        running.call(burst)
        page.get_by_role("button", name="99+ new").wait_for()
        assert page.locator("article.ex").count() == 1
        page.get_by_role("button", name="99+ new").click()
        page.get_by_text("burst 699", exact=True).wait_for()
        for _ in range(300):
            page.evaluate("scrollTo(0, document.body.scrollHeight)")
            if page.get_by_text("That is everything since").is_visible():
                break
            page.wait_for_timeout(100)
        page.get_by_text("That is everything since").wait_for()
        page.get_by_text("701 exchanges").wait_for()


@pytest.mark.timeout(400)
def test_a_page_that_stays_open_keeps_its_list_short(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        look = tab(running).go()
        page = look.page
        page.get_by_text("No exchanges yet").wait_for()
        page.bring_to_front()
        shown = "document.querySelectorAll('article.ex').length"

        def some(first: int) -> Callable[[], None]:
            def ask() -> None:
                for n in range(first, first + 250):
                    running.relay.open(Ask(asker="a-bot", target="nobody", message=f"n{n}"))

            return ask

        for first in range(0, 5000, 250):
            running.call(some(first))
            look.until(
                "[...document.querySelectorAll('.say .text')]"
                f".some(el => el.textContent === 'n{first + 249}')"
            )
        assert 250 <= page.evaluate(shown) < 4300


def test_fetching_a_late_answer_is_seen_at_once(tab: Open) -> None:
    with relay(["a-bot", "b-bot"], ask_timeout_ms=300) as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        asked = a.ask("b-bot", "quick?")
        b.woken()
        page = tab(running).go(f"/ui/c/{asked['conversation_id']}").page
        page.locator(".stop", has_text="Timed out.").wait_for()
        b.reply(asked["request_id"], "sorry, late")
        page.get_by_text("Not fetched.").wait_for()
        a.send(type="call", id="w", tool="wait_answer", args={"request_id": asked["request_id"]})
        assert a.expect("result")["result"]["late"]
        page.get_by_text("Fetched by a-bot at").wait_for()
