"""Files of an answer: described, inline, as parts, or left out with the reason; never a path."""

import asyncio
import json
from collections.abc import Callable
from email import message_from_bytes
from email.policy import HTTP
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from tests.plugins.http_callback.conftest import Plugin
from tests.plugins.http_callback.receiver import SECRET, Receiver

from hermes_bridge.callback.receiver import Verifier
from hermes_bridge.plugins.http_callback import cli, form, media, standalone
from hermes_bridge.plugins.http_callback.intake import Call

Plugins = Callable[..., Plugin]
TEXT = b"one\r\n--callback-\r\n\x00\xff two"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / 'a "quoted"\r\nname é.txt'
    path.write_bytes(TEXT)
    return path


@pytest.mark.clause("callback.media.1")
@pytest.mark.parametrize(
    ("mode", "most_kib", "why"),
    [
        ("omit", 9, "the setting `media`"),
        ("reference", 9, "not sent along"),
        ("inline", 0, "larger than inline_kib (0)"),
        ("multipart", 0, "larger than file_kib (0)"),
    ],
)
def test_a_file_that_does_not_go_along_says_why_and_not_where_it_lies(
    file: Path, mode: str, most_kib: int, why: str
) -> None:
    found = media.of_file(str(file), "document", mode=mode, most_kib=most_kib)
    assert why in found["omitted"]
    assert str(file.parent) not in json.dumps(found)
    gone = media.of_file(str(file) + "x", "document", mode="inline", most_kib=9)
    assert gone["omitted"] == "the file cannot be read"
    assert str(file.parent) not in json.dumps(gone)


def test_an_image_at_a_url_is_passed_on_as_a_url() -> None:
    found = media.of_url("https://cdn.example/a%20b.png?x=1", "image")
    assert found == {"type": "image", "name": "a b.png", "url": "https://cdn.example/a%20b.png?x=1"}
    assert "omitted" in media.of_url("not a url", "image")


@pytest.mark.clause("callback.media.2")
def test_files_go_along_as_parts_of_a_signed_body(
    plugins: Plugins, receiver: Receiver, file: Path
) -> None:
    plugin = plugins(media="multipart", signing_secret=SECRET)
    rules = {"mode": "multipart", "most_kib": 9}
    items = tuple(media.of_file(str(file), "document", **rules) for _ in range(2))  # type: ignore[arg-type]
    receipt = plugin.answer(receiver.url, "see the files", chat="1")
    call = Call(receiver.url, "with files", attachments=items)
    sent = asyncio.run(plugin.service.accept(call))
    got = receiver.wait(2)[1]
    assert got.id == sent.id != receipt.id
    found = Verifier(SECRET).verify(got.headers, got.body)
    assert (found.content, found.kind) == ("with files", "media")
    assert [one.data for one in found.files] == [TEXT, TEXT]
    named = [one["part"] for one in found.hermes["attachments"]]
    assert named == [one.part for one in found.files] == ["file0", "file1"]
    assert str(file.parent).encode() not in got.body
    # What another parser makes of it.
    whole = message_from_bytes(
        b"Content-Type: " + got.headers["content-type"].encode() + b"\r\n\r\n" + got.body,
        policy=HTTP,
    )
    parts = list(whole.iter_parts())  # type: ignore[attr-defined]
    assert [part.get_content_type() for part in parts] == [
        "application/json",
        "text/plain",
        "text/plain",
    ]
    assert [part.get_param("name", header="content-disposition") for part in parts] == [
        "payload",
        "file0",
        "file1",
    ]


def test_a_copy_under_a_new_id_carries_the_same_files(
    plugins: Plugins, receiver: Receiver, file: Path
) -> None:
    plugin = plugins()
    item = media.of_file(str(file), "document", mode="multipart", most_kib=9)
    first = plugin.send(receiver.url, "with a file", attachments=(item,))
    plugin.wait_state(first.id, "delivered")
    assert cli.main(["replay", first.id, "--new-id", "--home", str(plugin.home)]) == 0
    old, new = receiver.wait(2)
    assert new.id != old.id
    bodies = [form.payload_of(one.body, one.id) for one in (old, new)]
    assert json.loads(bodies[1])["hermes"]["id"] == new.id
    assert json.loads(bodies[0])["content"] == json.loads(bodies[1])["content"] == "with a file"
    assert TEXT in new.body
    assert new.headers["content-type"] == form.content_type(new.id)


@given(st.lists(st.binary(max_size=40), max_size=3), st.binary(max_size=30))
def test_any_bytes_survive_the_form(contents: list[bytes], payload: bytes) -> None:
    payload = payload.replace(b"\r", b"")
    files = [form.File(f"file{n}", "n", "a/b", data) for n, data in enumerate(contents)]
    body = form.join("msg_1", payload, files)
    assert form.payload_of(body, "msg_1") == payload
    other = form.rewritten(body, "msg_1", "msg_2", b"{}")
    assert other == form.join("msg_2", b"{}", files)


def test_a_process_without_a_gateway_sends_files_as_the_endpoint_wants_them(
    tmp_path: Path, receiver: Receiver, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crm = {"url": receiver.url, "media": "multipart"}
    plugin = Plugin(tmp_path / "home", {"endpoints": {"crm": crm}})
    monkeypatch.setattr(standalone, "hermes_home", lambda: plugin.home)
    try:
        done = asyncio.run(standalone.send(None, "@crm", "from cron", media_files=[(file, False)]))
    finally:
        plugin.stop()
    assert done["success"], done
    [got] = receiver.wait(1)
    assert TEXT in got.body
