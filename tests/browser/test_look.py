"""What can be measured of the page's look: room, contrast, fingers, and that nothing jumps."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.browser import looking, scenes
from tests.browser.conftest import Tab
from tests.browser.running import Running

pytestmark = pytest.mark.browser
Open = Callable[..., Tab]
NAME = scenes.LONG_NAME
VIEWS = {
    "/ui": "article.ex",
    "/ui?q=W&agent=" + NAME: "article.ex",
    f"/ui/c/{scenes.HOSTILE}": ".turn .pulse",
    f"/ui/agents?a={NAME}": ".page:not(.waiting) .av",
    f"/ui/map?a={NAME}": ".net",
    "/ui/map?as=table": ".canvas td",
    "/ui/connector": "td",
}
PATIENT = """
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('.waiting { animation-delay: 90s !important }');
    document.adoptedStyleSheets = [sheet];
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    """One relay for this file: names and texts that are hard to show, and a connector."""
    with scenes.hostile() as relay:
        yield relay


def measured(page: Any, width: int) -> list[Any]:
    """What is wrong with the view as it stands."""
    seen, low = looking.low_contrast(page)
    moves = looking.shifts(page)
    bad: list[Any] = [("wider than its room", one) for one in looking.wide(page)]
    bad += [("hard to read", one) for one in low]
    bad += [("hardly any text", seen)] if seen < 20 else []
    bad += [("jumped", moves)] if sum(move[0] for move in moves) > 0.05 else []
    if width < 640:
        # The ring's dots are as far apart as the ring allows; a list under it says the same.
        small = [one for one in looking.small_targets(page) if not one[0].startswith("a.")]
        bad += [("small for a finger", one) for one in small if one[1] < 36]
    return bad


@pytest.mark.parametrize(
    ("width", "scheme"), [(320, "dark"), (390, "light"), (768, "dark"), (1280, "light")]
)
def test_every_view_has_room_contrast_and_stillness(
    tab: Open, running: Running, width: int, scheme: str
) -> None:
    phone, size = width < 640, {"width": width, "height": 844}
    look = tab(running, viewport=size, color_scheme=scheme, has_touch=phone, is_mobile=phone)
    look.page.add_init_script(PATIENT)
    found: list[str] = []
    for path, sign in VIEWS.items():
        look.go(path)
        look.page.locator(sign).first.wait_for(state="attached")
        look.until("!document.querySelector('.waiting, [aria-busy=true]')")
        look.page.wait_for_timeout(100)
        found += [f"{path} {bad}" for bad in measured(look.page, width)]
    assert not found, "\n".join(found)


def test_the_status_menu_names_every_status(tab: Open, running: Running) -> None:
    page = tab(running).go().page
    page.get_by_role("button", name="Status Any").click()
    menu = page.locator("#menu-status")
    assert {"Queued", "Timed out", "Would deadlock"} <= set(menu.inner_text().split("\n"))
    menu.get_by_text("Timed out", exact=True).click()
    page.wait_for_url("**/ui?status=timeout")


def test_hidden_signs_are_shown_in_the_outline_too(tab: Open, running: Running) -> None:
    page = tab(running).go(f"/ui/c/{scenes.HOSTILE}").page
    line = page.locator(".toc p", has_text="gnp.exe").first
    line.wait_for(state="attached")
    assert line.locator(".ctl").count() >= 3
    assert "\u202e" not in line.inner_text()
