"""Settings: `platforms.http_callback.extra` and the environment, read once, with clear errors.

Everything has a default; the original's settings (`timeout_seconds`, `signing_secret`,
`CAPTAIN_HTTP_CALLBACK_SECRET`) keep their meaning.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .media import MODES
from .payload import FORMATS
from .signing import PROFILES, Keyring, Secret, SecretError, read_secret
from .urlguard import BadUrl, Guard, read_url
from .verdict import CAPTAIN_MAX_AGE, CAPTAIN_SCHEDULE, Policy

PLATFORM, ALIAS = "http_callback", "bridge_callback"
SECRET_NAMES = ("CAPTAIN_HTTP_CALLBACK_SECRET", "HTTP_CALLBACK_SECRET")
HOME_NAMES = ("HTTP_CALLBACK_HOME_URL", "HTTP_CALLBACK_HOME_CHANNEL")
ALLOW_NAME = "HTTP_CALLBACK_ALLOW"
ORDERINGS = ("strict", "bounded", "none")
LONGEST_STEP = 86_400
POLICIES = ("suppress", "send")

Env = Callable[[str], str | None]


class SettingsError(ValueError):
    """A setting cannot be used; the text names it and says what it may be."""


@dataclass(frozen=True)
class Typing:
    """Where the typing signal goes: a URL, or a suffix for the callback's path."""

    url: str = ""
    path_suffix: str = ""
    on: str = "on"
    off: str = "off"


@dataclass(frozen=True)
class Endpoint:
    """How one receiver is treated. `name` is "@crm" for a named one, "" for a raw URL.

    `concurrency` 0: as many calls at once as it keeps up with (see `pace`).
    """

    name: str = ""
    url: str = ""
    profile: str = "default"
    form: str = "compat"
    policy: Policy = field(default_factory=Policy)
    ordering: str = "bounded"
    hold_max: float = 60.0
    concurrency: int = 0
    rate: float = 0.0
    timeout: float = 15.0
    connect_timeout: float = 5.0
    ca_file: str = ""
    proxy: str = ""
    secret_env: str = ""
    secret_file: str = ""
    previous_secret_env: str = ""
    previous_until: float = 0.0
    legacy_uses_previous: bool = False
    require_signature: bool = False
    statuses: str = "suppress"
    errors: str = "suppress"
    media: str = "reference"
    inline_kib: int = 256
    file_kib: int = 2048
    metadata_from: dict[str, str] = field(default_factory=dict)
    typing: Typing | None = None

    @property
    def hold_ms(self) -> int | None:
        """Say how long followers wait behind a failing answer (ms); None: until it ends."""
        return None if self.ordering == "strict" else int(self.hold_max * 1000)

    @property
    def media_kib(self) -> int:
        """Say how large a file may be that goes along."""
        return self.inline_kib if self.media == "inline" else self.file_kib

    @property
    def with_hermes(self) -> bool:
        """Tell whether the body carries the `hermes` object."""
        return self.profile != "captain"


@dataclass(frozen=True)
class Settings:
    """All settings of one Hermes home."""

    default: Endpoint = field(default_factory=Endpoint)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    secret: str = field(default="", repr=False)
    guard: Guard = field(default_factory=Guard)
    home_url: str = ""
    concurrency: int = 128
    max_body: int = 1_048_576
    max_bytes: int = 512 * 1024 * 1024
    disable_after: float = 5 * 86400
    unknown: tuple[str, ...] = ()
    env: Env = field(default=lambda name: None, repr=False)

    def named(self, name: str) -> Endpoint | None:
        """Give the endpoint called `@name`."""
        return self.endpoints.get(name)

    def of(self, key: str) -> Endpoint:
        """Give the settings for a stored endpoint key ("@crm", or scheme://host:port/path)."""
        if key.startswith("@"):
            return self.endpoints.get(key, self.default)
        return self.default

    def keyring(self, endpoint: Endpoint, wall: float) -> Keyring:
        """Give the secrets that sign for an endpoint now.

        Raises:
            SettingsError: one of them cannot be used.
        """
        current = self._secret(endpoint.secret_env, endpoint.secret_file, endpoint.name)
        if current is None and not (endpoint.secret_env or endpoint.secret_file):
            current = _secret(self.secret, "the global secret")
        previous = None
        if endpoint.previous_secret_env and (
            not endpoint.previous_until or wall < endpoint.previous_until
        ):
            previous = self._secret(endpoint.previous_secret_env, "", endpoint.name)
        return Keyring(current, previous, endpoint.legacy_uses_previous)

    def _secret(self, env_name: str, file_name: str, who: str) -> Secret | None:
        text, where = "", ""
        if env_name:
            text, where = self.env(env_name) or "", f"the variable {env_name}"
        elif file_name:
            where = f"the file {file_name}"
            try:
                text = Path(file_name).read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SettingsError(
                    f"{who or 'http_callback'}: {where} cannot be read: {error}"
                ) from None
        if where and not text.strip():
            raise SettingsError(f"{who or 'http_callback'}: {where} holds no secret")
        return _secret(text, where)


