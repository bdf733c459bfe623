"""The page's door over real sockets: who may look, what is told, what bad requests get."""

import json
import logging
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tests.browser.running import PASSWORD, Bot, Running, ended, relay

from hermes_bridge.relay.core.exchange import Status

FORM = {"password": PASSWORD, "next": "/ui"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Running]:
    """A relay that listens beyond loopback, with a password."""
    with relay(ui={"password": PASSWORD}, host="0.0.0.0") as running:
        yield running


@pytest.fixture(autouse=True)
def forgiven(request: pytest.FixtureRequest) -> None:
    """Each test begins without wrong tries against its address."""
    if "guarded" in request.fixturenames:
        guarded: Running = request.getfixturevalue("guarded")
        guarded.service._ui.access._tries.clear()


def sign_in(running: Running, **fields: str) -> str:
    answer = running.get("/ui/login", "POST", urlencode({**FORM, **fields}))
    assert answer.status == 303, answer.status
    cookie = answer.headers["set-cookie"]
    return str(cookie.split(";")[0])


def test_state_has_the_seeds_shape_oldest_first() -> None:
    with relay() as running:
        old, new = ended(ago=9000, message="old"), ended(ago=5000, message="new")
        failed = ended(ago=7000, status=Status.FAILED, reason="no idea")
        running.keep(old, new, failed)
        state = running.json("/ui/api/state")
    assert [{"name": a["name"], "online": a["online"]} for a in state["agents"]] == [
        {"name": "asker", "online": False},
        {"name": "target", "online": False},
    ]
    assert [x["message"] for x in state["exchanges"]] == ["old", "?", "new"]
    first, middle, _ = state["exchanges"]
    seeds = {
        "request_id": old.rid,
        "conversation_id": old.conv,
        "from": "asker",
        "to": "target",
        "message": "old",
        "status": "ok",
        "answer": "yes",
        "started_at": old.at,
        "ended_at": old.ended_at,
    }
    assert seeds.items() <= first.items()
    assert "error" not in first
    assert middle["error"] == "no idea"
    assert "answer" not in middle


def test_state_gives_the_newest_two_hundred() -> None:
    with relay() as running:
        running.keep(*(ended(ago=1_000_000 - n * 1000, message=str(n)) for n in range(260)))
        state = running.json("/ui/api/state")
    assert [x["message"] for x in state["exchanges"]] == [str(n) for n in range(60, 260)]


def test_an_open_exchange_shows_how_it_stands_now() -> None:
    with relay() as running:
        asker, target = Bot(running, "asker"), Bot(running, "target")
        rid = asker.ask("target", "how long?")["request_id"]
        target.woken()
        target.beat(rid, "counting")
        target.ask("asker", "a round trip, so that the beat is in")
        shown = {x["request_id"]: x for x in running.json("/ui/api/state")["exchanges"]}[rid]
        assert (shown["status"], shown["note"], shown["beats"]) == ("taken", "counting", 1)
        assert shown["deadline"] > shown["heard_at"]
        assert "ended_at" not in shown
        target.reply(rid, "not long")
        shown = {x["request_id"]: x for x in running.json("/ui/api/state")["exchanges"]}[rid]
        assert (shown["status"], shown["answer"]) == ("ok", "not long")


def test_a_dead_store_shows_what_memory_holds(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with relay(db=tmp_path / "taken") as running:
        asker, target = Bot(running, "asker"), Bot(running, "target")
        rid = asker.ask("target", "still there?")["request_id"]
        target.woken()
        target.reply(rid, "yes")
        asker.ask("target", "and now?")
        asker.ask("nobody", "hello?")
        state = running.json("/ui/api/state")
    assert not state["store"]["up"]
    shown = [(x["message"], x["status"]) for x in state["exchanges"]]
    assert ("still there?", "ok") in shown
    assert shown[1][0] == "and now?"
    assert shown[2] == ("hello?", "unknown_agent")


def test_a_hanging_store_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "relay.db"
    with relay(db=path) as running:
        asker = Bot(running, "asker")
        asker.ask("nobody", "hello?")
        running.drained()
        path.unlink()
        sqlite3.connect(path).close()
        state = running.json("/ui/api/state")
    assert not state["store"]["up"]


def test_long_texts_are_cut_on_request_and_whole_by_id() -> None:
    with relay() as running:
        long = ended(message="é" * 5000)
        running.keep(long)
        cut = running.json("/ui/api/state?cut=100")["exchanges"][0]
        assert cut["message"] == "é" * 100
        assert cut["sizes"] == {"message": 10_000}
        assert running.json("/ui/api/state")["exchanges"][0]["message"] == "é" * 5000
        assert running.json(f"/ui/api/exchanges/{long.rid}")["message"] == "é" * 5000
        assert running.get("/ui/api/exchanges/nothing").status == 404


def test_on_loopback_the_page_is_open_to_loopback_names_only() -> None:
    with relay() as running:
        port = running.host.rpartition(":")[2]
        for host in (running.host, f"localhost:{port}", f"[::1]:{port}"):
            assert running.get("/ui", host=host).status == 200
        for host in ("evil.example", "127.0.0.1.evil.example", "[::bad", "relay.lan:8787"):
            answer = running.get("/ui/api/state", host=host)
            assert answer.status == 403
            assert b"ui.password" in answer.content


def test_beyond_loopback_the_page_is_shut_without_a_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "hermes_bridge.ui"), relay(host="0.0.0.0") as running:
        for path in ("/ui", "/ui/login", "/ui/api/state", "/ui/static/x/app.js"):
            answer = running.get(path)
            assert answer.status == 403
            assert b"ui.password" in answer.content
    lines = [record for record in caplog.records if record.message == "ui.shut"]
    assert len(lines) == 1
    assert "ui.password" in lines[0].bridge_fields["hint"]


