"""Settings: the original's names, named endpoints, and errors that name what is wrong."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hermes_bridge.plugins.http_callback import home
from hermes_bridge.plugins.http_callback.config import Settings, SettingsError, read_settings
from hermes_bridge.plugins.http_callback.verdict import CAPTAIN_SCHEDULE, DEFAULT_SCHEDULE

URL = "https://backend.example/cb"


def read(extra: dict[str, object] | None = None, **env: str) -> Settings:
    return read_settings(extra, env.get)


def signer(settings: Settings, name: str = "", wall: float = 0.0) -> str:
    endpoint = settings.endpoints[name] if name else settings.default
    current = settings.keyring(endpoint, wall).current
    return current.text if current else ""


@pytest.mark.clause("callback.settings.1")
def test_the_settings_of_the_original_keep_their_meaning() -> None:
    settings = read({"timeout_seconds": 7, "signing_secret": "from-yaml"})
    assert settings.default.timeout == 7
    assert signer(settings) == "from-yaml"
    assert signer(read({"signing_secret": "x"}, CAPTAIN_HTTP_CALLBACK_SECRET="env")) == "env"
    assert signer(read({}, HTTP_CALLBACK_SECRET="new-name")) == "new-name"


def test_everything_has_a_default() -> None:
    settings = read()
    assert settings.default.policy.schedule == DEFAULT_SCHEDULE
    assert signer(settings) == ""


@pytest.mark.clause("callback.settings.2")
def test_a_named_endpoint_inherits_and_overrides() -> None:
    raw = {
        "url": URL,
        "profile": "captain",
        "secret_env": "CRM",
        "ordering": "strict",
        "max_age": 60,
    }
    settings = read(
        {"timeout_seconds": 9, "endpoints": {"crm": raw}}, CRM="its-own", HTTP_CALLBACK_SECRET="g"
    )
    crm = settings.endpoints["@crm"]
    assert (crm.timeout, crm.hold_ms, crm.policy.max_age) == (9, None, 60)
    assert crm.policy.schedule == CAPTAIN_SCHEDULE
    assert (signer(settings, "@crm"), signer(settings)) == ("its-own", "g")


@pytest.mark.clause("callback.rotate.1")
def test_the_previous_secret_ends_at_its_date() -> None:
    raw = {
        "secret_env": "NEW",
        "previous_secret_env": "OLD",
        "previous_until": "2026-12-31T00:00:00Z",
    }
    settings = read(raw, NEW="new", OLD="old")
    end = datetime(2026, 12, 31, tzinfo=UTC).timestamp()
    before, after = (settings.keyring(settings.default, end + n) for n in (-1, 1))
    assert before.previous is not None
    assert before.previous.text == "old"
    assert after.previous is None


def test_a_secret_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("in-a-file\n", "utf-8")
    assert signer(read({"secret_file": str(tmp_path / "secret")})) == "in-a-file"


@pytest.mark.clause("callback.settings.3")
@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"timeout_seconds": "soon"}, "timeout_seconds"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"timeout_seconds": True}, "timeout_seconds"),
        ({"profile": "captian"}, "default, captain, standard"),
        ({"schedule": []}, "schedule"),
        ({"schedule": [0, -1]}, "schedule"),
        ({"schedule": "0,2"}, "schedule"),
        ({"ordering": "fifo"}, "strict, bounded, none"),
        ({"endpoints": {"crm": {}}}, "`url` is missing"),
        ({"endpoints": {"crm": "x"}}, "table"),
        ({"endpoints": {"crm": {"url": "ftp://x"}}}, "@crm.url"),
        ({"endpoints": {"crm": {"url": URL, "timout": 3}}}, "timout"),
        ({"endpoints": {"crm": {"url": URL, "secret_env": "UNSET"}}}, "UNSET holds no secret"),
        ({"endpoints": {"crm": {"url": URL, "secret_file": "/nowhere"}}}, "/nowhere"),
        ({"endpoints": []}, "endpoints"),
        ({"signing_secret": "whsec_!!!!"}, "base64"),
        ({"allow": ["10.0.0.0/99"]}, "allow"),
        ({"allow": 5}, "allow"),
        ({"allow_private": "maybe"}, "allow_private"),
        ({"metadata_from": {"a": 1}}, "metadata_from"),
        ({"typing": {"on": "x"}}, "path_suffix"),
        ({"previous_until": "yesterday"}, "previous_until"),
        ({"on_ambiguous": "drop"}, "retry, hold"),
    ],
)
def test_a_wrong_setting_is_named_with_what_it_may_be(extra: dict[str, object], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        read(extra)


def test_settings_that_hermes_lays_beside_ours_are_not_refused() -> None:
    assert read({"reply_prefix": "x"}).unknown == ("reply_prefix",)


@pytest.mark.clause("callback.guard.3")
def test_what_the_operator_names_may_be_called() -> None:
    settings = read(
        {"allow": "10.0.0.0/8", "endpoints": {"crm": {"url": "http://192.168.1.2:3000/cb"}}},
        HTTP_CALLBACK_ALLOW="http://172.17.0.1, fd00::/8",
    )
    assert len(settings.guard.allowed) == 4


@pytest.mark.clause("callback.settings.4")
def test_a_home_gives_its_config_its_env_file_and_its_allow_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CAPTAIN_HTTP_CALLBACK_SECRET", "HTTP_CALLBACK_SECRET", "HTTP_CALLBACK_ALLOW"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "config.yaml").write_text(
        "platforms:\n  http_callback:\n    home_channel: {chat_id: 'https://h.example/cb'}\n"
        "    extra: {timeout_seconds: 3}\n  bridge_callback:\n    extra: {concurrency: 2}\n",
        "utf-8",
    )
    (tmp_path / ".env").write_text("# secrets\nexport HTTP_CALLBACK_SECRET='quoted'\n", "utf-8")
    home.write_allow_list(tmp_path, ["172.17.0.1"])
    settings = home.load_settings(tmp_path)
    assert (settings.default.timeout, settings.default.concurrency) == (3, 2)
    assert settings.home_url == "https://h.example/cb"
    assert signer(settings) == "quoted"
    assert len(settings.guard.allowed) == 1
    assert (tmp_path / "http_callback" / "allow.json").stat().st_mode & 0o777 == 0o600


def test_a_home_whose_config_is_not_yaml_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("a: [b", "utf-8")
    with pytest.raises(SettingsError, match=r"config\.yaml is not YAML"):
        home.load_settings(tmp_path)


def test_variables_in_the_config_are_filled_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BACKEND_HOST", "b.example")
    text = (
        "{signing_secret: '${env:SIGN}', endpoints: {a: {url: 'https://${BACKEND_HOST}/${NOT}'}}}"
    )
    (tmp_path / "config.yaml").write_text(
        f"platforms: {{http_callback: {{extra: {text}}}}}\n", "utf-8"
    )
    (tmp_path / ".env").write_text("SIGN=from-dotenv\n", "utf-8")
    with pytest.raises(SettingsError, match="placeholder"):
        home.load_settings(tmp_path)
    monkeypatch.setenv("NOT", "cb")
    settings = home.load_settings(tmp_path)
    assert settings.endpoints["@a"].url == "https://b.example/cb"
    assert signer(settings) == "from-dotenv"


def test_secrets_are_not_in_a_settings_repr() -> None:
    assert "hush" not in repr(read({"signing_secret": "hush"}))


def test_the_config_is_read_with_either_yaml_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "platforms:\n  http_callback:\n    extra: {timeout_seconds: 3, signing_secret: 'é'}\n"
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    first = home.read_config(tmp_path)
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert home.read_config(tmp_path) == first == {"timeout_seconds": 3, "signing_secret": "é"}
    (tmp_path / "config.yaml").write_text("a: [b", "utf-8")
    with pytest.raises(SettingsError, match="is not YAML"):
        home.read_config(tmp_path)


def test_the_file_wins_over_what_hermes_read_of_it_when_it_started(tmp_path: Path) -> None:
    text = "platforms: {http_callback: {extra: {profile: captain}}}\n"
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    stale = {"profile": "captian", "timeout_seconds": 4}
    settings = home.load_settings(tmp_path, stale)
    assert (settings.default.profile, settings.default.timeout) == ("captain", 4)
