"""Relays to look at: a busy day, a quiet one, two hundred agents, and agents that mean ill."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hermes_bridge.relay.core.exchange import Exchange, Mark, Status
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


def live(running: Running) -> Callable[[], None]:
    """Four open asks: one silent for long, two lively, one queued. Gives what makes them so again."""
    bots = {n: Bot(running, n) for n in ABOUT if n not in ("contracts-bot", "travel-bot")}
    running.before_end += [bot.close for bot in bots.values()]
    running.drained()
    settled: list[Callable[[], None]] = []

    def ask(
        asker: str, target: str, text: str, note: str, age: int, silent: int, **more: Any
    ) -> None:
        rid = bots[asker].ask(target, text, **more)["request_id"]
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

        settled.append(settle)

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

    def again() -> None:
        for settle in settled:
            running.call(settle)
        running.drained()

    again()
    return again


@contextmanager
def busy(**settings: Any) -> Iterator[tuple[Running, Callable[[], None]]]:
    """Sixteen agents, an hour of asks, one conversation worth reading; a password guards them."""
    agents = [{"name": n, "description": d} for n, d in ABOUT.items()]
    kept: dict[str, Any] = {"reconnect_grace_ms": 3_600_000, "ui": {"password": PASSWORD}}
    with relay(agents, **kept, **settings) as running:
        running.keep(*past(), *story())
        yield running, live(running)


@contextmanager
def many(count: int = 200) -> Iterator[Running]:
    """As many agents as one relay is made for, most of them silent."""
    dice = random.Random(5)
    parts = ["billing", "calendar", "contracts", "crm", "data", "deploy", "design", "docs", "hr"]
    parts += ["facilities", "finance", "helpdesk", "infra", "inventory", "legal", "mail", "oncall"]
    parts += ["payroll", "planning", "qa", "research", "sales", "search", "security", "support"]
    towns = ["ams", "ber", "bru", "dub", "fra", "lyo", "mad", "par"]
    names = [f"{part}-{town}" for part in parts for town in towns][:count]
    with relay(names) as running:
        bots = [Bot(running, name) for name in names if dice.random() < 0.9]
        running.before_end += [bot.close for bot in bots]
        rows = []
        for asker in names:
            for target in dice.sample(names, dice.choice([0, 1, 1, 2, 2, 3])):
                bad = dice.choice([0, 0, 0, 0.1, 0.4])
                for _ in range(min(40, int(dice.paretovariate(0.8)))):
                    if asker == target:
                        continue
                    failed = dice.random() < bad
                    at, took = dice.randint(130_000, 3_500_000), int(dice.lognormvariate(9, 0.9))
                    status = Status.TIMEOUT if failed else Status.OK
                    rows.append(ended(asker, target, "?", ago=at, took=took, status=status))
        running.keep(*rows)
        yield running


LONG_NAME = "an-agent-with-a-name-that-goes-on-and-on-up-to-sixty-four-signs"
ARABIC = "مساعد-الموارد-البشرية"
EMOJI = "🦉🛠️-bot"
HOSTILE = "h-1"


def hostile_rows() -> list[Exchange]:
    """Texts that would break a page that trusts them: of one conversation, and of many agents."""
    zalgo = "Z" + "\u0301\u0334\u0353" * 40 + "algo"
    texts = [
        (
            LONG_NAME,
            ARABIC,
            "<script>alert(1)</script><img src=x onerror=alert(2)>",
            "&amp;<b>no</b>",
        ),
        (
            ARABIC,
            LONG_NAME,
            "هل يمكنك أن ترسل قائمة الموظفين الجدد قبل الساعة 15:00؟ (HR-2024)",
            "نعم، 12.",
        ),
        (EMOJI, LONG_NAME, "👩‍👩‍👧‍👦" * 120, "🛠️ " * 300),
        (LONG_NAME, EMOJI, "abc\u202egnp.exe\u2066 \u200b\x00\x1b[31m end", zalgo),
        (LONG_NAME, ARABIC, "W" * 900, "x" * 900),
        (LONG_NAME, ARABIC, "a line\n" * 30_000, "y" * 200_000),
        (
            LONG_NAME,
            ARABIC,
            "    if deep:\n\t\treturn {'a': 1}\n" * 20,
            "| a | b |\n|---|---|\n" * 10,
        ),
    ]
    rows = []
    for n, (asker, target, message, answer) in enumerate(texts):
        at = 900_000 - 100_000 * n
        rows.append(ended(asker, target, message, conv=HOSTILE, ago=at, took=9_100, answer=answer))
    error = "Traceback (most recent call last): " + "/very/long/path/without/a/space" * 20
    failed = ended(LONG_NAME, ARABIC, "x", conv=HOSTILE, ago=50_000, status=Status.FAILED)
    failed.reason = error
    return [*rows, failed]


ACCOUNTS = {
    "status": "ok",
    "store": "up",
    "connections": 1,
    "identities": [
        {
            "bot": "helpdesk-bot",
            "platform": "agentschat",
            "account": "online",
            "gateway": "connected",
        }
        | {"channels": 14, "inbox": 0, "oldest_ms": 0, "reason": "", "last_error": ""},
        {
            "bot": "daniel-bot",
            "platform": "agentschat",
            "account": "reconnecting",
            "gateway": "absent",
        }
        | {"channels": 3, "inbox": 27, "oldest_ms": 8_040_000, "reason": "next try in 12 s"}
        | {"last_error": "AgentsChat closed the connection: the token was revoked (4401)"},
        {"bot": LONG_NAME, "platform": "echo", "account": "online", "gateway": "connected"}
        | {"channels": None, "inbox": 2, "oldest_ms": 4_000, "reason": "", "last_error": ""},
    ],
}


@contextmanager
def hostile() -> Iterator[Running]:
    """Agents with long, foreign and odd names that send what they should not; and a connector."""
    crowd = [f"bot-{n}" for n in range(20)]
    with relay([LONG_NAME, ARABIC, EMOJI, *crowd]) as running:
        bot, other = Bot(running, LONG_NAME), Bot(running, ARABIC)
        running.before_end += [bot.close, other.close]
        running.keep(*hostile_rows())
        bot.ask(ARABIC, "W" * 400 + " " + "و" * 200)
        other.beat(other.woken()["request_id"], "a note without a space: " + "n" * 300)
        running.call(lambda: setattr(running.service._ui, "connector", lambda: dict(ACCOUNTS)))
        running.drained()
        yield running
