"""The memory over a restart, and a disk that does not do its part."""

import logging
import stat
from pathlib import Path

import pytest

from hermes_bridge.plugins.bridge.frames import Wake
from hermes_bridge.plugins.bridge.inbox import Exchange, Reply, State
from hermes_bridge.plugins.bridge.journal import Journal

ONE = Exchange(Wake("r1", "c", "ann", "hi", data={"k": "ü"}), 1.5, State.RUNNING, 1)
TWO = Exchange(
    Wake("r2", "c", "ann", "-"), 2.5, State.SETTLED, 1, Reply("y\n", failure=True, data={"k": [1]})
)


def test_the_last_line_of_an_exchange_counts_over_a_restart(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "deep" / "x.jsonl")
    queued = Exchange(ONE.wake, 1.5)
    for exchange in (queued, TWO, ONE):
        journal.keep(exchange).result(5)
    journal.close()
    assert Journal(journal.path).load() == [ONE, TWO]
    assert stat.S_IMODE(journal.path.stat().st_mode) == 0o600


def test_a_line_cut_by_a_crash_is_passed_over(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.jsonl")
    journal.keep(ONE).result(5)
    journal.close()
    with journal.path.open("ab") as file:
        file.write(b'{"at": 3, "sta')
    assert Journal(journal.path).load() == [ONE]


def test_a_rewrite_keeps_what_it_is_given_and_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "x.jsonl")
    journal.keep(ONE).result(5)
    journal.rewrite([TWO]).result(5)
    journal.keep(ONE).result(5)
    journal.close()
    assert Journal(journal.path).load() == [TWO, ONE]


def test_a_disk_that_fails_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    journal = Journal(blocked / "x.jsonl")
    with caplog.at_level(logging.WARNING):
        journal.keep(ONE).result(5)
        journal.keep(TWO).result(5)
        journal.close()
        assert Journal(tmp_path / "none.jsonl").load() == []
    assert len(caplog.records) == 1
