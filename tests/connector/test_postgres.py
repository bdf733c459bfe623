"""The same promises on PostgreSQL."""

from pathlib import Path

import pytest
from tests.connector.rig import rig

from hermes_bridge.connector.store import database
from hermes_bridge.errors import ConfigError

pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


@pytest.mark.clause("relay.inbox.1", "relay.route.2")
async def test_what_waits_and_what_was_seen_outlives_a_restart_on_postgresql(
    tmp_path: Path, postgres_url: str
) -> None:
    async with rig(tmp_path, "a", database=postgres_url) as r:
        await r.hub.say("room", "ada", "@a one")
        await r.hub.say("dm-a", "ada", "two")
        await r.restart()
        a = await r.joined("a")
        events = await a.got(2)
        assert {event["text"] for event in events} == {"@a one", "two"}
        await r.settled()
        await r.restart()
        again = await r.joined("a")
        await r.hub.say("dm-a", "ada", "three")
        await again.got(1)
        assert again.texts() == ["three"]
        assert not (tmp_path / "hermes-bridge-connector.db").exists()


async def test_an_address_that_is_none_is_refused_with_words() -> None:
    with pytest.raises(ConfigError, match="not a PostgreSQL address"):
        database("mysql://x", "unused")
