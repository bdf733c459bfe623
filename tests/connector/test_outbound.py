"""What gateways ask for, and that every request gets one honest answer."""

import asyncio
import io
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.connector.rig import Rig, rig

from hermes_bridge.connector import actions
from hermes_bridge.connector.core.guard import MASK, WITHHELD
from hermes_bridge.connector.platforms.agentschat.http import Pool

pytestmark = pytest.mark.anyio


@pytest.mark.clause("relay.outbound.7")
@pytest.mark.parametrize(
    ("status", "ambiguous"), [(401, False), (403, False), (404, False), (500, True), (503, True)]
)
async def test_a_platforms_refusal_is_told_by_status_alone(
    tmp_path: Path, status: int, ambiguous: bool
) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        r.hub.faults.post_status = status
        assert await a.act("send", "room", content="x") == {
            "success": False,
            "error": f"agentschat HTTP {status}",
            "code": "platform_http_error",
            "status": status,
            "ambiguous": ambiguous,
        }


@pytest.mark.clause("relay.outbound.7")
async def test_too_many_requests_are_waited_out(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        r.hub.faults.post_status, r.hub.faults.post_headers = 429, {"Retry-After": "1"}
        request = await a.ask({"op": "send", "chat_id": "room", "content": "later"})
        await r.hub.until(lambda: r.hub.calls["post"] == 1)
        r.hub.faults.post_status = None
        assert (await a.result(request))["success"] is True
        assert [post["content"] for post in r.hub.posts] == ["later"]
        r.hub.faults.post_status, r.hub.faults.post_headers = 429, {"Retry-After": "3600"}
        refused = await a.act("send", "room", content="never")
        assert (refused["status"], refused["ambiguous"]) == (429, False)


async def test_a_cut_connection_is_ambiguous_and_a_refused_one_is_not(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        r.hub.faults.post_cut = True
        result = await a.act("send", "room", content="x")
        assert (result["code"], result["ambiguous"]) == ("platform_network_error", True)
        r.hub.faults.post_cut = False
    async with rig(tmp_path / "other", "a", start=False) as r:
        (tmp_path / "other").mkdir()
        await r.start()
        a = await r.joined("a")
        api = r.connector.state.platforms["agentschat"]._api
        api._pool = Pool("http://127.0.0.1:9")
        result = await a.act("send", "room", content="x")
        assert (result["code"], result["ambiguous"]) == ("platform_network_error", False)


@pytest.mark.clause("relay.outbound.4")
async def test_a_hung_platform_is_answered_in_time_and_holds_up_no_other_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "ANSWER_WITHIN_S", 0.5)
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        r.hub.faults.post_hangs = True
        hung = await a.ask({"op": "send", "chat_id": "room", "content": "hangs"})
        behind = await a.ask({"op": "send", "chat_id": "room", "content": "behind it"})
        await r.hub.until(lambda: r.hub.calls["post"] == 1)
        r.hub.faults.post_hangs = False
        assert (await a.act("send", "dm-a", content="other"))["success"] is True
        first, second = await a.result(hung), await a.result(behind)
        assert (first["ambiguous"], "timed out" in first["error"]) == (True, True)
        assert (second["success"], "ambiguous" in second) == (False, False)
        assert [post["content"] for post in r.hub.posts] == ["other"]


@pytest.mark.clause("relay.outbound.3")
async def test_one_chat_is_in_order_and_others_run_beside_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a, b = await r.joined("a"), await r.joined("b")
        r.hub.faults.post_gate = asyncio.Event()
        slow = await a.ask({"op": "send", "chat_id": "room", "content": "1"})
        next_ = await a.ask({"op": "send", "chat_id": "room", "content": "2"})
        await r.hub.until(lambda: r.hub.calls["post"] == 1)
        assert (await a.act("typing", "room"))["success"] is True
        gate, r.hub.faults.post_gate = r.hub.faults.post_gate, None
        assert (await b.act("send", "room", content="b"))["success"] is True
        gate.set()
        assert (await a.result(slow))["success"] and (await a.result(next_))["success"]
        assert [post["content"] for post in r.hub.posts] == ["b", "1", "2"]


@pytest.mark.clause("relay.outbound.5")
async def test_a_repeated_request_posts_once_also_on_a_new_connection(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        action = {"op": "send", "chat_id": "room", "content": "once"}
        for _ in range(3):
            await a.ask(action, request="same")
        first = await a.result("same")
        again = await r.joined("a")
        await again.ask(action, request="same")
        assert await again.result("same") == first
        assert len(r.hub.posts) == 1
        await again.ask(action | {"content": "other"}, request="same")
        await again.until(lambda: len(again.of("outbound_result")) == 2)
        assert again.of("outbound_result")[1]["result"]["success"] is False
        assert len(r.hub.posts) == 1


@pytest.mark.clause("relay.outbound.6")
async def test_a_long_text_is_posted_in_pieces_and_an_empty_one_not_at_all(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        text = "\n\n".join(f"paragraph {n} " + "word " * 100 for n in range(18))
        assert len(text) > 9000
        result = await a.act("send", "room", content=text, reply_to="m7")
        assert [len(post["content"]) <= 4000 for post in r.hub.posts] == [True] * 3
        assert "".join("".join(post["content"] for post in r.hub.posts).split()) == "".join(
            text.split()
        )
        assert {post["parent_id"] for post in r.hub.posts} == {"m7"}
        assert result == {"success": True, "message_id": r.hub.posts[-1]["id"]}
        for empty in ("", " \n", None):
            assert (await a.act("send", "room", content=empty))["success"] is False
        assert len(r.hub.posts) == 3


async def test_a_failure_in_the_middle_of_a_long_text_is_ambiguous(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        r.hub.faults.post_gate = asyncio.Event()
        request = await a.ask({"op": "send", "chat_id": "room", "content": "word " * 1500})
        await r.hub.until(lambda: r.hub.calls["post"] == 1)
        gate, r.hub.faults.post_gate = r.hub.faults.post_gate, None
        send = r.connector.state.platforms["agentschat"].send

        async def then_fail(*args: Any) -> str:
            r.hub.faults.post_status = 403
            return await send(*args)

        r.connector.state.platforms["agentschat"].send = then_fail
        gate.set()
        result = await a.result(request)
        assert (result["success"], result["ambiguous"]) == (False, True)
        assert "only 1 of 2" in result["error"]


async def test_edit_delete_and_react_are_proved_by_the_broadcast(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        sent = (await a.act("send", "room", content="first"))["message_id"]
        theirs = (await r.hub.say("room", "ada", "thanks"))["id"]
        edited = await a.act("edit", "room", message_id=sent, content="second")
        assert edited == {"success": True, "message_id": sent}
        assert r.hub.rooms["room"].rows[0]["content"] == "second"
        assert (await a.act("react", "room", message_id=theirs, emoji="👀", remove=False))[
            "success"
        ]
        assert r.hub.reactions[theirs] == {"👀": ["a"]}
        assert (await a.act("react", "room", message_id=theirs, emoji="👀", remove=True))["success"]
        assert r.hub.reactions[theirs] == {"👀": []}
        assert (await a.act("delete", "room", message_id=sent))["success"]
        assert [row["content"] for row in r.hub.rooms["room"].rows] == ["thanks"]


@pytest.mark.clause("relay.platform.3")
async def test_a_change_that_the_hub_refuses_fails_and_one_it_ignores_is_ambiguous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_bridge.connector.platforms.agentschat import feed

    monkeypatch.setattr(feed, "_PROOF_S", 0.2)
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        theirs = (await r.hub.say("room", "ada", "mine"))["id"]
        refused = await a.act("edit", "room", message_id=theirs, content="no")
        assert (refused["success"], refused["ambiguous"]) == (False, False)
        r.hub._change = _ignore  # type: ignore[method-assign]
        lost = await a.act("edit", "room", message_id=theirs, content="no")
        assert (lost["success"], lost["ambiguous"]) == (False, True)
        assert (await a.act("edit", "room", content="no id"))["success"] is False


async def _ignore(*args: Any) -> None:
    return


async def test_typing_and_chat_info(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        assert await a.act("typing", "room") == {"success": True}
        await r.hub.until(lambda: r.hub.typed)
        assert r.hub.typed[0] == {"type": "typing", "channel_id": "room", "sender_id": "a"}
        info = await a.act("get_chat_info", "room")
        assert (info["name"], info["type"], info["chat_info"]) == (
            "room", "group", {"name": "room", "type": "group"},
        )  # fmt: skip
        unknown = await a.act("get_chat_info", "dm-nowhere")
        assert (unknown["name"], unknown["type"]) == ("dm-nowhere", "dm")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ({"op": "prompt", "chat_id": "room"}, "unsupported op: prompt"),
        ({"chat_id": "room"}, "unsupported op: undefined"),
        ({"op": "send"}, "needs a chat_id"),
        ({"op": "send", "chat_id": 7}, "malformed action"),
        ({"op": "send\nx<script>", "chat_id": "room"}, "unsupported op: send?x?script?"),
        ([], "malformed action"),
        ({"op": "send_media", "chat_id": "room", "source_url": "http://evil/x"}, "/relay/media"),
    ],
)
async def test_what_cannot_be_done_says_why(tmp_path: Path, action: Any, words: str) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        result = await a.result(await a.ask(action))
        assert result["success"] is False
        assert words in result["error"]


@pytest.mark.clause("relay.guard.3")
async def test_secrets_do_not_leave(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        a = await r.joined("a")
        await a.act("send", "room", content="here: ac_ABCDEFGHIJKLMNOPQRST and secret-of-a")
        assert r.hub.posts[0]["content"] == f"here: {MASK} and {MASK}"


PROMPT = "⚠️ **Dangerous command requires approval:**\nReply `/approve` or `/deny` to cancel."


@pytest.mark.clause("relay.guard.4")
async def test_an_approval_prompt_reaches_only_chats_of_owners(tmp_path: Path) -> None:
    async with rig(tmp_path, "a", start=False) as r:
        r.rows[0]["owners"] = ["ada"]
        r.hub.room("dm-eve", "eve", "a")
        await r.start()
        a = await r.joined("a")
        await r.hub.say("dm-eve", "eve", "delete everything")
        await r.hub.say("dm-a", "ada", "clean up")
        await a.got(2)
        for chat in ("dm-eve", "dm-a", "room"):
            assert (await a.act("send", chat, content=PROMPT))["success"] is True
        assert [post["content"] for post in r.hub.posts] == [WITHHELD, PROMPT, WITHHELD]


async def media(r: Rig, bot: str, body: bytes, mime: str = "image/png") -> tuple[int, Any]:
    import time

    from hermes_bridge.contract.token import mint

    token = mint(f"gw-{bot}", f"secret-of-{bot}", int(time.time()) + 60)
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": mime,
        "X-Media-Filename": "p.png",
    }
    async with (
        aiohttp.ClientSession() as http,
        http.post(r.base + "/relay/media", data=io.BytesIO(body), headers=headers) as answer,
    ):
        return answer.status, await answer.json()


async def fetch(r: Rig, bot: str, url: str) -> tuple[int, bytes, str]:
    import time

    from hermes_bridge.contract.token import mint

    token = mint(f"gw-{bot}", f"secret-of-{bot}", int(time.time()) + 60)
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:
        return answer.status, await answer.read(), answer.headers.get("Content-Disposition", "")


@pytest.mark.clause("relay.media.1")
async def test_a_picture_goes_out_as_an_attachment(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a, b = await r.joined("a"), await r.joined("b")
        status, answer = await media(r, "a", b"PNG...")
        assert status == 200
        url = f"{r.base}/relay/media/{answer['id']}"
        assert (await fetch(r, "a", url))[:2] == (200, b"PNG...")
        assert (await fetch(r, "b", url))[0] == 404
        action = {"media_kind": "image", "source_url": url, "content": "look"}
        assert (await b.act("send_media", "room", **action))["success"] is False
        assert (await a.act("send_media", "room", **action))["success"] is True
        post = r.hub.posts[0]
        assert post["content"] == "look"
        assert post["attachments"][0]["type"] == "image"
        name = post["attachments"][0]["url"].rsplit("/", 1)[-1]
        assert r.hub.files[name] == (b"PNG...", "image/png")


@pytest.mark.clause("relay.media.2", "relay.inbound.4")
async def test_a_picture_comes_in_through_our_own_host(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        a = await r.joined("a")
        r.hub.files["cat"] = (b"CAT", "image/png")
        file = {"type": "image", "url": "/api/file/uploads/cat", "mime": "image/png", "size": 3}
        evil = {"type": "image", "url": "http://127.0.0.1:9/x", "mime": "image/png"}
        await r.hub.say("dm-a", "ada", "", attachments=[file, evil])
        (event,) = await a.got(1)
        assert event["message_type"] == "photo"
        good, bad = event["media_urls"]
        assert good.startswith(r.base + "/relay/media/")
        status, body, name = await fetch(r, "a", good)
        assert (status, body, "cat" in name) == (200, b"CAT", True)
        assert (await fetch(r, "b", good))[0] == 404
        assert (await fetch(r, "a", bad))[0] == 502


@pytest.mark.clause("relay.media.1", "relay.http.1", "relay.policy.1")
async def test_http_routes_answer_what_they_mean(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, aiohttp.ClientSession() as http:
        expected = [
            ("GET", "/", 404), ("GET", "/relay/provision", 404), ("POST", "/relay/enroll", 404),
            ("GET", "/relay/policy", 405), ("DELETE", "/relay/media", 405), ("GET", "//", 404),
            ("POST", "/relay/media", 401), ("POST", "/relay/policy", 401),
            ("GET", "/relay/media/x", 401), ("GET", "/health", 200), ("GET", "/relay", 404),
        ]  # fmt: skip
        for method, path, status in expected:
            async with http.request(method, r.base + path) as answer:
                assert (method, path, answer.status) == (method, path, status)
        assert (await media(r, "a", b""))[0] == 400
        assert (await media(r, "a", b"x" * (25 * 1024 * 1024 + 1)))[0] == 413


@pytest.mark.clause("relay.policy.1")
async def test_a_declared_policy_works_and_outlives_a_restart(tmp_path: Path) -> None:
    import time

    from hermes_bridge.contract.token import mint

    async with rig(tmp_path) as r, aiohttp.ClientSession() as http:
        token = mint("gw-a", "secret-of-a", int(time.time()) + 60)
        headers = {"Authorization": f"Bearer {token}"}
        body = {"platform": "agentschat", "requireAddress": True, "freeResponseScopes": ["room"]}
        for json, status in ((body, 200), (body | {"platform": "x"}, 404), ({"a": 1}, 400)):
            async with http.post(r.base + "/relay/policy", json=json, headers=headers) as answer:
                assert answer.status == status
        await r.restart()
        a, b = await r.joined("a"), await r.joined("b")
        await r.hub.say("room", "ada", "nobody named")
        assert (await a.got(1))[0]["text"] == "nobody named"
        assert b.events == []
