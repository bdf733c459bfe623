"""A hub and a gateway as processes of their own, so that they can be killed like anything else.

    python -m tests.connector.players hub PORT JOURNAL BOT...
    python -m tests.connector.players gateway URL BOT JOURNAL

The hub says what it reads from standard input, one JSON line each. Both write what happened into
their journal before anybody is told: the hub its messages, the gateway what it got. That is what
is left after a kill.
"""

import asyncio
import json
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from tests.connector.hub import Hub
from tests.connector.probe import Gateway


def rows_of(*bots: str) -> list[dict[str, Any]]:
    return [
        {"botId": bot, "token": f"tok-{bot}-0123456789", "gatewayId": f"gw-{bot}",
         "secret": f"secret-of-{bot}"}
        for bot in bots
    ]  # fmt: skip


def hub_with(*bots: str, hub: Hub | None = None) -> Hub:
    hub = hub or Hub()
    for row in rows_of(*bots):
        hub.account(row["botId"], row["token"])
        hub.room(f"dm-{row['botId']}", "ada", row["botId"])
    hub.room("room", "ada", *bots)
    return hub


def lines_of(journal: Path) -> list[dict[str, Any]]:
    """Read a journal; the last line may be torn."""
    try:
        *whole, _ = journal.read_text("utf-8").split("\n")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in whole]


def open_journal(path: Path) -> IO[str]:
    """Open a journal to go on with, without the half line that a kill may have left."""
    text = path.read_text("utf-8") if path.exists() else ""
    path.write_text(text[: text.rfind("\n") + 1], "utf-8")
    return path.open("a", encoding="utf-8")


class KeptHub(Hub):
    """A hub whose messages outlive it, as a platform's do."""

    def __init__(self, journal: Path) -> None:
        super().__init__()
        self._journal: IO[str] = open_journal(journal)
        self._kept_in = journal

    def again(self) -> None:
        """Go on where the last one ended."""
        for row in lines_of(self._kept_in):
            self.rooms[row["channel_id"]].rows.append(row)
            self._clock = datetime.fromisoformat(row["timestamp"])
            next(self._numbers)

    def record(self, room_id: str, sender: str, content: str, **more: Any) -> dict[str, Any]:
        row = super().record(room_id, sender, content, **more)
        self._journal.write(json.dumps(row) + "\n")
        self._journal.flush()
        return row


async def be_hub(port: int, journal: Path, bots: list[str]) -> None:
    hub = KeptHub(journal)
    hub_with(*bots, hub=hub)
    hub.again()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    async with hub.serve(port):
        while line := await reader.readline():
            told = json.loads(line)
            await hub.say(told["room"], "ada", told["text"])


class Noting(Gateway):
    """A gateway that writes down what it got, and only then acknowledges it."""

    def __init__(self, url: str, bot: str, journal: IO[str]) -> None:
        super().__init__(url, f"gw-{bot}", f"secret-of-{bot}")
        self._journal = journal

    async def _heard(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "inbound":
            note = {"id": frame["event"]["message_id"], "at": time.monotonic()}
            self._journal.write(json.dumps(note) + "\n")
            self._journal.flush()
        await super()._heard(frame)


async def be_gateway(url: str, bot: str, journal: Path) -> None:
    with open_journal(journal) as notes:
        while True:
            link = Noting(url, bot, notes)
            try:
                async with asyncio.timeout(10):
                    await link.join(bot)
                await link.closed.wait()
            except (OSError, TimeoutError, AssertionError, Exception):
                await asyncio.sleep(0.2)


def main(role: str, *args: str) -> None:
    if role == "hub":
        port, journal, *bots = args
        asyncio.run(be_hub(int(port), Path(journal), bots))
    else:
        url, bot, journal = args
        asyncio.run(be_gateway(url, bot, Path(journal)))


if __name__ == "__main__":
    main(*sys.argv[1:])
