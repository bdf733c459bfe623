"""What every test may rely on: asyncio, and `REQUIRE=all` turning a missing peer into a failure."""

import os

import pytest

pytest_plugins = [
    "tests.harness.fixtures",
    "tests.harness.relay",
    "tests.harness.postgres",
    "tests.harness.stores",
    "tests.harness.otlp",
    "tests.harness.dealing",
]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def missing(what: str) -> None:
    """Skip because a peer is not at hand; with `REQUIRE=all` (the gate) fail instead."""
    if os.environ.get("REQUIRE") == "all":
        pytest.fail(f"{what} is required by REQUIRE=all but is not available")
    pytest.skip(f"{what} is not available")
