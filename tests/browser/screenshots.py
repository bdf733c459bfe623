"""Pictures of every view in every state, to look at: 390, 768 and 1280 px wide, light and dark.

    .venv/bin/python -m tests.browser.screenshots [folder] [--docs] [--only WORD] [--width N] [--light]

They go to `screenshots/` (which git ignores); with `--docs` the two of the documentation are made
anew in `docs/screenshots/`. `--only` takes those whose name holds the word.
"""

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.browser.conftest import _FLAGS
from tests.browser.running import Bot, Running, relay
from tests.browser.scenes import CONV, HOSTILE, LONG_NAME, busy, hostile, many

SIZES = [(1280, 800), (768, 1024), (390, 844)]
DOCS = ("exchanges", "conversation")
Act = Callable[[Any], None]


def fonts(folder: Path) -> dict[str, str | float | bool]:
    """Make Chromium wear Inter where a page asks for the system's font, if it is there."""
    name = folder / "fonts.conf"
    name.write_text(
        "<?xml version='1.0'?><fontconfig><include>/etc/fonts/fonts.conf</include>"
        + "".join(
            f"<match><test name='family'><string>{asked}</string></test><edit name='family' "
            "mode='prepend' binding='strong'><string>Inter</string></edit></match>"
            for asked in ("system-ui", "sans-serif", "sans")
        )
        + "</fontconfig>"
    )
    return {**os.environ, "FONTCONFIG_FILE": str(name)}


class Camera:
    """Takes pictures of pages in one width and scheme."""

    def __init__(self, browser: Any, given: argparse.Namespace, size: tuple[int, int], scheme: str):
        self.given, self.size, self.scheme = given, size, scheme
        self.again: Callable[[], None] = lambda: None
        width, height = size
        self.context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            has_touch=width < 640,
            is_mobile=width < 640,
        )
        self.page = self.context.new_page()
        self.trouble: list[str] = []
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.trouble.append(message.text)

    def take(self, name: str, address: str, act: Act | None = None, wait: int = 700) -> None:
        """Go to an address, do something there, and keep what is seen."""
        if self.given.only not in name:
            return
        self.again()
        self.context.set_offline(False)
        self.page.unroute_all()
        self.page.goto(address)
        self.page.wait_for_timeout(wait)
        if act:
            act(self.page)
            self.page.wait_for_timeout(300)
        wide = self.page.evaluate("document.documentElement.scrollWidth - screen.width")
        if wide > 0:
            print(f"{name} at {self.size[0]}: {wide} px too wide")
        for line in self.trouble:
            print(f"{name} at {self.size[0]}: {line}")
        self.trouble.clear()
        file = self.given.folder / f"{name}-{self.size[0]}-{self.scheme}.png"
        self.page.screenshot(path=file)
        if self.given.docs and name in DOCS and self.size[0] == 1280 and self.scheme == "light":
            shutil.copy(file, Path("docs/screenshots") / f"{name}.png")


def unfold(text: str) -> Act:
    def act(page: Any) -> None:
        row = page.locator("article.ex", has_text=text).first
        row.locator(".say .text").click()
        page.mouse.move(page.viewport_size["width"] - 2, 5)
        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")

    return act


def press(*names: str) -> Act:
    def act(page: Any) -> None:
        for name in names:
            page.get_by_role("button", name=name).locator("visible=true").first.click()

    return act


def keys(*pressed: str) -> Act:
    def act(page: Any) -> None:
        for key in pressed:
            page.keyboard.press(key)

    return act


def offline(page: Any) -> None:
    page.context.set_offline(True)
    page.locator(".banner").wait_for(timeout=40_000)


