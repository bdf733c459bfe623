"""How the map moves: the shapes glide on an update, and do not for those who want less motion."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import Tab
from tests.browser.running import Running, ended, relay

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]
EDGE = """[...document.querySelectorAll('.net g')].find(
    g => g.querySelector('title')?.textContent.startsWith('a-bot asked c-bot'))?.querySelector('.e')"""
WIDTH = f"parseFloat(getComputedStyle({EDGE}).strokeWidth)"
RUNNING = "document.getAnimations().filter(a => a.playState === 'running').length"


def asked(running: Running, target: str, count: int) -> None:
    running.keep(*(ended("a-bot", target, ago=60_000 + n) for n in range(count)))


def update(running: Running, look: Tab) -> None:
    """Six asks become thirty: the thinnest edge gets as thick as the thickest."""
    asked(running, "c-bot", 24)
    look.page.get_by_role("button", name="1 hour").click()
    look.until(f"{EDGE}?.getAttribute('stroke-width') === '7.0'")


def shown(running: Running, look: Tab) -> Any:
    asked(running, "b-bot", 30)
    asked(running, "c-bot", 6)
    look.go("/ui/map?range=1h")
    look.until(f"Boolean({EDGE})")
    look.until(f"{RUNNING} === 0")
    assert look.page.evaluate(WIDTH) == pytest.approx(3.7)
    return look.page


def test_an_edge_glides_to_its_new_width(tab: Open) -> None:
    with relay(["a-bot", "b-bot", "c-bot"]) as running:
        look = tab(running)
        page = shown(running, look)
        places = "[...document.querySelectorAll('.nd')].map(el => el.getAttribute('cx')).join()"
        before = page.evaluate(places)
        slow = page.context.new_cdp_session(page)
        slow.send("Animation.enable")
        slow.send("Animation.setPlaybackRate", {"playbackRate": 0.01})
        update(running, look)
        assert 3.6 < page.evaluate(WIDTH) < 7, "it is on its way"
        moving = "document.getAnimations().map(a => [a.transitionProperty, a.effect.getTiming().duration])"
        moves = page.evaluate(moving)
        assert {name for name, _ in moves} <= {"d", "stroke-width", "r"}
        assert {length for _, length in moves} == {180}
        assert page.evaluate(places) == before, "no agent leaves its place"
        slow.send("Animation.setPlaybackRate", {"playbackRate": 1})
        look.until(f"{WIDTH} === 7")
        look.until(f"{RUNNING} === 0")


def test_with_less_motion_an_edge_has_its_new_width_at_once(tab: Open) -> None:
    with relay(["a-bot", "b-bot", "c-bot"]) as running:
        look = tab(running, reduced_motion="reduce")
        page = shown(running, look)
        slow = page.context.new_cdp_session(page)
        slow.send("Animation.enable")
        slow.send("Animation.setPlaybackRate", {"playbackRate": 0.01})
        update(running, look)
        assert page.evaluate(WIDTH) == 7
        assert page.evaluate(RUNNING) == 0
