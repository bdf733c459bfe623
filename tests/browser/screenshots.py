"""Pictures of every view, to look at: 390, 768 and 1280 px wide, light and dark.

    .venv/bin/python -m tests.browser.screenshots [folder] [--docs]

They go to `screenshots/` (which git ignores); with `--docs` the two of the documentation are made
anew in `docs/screenshots/`.
"""

import random
import shutil
import sys
from pathlib import Path
from typing import Any

from hermes_bridge.clock import wall_ms
from hermes_bridge.relay.core.exchange import Exchange, Mark, Status
from tests.browser.conftest import _FLAGS
from tests.browser.running import PASSWORD, Bot, Running, beaten, ended, relay

CONV = "019d2f0a-7b3e-7c41-9d55-2f6a8c1e0b47"
ABOUT = {
    "billing-bot": "invoices and credit notes",
    "calendar-bot": "rooms and appointments",
    "contracts-bot": "contract archive",
    "daniel-bot": "answers HR and site questions",
    "deploy-bot": "releases and rollbacks",
    "facilities-bot": "rooms, docks, badges",
    "helpdesk-bot": "first line for employees",
    "hr-bot": "people data, contracts, leave",
    "inventory-bot": "stock and deliveries",
    "legal-bot": "terms and reviews",
    "oncall-bot": "incidents and pages",
    "payroll-bot": "pay runs and payslips",
    "research-bot": "reads and sums up",
    "sales-bot": "offers and orders",
    "travel-bot": "trips and expenses",
    "wiki-bot": "internal handbook",
}
PAIRS = [
    ("helpdesk-bot", "daniel-bot", 40, 1),
    ("helpdesk-bot", "wiki-bot", 30, 0),
    ("helpdesk-bot", "contracts-bot", 9, 4),
    ("helpdesk-bot", "inventory-bot", 14, 0),
    ("hr-bot", "helpdesk-bot", 10, 0),
    ("sales-bot", "helpdesk-bot", 8, 1),
    ("daniel-bot", "helpdesk-bot", 7, 0),
    ("hr-bot", "payroll-bot", 18, 0),
    ("daniel-bot", "calendar-bot", 16, 0),
    ("sales-bot", "inventory-bot", 26, 0),
    ("sales-bot", "legal-bot", 5, 1),
    ("legal-bot", "contracts-bot", 10, 2),
    ("research-bot", "wiki-bot", 33, 1),
    ("oncall-bot", "deploy-bot", 13, 0),
    ("deploy-bot", "oncall-bot", 9, 2),
    ("travel-bot", "calendar-bot", 7, 0),
    ("billing-bot", "payroll-bot", 4, 0),
]
SMALL_TALK = [
    ("Which printer on floor 2 takes A3?", "P-217, next to the lift. It has paper."),
    ("Is ticket 4290 still open?", "Closed yesterday at 17:40 by Mara."),
    ("What is the limit for travel without approval?", "400 EUR a trip, hotel included."),
]


def past() -> list[Exchange]:
    dice = random.Random(3)
    rows = []
    for asker, target, count, failed in PAIRS:
        for n in range(count):
            question, answer = dice.choice(SMALL_TALK)
            status = Status.TIMEOUT if n < failed else Status.OK
            took = 120_000 if n < failed else int(dice.lognormvariate(9, 0.9))
            more = {} if n < failed else {"answer": answer}
            at = dice.randint(400_000, 3_500_000)
            rows.append(ended(asker, target, question, ago=at, took=took, status=status, **more))
    return rows


def story() -> list[Exchange]:
    badge = ended(
        "helpdesk-bot",
        "daniel-bot",
        "A new colleague in the Lyon office starts on Monday. Which badge profile does she need, "
        "and who signs for building B after 20:00?",
        conv=CONV,
        ago=330_000,
        took=48_200,
        answer="Profile LYO-2: floors 1 to 4 and the car park. Building B after 20:00 is not part "
        "of it; the site manager signs form F-114, usually within a day. I have put both links "
        "into ticket 4312 and set the start date to 30 March.",
    )
    badge.marks, badge.beats, badge.taken_at = [5000 * n for n in range(1, 10)], 9, badge.at + 300
    form = ended(
        "helpdesk-bot",
        "daniel-bot",
        "Is the form signed yet? She asks for a date.",
        conv=CONV,
        ago=262_000,
        took=124_000,
        status=Status.TIMEOUT,
        late_answer="Not yet. The site manager is back on Thursday; I asked for an answer by noon.",
    )
    form.attempt = 2
    beaten(form, (Mark.BEAT, 4000), (Mark.LOST, 42_000), (Mark.BACK, 46_000), (Mark.AGAIN, 46_000))
    form.late_at, form.fetched_at = form.ended_at + 42_000, form.ended_at + 68_000
    noon = ended(
        "helpdesk-bot",
        "daniel-bot",
        "May I tell her Thursday noon?",
        conv=CONV,
        ago=62_000,
        took=6_000,
    )
    noon.answer, noon.marks, noon.beats = "Yes, noon is safe.", [5000], 1
    dock = ended(
        "daniel-bot",
        "facilities-bot",
        "Is the loading dock of building B free on Monday from 08:00 to 10:00? Two pallets of desks "
        "arrive and the driver needs a name, a phone number that somebody answers before eight, "
        "and a place where the pallets may stay until noon.",
        ago=300_000,
        took=120_000,
        status=Status.TIMEOUT,
        late_answer="Yes, dock 2 is free until 11:00. I have reserved it under your name.",
    )
    dock.late_at = dock.ended_at + 50_000
    lock = ended(
        "deploy-bot",
        "oncall-bot",
        "May I roll back release 118 while the incident is open?",
        ago=355_000,
        took=0,
        status=Status.WOULD_DEADLOCK,
        reason="oncall-bot, deploy-bot",
    )
    stock = ended(
        "sales-bot",
        "inventory-bot",
        "How many units of SKU 20-441 can ship this week, and from which site? The customer in Lille "
        "takes a partial delivery if the rest follows before the end of the month.",
        ago=75_000,
        took=8_100,
        answer="312 in Lyon and 40 in Nantes. 60 more are expected on Thursday. If Lille takes 300 now, "
        "the rest can leave on Friday; I have put a hold of two days on both lots.",
    )
    stock.marks, stock.beats, stock.taken_at = [5000], 1, stock.at + 300
    printers = ended(
        "helpdesk-bot",
        "contracts-bot",
        "When does the maintenance contract for the printers on floor 3 end?",
        ago=390_000,
        took=30_000,
        status=Status.AGENT_OFFLINE,
    )
    return [badge, form, noon, dock, lock, stock, printers]


