"""Conversation, Agents, Map, and moving between the views, in a real Chromium."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from hermes_bridge.relay.core.exchange import Status
from tests.browser.conftest import Tab
from tests.browser.running import PASSWORD, Bot, ended, relay

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]
CONV = "c-1"


def late() -> Any:
    x = ended("a-bot", "b-bot", "is it signed?", conv=CONV, ago=400_000, took=124_000)
    x.status, x.answer, x.attempt = Status.TIMEOUT, None, 2
    x.marks, x.beats = [4001, -46_001], 1
    x.late_answer, x.late_at, x.fetched_at = "not yet", x.ended_at + 42_000, x.ended_at + 60_000
    return x


def test_a_conversation_shows_asks_answers_and_what_happened_between(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        first = ended(
            "a-bot", "b-bot", "which badge?", conv=CONV, ago=900_000, took=48_200, beats=9
        )
        first.marks = [5000 * n + 1 for n in range(1, 10)]
        second, nested = late(), ended("b-bot", "a-bot", "and you?", conv=CONV, ago=90_000)
        nested.depth, nested.chain = 1, ("a-bot",)
        running.keep(first, second, nested)
        page = tab(running).go(f"/ui/c/{CONV}#r={second.rid}").page
        turns = page.locator(".turn")
        turns.nth(2).wait_for()
        texts = [text.replace("\n", " ") for text in turns.all_inner_texts()]
        assert "taken +20 ms" in texts[0] and "9 heartbeats" in texts[0]
        assert "answered +48.2 s" in texts[0]
        assert "sent again +46.0 s, attempt 2" in texts[1] and "timed out +2:04" in texts[1]
        assert "No sign of life for 120 s." in texts[1]
        assert "42 s late" in texts[1] and "Fetched by a-bot at" in texts[1]
        assert "asked while answering a-bot" in texts[2]
        assert page.locator(".pause").first.inner_text() == "8 min later"
        label = turns.nth(1).locator("svg.pulse").get_attribute("aria-label")
        assert label == (
            "Taken after 0 seconds, sent 2 times, 1 heartbeat, timed out after 2 minutes 4 seconds, "
            "late answer 42 seconds after that."
        )
        assert page.locator(".toc li").count() == 3
        marked = page.locator(".turn.marked")
        assert "is it signed?" in marked.inner_text()
        details = page.locator(".kv").inner_text()
        assert second.rid in details
        assert "attempt 2" in details and "of 120 s" in details


def test_a_conversation_goes_on_while_it_is_open(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        asked = a.ask("b-bot", "first question")
        b.woken()
        page = tab(running).go(f"/ui/c/{asked['conversation_id']}").page
        page.locator(".turn .st", has_text="Working").wait_for()
        b.beat(asked["request_id"], "looking")
        page.locator(".turn .facts", has_text="looking").wait_for()
        b.reply(asked["request_id"], "first answer")
        page.locator(".bubble", has_text="first answer").wait_for()
        a.ask("b-bot", "second question", conversation_id=asked["conversation_id"])
        page.locator(".bubble", has_text="second question").wait_for()
        assert "2 exchanges" in page.locator(".head").inner_text()
        assert "turn 2 of 40 this hour" in page.locator(".rail").inner_text()


def test_an_unknown_conversation_and_an_unknown_address_say_so(tab: Open) -> None:
    with relay() as running:
        page = tab(running)
        page.go("/ui/c/nothing").page.get_by_text("No such conversation").wait_for()
        page.go("/ui/nothing").page.get_by_text("Nothing is here").wait_for()
        page.errors.clear()


def test_agents_show_who_works_on_what_and_unfold(tab: Open) -> None:
    names = [f"bot-{n}" for n in range(1, 15)]
    with relay(names) as running:
        asker, target = Bot(running, "bot-2"), Bot(running, "bot-10")
        running.keep(
            *(ended("bot-2", "bot-10", ago=60_000 + n, took=4_200) for n in range(4)),
            *(ended("bot-2", "bot-10", ago=9000, status=Status.TIMEOUT) for _ in range(3)),
        )
        asker.ask("bot-10", "work")
        target.woken()
        asker.ask("bot-3", "when you are back", if_offline="queue")
        page = tab(running).go("/ui/agents").page
        rows = page.locator("tbody tr")
        rows.nth(13).wait_for()
        page.locator("tr", has_text="bot-10").get_by_text("57.1 %").wait_for()
        names_shown = [el.inner_text() for el in page.locator("tbody .who bdi").all()]
        assert names_shown == names, "natural order"
        busy = page.locator("tr", has=page.get_by_role("button", name="bot-10"))
        text = busy.inner_text()
        assert "Online" in text and "for bot-2" in text and "Timed out" in text
        assert busy.locator(".badn").inner_text() == "57.1 %"
        assert "1 queued" in page.locator("tr", has_text="bot-3").inner_text()
        page.get_by_role("button", name="Worst first").click()
        page.wait_for_url("**/ui/agents?sort=worst")
        page.get_by_role("button", name="Busy or in trouble").click()
        assert rows.count() == 13, "who is online and idle is neither"
        assert "bot-3" in rows.first.inner_text(), "away, and somebody waits for it"
        page.get_by_role("button", name="Asks in").click()
        page.wait_for_url("**/ui/agents?sort=in&only=trouble")
        assert "bot-10" in rows.first.inner_text()
        head = page.get_by_role("columnheader", name="Asks in")
        assert head.get_attribute("aria-sort") == "descending", "the most stands first"
        page.get_by_label("Filter agents").fill("bot-10")
        assert rows.count() == 1
        busy.get_by_role("button", name="bot-10").click()
        page.get_by_text("Links since the relay started").wait_for()
        assert "bot of the tests/1" in page.locator(".facets").inner_text()
        assert page.locator(".errors .st", has_text="Timed out").count() == 3
        assert "a=bot-10" in page.url
        page.reload()
        page.get_by_text("Links since the relay started").wait_for()
        busy.get_by_role("link", name="8", exact=True).click()
        page.wait_for_url("**/ui?agent=bot-10&role=target&from=-1h")
        page.locator("article.ex").nth(6).wait_for()


def test_the_map_draws_the_same_ring_every_time_and_lights_a_choice(tab: Open) -> None:
    names = [f"bot-{n}" for n in range(1, 13)]
    with relay(names) as running:
        running.keep(
            *(ended("bot-1", "bot-2", ago=60_000 + n) for n in range(30)),
            *(ended("bot-2", "bot-1", ago=70_000 + n) for n in range(5)),
            *(ended("bot-1", "bot-3", ago=9000 + n, status=Status.TIMEOUT) for n in range(10)),
            ended("bot-5", "bot-6", ago=3000),
        )
        page = tab(running).go("/ui/map?range=1h").page
        page.locator("svg.net path.tip").nth(3).wait_for()
        places = "els => els.map(el => [el.getAttribute('cx'), el.getAttribute('cy')].join())"
        before = page.locator("svg.net .nd").evaluate_all(places)
        assert len(set(before)) == 12
        assert "46 asks between 12 agents" in page.locator(".sum").inner_text()
        assert "21.7 % failed" in page.locator(".sum").inner_text()
        assert page.locator("svg.net").get_attribute("role") == "img"
        page.get_by_role("link", name="bot-1, offline, 45 asks").focus()
        assert page.locator("svg.net g.faint").count() == 1
        page.keyboard.press("Enter")
        page.wait_for_url("**/ui/map?range=1h&a=bot-1")
        rail = page.locator(".rail").inner_text()
        assert "Asked others\n40" in rail and "Was asked\n5" in rail and "100 %" in rail
        running.keep(ended("bot-9", "bot-8", ago=100))
        page.reload()
        page.locator("svg.net path.tip").nth(3).wait_for()
        assert page.locator("svg.net .nd").evaluate_all(places) == before
        page.get_by_role("button", name="As a table").click()
        page.locator(".map tbody tr").first.wait_for()
        assert page.locator(".map tbody tr").first.inner_text().split("\t") == [
            "bot-1",
            "bot-2",
            "30",
            "0 %",
            "1.0 s",
        ]
        page.locator(".map tbody tr").first.get_by_role("link", name="30").click()
        page.wait_for_url("**/ui?agent=bot-1&with=bot-2&role=asker&from=-1h")
        page.get_by_text("30 exchanges").wait_for()


def test_two_hundred_agents_fit_the_page_the_table_and_the_ring(tab: Open) -> None:
    names = [f"agent-{n:03}" for n in range(220)]
    with relay(names) as running:
        running.keep(
            *(
                ended(names[n % 211], names[(n * 7 + 1) % 220], ago=60_000 + n)
                for n in range(900)
                if n % 211 != (n * 7 + 1) % 220
            )
        )
        page = tab(running).go("/ui/map").page
        page.locator("svg.net.dense .nd").nth(199).wait_for()
        assert page.locator("svg.net .nd").count() == 200
        assert page.locator("svg.net path.e:not(.f)").count() <= 600
        legend = page.locator(".legend").inner_text()
        assert "20 quieter agents are not drawn" in legend
        assert re.search(r"\d+ pairs with 1 asks or fewer are not drawn", legend)
        page.get_by_role("link", name="agent-000").first.focus()
        page.keyboard.type("agent-14")
        assert page.evaluate("document.activeElement.dataset.agent") == "agent-140"
        page.get_by_role("button", name="Nearer").click()
        assert page.locator("svg.net").get_attribute("viewBox").split()[2] == "564.0"
        page.goto(running.address + "/ui/agents")
        page.locator("tbody tr").nth(219).wait_for()


def test_views_follow_the_address_and_back_finds_rows_and_place_again(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(*(ended("a-bot", "b-bot", f"n{n}", ago=60_000 + n * 1000) for n in range(150)))
        page = tab(running).go("/ui?agent=a-bot").page
        page.locator("article.ex").nth(49).wait_for()
        page.get_by_text("n30", exact=True).click()
        page.locator("article.open-row").scroll_into_view_if_needed()
        page.wait_for_timeout(300)
        place = page.locator("article.open-row").bounding_box()["y"]
        page.get_by_role("link", name="Open conversation").click()
        page.wait_for_url("**/ui/c/**")
        page.locator(".turn").wait_for()
        page.keyboard.press("Escape")
        page.wait_for_url("**/ui?agent=a-bot")
        page.locator("article.open-row").wait_for()
        assert abs(page.locator("article.open-row").bounding_box()["y"] - place) <= 2
        page.keyboard.press("g")
        page.keyboard.press("m")
        page.wait_for_url("**/ui/map")
        assert page.title() == "Map · hermes-bridge"
        page.get_by_role("link", name="Agents").first.click()
        page.wait_for_url("**/ui/agents")
        page.go_back()
        page.wait_for_url("**/ui/map")


def test_the_keyboard_reaches_everything(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(*(ended("a-bot", "b-bot", f"n{n}", ago=9000 + n * 1000) for n in range(5)))
        page = tab(running).go().page
        page.locator("article.ex").nth(4).wait_for()
        focused = "document.activeElement.querySelector?.('.say .text')?.textContent"
        page.keyboard.press("j")
        assert page.evaluate(focused) == "n0"
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        assert page.evaluate(focused) == "n1"
        page.keyboard.press("x")
        assert page.locator("article.open-row").count() == 1
        page.keyboard.press("Space")
        assert page.locator("article.open-row").count() == 0
        page.keyboard.press("?")
        page.get_by_role("dialog").get_by_text("Fold", exact=False).first.wait_for()
        page.get_by_label("Single letters work").uncheck()
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        assert page.evaluate(focused) != "n2"
        page.keyboard.press("/")
        page.keyboard.type("n3")
        page.keyboard.press("Enter")
        page.get_by_text("1 exchange", exact=True).wait_for()
        page.keyboard.press("Escape")
        page.get_by_text("5 exchanges", exact=True).wait_for()
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_the_operator_cancels_an_ask_after_confirming(tab: Open) -> None:
    with relay(["a-bot", "b-bot"], ui={"password": PASSWORD}) as running:
        a, b = Bot(running, "a-bot"), Bot(running, "b-bot")
        rid = a.ask("b-bot", "never mind")["request_id"]
        b.woken()
        page = tab(running).go().page
        page.get_by_label("Operator password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        item = page.locator(".open li")
        item.hover()
        item.get_by_role("button", name="Cancel ask").click()
        dialog = page.get_by_role("dialog", name="Cancel this ask?")
        assert page.evaluate("document.activeElement.textContent") == "Keep waiting"
        assert "a-bot is told at once" in dialog.inner_text()
        page.keyboard.press("Enter")
        dialog.wait_for(state="detached")
        item.hover()
        item.get_by_role("button", name="Cancel ask").click()
        dialog.get_by_role("button", name="Cancel ask").click()
        page.locator(".toast", has_text="Ask cancelled").wait_for()
        assert b.expect("cancel")["request_id"] == rid
        row = page.locator("article.ex")
        row.get_by_text("Cancelled by operator.").wait_for()
        page.get_by_text("Nothing is waiting.").wait_for()
        b.ask("a-bot", "round trip")
        answered = a.ask("b-bot", "quick one")["request_id"]
        b.woken()
        item.first.wait_for()
        page.locator("article.ex", has_text="quick one").click()
        page.locator("article.open-row").get_by_role("button", name="Cancel ask").click()
        b.reply(answered, "done")
        dialog.get_by_text("It was answered meanwhile.").wait_for()
        assert dialog.get_by_role("button").all_inner_texts() == ["Close"]


def test_an_ask_at_risk_is_first_and_announced(tab: Open) -> None:
    with relay(["a-bot", "b-bot", "c-bot"], ask_timeout_ms=12_000) as running:
        a, b, c = (Bot(running, name) for name in ("a-bot", "b-bot", "c-bot"))
        rids = [a.ask("b-bot", "silent")["request_id"], a.ask("c-bot", "lively")["request_id"]]
        b.woken()
        c.woken()
        page = tab(running).go().page
        for _ in range(60):
            c.beat(rids[1], "still here")
            page.wait_for_timeout(250)
            if page.locator(".open .badge.warn").is_visible():
                break
        assert page.locator(".open .badge.warn").inner_text() == "1 at risk"
        first = page.locator(".open li").first
        assert "b-bot" in first.inner_text() and "times out in" in first.inner_text()
        assert "still here" in page.locator(".open li").nth(1).inner_text()
        page.get_by_role("alert").get_by_text("Ask from a-bot to b-bot is at risk").wait_for()
        page.locator("article.ex", has_text="silent").get_by_text("Timed out").wait_for()
        assert page.get_by_text("No sign of life for 12 s.").count() == 1


def test_landmarks_names_and_live_regions_are_there(tab: Open) -> None:
    with relay(["a-bot", "b-bot"]) as running:
        running.keep(ended("a-bot", "b-bot", "well?", took=48_200))
        look = tab(running).go()
        page = look.page
        page.locator("article.ex").wait_for()
        for role in ("banner", "main", "complementary", "feed"):
            assert page.get_by_role(role).count() == 1, role
        assert page.get_by_role("navigation", name="Views").count() == 1
        label = page.locator("article.ex").get_attribute("aria-label")
        assert re.fullmatch(r"a-bot asked b-bot, answered in 48\.2 seconds, \d\d:\d\d", label)
        look.until("document.querySelector('article.ex').ariaPosInSet === '1'")
        button = page.locator("article.ex button").first
        assert button.get_attribute("aria-expanded") == "false"
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to exchanges"
        for theme in ("light", "dark", "system"):
            page.get_by_role("button", name="Theme").click()
            assert page.get_by_role("button", name=f"Theme: {theme}").count() == 1


def test_a_connector_in_the_same_process_is_shown_and_only_then(tab: Open, tmp_path: Any) -> None:
    with relay() as running:
        assert running.get("/ui/api/connector").status == 404
        page = tab(running).go().page
        page.get_by_text("No exchanges yet").wait_for()
        assert not page.get_by_role("link", name="Connector").is_visible()
    identity = {
        "botId": "echo-a",
        "token": "an-account-token",
        "gatewayId": "gw-a",
        "secret": "the-secret-of-gateway-a",
        "platform": "echo",
    }
    section = {"identities": [identity], "state_dir": str(tmp_path / "connector")}
    with relay(connector=section) as running:
        page = tab(running).go().page
        page.get_by_role("link", name="Connector").click()
        page.wait_for_url("**/ui/connector")
        row = page.locator("tbody tr")
        row.wait_for()
        assert "echo-a" in row.inner_text() and "Absent" in row.inner_text()
        assert "the-secret" not in page.content()
