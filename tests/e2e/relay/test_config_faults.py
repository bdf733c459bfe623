"""The faults of the original's configuration, one by one, and what happens here instead (issue 2)."""

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make, token_of

pytestmark = pytest.mark.anyio


async def test_4_17_a_window_of_many_days_does_not_overflow(relays: Make) -> None:
    week = 604_800_000
    relay = relays(ask_timeout_ms=week, ask_max_ms=week)
    async with Bot(relay, "b") as bot, Bot(relay, "c") as other, Mcp(relay, "a") as a:
        asking = await a.start("ask_agent", {"to": "b", "message": "?"})
        wake = await bot.wake()
        other.on_wake = lambda wake: "here"
        for _ in range(5):  # a timer that overflows is over at once, and so before these
            assert (await a.ask("c", "there?"))["answer"] == "here"
        assert not asking.reading.done()
        await bot.reply(wake["request_id"], "!")
        assert (await asking.result())["answer"] == "!"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ask_timeout_ms": 3_000_000_000}, "ask_timeout_ms"),
        ({"agents": [{"name": "a", "token": ""}]}, "token"),
        ({"agents": [{"name": "a", "token": "short"}]}, "token"),
        ({"agents": [{"name": "", "token": token_of("a")}]}, "name"),
        ({"agents": [{"name": "a", "token": token_of("a")}] * 2}, "name"),
        ({"agents": [{"name": n, "token": token_of("a")} for n in "ab"]}, "token"),
        ({"ask_timeout": 5}, "ask_timeout_ms"),
    ],
    ids=["4.17", "4.18 empty", "4.18 short", "name", "same name", "same token", "unknown key"],
)
def test_4_18_a_configuration_that_cannot_be_meant_ends_with_2_and_words(
    relays: Make, change: dict[str, object], words: str
) -> None:
    relay = relays(start=False)
    relay.write({**relay.config, **change})
    done = relay.launch().process
    assert done is not None
    assert done.wait(10) == 2
    relay.process = None
    said = relay.log() + (relay.folder / "out.log").read_text()
    assert words in said
    assert "line " in said
    assert "Traceback" not in said
    assert token_of("a") not in said
