"""The commands themselves. Each opens the outbox for a moment, next to a running gateway."""

import argparse
import asyncio
import os
import re
import secrets as dice
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from . import doctor as examiner, signing, tables
from .attempt import AGENT
from .clock import now_ms, wall_seconds
from .custody import STATES, Custody, Filter, NotFound
from .home import load_settings, read_allow_list, state_directory, write_allow_list
from .intake import new_id
from .outbox import Outbox
from .payload import Answer as Reply, body as make_body
from .service import Service
from .standalone import drain as deliver_now
from .store import Store
from .targets import resolve
from .transport import Limits, Post, choose
from .urlguard import read_allowed

Args = argparse.Namespace
_AGE = re.compile(r"(\d+)([smhd])")
_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@contextmanager
def _custody(home: Path) -> Iterator[Custody]:
    path = state_directory(home) / "outbox.db"
    if not path.exists():
        raise NotFound(f"there is no outbox in {home} yet: no callback was stored")
    store = Store(path)
    try:
        yield Custody(Outbox(store, f"cli-{os.getpid()}"))
    finally:
        store.close()


@contextmanager
def _change(home: Path) -> Iterator[Custody]:
    with _custody(home) as custody, custody.outbox.store.transaction(durable=True):
        yield custody


def _filter(args: Args, limit: int = 1_000_000) -> Filter:
    states = tuple(args.state or ())
    for state in states:
        if state not in STATES:
            raise ValueError(f"there is no state {state!r}; states are {', '.join(STATES)}")
    return Filter(states, args.endpoint, _since(args.since), limit)


def _since(text: str) -> int:
    if not text:
        return 0
    if age := _AGE.fullmatch(text):
        return now_ms() - int(age[1]) * _UNIT[age[2]] * 1000
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"--since {text!r} is neither an age like 12h nor a date") from None
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def status(args: Args) -> int:
    """Print counts, the oldest waiting and the endpoints."""
    with _custody(args.home) as custody:
        found = custody.status(now_ms())
    if args.json:
        tables.say_json(found)
        return 0
    tables.say(
        "  ".join(f"{name} {count}" for name, count in found["states"].items() if count) or "empty"
    )
    if found["oldest_open_ms"]:
        tables.say(f"oldest waiting: {tables.span(found['oldest_open_ms'])}")
    if found["damaged"]:
        tables.say(
            f"a damaged outbox was set aside: {found['damaged']}; see `hermes callback doctor`"
        )
    return 0


def list_rows(args: Args) -> int:
    """Print rows."""
    with _custody(args.home) as custody:
        rows = custody.rows(_filter(args, args.limit))
    if args.json:
        tables.say_json(rows)
        return 0
    cells = [
        [
            row["id"],
            row["state"],
            row["kind"],
            row["attempts"],
            tables.moment(row["created"]),
            row["endpoint"],
            row["reason"],
        ]
        for row in rows
    ]
    tables.say(
        tables.table(["id", "state", "kind", "tries", "stored (UTC)", "endpoint", "reason"], cells)
    )
    return 0


def show(args: Args) -> int:
    """Print one row and its attempts."""
    with _custody(args.home) as custody:
        row = custody.show(args.id)
    body = row.pop("body")
    if args.body or args.json:
        row["body"] = body
    if args.json:
        tables.say_json(row)
        return 0
    for name in ("id", "state", "kind", "endpoint", "url", "reason", "last_status", "size"):
        tables.say(f"{name:12} {row[name] if row[name] is not None else ''}")
    for name in ("created", "due", "finished", "expires"):
        tables.say(f"{name:12} {tables.moment(row[name])}")
    attempts = [
        [one["n"], tables.moment(one["at"]), one["status"], one["ms"], one["reason"] or "delivered"]
        for one in row["attempts_made"]
    ]
    if attempts:
        tables.say("\n" + tables.table(["try", "at (UTC)", "status", "ms", "result"], attempts))
    if args.body:
        tables.say(
            "\n" + (body.decode("utf-8", "replace") if body is not None else "(body cleared out)")
        )
    return 0


def replay(args: Args) -> int:
    """Send again."""
    if bool(args.id) == bool(args.all):
        raise ValueError("give either an id or --all")
    with _change(args.home) as custody:
        if args.all:
            count = custody.replay_all(_filter(args), now_ms())
            tables.say(f"{count} callbacks are sent again")
        else:
            used = custody.replay(args.id, now_ms(), new_id=new_id() if args.new_id else "")
            tables.say(f"{used} is sent again")
    return 0


def drop(args: Args) -> int:
    """Give one up."""
    with _change(args.home) as custody:
        tables.say(f"{custody.drop(args.id, now_ms())} is dropped")
    return 0


def endpoints(args: Args) -> int:
    """Print the endpoints."""
    with _custody(args.home) as custody:
        rows = custody.endpoints()
    if args.json:
        tables.say_json(rows)
        return 0
    names = ["endpoint", "state", "open", "parked", "delivered", "dead", "reason"]
    tables.say(tables.table(names, [[row[name] for name in names] for row in rows]))
    return 0


def pause(args: Args) -> int:
    """Keep what comes for an endpoint."""
    with _change(args.home) as custody:
        parked = custody.outbox.block(args.endpoint, "paused", "by the operator", now_ms())
    tables.say(
        f"{args.endpoint} is paused; {parked} callbacks are parked. "
        "`hermes callback resume` sends them."
    )
    return 0


def resume(args: Args) -> int:
    """Send what was parked."""
    with _change(args.home) as custody:
        count = custody.resume(args.endpoint, now_ms())
    tables.say(f"{args.endpoint} is open; {count} parked callbacks are sent")
    return 0


