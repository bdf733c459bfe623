"""Fixtures of the harness, for every test (see the package's docstring)."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import venvs
from tests.harness.gateway import Gateway
from tests.harness.llm import ScriptedModel
from tests.harness.venvs import Unavailable, Venv

HERMES = tuple(filter(None, os.environ.get("HERMES_VERSIONS", "0.19,0.22").split(",")))
MCP_CLIENTS = ("1", "2")


def pytest_configure() -> None:
    """Let a SIGTERM end a run as Ctrl-C does: fixtures stop the processes that they started."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the peers that the chosen tests need, outside any test's time limit."""
    if session.config.option.collectonly:
        return
    wanted: dict[str, None] = {}
    for item in session.items:
        names = getattr(item, "fixturenames", ())
        params = getattr(getattr(item, "callspec", None), "params", {})
        if "hermes" in names:
            wanted[f"hermes-{params.get('hermes')}"] = None
        if "mcp_client" in names:
            wanted[f"mcp-{params.get('mcp_client')}"] = None
    known = [name for name in wanted if name in venvs.REQUIREMENTS]
    for name, reason in venvs.all_ready(known).items():
        if isinstance(reason, Unavailable):
            print(f"{name} cannot be built: {reason}", file=sys.stderr)


@pytest.fixture(scope="session", params=HERMES)
def hermes(request: pytest.FixtureRequest) -> Venv:
    """A virtual environment with a real Hermes; the test runs once per version."""
    return peer(f"hermes-{request.param}")


@pytest.fixture(params=MCP_CLIENTS)
def mcp_client(request: pytest.FixtureRequest) -> Venv:
    """A virtual environment with the official MCP client, of both generations."""
    return peer(f"mcp-{request.param}")


@pytest.fixture
def llm() -> Iterator[ScriptedModel]:
    """The model behind every bot of this test."""
    with ScriptedModel() as model:
        yield model


@pytest.fixture(scope="module")
def module_llm(hermes: Venv) -> Iterator[ScriptedModel]:
    """The model behind every bot of a module, a fresh one a version of Hermes.

    What one was told must not answer the other.
    """
    with ScriptedModel() as model:
        yield model


@pytest.fixture
def gateways(
    request: pytest.FixtureRequest, hermes: Venv, llm: ScriptedModel, tmp_path: Path
) -> Iterator[Callable[..., Gateway]]:
    """Return `make(name, *, start=True, config, env, plugins, model)`: a fresh Gateway."""
    yield from made_gateways(request, hermes, llm, tmp_path)


@pytest.fixture(scope="module")
def module_gateways(
    request: pytest.FixtureRequest,
    hermes: Venv,
    module_llm: ScriptedModel,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Gateway]]:
    """The same for gateways that the tests of one module share; they ask `module_llm`."""
    yield from made_gateways(request, hermes, module_llm, tmp_path_factory.mktemp("gateways"))


def made_gateways(
    request: pytest.FixtureRequest, hermes: Venv, llm: ScriptedModel, folder: Path
) -> Iterator[Callable[..., Gateway]]:
    """The body of `gateways`, for a fixture of any scope."""
    made: list[Gateway] = []
    failed_before = request.session.testsfailed

    def make(name: str = "bot", *, start: bool = True, **options: Any) -> Gateway:
        gateway = Gateway(hermes, folder / name, llm_url=llm.url, **options)
        made.append(gateway)
        return gateway.start() if start else gateway

    yield make
    failed = request.session.testsfailed > failed_before
    for gateway in made:
        gateway.kill() if failed else gateway.stop()
    if failed:
        for gateway in made:
            print(gateway.logs(), file=sys.stderr)


def peer(name: str) -> Venv:
    """Return the environment, or skip the test by name."""
    from tests.conftest import missing

    found = venvs.ready(name)
    if isinstance(found, Unavailable):
        missing(f"{name} ({found})")
    assert isinstance(found, Venv)
    return found