def _secret(text: str, where: str) -> Secret | None:
    if not text.strip():
        return None
    try:
        return read_secret(text)
    except SecretError as error:
        raise SettingsError(f"{where}: {error}") from None


class _Reader:
    """Takes settings out of a mapping, each with its type, and refuses what is left over."""

    def __init__(self, raw: Mapping[str, Any], where: str) -> None:
        self.raw, self.where, self.used = raw, where, set[str]()

    def wrong(self, name: str, wanted: str) -> SettingsError:
        return SettingsError(f"{self.where}.{name} must be {wanted}, not {self.raw.get(name)!r}")

    def number(self, name: str, default: float, low: float, high: float) -> float:
        value = self.take(name, default)
        try:
            found = float(value)
        except (TypeError, ValueError):
            raise self.wrong(name, "a number") from None
        if isinstance(value, bool) or not low <= found <= high:
            raise self.wrong(name, f"a number from {low:g} to {high:g}")
        return found

    def text(self, name: str, default: str = "") -> str:
        value = self.take(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def choice(self, name: str, default: str, among: tuple[str, ...]) -> str:
        value = self.text(name, default)
        if value not in among:
            raise self.wrong(name, f"one of {', '.join(among)}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self.take(name, default)
        if isinstance(value, str) and value.lower() in ("true", "false", "yes", "no"):
            return value.lower() in ("true", "yes")
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def texts(self, name: str) -> list[str]:
        value = self.take(name, [])
        if isinstance(value, str):
            value = [part for part in value.split(",") if part.strip()]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(name, "a list of texts")
        return value

    def table(self, name: str) -> dict[str, Any]:
        value = self.take(name, {})
        if not isinstance(value, dict):
            raise self.wrong(name, "a table of names and values")
        return value

    def take(self, name: str, default: Any) -> Any:
        self.used.add(name)
        value = self.raw.get(name)
        return default if value is None else value

    def unknown(self) -> tuple[str, ...]:
        return tuple(sorted(str(key) for key in self.raw if key not in self.used))

    def finish(self) -> None:
        if unknown := self.unknown():
            raise SettingsError(f"{self.where}: unknown setting {', '.join(unknown)}")


def read_settings(
    extra: Mapping[str, Any] | None, env: Env, allowed: list[str] | None = None
) -> Settings:
    """Read the platform's `extra` table; `allowed` are the entries of `hermes callback allow`.

    Raises:
        SettingsError: something cannot be used; nothing is half applied.
    """
    reader = _Reader(extra or {}, "platforms.http_callback.extra")
    base = _endpoint(reader, Endpoint(), "timeout_seconds")
    endpoints = _endpoints(reader, base)
    secret = next((text for name in SECRET_NAMES if (text := env(name))), None)
    guard = _guard(reader, [*(allowed or []), *_split(env(ALLOW_NAME))], endpoints)
    fallback_secret, fallback_home = reader.text("signing_secret"), reader.text("home_url")
    settings = Settings(
        default=base,
        endpoints=endpoints,
        secret=secret or fallback_secret,
        guard=guard,
        home_url=next((text for name in HOME_NAMES if (text := env(name))), fallback_home),
        concurrency=int(reader.number("concurrency_total", 128, 1, 1024)),
        max_body=int(reader.number("max_body_kib", 1024, 1, 65_536)) * 1024,
        max_bytes=int(reader.number("max_outbox_mib", 512, 1, 1_000_000)) * 1024 * 1024,
        disable_after=reader.number("disable_after_days", 5, 0, 365) * 86400,
        env=env,
    )
    _check_secrets(settings)
    # Hermes lays settings of its own into the same table: what we do not know is not refused.
    return replace(settings, unknown=reader.unknown())


def _endpoints(reader: _Reader, base: Endpoint) -> dict[str, Endpoint]:
    found: dict[str, Endpoint] = {}
    for name, raw in reader.table("endpoints").items():
        key = "@" + str(name).removeprefix("@")
        if not isinstance(raw, dict):
            raise SettingsError(f"endpoint {key}: a table with at least `url` is needed")
        own = _Reader(raw, f"endpoint {key}")
        found[key] = _endpoint(own, base, "timeout_seconds", name=key, url=_usable_url(own))
        own.finish()
    return found


def _guard(reader: _Reader, allowed: list[str], endpoints: dict[str, Endpoint]) -> Guard:
    # What the operator names may be called, wherever it lies.
    named = [endpoint.url for endpoint in endpoints.values()]
    named += [one.typing.url for one in endpoints.values() if one.typing and one.typing.url]
    entries = [*reader.texts("allow"), *allowed, *named]
    private = reader.flag("allow_private", False)
    try:
        return Guard.of(entries, private=private, only=reader.texts("only"))
    except BadUrl as error:
        where = "platforms.http_callback.extra.allow or .only"
        raise SettingsError(f"{where}: {error}") from None


def _check_secrets(settings: Settings) -> None:
    for endpoint in [settings.default, *settings.endpoints.values()]:
        settings.keyring(endpoint, 0.0)


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def _usable_url(own: _Reader) -> str:
    url = own.text("url")
    if not url:
        raise SettingsError(f"{own.where}: `url` is missing")
    try:
        return read_url(url).url
    except BadUrl as error:
        raise SettingsError(f"{own.where}.url: {error}") from None


def _endpoint(
    own: _Reader, base: Endpoint, timeout: str, *, name: str = "", url: str = ""
) -> Endpoint:
    profile = own.choice("profile", base.profile, PROFILES)
    inherits = profile == base.profile
    captain = profile == "captain"
    fallback = base if inherits else Endpoint(ordering="bounded")
    return Endpoint(
        name=name,
        url=url,
        profile=profile,
        form=own.choice("format", base.form, FORMATS),
        policy=_policy(own, fallback.policy if inherits else None, captain=captain),
        ordering=own.choice("ordering", base.ordering, ORDERINGS),
        hold_max=own.number("hold_max", base.hold_max, 0, 86_400),
        concurrency=int(own.number("concurrency", base.concurrency, 0, 256)),
        rate=own.number("rate", base.rate, 0, 100_000),
        timeout=own.number(timeout, base.timeout, 0.1, 300),
        connect_timeout=own.number("connect_timeout", base.connect_timeout, 0.1, 60),
        ca_file=own.text("ca_file", base.ca_file),
        proxy=own.text("proxy_url", base.proxy),
        secret_env=own.text("secret_env", base.secret_env),
        secret_file=own.text("secret_file", base.secret_file),
        previous_secret_env=own.text("previous_secret_env", base.previous_secret_env),
        previous_until=_moment(own, base.previous_until),
        legacy_uses_previous=own.flag("legacy_uses_previous", base.legacy_uses_previous),
        require_signature=own.flag("require_signature", base.require_signature),
        statuses=own.choice("statuses", base.statuses, POLICIES),
        errors=own.choice("errors", base.errors, POLICIES),
        media=own.choice("media", base.media, MODES),
        inline_kib=int(own.number("inline_kib", base.inline_kib, 1, 16_384)),
        file_kib=int(own.number("file_kib", base.file_kib, 1, 16_384)),
        metadata_from=_rules(own, base.metadata_from),
        typing=_typing(own, base.typing),
    )


def _policy(own: _Reader, base: Policy | None, *, captain: bool) -> Policy:
    if base is None or base == Policy():
        base = Policy(CAPTAIN_SCHEDULE, CAPTAIN_MAX_AGE) if captain else Policy()
    raw = own.take("schedule", list(base.schedule))
    if not isinstance(raw, list) or not raw or len(raw) > 100:
        raise own.wrong("schedule", "a list of seconds, one for each attempt")
    steps = []
    for step in raw:
        if (
            isinstance(step, bool)
            or not isinstance(step, (int, float))
            or not 0 <= step <= LONGEST_STEP
        ):
            raise own.wrong("schedule", f"a list of seconds from 0 to {LONGEST_STEP}")
        steps.append(float(step))
    return Policy(
        schedule=tuple(steps),
        max_age=own.number("max_age", base.max_age, 1, 365 * 86_400),
        on_ambiguous=own.choice("on_ambiguous", base.on_ambiguous, ("retry", "hold")),
    )


def _moment(own: _Reader, default: float) -> float:
    value = own.take("previous_until", None)
    if value is None:
        return default
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except ValueError:
        raise own.wrong("previous_until", "a date such as 2026-12-31T00:00:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _rules(own: _Reader, default: dict[str, str]) -> dict[str, str]:
    raw = own.table("metadata_from") or default
    if not all(isinstance(value, str) for value in raw.values()):
        raise own.wrong("metadata_from", "a table of names and templates")
    return {str(key): value for key, value in raw.items()}


def _typing(own: _Reader, default: Typing | None) -> Typing | None:
    raw = own.table("typing")
    if not raw:
        return default
    inner = _Reader(raw, f"{own.where}.typing")
    found = Typing(
        url=inner.text("url"),
        path_suffix=inner.text("path_suffix"),
        on=inner.text("on", "on"),
        off=inner.text("off", "off"),
    )
    inner.finish()
    if not found.url and not found.path_suffix:
        raise SettingsError(f"{inner.where}: `url` or `path_suffix` is needed")
    return found
