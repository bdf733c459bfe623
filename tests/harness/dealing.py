"""How the tests are dealt to the workers of pytest-xdist (`-n 3`): in units, the long ones first.

A unit is a file; tests with a real Hermes are a unit a version, and tests that share the two bots
of `tests/e2e/hermes` are one across files. What a unit shares (a relay, a gateway, a PostgreSQL) is
started once. The longest units come first, so that no worker is left with one at the end.
"""

import re
from typing import Any

import pytest

from tests.harness.fixtures import HERMES

LONG_FIRST = (
    "tests/plugins/http_callback/test_chaos.py",
    "tests/e2e/hermes/test_answers.py",  # and with it all that shares its bots
    "tests/plugins/http_callback/test_hermes.py",
    "tests/connector/test_hermes.py",
    "tests/e2e/hermes/",
    "tests/e2e/relay/test_hermes.py",
    "tests/e2e/",
    "tests/browser/",
    "tests/connector/test_kills.py",
    "tests/relay/core/",  # machines
    "tests/connector/core/",
    "tests/plugins/bridge/test_inbox_machine.py",
    "tests/connector/test_",
    "tests/relay/doors/test_mcp_held.py",
    "tests/relay/test_",
    "tests/test_prometheus.py",
    "tests/cli/",
    "tests/db/",
    "tests/plugins/http_callback/",
)
SHARED = {
    f"tests/e2e/hermes/test_{name}.py": "two bots"
    for name in ("answers", "bots", "restarts", "traces")
}
VERSION = re.compile(rf"\[({'|'.join(map(re.escape, HERMES))})[]-]")


def unit_of(nodeid: str) -> str:
    """The unit of a test: tests of one unit run in one worker, one after the other."""
    file = nodeid.partition("::")[0]
    version = VERSION.search(nodeid)
    return f"{SHARED.get(file, file)} {version[1] if version else ''}".strip()


def _rank(nodeid: str) -> int:
    return next((i for i, start in enumerate(LONG_FIRST) if nodeid.startswith(start)), 99)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put units together, the long ones first; the order within a unit stays."""
    first: dict[str, tuple[int, int]] = {}
    for place, item in enumerate(items):
        key = (_rank(item.nodeid), place)
        first[unit_of(item.nodeid)] = min(first.get(unit_of(item.nodeid), key), key)
    items.sort(key=lambda item: first[unit_of(item.nodeid)])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal units out in their order (`--dist loadfile`; other ways are left to xdist)."""
    from xdist.scheduler import LoadScopeScheduling

    if config.getvalue("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False

    class Units(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return unit_of(nodeid)

    return Units(config, log)
