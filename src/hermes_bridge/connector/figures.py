"""What `/metrics` says of a connector, as plain data: kind, name, help, labels, samples.

Labels are names of the table and fixed words, so that their number does not grow with traffic.
"""

from collections.abc import Iterator
from typing import NamedTuple

from hermes_bridge.connector.core.identity import Identity
from hermes_bridge.connector.core.inbox import ACKED, EXPIRED, WRITTEN
from hermes_bridge.connector.platforms.base import ONLINE
from hermes_bridge.connector.readiness import Readiness
from hermes_bridge.connector.state import State

Samples = list[tuple[tuple[str, ...], float]]
_COUNTED: tuple[tuple[str, str, str, str, tuple[str, ...]], ...] = (
    (
        "inbound",
        "deliveries",
        "outcome",
        "Deliveries by what became of them.",
        (WRITTEN, ACKED, "parked", EXPIRED, "dropped"),
    ),
    ("skipped", "skipped", "reason", "Messages, or bots of a message, that were passed over.", ()),
    (
        "outbound",
        "posts",
        "outcome",
        "Messages and other operations at the platform.",
        ("sent", "failed"),
    ),
    (
        "refused",
        "refused_upgrades",
        "reason",
        "Gateways that were not let in.",
        ("unauthorized", "expired", "throttled", "full"),
    ),
)
"""The prefix in `counts`, the name, the label, the help, and the values that are told from zero on:
a series that begins with its first event hides that event from `rate` and `increase`."""


class Figure(NamedTuple):
    """One metric with its samples."""

    kind: str
    """`counter` or `gauge`."""
    name: str
    help: str
    labels: tuple[str, ...]
    samples: Samples


def figures(state: State, readiness: Readiness) -> Iterator[Figure]:
    """Give everything there is; one that does not serve has names and no samples."""
    serving = readiness.serving
    yield _one("up", "Whether it serves.", int(serving))
    yield _one(
        "store_up", "Whether its store answers.", int(serving and not state.store.down_since)
    )
    yield _one("connections", "Connections of gateways.", len(state.links))
    rows = state.table.rows if serving else ()
    now = state.clock.now()
    per_bot = [(row.bot_id, _of(state, row, now)) for row in rows]
    for place, (name, words) in enumerate((
        ("account_online", "Whether the bot's account is logged in."),
        ("gateway_online", "Whether a gateway serves the bot."),
        ("inbox_depth", "Deliveries that wait for the bot."),
        ("inbox_oldest_seconds", "How long the oldest of them has waited."),
    )):  # fmt: skip
        samples: Samples = [((bot,), found[place]) for bot, found in per_bot]
        yield Figure("gauge", f"hermes_bridge_connector_{name}", words, ("bot",), samples)
    for prefix, name, label, words, always in _COUNTED:
        counts = dict.fromkeys(always, 0)
        for key, count in state.counts.items():
            of, _, value = key.partition(".")
            if of == prefix:
                counts[value] = count
        counted: Samples = [((value,), count) for value, count in sorted(counts.items())]
        yield Figure("counter", f"hermes_bridge_connector_{name}", words, (label,), counted)


def _of(state: State, identity: Identity, now: int) -> tuple[float, float, float, float]:
    bot_id = identity.bot_id
    depth, oldest = state.inbox.depth(bot_id)
    return (
        state.platform_of(identity).account(bot_id).state == ONLINE,
        state.inbox.serving(bot_id) is not None,
        depth,
        (now - oldest) / 1000 if oldest else 0,
    )


def _one(name: str, words: str, value: float) -> Figure:
    return Figure("gauge", f"hermes_bridge_connector_{name}", words, (), [((), value)])
