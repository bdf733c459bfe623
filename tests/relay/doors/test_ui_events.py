"""The live stream and the operator's cancel, over real sockets."""

import asyncio
import json
import logging
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest
from tests.browser.running import PASSWORD, Bot, Running, relay

from hermes_bridge.relay.core.admission import Ask
from hermes_bridge.relay.doors import ui_events

Event = tuple[str, str, Any]
AUTH = {"authorization": f"Bearer {PASSWORD}"}


class Stream:
    """An open stream of events."""

    def __init__(
        self, running: Running, last: str = "", path: str = "/ui/api/events", **headers: str
    ) -> None:
        self.link = HTTPConnection(running.host, timeout=10)
        self.link.request("GET", path, headers={**headers, "Last-Event-ID": last})
        self.response: HTTPResponse = self.link.getresponse()
        self.last = last

    def event(self) -> Event:
        """Take the next event; ("end", "", None) when the stream is over."""
        kind, ident, data = "message", "", ""
        while line := self.response.readline().decode():
            name, _, value = line.rstrip("\n").partition(": ")
            if name == "event":
                kind = value
            elif name == "id":
                ident = value
            elif name == "data":
                data = value
            elif not name and data:
                self.last = ident or self.last
                return kind, ident, json.loads(data)
        return "end", "", None

    def news(self, what: str) -> Any:
        """Take events until one has `what`; give that."""
        while True:
            kind, _, data = self.event()
            assert kind in ("news", "hello", "alive"), kind
            if what in data:
                return data[what]

    def close(self) -> None:
        self.response.close()
        self.link.close()


def test_a_page_hears_how_an_exchange_goes_on() -> None:
    with relay() as running:
        stream = Stream(running)
        assert stream.response.headers["content-type"] == "text/event-stream"
        assert stream.event()[0] == "hello"
        asker = Bot(running, "asker")
        assert stream.news("agents")[0]["online"]
        target = Bot(running, "target")
        stream.news("agents")
        rid = asker.ask("target", "how long?")["request_id"]
        row = stream.news("rows")[0]
        assert (row["request_id"], row["status"], row["message"]) == (rid, "sent", "how long?")
        target.woken()
        assert stream.news("rows")[0]["status"] == "taken"
        target.beat(rid, "counting")
        beat = stream.news("beats")[0]
        assert (beat["request_id"], beat["note"], beat["beats"]) == (rid, "counting", 1)
        target.reply(rid, "not long")
        row = stream.news("rows")[0]
        assert (row["status"], row["answer"]) == ("ok", "not long")
        target.close()
        assert stream.news("agents")[1]["presence"] == "reconnecting"
        stream.close()


def test_a_page_that_comes_back_hears_what_it_missed() -> None:
    with relay() as running:
        stream = Stream(running)
        asker = Bot(running, "asker")
        stream.news("agents")
        stream.close()
        asker.ask("nobody", "one")
        again = Stream(running, stream.last)
        assert again.news("rows")[0]["message"] == "one"
        again.close()
        page = Stream(running, path=f"/ui/api/events?after={stream.last}")
        assert page.news("rows")[0]["message"] == "one", "a page cannot set the header itself"
        page.close()
        nothing = Stream(running, page.last)
        assert nothing.event()[0] == "alive", "nothing was missed, and that is said at once"
        nothing.close()
        unknown = Stream(running, "1.1")
        assert [unknown.event()[0] for _ in range(2)] == ["gap", "hello"]
        unknown.close()


def test_nobody_is_watched_for_when_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_bridge.relay.doors.ui_events._LOOK_S", 0.02)
    with relay() as running:
        assert running.relay.watchers == []
        stream = Stream(running)
        stream.event()
        assert len(running.relay.watchers) == 1
        stream.close()
        task = running.service._ui._hub._task
        assert task is not None

        async def over() -> None:
            await task

        running.run(over())
        assert running.relay.watchers == []
        stale = Stream(running, stream.last)
        assert stale.event()[0] == "gap", "what happened in between is not known"
        stale.close()