def wrong(page: Any) -> None:
    page.get_by_label("Operator password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    page.get_by_text("Wrong password").wait_for()


def busy_views(camera: Camera, running: Running) -> None:
    at = running.address
    running.service._ui.access._tries.clear()
    camera.take("login", f"{at}/ui")
    camera.take("login-wrong", f"{at}/ui", wrong)
    session = running.service._ui.access.new_session()
    cookie = {"name": "hermes_bridge_session", "value": session, "url": at}
    camera.context.add_cookies([cookie])
    camera.take("exchanges", f"{at}/ui", unfold("SKU 20-441 can ship"), wait=6000)
    camera.take("exchanges-late", f"{at}/ui?status=timeout,would_deadlock,agent_offline")
    camera.take("exchanges-search", f"{at}/ui?q=thursday+noon&agent=helpdesk-bot&from=-7d")
    camera.take("exchanges-new", f"{at}/ui", asks(running))
    camera.take("exchanges-none", f"{at}/ui?agent=daniel-bot&with=legal-bot&from=-7d")
    camera.take("exchanges-link-lost", f"{at}/ui", offline)
    for name in ("Agent", "Status", "Time"):
        camera.take(f"menu-{name.lower()}", f"{at}/ui", press(f"{name} A"))
    camera.take("cancel", f"{at}/ui", press("Cancel ask"))
    camera.take("keys", f"{at}/ui", keys("?"))
    camera.take("focus", f"{at}/ui", keys("Tab", "Tab", "j", "j"))
    camera.take("conversation", f"{at}/ui/c/{CONV}")
    camera.take("conversation-end", f"{at}/ui/c/{CONV}", lambda p: p.evaluate("scrollTo(0, 9e9)"))
    camera.take("conversation-missing", f"{at}/ui/c/nothing")
    camera.take("agents", f"{at}/ui/agents")
    camera.take("agent", f"{at}/ui/agents?a=daniel-bot&range=24h")
    camera.take("map", f"{at}/ui/map?a=helpdesk-bot", wait=1200)
    camera.take("map-all", f"{at}/ui/map", wait=1200)
    camera.take("map-table", f"{at}/ui/map?as=table", wait=1200)


def quiet_views(camera: Camera, running: Running) -> None:
    for name, path in (("exchanges", ""), ("agents", "/agents"), ("map", "/map"), ("none", "/x")):
        camera.take(f"quiet-{name}", f"{running.address}/ui{path}")


def hostile_views(camera: Camera, running: Running) -> None:
    at = running.address
    camera.take("hostile-exchanges", f"{at}/ui")
    camera.take("hostile-unfolded", f"{at}/ui", unfold("a line"))
    camera.take("hostile-conversation", f"{at}/ui/c/{HOSTILE}")
    camera.take("hostile-agent", f"{at}/ui/agents?a={LONG_NAME}")
    camera.take("hostile-map", f"{at}/ui/map?a={LONG_NAME}", wait=1200)
    camera.take("connector", f"{at}/ui/connector")


def many_views(camera: Camera, running: Running) -> None:
    at = running.address
    camera.take("many-exchanges", f"{at}/ui")
    camera.take("many-agents", f"{at}/ui/agents", wait=1500)
    camera.take("many-map", f"{at}/ui/map", wait=1500)
    camera.take("many-map-one", f"{at}/ui/map?a=legal-par", wait=1500)


def asks(running: Running) -> Act:
    """New exchanges wait behind a pill while a row is unfolded."""

    def act(page: Any) -> None:
        unfold("SKU 20-441 can ship")(page)
        asker = Bot(running, "facilities-bot")
        for _ in range(3):
            asker.ask("nobody", "Which badge opens the cellar?")
        asker.close()
        page.locator(".new").wait_for()

    return act


def shoot(given: argparse.Namespace) -> None:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    schemes = ("light",) if given.light else ("light", "dark")
    views = [(s, c) for s in SIZES if given.width in (0, s[0]) for c in schemes]
    with tempfile.TemporaryDirectory() as made, sync_playwright() as play:
        worn = None if given.plain else fonts(Path(made))
        browser = play.chromium.launch(executable_path=path, args=_FLAGS, env=worn)

        def each(
            look: Callable[[Camera, Running], None], running: Running, again: Any = None
        ) -> None:
            for size, scheme in views:
                camera = Camera(browser, given, size, scheme)
                camera.again = again or camera.again
                look(camera, running)
                camera.context.close()

        if "busy" in given.scenes:
            with busy() as (running, again):
                each(busy_views, running, again)
        if "quiet" in given.scenes:
            with relay(["a-bot", "b-bot"]) as running:
                each(quiet_views, running)
        if "hostile" in given.scenes:
            with hostile() as running:
                each(hostile_views, running)
        if "many" in given.scenes:
            with many() as running:
                each(many_views, running)
        browser.close()
    print(f"{len(list(given.folder.glob('*.png')))} pictures in {given.folder}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("screenshots"))
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--scenes", default="busy,quiet,hostile,many")
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--plain", action="store_true", help="the machine's own font, not Inter")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    shoot(given)