def allow(args: Args) -> int:
    """Change or print the allow list."""
    entries = read_allow_list(args.home)
    if args.what:
        read_allowed(args.what)
        kept = [entry for entry in entries if entry != args.what]
        if args.remove and kept == entries:
            raise NotFound(f"{args.what} is not on the list")
        entries = kept if args.remove else [*kept, args.what]
        write_allow_list(args.home, entries)
    if args.json:
        tables.say_json(entries)
    elif args.what:
        verb = "is no longer allowed" if args.remove else "is allowed"
        tables.say(f"{args.what} {verb}; a running gateway sees it within a second or two.")
        if not args.remove:
            tables.say(
                "Rejected callbacks go out with: hermes callback replay --all --state rejected"
            )
    else:
        tables.say(
            "\n".join(entries) or "nothing is allowed beyond public addresses and named endpoints"
        )
    return 0


def rotate(args: Args) -> int:
    """Print a new secret and the steps of the change."""
    settings = load_settings(args.home)
    endpoint = settings.named(args.endpoint) if args.endpoint else settings.default
    if endpoint is None:
        raise NotFound(f"no endpoint is called {args.endpoint!r}")
    import base64

    fresh = "whsec_" + base64.b64encode(dice.token_bytes(32)).decode()
    name = endpoint.secret_env or "HTTP_CALLBACK_SECRET"
    where = f"endpoints.{endpoint.name[1:]}" if endpoint.name else "platforms.http_callback.extra"
    tables.say(
        f"new secret: {fresh}\n\n"
        f"1. In {args.home / '.env'}: rename {name} to {name}_OLD,\n"
        f"   and set {name} to the new secret.\n"
        f"2. In config.yaml, under {where}: secret_env: {name},\n"
        f"   previous_secret_env: {name}_OLD and previous_until: the date by which the receiver\n"
        "   has changed. Until then the Standard Webhooks header carries both signatures. A\n"
        "   receiver of the legacy header knows one secret: set legacy_uses_previous: true\n"
        "   until it has changed.\n"
        "3. Give the receiver the new secret. Settings are read again by themselves."
    )
    return 0


def test(args: Args) -> int:
    """Send a signed test and print each step."""
    settings = load_settings(args.home)
    steps: dict[str, Any] = {"target": args.target}
    target = resolve(args.target, settings)
    steps |= {
        "endpoint": target.key,
        "profile": target.endpoint.profile,
        "guard": "the URL may be called",
    }
    wall = wall_seconds()
    keys = settings.keyring(target.endpoint, wall)
    steps["signed"] = keys.current is not None
    reply = Reply(new_id(), "test", "This is a test of hermes callback.", wall)
    body = make_body(reply, 0, form=target.endpoint.form, with_hermes=target.endpoint.with_hermes)
    letter = signing.Letter(reply.id, body, wall, 1)
    headers = signing.headers(target.endpoint.profile, keys, letter, AGENT)
    steps["headers"] = {
        key: value if key != "Authorization" else "(hidden)" for key, value in headers.items()
    }
    steps["body"] = body.decode()
    if not args.dry_run:
        limits = Limits(
            target.endpoint.timeout, 5.0, target.endpoint.ca_file, target.endpoint.proxy
        )
        answer = asyncio.run(_post(Post(target.place, body, headers, limits), settings))
        steps |= {
            "status": answer.status,
            "failure": answer.failure,
            "detail": answer.detail,
            "ms": answer.ms,
        }
        steps["answer"] = answer.head
    if args.json:
        tables.say_json(steps)
    else:
        for name, value in steps.items():
            tables.say(f"{name:9} {value if value is not None else '-'}")
    return 0 if args.dry_run or 200 <= (steps["status"] or 0) < 300 else 1


async def _post(post: Post, settings: Any) -> Any:
    transport = choose()
    try:
        return await transport.post(post, settings.guard)
    finally:
        await transport.close()


def verify(args: Args) -> int:
    """Check the signatures of a caught request."""
    text = args.secret
    if text.startswith("env:"):
        text = os.environ.get(text[4:], "")
    secret = signing.read_secret(text)
    body = args.body.read_bytes()
    lines = args.headers.read_text("utf-8").splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    found = signing.check(secret, headers, body)
    for name, good in found.items():
        tables.say(f"{name}: {'good' if good else 'WRONG'}")
    if not found:
        tables.say("there is no signature header in that file", sys.stderr)
    return 0 if found and all(found.values()) else 1


def doctor(args: Args) -> int:
    """Print findings."""
    findings = examiner.examine(args.home)
    if args.json:
        tables.say_json([finding.__dict__ for finding in findings])
    else:
        for finding in findings:
            todo = f"\n      -> {finding.todo}" if finding.todo else ""
            tables.say(f"{finding.level:4}  {finding.what}{todo}")
    return 1 if any(finding.level == "bad" for finding in findings) else 0


def export(args: Args) -> int:
    """Print rows as JSON lines."""
    import json

    with _custody(args.home) as custody:
        for row in reversed(custody.rows(_filter(args))):
            whole = custody.show(row["id"])
            raw = whole["body"]
            whole["body"] = raw.decode("utf-8", "replace") if raw is not None else None
            tables.say(json.dumps(whole, ensure_ascii=False))
    return 0


def drain(args: Args) -> int:
    """Deliver what is due."""
    service = Service(args.home)
    try:
        asyncio.run(deliver_now(service, args.timeout))
    finally:
        service.desk.close()
    with _custody(args.home) as custody:
        states = custody.status(now_ms())["states"]
    left = states["pending"] + states["waiting"] + states["sending"]
    tables.say(f"{left} callbacks still wait" if left else "nothing waits")
    return 1 if left else 0
