"""Real Hermes 0.19 and 0.22 against a real connector: its transport class, then whole gateways.

A gateway takes seconds to start, so one pair a version serves every test; what ends comes back.
"""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from tests.connector.rig import Rig, rig
from tests.harness.gateway import Gateway
from tests.harness.llm import Call, Say, ScriptedModel
from tests.harness.venvs import Venv

pytestmark = [pytest.mark.anyio, pytest.mark.hermes, pytest.mark.timeout(600)]
SCRIPT = Path(__file__).parent / "hermes_transport.py"
WAIT_S = 90.0


@dataclass
class World:
    """A hub, a connector, and the gateways of bots `a` and `b`; `ada` is the owner of `a`."""

    rig: Rig
    llm: ScriptedModel
    a: Gateway
    b: Gateway

    async def say(self, room: str, text: str, sender: str = "ada", **more: Any) -> dict[str, Any]:
        return await self.rig.hub.say(room, sender, text, **more)

    def said(self, words: str) -> list[dict[str, Any]]:
        """What bots posted that holds these words, oldest first."""
        return [post for post in self.rig.hub.posts if words in post["content"]]

    async def posted(self, words: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until bots have posted these words so many times."""
        try:
            await self.rig.hub.until(lambda: len(self.said(words)) >= count, WAIT_S)
        except TimeoutError:
            said = [post["content"][:200] for post in self.rig.hub.posts]
            raise AssertionError(f"{words!r} not {count} times among {said}") from None
        return self.said(words)

    async def warm(self, name: str = "a") -> None:
        """One turn of this process: the first imports half of Hermes and holds its loop."""
        before = len(self.said("warm"))
        await self.say(f"dm-{name}", "are you warm")
        await self.posted("warm", before + 1)


def settings(r: Rig, name: str) -> dict[str, Any]:
    """Exactly the settings that `connector check` prints."""
    config = {
        "gateway": {"relay_url": r.url, "relay_id": f"gw-{name}", "multiplex_profiles": False},
        "platforms": {"relay": {"enabled": True}},
        "display": {"busy_ack_enabled": False},
    }
    env = {
        "GATEWAY_RELAY_SECRET": f"secret-of-{name}",
        "GATEWAY_RELAY_PLATFORMS": "agentschat",
        "GATEWAY_RELAY_BOT_IDS": json.dumps({"agentschat": {"botId": name}}),
        "RELAY_HOME_CHANNEL": "none",
    }
    return {"config": config, "env": env}


@pytest.fixture(scope="module")
async def world(
    module_gateways: Callable[..., Gateway],
    module_llm: ScriptedModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[World]:
    module_llm.when("are you warm", Say("warm"))
    async with rig(tmp_path_factory.mktemp("rig"), "a", "b", start=False) as r:
        r.rows[0]["owners"] = ["ada"]
        r.hub.room("dm-eve", "eve", "a")
        await r.start()
        assert r.process is not None
        r.settings["port"] = r.process.address[1]  # the same after a restart
        a, b = (module_gateways(name, start=False, **settings(r, name)) for name in ("a", "b"))
        made = World(r, module_llm, a.launch(), b.launch())
        for one in (a, b):
            await to_thread.run_sync(one.wait_ready, 120)
        for name in ("a", "b"):
            await made.warm(name)
        yield made


async def test_hermes_own_transport_connects_hears_speaks_and_goes_idle(
    hermes: Venv, tmp_path: Path
) -> None:
    async with rig(tmp_path, "a") as r:
        await r.hub.say("dm-a", "ada", "waiting for you")
        process = await asyncio.create_subprocess_exec(
            str(hermes.python), str(SCRIPT), r.url, "gw-a", "secret-of-a", "a", "dm-a",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(WAIT_S):
            out, _ = await process.communicate()
        hello, rest = [json.loads(line) for line in out.splitlines()]
        assert hello == {"platform": "agentschat", "edit": True}
        assert (rest["text"], rest["source"], rest["idle"]) == ("waiting for you", "dm-a", True)
        assert rest["sent"]["success"] is True
        assert r.hub.posts[0]["content"] == "heard: waiting for you"
        assert rest["info"]["type"] == "dm"
        await r.settled()


async def test_a_bot_answers_dms_mentions_and_threads_under_its_own_account(world: World) -> None:
    world.llm.when("what is 2\\+2", Say("it is 4"))
    await world.say("dm-a", "what is 2+2")
    (sum_,) = await world.posted("it is 4")

    world.llm.when("who said hello", Say("bob did: {text}"))
    await world.say("room", "hello all", sender="bob")
    mention = await world.say("room", "@a who said hello?")
    (answer,) = await world.posted("bob did")
    assert answer["parent_id"] == mention["id"]
    assert "Bob: hello all" in answer["content"]

    root = await world.say("room", "the topic")
    world.llm.when("in the thread", Say("thread answer"))
    await world.say("room", "@a in the thread", type="thread_reply", parent_id=root["id"])
    (threaded,) = await world.posted("thread answer")
    assert threaded["parent_id"] == root["id"]
    assert [post["by"] for post in (sum_, answer, threaded)] == ["a", "a", "a"]


async def test_two_bots_answer_one_message_each_for_itself(world: World) -> None:
    world.llm.when("introduce yourselves", Say("a bot speaks"))
    await world.say("room", "@a @b introduce yourselves")
    answers = await world.posted("a bot speaks", 2)
    assert {post["by"] for post in answers} == {"a", "b"}
    await world.rig.settled()
    for name in ("a", "b"):  # whatever else the message started has come before these turns
        await world.warm(name)
    assert len(world.said("a bot speaks")) == 2


async def test_a_strangers_command_is_a_message_and_an_owners_is_a_command(world: World) -> None:
    llm = world.llm
    llm.when("remember 17", Say("kept"))
    await world.say("dm-eve", "remember 17", sender="eve")
    await world.posted("kept")
    llm.when("/new", Say("you said a slash word"))
    await world.say("dm-eve", "/new", sender="eve")
    await world.posted("you said a slash word")
    last = [asked for asked in llm.asked if "/new" in asked.text][-1]
    assert any("remember 17" in str(each) for each in last.messages), "the session was reset"
    asked, posts = len(llm.asked), len(world.rig.hub.posts)
    await world.say("dm-a", "/new")
    await world.rig.hub.until(lambda: len(world.rig.hub.posts) > posts, WAIT_S)
    assert len(llm.asked) == asked, "an owner's command went to the model"


async def test_a_second_message_in_a_running_turn_freezes_nothing(world: World) -> None:
    gate = threading.Event()
    world.llm.when("slow question", Say("slow answer", gate=gate))
    world.llm.when("second question", Say("second answer"))
    world.llm.when("elsewhere", Say("other answer"))
    await world.say("dm-a", "slow question")
    await to_thread.run_sync(lambda: world.llm.wait_for("slow question", timeout=60))
    await world.say("dm-a", "second question")
    await world.say("room", "@a elsewhere")
    await world.posted("other answer")
    assert world.said("slow answer") == []
    gate.set()
    await world.posted("slow answer")
    await world.posted("second answer")


async def test_a_stopped_gateway_finds_its_backlog_in_order_and_acked_once(world: World) -> None:
    await to_thread.run_sync(world.a.stop, 60)
    world.llm.when("^number (?P<n>\\d)", Say("answer {n}"))
    for n in range(4):
        await world.say("dm-a", f"number {n}")
    await to_thread.run_sync(world.a.start, 120)
    found = await world.posted("answer ", 4)
    assert [post["content"] for post in found][-4:] == [f"answer {n}" for n in range(4)]
    await world.rig.settled()


async def test_a_killed_connector_comes_back_and_nothing_is_run_twice(world: World) -> None:
    await world.rig.stop()
    world.llm.when("^while down (?P<n>\\d)", Say("up again {n}"))
    for n in range(3):
        world.rig.hub.record("dm-a", "ada", f"while down {n}")
    await world.rig.start()
    await world.posted("up again", 3)
    await world.rig.settled()
    await world.warm()  # a turn that ran twice would have come before this one
    assert [post["content"] for post in world.said("up again")] == [
        f"up again {n}" for n in range(3)
    ]


@pytest.mark.parametrize("hermes", ["0.22"], indirect=True)
async def test_files_and_reactions_work_with_a_gateway_that_knows_them(world: World) -> None:
    hub = world.rig.hub
    png = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
    )
    hub.files["cat"] = (png, "image/png")
    file = {"type": "image", "url": "/api/file/uploads/cat", "mime": "image/png"}
    world.llm.when("look at this", Say("I saw it"))
    asked = await world.say("dm-a", "look at this", attachments=[file])
    await world.posted("I saw it")
    cached = [each for each in world.a.home.rglob("*.png") if each.is_file()]
    assert any(each.read_bytes() == png for each in cached), "the gateway did not fetch it"
    await hub.until(lambda: hub.reactions.get(asked["id"]), WAIT_S)

    picture = world.a.home / "out.png"
    picture.write_bytes(png)
    world.llm.when("send me a picture", Say(f"here it is\nMEDIA:{picture}"))
    await world.say("dm-a", "send me a picture")
    await hub.until(lambda: any(post.get("attachments") for post in hub.posts), WAIT_S)
    post = next(post for post in hub.posts if post.get("attachments"))
    assert hub.files[post["attachments"][0]["url"].rsplit("/", 1)[-1]][0] == png


@pytest.mark.parametrize("hermes", ["0.22"], indirect=True)
async def test_streaming_edits_one_message_until_it_is_whole(world: World) -> None:
    streaming = {"streaming": {"enabled": True, "transport": "edit", "edit_interval": 0.1}}
    await to_thread.run_sync(world.b.stop, 60)
    world.b.configure(streaming)
    await to_thread.run_sync(world.b.start, 120)
    await world.warm("b")
    words = " ".join(f"word{n}" for n in range(200))
    world.llm.when("tell me much", Call("todo", {}), Say(words, pace=0.4))
    await world.say("dm-b", "tell me much")

    def whole() -> bool:
        return any(words in row["content"] for row in world.rig.hub.rooms["dm-b"].rows)

    await world.rig.hub.until(whole, WAIT_S)
    assert world.rig.hub.calls["edit_message"] > 0
