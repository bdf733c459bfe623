"""The command's verbs against a hub and a running connector."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from anyio import to_thread
from click.testing import CliRunner, Result
from tests.connector.rig import Rig, rig
from tests.harness.waits import eventually

from hermes_bridge.cli.connector import connector

pytestmark = pytest.mark.anyio


def caller(r: Rig, tmp_path: Path) -> Callable[..., Result]:
    env = {
        "RELAY_IDENTITIES_FILE": str(r.file),
        "AGENTCHAT_API_URL": f"http://127.0.0.1:{r.hub.port}",
        "HERMES_BRIDGE_CONNECTOR_STATE_DIR": str(tmp_path),
        "RELAY_PORT": str(r.process.address[1]) if r.process else "8765",
    }
    return lambda *words: CliRunner().invoke(connector, list(words), env=env)


async def test_check_tries_accounts_and_prints_what_hermes_needs(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        call = caller(r, tmp_path)
        done = await to_thread.run_sync(call, "check")
        assert done.exit_code == 0, done.output
        for words in ("a on agentschat: ok, member of 2 channels", 'relay_id: "gw-a"',
                      "GATEWAY_RELAY_PLATFORMS=agentschat", "busy_ack_enabled: false"):  # fmt: skip
            assert words in done.output
        assert "secret-of-a" not in done.output
        del r.hub.tokens["tok-a-0123456789"]
        data = await to_thread.run_sync(call, "check", "--json")
        assert data.exit_code == 1
        rows = {row["bot"]: row for row in json.loads(data.output)["identities"]}
        assert (rows["a"]["account"], rows["b"]["account"]) == ("refused", "online")
        assert "bad token" in rows["a"]["reason"]


async def test_status_shows_what_waits(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        call = caller(r, tmp_path)
        await r.joined("b")
        await r.hub.say("dm-a", "ada", "hi")
        await eventually(lambda: r.connector.state.inbox.depth("a")[0] == 1, "in the inbox")
        done = await to_thread.run_sync(call, "status")
        assert "a: account online, gateway absent, 1 waiting" in done.output
        assert "b: account online, gateway connected, nothing waiting" in done.output
        assert json.loads((await to_thread.run_sync(call, "status", "--json")).output)["ok"] is True
    gone = await to_thread.run_sync(call, "status")
    assert gone.exit_code == 1
    assert "no connector answers" in gone.output


async def test_parked_messages_are_listed_replayed_and_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_bridge.connector import connector as shell

    monkeypatch.setattr(shell, "_ORDERS_S", 0.1)
    async with rig(tmp_path, "a", ack_timeout_ms=40, max_replays=1) as r:
        call = caller(r, tmp_path)
        deaf = await r.joined("a", acks=False)
        await r.hub.say("dm-a", "ada", "poison one")
        await deaf.got(2)
        await r.hub.say("room", "ada", "@a poison two")
        await deaf.got(4)
        await eventually(lambda: r.connector.state.counts["inbound.parked"] == 2, "parked")
        await r.connector.state.store.flush()
        listed = json.loads((await to_thread.run_sync(call, "inbox", "list", "--json")).output)
        assert [(row["state"], "text" in row) for row in listed] == [("parked", False)] * 2
        shown = await to_thread.run_sync(call, "inbox", "list", "--text")
        assert "poison one" in shown.output
        first, second = [str(row["id"]) for row in listed]
        assert "1 dropped" in (await to_thread.run_sync(call, "inbox", "drop", second)).output
        assert "on their way" in (await to_thread.run_sync(call, "inbox", "replay", first)).output
        good = await r.joined("a")
        assert (await good.got(1))[0]["text"] == "poison one"
        await r.settled()

        async def empty() -> bool:
            return not json.loads(
                (await to_thread.run_sync(call, "inbox", "list", "--json")).output
            )

        await eventually(empty, "empty")
        assert len(good.events) == 1


async def test_orders_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    async with rig(tmp_path, "a") as r:
        call = caller(r, tmp_path)
        for words in (("inbox", "replay"), ("inbox", "drop", "77")):
            done = await to_thread.run_sync(call, *words)
            assert done.exit_code == 2
            assert "ERROR:" in done.output
        empty = await to_thread.run_sync(call, "inbox", "list")
        assert "The inbox is empty" in empty.output