def test_auth_none_opens_it_to_everybody() -> None:
    with relay(ui={"auth": "none"}, host="0.0.0.0") as running:
        assert running.get("/ui", host="any.example").status == 200
        assert not running.json("/ui/api/state", host="any.example")["signed_in"]


def test_a_password_is_asked_for_on_loopback_too() -> None:
    with relay(ui={"password": PASSWORD}) as running:
        assert running.get("/ui/api/state").status == 401


def test_without_a_session_pages_lead_to_sign_in_and_data_is_refused(guarded: Running) -> None:
    answer = guarded.get("/ui/agents?a=x&b=1")
    assert answer.status == 303
    assert answer.headers["location"] == "/ui/login?next=/ui/agents%3Fa%3Dx%26b%3D1"
    for path in ("/ui/api/state", "/ui/api/exchanges/x", "/ui/api/nothing"):
        refused = guarded.get(path)
        assert refused.status == 401
        assert b"asker" not in refused.content


def test_signing_in_gives_a_cookie_that_works_until_signing_out(guarded: Running) -> None:
    answer = guarded.get("/ui/login", "POST", urlencode(FORM))
    for word in ("HttpOnly", "SameSite=Lax", "Path=/ui"):
        assert word in answer.headers["set-cookie"]
    cookie = sign_in(guarded)
    state = guarded.json("/ui/api/state", cookie=cookie)
    assert state["signed_in"]
    assert guarded.get("/ui/login", cookie=cookie).status == 303
    out = guarded.get("/ui/logout", "POST", "x=1", cookie=cookie, x_csrf_token=state["csrf"])
    assert out.status == 303
    assert "Max-Age=0" in out.headers["set-cookie"]
    assert guarded.get("/ui/api/state", cookie=cookie).status == 401


def test_a_cookie_that_was_changed_or_is_old_is_worth_nothing(guarded: Running) -> None:
    name, _, value = sign_in(guarded).partition("=")
    expiry, nonce, signature = value.split(".")
    for forged in (
        f"{int(expiry) + 1}.{nonce}.{signature}",
        f"{expiry}.{nonce}x.{signature}",
        f"{expiry}.{nonce}.{signature[:-1]}0x",
        f"{expiry}.{nonce}",
        "9" * 14 + ".x.y",
        "é.é.é",
        "",
    ):
        raw = f"{name}={forged}".encode().decode("latin-1")
        assert guarded.get("/ui/api/state", cookie=raw).status == 401, forged
    access = guarded.service._ui.access
    now, access._now = access._now, lambda: int(expiry) + 1
    try:
        assert guarded.get("/ui/api/state", cookie=f"{name}={value}").status == 401
    finally:
        access._now = now


def test_a_restart_keeps_sessions_and_a_new_password_ends_them(guarded: Running) -> None:
    cookie = sign_in(guarded)
    with relay(ui={"password": PASSWORD}) as restarted:
        assert restarted.get("/ui/api/state", cookie=cookie).status == 200
    with relay(ui={"password": PASSWORD + "!"}) as changed:
        assert changed.get("/ui/api/state", cookie=cookie).status == 401


def test_scripts_send_the_password_as_a_bearer_token(guarded: Running) -> None:
    assert guarded.json("/ui/api/state", authorization=f"Bearer {PASSWORD}")["signed_in"]
    assert guarded.get("/ui/api/state", authorization="Bearer wrong").status == 401
    assert (
        guarded.get("/ui/api/state", authorization="Bearer token-of-asker-0123456789").status == 401
    )


