"""Clients of the relay that a module's tests share, one of each protocol era."""

import pytest
from tests.harness.mcp import Mcp
from tests.harness.relay import Clients, RelayProcess


@pytest.fixture
def old(relay: RelayProcess, mcp: Clients) -> Mcp:
    return mcp(relay.agent())


@pytest.fixture
def new(relay: RelayProcess, mcp: Clients) -> Mcp:
    return mcp(relay.agent(), era="modern")
