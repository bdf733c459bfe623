"""The page's first paint in a real Chromium on loopback, and what it transfers.

    .venv/bin/python -m benches.paint [looks]

Starts a relay on a SQLite file with 10,000 exchanges (made once under benches/out) and opens the
page again and again, each time in a fresh profile without a cache. Prints the median and the
slowest of: first paint, the first rows on the screen (both from the begin of the navigation, in
milliseconds), what the page's thread worked until then (CPU, so it holds on a busy machine too), and
the bytes that came over the wire.
"""

import shutil
import sys
import time
from statistics import median
from typing import Any

from benches.page import OUT, fill, start
from playwright.sync_api import Browser, sync_playwright

ROWS = 10_000
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
ROWS_SHOWN = """async () => {
    while (document.querySelectorAll('article.ex').length < 50) await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return performance.now();
}"""
PAINTS = "performance.getEntriesByType('paint').map(entry => [entry.name, entry.startTime])"


def look(browser: Browser, address: str) -> tuple[float, float, float, int]:
    """Open the page once: first paint, rows, CPU, bytes (headers included)."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    wire = context.new_cdp_session(page)
    received: list[float] = []
    wire.send("Network.enable")
    wire.send("Performance.enable", {"timeDomain": "threadTicks"})
    wire.on("Network.loadingFinished", lambda event: received.append(event["encodedDataLength"]))
    page.goto(address + "/ui", wait_until="commit")
    rows: Any = page.evaluate(ROWS_SHOWN)
    metrics = wire.send("Performance.getMetrics")["metrics"]
    worked = {one["name"]: one["value"] for one in metrics}["TaskDuration"] * 1000
    page.wait_for_timeout(500)
    paints: dict[str, float] = dict(page.evaluate(PAINTS))
    context.close()
    return paints["first-contentful-paint"], rows, worked, int(sum(received))


def main() -> None:
    looks = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    OUT.mkdir(exist_ok=True)
    path = OUT / f"page-{ROWS}.db"
    if not path.exists():
        fill(path, ROWS)
    process, host = start(path.with_suffix(".json"), {"path": str(path)})
    try:
        time.sleep(1)
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            look(browser, f"http://{host}")  # the browser's own first steps
            found = [look(browser, f"http://{host}") for _ in range(looks)]
            browser.close()
    finally:
        process.terminate()
        process.wait(20)
    for name, values in zip(
        ("first paint, ms", "rows shown, ms", "CPU of both, ms", "bytes"),
        zip(*found, strict=True),
        strict=True,
    ):
        print(f"{name:16} median {median(values):9,.0f}   most {max(values):9,.0f}   n {looks}")


if __name__ == "__main__":
    main()
