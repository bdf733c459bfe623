"""When to dial the relay again, and what to tell the operator: the states of the link, as a table.

Pure: `failed` is told the cause and says how long to wait; a line for the log comes out only when
the state changes, so that an outage is one line and not one a minute.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum


class Cause(Enum):
    """Why there is no link."""

    LOST = "lost"
    DOWN = "down"
    REFUSED = "refused"
    SUPERSEDED = "superseded"
    NO_BRIDGE = "no_bridge"
    NO_WELCOME = "no_welcome"
    BAD_ADDRESS = "bad_address"
    UNTRUSTED = "untrusted"


_QUICK = (2.0, 5.0, 10.0, 30.0, 60.0)
_SLOW = (5.0, 15.0, 30.0, 60.0)
_SLOWEST = (60.0, 120.0, 300.0)


@dataclass(frozen=True, slots=True)
class _Rule:
    waits: tuple[float, ...]
    words: str


RULES: dict[Cause, _Rule] = {
    Cause.LOST: _Rule((0.5, *_QUICK), "lost the relay; connecting again"),
    Cause.DOWN: _Rule(_QUICK, "cannot reach the relay at {url} ({detail}); trying again by itself"),
    Cause.REFUSED: _Rule(
        _SLOW,
        "token refused by the relay at {url}: HERMES_BRIDGE_TOKEN must be the token of this bot "
        "in the relay's configuration; trying again once a minute",
    ),
    Cause.SUPERSEDED: _Rule(
        _SLOWEST,
        "another process uses this bot's token and took over its link; give each bot a token of "
        "its own, or stop the other one",
    ),
    Cause.NO_BRIDGE: _Rule(
        _SLOW,
        "there is no hermes-bridge relay at {url} ({detail}): check HERMES_BRIDGE_RELAY_URL, it "
        "ends with /bridge/connect",
    ),
    Cause.NO_WELCOME: _Rule(
        _SLOW,
        "the relay at {url} did not welcome this plugin: it is older than version 2 of the "
        "bridge protocol; update the relay",
    ),
    Cause.BAD_ADDRESS: _Rule(_SLOW, "HERMES_BRIDGE_RELAY_URL is not a usable address ({detail})"),
    Cause.UNTRUSTED: _Rule(
        _SLOW, "the TLS certificate of the relay at {url} is not trusted here ({detail})"
    ),
}


@dataclass(frozen=True, slots=True)
class Retry:
    """Wait this many seconds; `words` for the platform's state, `news` if the log needs them."""

    wait: float
    cause: Cause
    words: str
    news: bool


class Dial:
    """The link's state: `online`, or why not and since how many tries."""

    def __init__(self, jitter: Callable[[], float] = random.random) -> None:
        self.online = False
        self.cause: Cause | None = None
        self.words = "connecting to the relay"
        self._tries = 0
        self._jitter = jitter

    def welcomed(self) -> bool:
        """The relay said welcome; true when that is news."""
        news = not self.online
        self.online, self.cause, self.words, self._tries = True, None, "connected", 0
        return news

    def failed(self, cause: Cause, *, url: str, detail: str = "") -> Retry:
        """There is no link, for this cause; say when to try again."""
        # A relay that was there a moment ago and does not answer yet is one outage, not two.
        one_outage = {self.cause, cause} <= {Cause.LOST, Cause.DOWN} and not self.online
        news = self.online or (self.cause is not cause and not one_outage)
        if self.cause is not cause and not one_outage:
            self._tries = 0
        rule = RULES[cause]
        wait = rule.waits[min(self._tries, len(rule.waits) - 1)]
        self._tries += 1
        self.online, self.cause = False, cause
        self.words = rule.words.format(url=url, detail=detail)
        return Retry(wait * (0.8 + 0.4 * self._jitter()), cause, self.words, news)
