"""An ask from its question to its answer, over real sockets."""

import pytest
from tests.harness.bot import Bot
from tests.harness.mcp import Mcp
from tests.harness.relay import Make

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("era", ["legacy", "modern", "none"])
@pytest.mark.parametrize("hello", [False, True])
async def test_an_ask_is_answered(relays: Make, era: str, hello: bool) -> None:
    relay = relays()
    async with Bot(relay, "b", hello=hello) as b, Mcp(relay, "a", era=era) as a:
        b.on_wake = lambda wake: wake["message"].upper()
        assert (await a.ask("b", "hi"))["answer"] == "HI"
        assert relay.stop() == 0
