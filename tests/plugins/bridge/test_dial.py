"""When the bot dials again, and what its operator reads."""

import pytest

from hermes_bridge.plugins.bridge.dial import RULES, Cause, Dial

URL = "ws://relay/bridge/connect"


def dial() -> Dial:
    return Dial(jitter=lambda: 0.5)


def test_a_relay_that_is_down_is_dialled_after_2_5_10_30_60_seconds() -> None:
    link = dial()
    waits = [link.failed(Cause.DOWN, url=URL, detail="refused").wait for _ in range(6)]
    assert waits == [2, 5, 10, 30, 60, 60]


def test_an_outage_is_one_line() -> None:
    link = dial()
    assert link.failed(Cause.DOWN, url=URL).news
    assert not link.failed(Cause.DOWN, url=URL).news
    assert link.welcomed()
    assert link.failed(Cause.LOST, url=URL).news
    assert not link.failed(Cause.DOWN, url=URL).news
    assert not link.failed(Cause.DOWN, url=URL).news


def test_a_lost_link_is_dialled_again_quickly_and_then_slower() -> None:
    link = dial()
    link.welcomed()
    lost = link.failed(Cause.LOST, url=URL)
    down = [link.failed(Cause.DOWN, url=URL).wait for _ in range(2)]
    assert (lost.wait, down) == (0.5, [5, 10])


def test_another_cause_is_news_and_starts_its_own_waits() -> None:
    link = dial()
    link.failed(Cause.DOWN, url=URL)
    refused = link.failed(Cause.REFUSED, url=URL, detail="HTTP 401")
    assert refused.news
    assert refused.wait == 5
    assert "token refused" in refused.words


def test_waits_are_spread_by_a_fifth_in_either_direction() -> None:
    low, high = Dial(jitter=lambda: 0.0), Dial(jitter=lambda: 1.0)
    assert low.failed(Cause.DOWN, url=URL).wait == pytest.approx(1.6)
    assert high.failed(Cause.DOWN, url=URL).wait == pytest.approx(2.4)


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_words_that_name_no_secret(cause: Cause) -> None:
    words = dial().failed(cause, url=URL, detail="why").words
    assert words
    assert "{" not in words
    assert RULES[cause].waits
