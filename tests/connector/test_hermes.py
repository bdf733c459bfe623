"""Real Hermes 0.19 and 0.22 against a real connector: its transport class, then whole gateways."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread
from tests.connector.rig import Rig, rig
from tests.harness.gateway import Gateway
from tests.harness.llm import Call, Say, ScriptedModel
from tests.harness.venvs import Venv

pytestmark = [pytest.mark.anyio, pytest.mark.hermes, pytest.mark.timeout(240)]
SCRIPT = Path(__file__).parent / "hermes_transport.py"
Make = Callable[..., Gateway]


async def bot(r: Rig, make: Make, name: str = "a", **more: Any) -> Gateway:
    """Start a whole gateway for a bot, with exactly the settings that `connector check` prints."""
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
    return await to_thread.run_sync(
        lambda: make(name, config=config | more.pop("config", {}), env=env | more)
    )


async def posted(r: Rig, words: str, count: int = 1, timeout: float = 40) -> list[dict[str, Any]]:
    """Wait until a bot has said something that holds these words."""

    def found() -> list[dict[str, Any]]:
        return [post for post in r.hub.posts if words in post["content"]]

    try:
        await r.hub.until(lambda: len(found()) >= count, timeout)
    except TimeoutError:
        said = [post["content"][:200] for post in r.hub.posts]
        raise AssertionError(f"{words!r} not among {said}") from None
    return found()


async def warm(r: Rig, llm: ScriptedModel, name: str = "a") -> None:
    """One turn to pay the cold start."""
    llm.when("^warm-up", Say("warm"))
    await r.hub.say(f"dm-{name}", "ada", "warm-up")
    await posted(r, "warm")


async def test_hermes_own_transport_connects_hears_speaks_and_goes_idle(
    hermes: Venv, tmp_path: Path
) -> None:
    async with rig(tmp_path, "a") as r:
        await r.hub.say("dm-a", "ada", "waiting for you")
        process = await asyncio.create_subprocess_exec(
            str(hermes.python), str(SCRIPT), r.url, "gw-a", "secret-of-a", "a", "dm-a",
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(60):
            out, _ = await process.communicate()
        hello, rest = [json.loads(line) for line in out.splitlines()]
        assert hello == {"platform": "agentschat", "edit": True}
        assert (rest["text"], rest["source"], rest["idle"]) == ("waiting for you", "dm-a", True)
        assert rest["sent"]["success"] is True
        assert r.hub.posts[0]["content"] == "heard: waiting for you"
        assert rest["info"]["type"] == "dm"
        await r.settled()


async def test_a_bot_answers_dms_mentions_and_threads_under_its_own_account(
    gateways: Make, llm: ScriptedModel, tmp_path: Path
) -> None:
    async with rig(tmp_path) as r:
        await bot(r, gateways)
        await warm(r, llm)
        llm.when("what is 2\\+2", Say("it is 4"))
        await r.hub.say("dm-a", "ada", "what is 2+2")
        assert (await posted(r, "it is 4"))[0]["by"] == "a"

        llm.when("who said hello", Say("bob did: {text}"))
        await r.hub.say("room", "bob", "hello all")
        mention = await r.hub.say("room", "ada", "@a who said hello?")
        (answer,) = await posted(r, "bob did")
        assert answer["parent_id"] == mention["id"]
        assert "Bob: hello all" in answer["content"]

        root = await r.hub.say("room", "ada", "the topic")
        llm.when("in the thread", Say("thread answer"))
        await r.hub.say(
            "room", "ada", "@a in the thread", type="thread_reply", parent_id=root["id"]
        )
        assert (await posted(r, "thread answer"))[0]["parent_id"] == root["id"]
        assert {post["by"] for post in r.hub.posts} == {"a"}


async def test_two_bots_answer_one_message_each_for_itself(
    gateways: Make, llm: ScriptedModel, tmp_path: Path
) -> None:
    async with rig(tmp_path) as r:
        await bot(r, gateways, "a")
        await bot(r, gateways, "b")
        llm.when("introduce", Say("a bot speaks"))
        await r.hub.say("room", "ada", "@a @b introduce yourselves")
        answers = await posted(r, "a bot speaks", 2)
        assert {post["by"] for post in answers} == {"a", "b"}
        await asyncio.sleep(1)
        assert len(await posted(r, "a bot speaks", 2)) == 2


async def test_a_strangers_command_is_a_message_and_an_owners_is_a_command(
    gateways: Make, llm: ScriptedModel, tmp_path: Path
) -> None:
    async with rig(tmp_path, "a", start=False) as r:
        r.rows[0]["owners"] = ["ada"]
        r.hub.room("dm-eve", "eve", "a")
        await r.start()
        await bot(r, gateways)
        await warm(r, llm)
        llm.when("remember 17", Say("kept"))
        await r.hub.say("dm-eve", "eve", "remember 17")
        await posted(r, "kept")
        llm.when("/new", Say("you said a slash word"))
        await r.hub.say("dm-eve", "eve", "/new")
        await posted(r, "you said a slash word")
        last = [asked for asked in llm.asked if "/new" in asked.text][-1]
        assert any("remember 17" in str(each) for each in last.messages), "the session was reset"
        count = len(llm.asked)
        await r.hub.say("dm-a", "ada", "/new")
        await r.hub.until(lambda: len(r.hub.posts) >= 4, 30)
        assert len(llm.asked) == count, "an owner's command went to the model"


async def test_a_second_message_in_a_running_turn_freezes_nothing(
    gateways: Make, llm: ScriptedModel, tmp_path: Path
) -> None:
    async with rig(tmp_path) as r:
        await bot(r, gateways)
        await warm(r, llm)
        gate = threading.Event()
        llm.when("slow question", Say("slow answer", gate=gate))
        llm.when("second question", Say("second answer"))
        llm.when("elsewhere", Say("other answer"))
        await r.hub.say("dm-a", "ada", "slow question")
        await to_thread.run_sync(lambda: llm.wait_for("slow question"))
        await r.hub.say("dm-a", "ada", "second question")
        await r.hub.say("room", "ada", "@a elsewhere")
        await posted(r, "other answer", timeout=15)
        gate.set()
        await posted(r, "slow answer", timeout=15)
        await posted(r, "second answer", timeout=15)


async def test_a_stopped_gateway_finds_its_backlog_in_order_and_acked_once(
    gateways: Make, llm: ScriptedModel, tmp_path: Path
) -> None:
    async with rig(tmp_path) as r:
        gateway = await bot(r, gateways)
        await warm(r, llm)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await to_thread.run_sync(gateway.stop)
        assert loop.time() - began < 9, "the gateway waited for an ack of going_idle"
        llm.when("^number (?P<n>\\d)", Say("answer {n}"))
        for n in range(4):
            await r.hub.say("dm-a", "ada", f"number {n}")
        await to_thread.run_sync(gateway.start)
        await posted(r, "answer", 4, timeout=60)
        said = [post["content"] for post in r.hub.posts if post["content"].startswith("answer")]
        assert said == [f"answer {n}" for n in range(4)]
        await r.settled()


async def test_a_killed_connector_comes_back_and_nothing_is_run_twice(
    gateways: Make, llm: ScriptedModel, tmp_path: Path
) -> None:
    async with rig(tmp_path, "a", start=False) as r:
        await r.start()
        r.settings["port"] = r.process.address[1]  # type: ignore[union-attr]
        await bot(r, gateways)
        await warm(r, llm)
        await r.stop()
        llm.when("^while down (?P<n>\\d)", Say("up again {n}"))
        for n in range(3):
            r.hub.record("dm-a", "ada", f"while down {n}")
        await r.start()
        await posted(r, "up again", 3, timeout=60)
        await asyncio.sleep(1)
        assert [post["content"] for post in r.hub.posts][1:] == [f"up again {n}" for n in range(3)]


@pytest.mark.parametrize("hermes", ["0.22"], indirect=True)
async def test_files_and_reactions_work_with_a_gateway_that_knows_them(
    gateways: Make, llm: ScriptedModel, tmp_path: Path
) -> None:
    async with rig(tmp_path) as r:
        gateway = await bot(r, gateways)
        await warm(r, llm)
        png = bytes.fromhex(
            "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
            "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
        )
        r.hub.files["cat"] = (png, "image/png")
        file = {"type": "image", "url": "/api/file/uploads/cat", "mime": "image/png"}
        llm.when("look at this", Say("I saw it"))
        asked = await r.hub.say("dm-a", "ada", "look at this", attachments=[file])
        await posted(r, "I saw it")
        cached = [
            each for each in gateway.home.rglob("*") if each.is_file() and each.suffix == ".png"
        ]
        assert any(each.read_bytes() == png for each in cached), "the gateway did not fetch it"
        await r.hub.until(lambda: r.hub.reactions.get(asked["id"]), 10)

        picture = gateway.home / "out.png"
        picture.write_bytes(png)
        llm.when("send me a picture", Say(f"here it is\nMEDIA:{picture}"))
        await r.hub.say("dm-a", "ada", "send me a picture")
        await r.hub.until(lambda: any(post.get("attachments") for post in r.hub.posts), 30)
        post = next(post for post in r.hub.posts if post.get("attachments"))
        assert r.hub.files[post["attachments"][0]["url"].rsplit("/", 1)[-1]][0] == png


@pytest.mark.parametrize("hermes", ["0.22"], indirect=True)
async def test_streaming_edits_one_message_until_it_is_whole(
    gateways: Make, llm: ScriptedModel, tmp_path: Path
) -> None:
    async with rig(tmp_path) as r:
        streaming = {"streaming": {"enabled": True, "transport": "edit", "edit_interval": 0.1}}
        await bot(r, gateways, config=streaming)
        await warm(r, llm)
        words = " ".join(f"word{n}" for n in range(200))
        llm.when("tell me much", Call("todo", {}), Say(words))
        await r.hub.say("dm-a", "ada", "tell me much")

        def whole() -> bool:
            return any(words in row["content"] for row in r.hub.rooms["dm-a"].rows)

        await r.hub.until(whole, 30)
        assert r.hub.calls["edit_message"] > 0