def live(running: Running) -> None:
    """Four open asks: one silent for long, two lively, one queued."""
    bots = {n: Bot(running, n) for n in ABOUT if n not in ("contracts-bot", "travel-bot")}
    running.before_end.append(lambda: [bot.close() for bot in bots.values()])
    running.drained()

    def ask(
        asker: str, target: str, text: str, note: str, age: int, silent: int, **more: Any
    ) -> None:
        rid = bots[asker].ask(target, text, **more)["request_id"]
        if target not in bots:
            return
        bots[target].woken()
        bots[target].beat(rid, note)

        def settle() -> None:
            x = running.relay.book.get(rid)
            assert x is not None
            now = running.relay.clock.now()
            x.at, x.sent_at, x.taken_at = now - age, now - age + 20, now - age + 300
            x.marks = [t + 1 for t in range(5000, age - silent + 1, 5000)]
            x.beats, x.heard_at = len(x.marks), now - silent
            x.deadline = now - silent + x.window
            running.relay.journal.note(x)

        running.call(settle)

    ask(
        "research-bot",
        "wiki-bot",
        "Sum up what the handbook says about remote work from outside the EU, with the sections.",
        "Searching",
        374_000,
        97_000,
    )
    ask(
        "hr-bot",
        "payroll-bot",
        "Which February payslips still carry the old transport allowance? I need the list with the "
        "difference per person before the 15:00 run.",
        "Reading the payroll ledger",
        48_000,
        3_000,
    )
    ask(
        "oncall-bot",
        "deploy-bot",
        "Is release 118 on all nodes?",
        "Second tool call",
        12_000,
        1_000,
    )
    bots["legal-bot"].ask(
        "contracts-bot", "Please send the signed annex of the lease.", if_offline="queue"
    )
    bots["facilities-bot"].close()
    running.drained()


def shoot(folder: Path, docs: bool) -> None:
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    agents = [{"name": n, "description": d} for n, d in ABOUT.items()]
    with relay(agents, ui={"password": PASSWORD}) as running, sync_playwright() as play:
        running.keep(*past(), *story())
        live(running)
        browser = play.chromium.launch(executable_path=path, args=_FLAGS)
        session = running.service._ui.access.new_session()
        cookie = {"name": "hermes_bridge_session", "value": session, "url": running.address}
        for scheme in ("light", "dark"):
            for width, height in ((1280, 800), (768, 1024), (390, 844)):
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                page = context.new_page()
                page.goto(running.address + "/ui")
                page.get_by_label("Operator password").fill("wrong")
                page.screenshot(path=folder / f"login-{width}-{scheme}.png")
                context.add_cookies([cookie])
                for name, address in (
                    ("exchanges", "/ui"),
                    ("conversation", f"/ui/c/{CONV}"),
                    ("agents", "/ui/agents"),
                    ("agent", "/ui/agents?a=daniel-bot&range=24h"),
                    ("map", "/ui/map?a=helpdesk-bot"),
                ):
                    page.goto(running.address + address)
                    page.wait_for_timeout(1500)
                    if name == "exchanges":
                        row = page.locator(
                            "article.ex", has_text="SKU 20-441 can ship this week, and"
                        )
                        row.click(position={"x": 300, "y": 10})
                        page.mouse.move(width - 2, 5)
                        page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
                        page.wait_for_timeout(300)
                    target = folder / f"{name}-{width}-{scheme}.png"
                    page.screenshot(path=target)
                    if (
                        docs
                        and width == 1280
                        and scheme == "light"
                        and name in ("exchanges", "conversation")
                    ):
                        shutil.copy(target, Path("docs/screenshots") / f"{name}.png")
                context.close()
        browser.close()
    print(f"{wall_ms()}: {len(list(folder.glob('*.png')))} pictures in {folder}")


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if not name.startswith("-")]
    into = Path(names[0] if names else "screenshots")
    into.mkdir(parents=True, exist_ok=True)
    shoot(into, "--docs" in sys.argv)
