"""Where the plugin finds the relay and its token."""

from pathlib import Path

import pytest

from hermes_bridge.plugins.bridge import settings


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(settings.TOKEN, raising=False)
    monkeypatch.delenv(settings.URL, raising=False)


@pytest.mark.parametrize(
    ("given", "dialled"),
    [
        ("wss://r/bridge/connect", "wss://r/bridge/connect"),
        ("https://r", "wss://r/bridge/connect"),
        ("http://r:8787/", "ws://r:8787/bridge/connect"),
        ("ws://r:1/prefix/bridge/connect/", "ws://r:1/prefix/bridge/connect"),
        ("relay.example.org", "wss://relay.example.org/bridge/connect"),
        ("", ""),
    ],
)
def test_an_address_may_be_written_in_several_ways(given: str, dialled: str) -> None:
    assert settings.address(given) == dialled


def test_the_platforms_own_settings_win_over_env_file_over_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(settings.TOKEN, "from-env")
    monkeypatch.setenv(settings.URL, "ws://env")
    assert settings.read({}, tmp_path).token == "from-env"
    (tmp_path / ".env").write_text("export HERMES_BRIDGE_TOKEN='from file' \n\nX=1\n#Y=2\n")
    assert settings.read({}, tmp_path).token == "from file"
    found = settings.read({"token": "from-extra", "skills": ["a"]}, tmp_path)
    assert (found.token, found.url, found.skills) == (
        "from-extra",
        "ws://env/bridge/connect",
        ("a",),
    )


def test_a_token_is_not_in_the_repr() -> None:
    assert "s3cret" not in repr(settings.read({"token": "s3cret", "relay_url": "r"}))


def test_without_a_token_or_an_address_the_plugin_is_not_configured(tmp_path: Path) -> None:
    assert not settings.read({"token": "x"}, tmp_path).complete
    assert not settings.read({"relay_url": "x"}, tmp_path).complete
    assert settings.read({"relay_url": "x", "token": "y"}, tmp_path).complete