def test_a_burst_is_told_as_a_gap() -> None:
    with relay() as running:
        stream = Stream(running)
        stream.event()

        def burst() -> None:
            for n in range(400):
                running.relay.open(Ask(asker="asker", target="nobody", message=str(n)))

        running.call(burst)
        assert stream.event()[0] == "gap"
        running.call(
            lambda: running.relay.open(Ask(asker="asker", target="nobody", message="after"))
        )
        assert [row["message"] for row in stream.news("rows")] == ["after"]
        stream.close()


def test_a_reader_that_does_not_read_is_told_that_it_missed_something() -> None:

    queue: asyncio.Queue[bytes] = asyncio.Queue(ui_events._QUEUE)
    for n in range(20):
        ui_events._put(queue, b"%d" % n)
    got = [queue.get_nowait() for _ in range(queue.qsize())]
    assert got[0] == ui_events._GAP
    assert got[-1] == b"19"


def test_a_stopping_relay_ends_the_streams_and_itself() -> None:
    with relay() as running:
        stream = Stream(running)
        assert stream.event()[0] == "hello"
        running.loop.call_soon_threadsafe(running.service.stop)
        assert stream.event()[0] == "bye"
        assert stream.event()[0] == "end"
        stream.close()


def test_too_many_streams_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_bridge.relay.doors.ui_events.MOST_LISTENERS", 2)
    with relay() as running:
        streams = [Stream(running) for _ in range(3)]
        assert [s.response.status for s in streams] == [200, 200, 503]
        for stream in streams:
            stream.close()


def test_signing_out_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_bridge.relay.doors.ui_events._ALIVE_S", 0.05)
    with relay(ui={"password": PASSWORD}) as running:
        assert Stream(running).response.status == 401
        cookie = f"hermes_bridge_session={running.service._ui.access.new_session()}"
        stream = Stream(running, cookie=cookie)
        assert stream.event()[0] == "hello"
        csrf = running.json("/ui/api/state", cookie=cookie)["csrf"]
        running.get("/ui/logout", "POST", "x=1", cookie=cookie, x_csrf_token=csrf)
        while (kind := stream.event()[0]) == "alive":
            pass
        assert kind == "end"
        stream.close()


def test_an_operator_who_signed_in_may_cancel_and_it_is_written_down(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with relay(ui={"password": PASSWORD}) as running:
        asker, target = Bot(running, "asker"), Bot(running, "target")
        rid = asker.ask("target", "never mind")["request_id"]
        target.woken()
        path = f"/ui/api/exchanges/{rid}/cancel"
        cookie = f"hermes_bridge_session={running.service._ui.access.new_session()}"
        csrf = running.json("/ui/api/state", cookie=cookie)["csrf"]
        assert running.get(path, "POST", "x=1").status == 401
        assert running.get(path, cookie=cookie, x_csrf_token=csrf).status == 405
        assert running.get(path, "POST", "x=1", cookie=cookie).status == 403
        foreign = {"cookie": cookie, "x_csrf_token": csrf, "origin": "https://evil.example"}
        assert running.get(path, "POST", "x=1", **foreign).status == 403
        assert running.json("/ui/api/state", **AUTH)["exchanges"][0]["status"] == "taken"
        with caplog.at_level(logging.INFO, "hermes_bridge.ui"):
            done = running.get(path, "POST", "x=1", cookie=cookie, x_csrf_token=csrf)
        assert done.status == 200
        assert target.expect("cancel")["request_id"] == rid
        row = running.json(f"/ui/api/exchanges/{rid}", **AUTH)
        assert (row["status"], row["error"]) == ("cancelled", "cancelled by operator")
        audited = [r for r in caplog.records if r.message == "ui.cancelled"]
        assert [r.bridge_fields["request_id"] for r in audited] == [rid]
        again = running.get(path, "POST", "x=1", **AUTH)
        assert (again.status, json.loads(again.content)["status"]) == (409, "cancelled")
        nothing = running.get("/ui/api/exchanges/nothing/cancel", "POST", "x=1", **AUTH)
        assert nothing.status == 404


def test_without_a_password_nobody_can_cancel() -> None:
    with relay() as running:
        asker = Bot(running, "asker")
        Bot(running, "target")
        rid = asker.ask("target", "stay")["request_id"]
        assert running.get(f"/ui/api/exchanges/{rid}/cancel", "POST", "x=1").status == 403
        assert running.json(f"/ui/api/exchanges/{rid}")["status"] == "sent"