def test_wrong_passwords_are_slowed_down_whichever_way_they_come(guarded: Running) -> None:
    wrong = urlencode({"password": "guess"})
    for _ in range(4):
        answer = guarded.get("/ui/login", "POST", wrong)
        assert answer.status == 401
        assert b"Wrong password. Try again." in answer.content
    assert guarded.get("/ui/api/state", authorization="Bearer guess").status == 429
    held = guarded.get("/ui/login", "POST", urlencode(FORM))
    assert held.status == 429, "the right password has to wait too"
    assert re.search(rb"Too many tries. Wait \d+ s.", held.content)
    assert guarded.get("/ui/api/state", authorization=f"Bearer {PASSWORD}").status == 429


def test_signing_in_leads_only_to_places_on_the_page(guarded: Running) -> None:
    for wanted, led in (
        ("/ui/map?range=24h", "/ui/map?range=24h"),
        ("//evil.example/ui", "/ui"),
        ("https://evil.example", "/ui"),
        ("/ui/../mcp\r\nx: y", "/ui"),
        ("/uix", "/ui"),
        ("/ui\\evil", "/ui"),
        ("/ui/logout", "/ui"),
    ):
        answer = guarded.get("/ui/login", "POST", urlencode({**FORM, "next": wanted}))
        assert answer.headers["location"] == led


def test_other_sites_can_neither_sign_in_nor_out(guarded: Running) -> None:
    body = urlencode(FORM)
    assert guarded.get("/ui/login", "POST", body, origin="https://evil.example").status == 403
    assert guarded.get("/ui/login", "POST", body, sec_fetch_site="cross-site").status == 403
    cookie = sign_in(guarded)
    assert guarded.get("/ui/logout", "POST", "x=1", cookie=cookie).status == 403
    assert guarded.get("/ui/logout", cookie=cookie).status == 405
    assert guarded.get("/ui/api/state", cookie=cookie).status == 200


def test_a_login_that_makes_no_sense_is_a_wrong_password(guarded: Running) -> None:
    for body in ("\x00", "password=" + "x" * 20_000, "=&=&=", "&".join(["a=1"] * 100)):
        assert guarded.get("/ui/login", "POST", body).status in (401, 400)


def test_every_answer_carries_the_strict_policy(guarded: Running) -> None:
    for path in ("/ui", "/ui/login", "/ui/api/state", "/ui/nothing", "/ui/static/x/y.js"):
        policy = guarded.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy


def test_documents_hold_no_script_no_style_and_no_foreign_address(guarded: Running) -> None:
    cookie = sign_in(guarded)
    for path in ("/ui/login?next=%22%3E%3Cscript%3E", "/ui"):
        text = guarded.get(path, cookie="" if "login" in path else cookie).content.decode()
        assert not re.search(r"<script(?![^>]* src=)", text)
        assert not re.search(r"<style|\sstyle=|\son\w+=", text)
        assert not re.search(r"(?:src|href|action)=\"(?!/ui|#)", text)
        assert "{{" not in text


def test_assets_are_kept_for_ever_under_the_hash_of_their_content(guarded: Running) -> None:
    text = guarded.get("/ui/login").content.decode()
    for path in set(re.findall(r"/ui/static/[^\"#]+", text)):
        plain = guarded.get(path)
        assert plain.status == 200
        assert "immutable" in plain.headers["cache-control"]
        packed = guarded.get(path, accept_encoding="gzip")
        assert packed.headers["content-encoding"] == "gzip"
        assert len(packed.content) < len(plain.content) + 40
    base = re.search(r"/ui/static/\w+", text)[0]  # type: ignore[index]
    for path in (f"{base}/page.html", f"{base}/../ui.py", f"{base}/", "/ui/static/0/app.js"):
        assert guarded.get(path).status == 404


def test_nothing_may_be_written_here_and_head_is_harmless(guarded: Running) -> None:
    auth = {"authorization": f"Bearer {PASSWORD}"}
    for path in ("/ui", "/ui/api/state", "/ui/static/x/y"):
        answer = guarded.get(path, "PUT", "x=1", **auth)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert guarded.get(path, "HEAD", **auth).content == b""
    assert guarded.get("/ui/unknown", **auth).status == 404
    assert guarded.get("/ui?" + "&".join(["a=1"] * 99), **auth).status == 400


def test_the_state_names_no_secret(guarded: Running) -> None:
    text = json.dumps(guarded.json("/ui/api/state", authorization=f"Bearer {PASSWORD}"))
    assert PASSWORD not in text
    assert "token-of" not in text
