"""One file and the environment, made into a checked configuration.

Every mistake is a `ConfigError` that names the file, the line and the key, says what is expected,
and never shows a value: values may be secrets.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args
from urllib.parse import unquote

import msgspec
import yaml

from hermes_bridge.errors import ConfigError
from hermes_bridge.ids import digest
from hermes_bridge.relay.config import AgentSection, RelayConfig

DEFAULT_PATH = "config.yaml"
SHORTEST_TOKEN = 16
_MAKE_ONE = "Take a random one, as from: openssl rand -hex 24"
_HASH = "Make it with: printf %s TOKEN | sha256sum"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_RESERVED = frozenset({"main"})  # Hermes' own name for its default profile
_Path = tuple[str | int, ...]
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""A thousand agents are read in 40 ms with the C loader, in half a second without it."""


def load(path: str | Path | None = None, env: Mapping[str, str] | None = None) -> RelayConfig:
    """Read the configuration. `path` wins over `HERMES_BRIDGE_CONFIG` over `./config.yaml`.

    `HERMES_BRIDGE_CONFIG_TEXT` may hold the whole text instead (containers without a mount); only a
    `path` given by hand wins over it.
    `HOST`, `PORT` and `DATABASE_URL` from the environment have their usual meaning. Raises
    `ConfigError`.
    """
    env = {} if env is None else env
    if env.get("HERMES_BRIDGE_CONFIG_TEXT") and path in (None, env.get("HERMES_BRIDGE_CONFIG")):
        return parse(env["HERMES_BRIDGE_CONFIG_TEXT"], env, name="HERMES_BRIDGE_CONFIG_TEXT")
    file = Path(path or env.get("HERMES_BRIDGE_CONFIG") or DEFAULT_PATH)
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"There is no configuration file {file}.",
            hint="Write one with `hermes-bridge init`, or name yours: --config, HERMES_BRIDGE_CONFIG.",
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"The configuration file {file} cannot be read: {type(error).__name__}.",
            hint="Check that it is a UTF-8 text file which this user may read.",
        ) from None
    return parse(text, env, name=str(file))


def parse(text: str, env: Mapping[str, str], *, name: str = DEFAULT_PATH) -> RelayConfig:
    """Check a configuration given as text. Raises `ConfigError`."""
    source = _Source(name, text)
    data = source.data
    if not isinstance(data, dict):
        raise source.error((), "the file must be a mapping of keys, and holds none")
    _expand(source, data, (), env)
    _environment(source, data, env)
    _known_keys(source, RelayConfig, data, ())
    try:
        config = msgspec.convert(data, RelayConfig, strict=True)
    except msgspec.ValidationError as error:
        raise source.explain(str(error)) from None
    _check_agents(source, config)
    _check_rest(source, config)
    return config


def token_digests(config: RelayConfig) -> dict[bytes, str]:
    """Give the SHA-256 of every configured token with its agent's name."""
    return {d: agent.name for agent in config.agents for d in _digests(agent)}


class _Source:
    """The text with its lines, so that a mistake can be pointed at."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._lines: dict[_Path, int] = {}
        try:
            loader = _Loader(text)
            node = loader.get_single_node()
            self.data: Any = loader.construct_document(node) if node else None
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ConfigError(
                f"{name}, line {line}: this is not valid YAML ({error.problem}).",
                hint="Check the indentation, and put quotes around values with special characters.",
            ) from None
        except (yaml.YAMLError, ValueError, RecursionError):
            raise ConfigError(
                f"{name}: this is not valid YAML.",
                hint="Look for control characters and for brackets nested without end; "
                "`hermes-bridge init` writes a file to compare with.",
            ) from None
        if node:
            self._walk(node, ())

    def _walk(self, node: yaml.Node, path: _Path) -> None:
        self._lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                word = str(key.value)
                if word in seen:
                    self._lines[(*path, word)] = key.start_mark.line + 1
                    raise self.error((*path, word), "the key is written twice")
                seen.add(word)
                self._walk(value, (*path, word))
                self._lines[(*path, word)] = key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self._walk(value, (*path, index))

    def error(self, path: _Path, what: str, *, hint: str = "") -> ConfigError:
        """Make the error that points at `path`."""
        where = path
        while where and where not in self._lines:
            where = where[:-1]
        line = self._lines.get(where, 1)
        key = _spell(path)
        return ConfigError(
            f"{self.name}, line {line}: {key + ': ' if key else ''}{what}.", hint=hint
        )

    def explain(self, message: str) -> ConfigError:
        """Turn a validation message (`Expected ... - at `$.a[0].b``) into ours."""
        what, _, where = message.partition(" - at `$")
        path: list[str | int] = []
        for word, index in re.findall(r"\.([^.\[`]+)|\[(\d+)\]", where):
            path.append(word or int(index))
        what = what.replace("Expected", "expected").replace(", got", ", but it is")
        return self.error(tuple(path), what.replace("`", ""))


def _spell(path: _Path) -> str:
    spelt = ""
    for step in path:
        spelt += f"[{step}]" if isinstance(step, int) else f".{step}" if spelt else step
    return spelt


def _expand(source: _Source, data: Any, path: _Path, env: Mapping[str, str]) -> Any:
    """Replace `${NAME}` and `${NAME:-default}` in every text, in place."""
    if isinstance(data, dict):
        for key, value in data.items():
            data[key] = _expand(source, value, (*path, str(key)), env)
    elif isinstance(data, list):
        for index, value in enumerate(data):
            data[index] = _expand(source, value, (*path, index), env)
    elif isinstance(data, str) and "${" in data:

        def value_of(match: re.Match[str]) -> str:
            value = env.get(match[1], match[2])
            if value is None:
                raise source.error(
                    path,
                    f"the environment variable {match[1]} is not set",
                    hint=f"Set it before the start, or write ${{{match[1]}:-default}}.",
                )
            return value

        return _VARIABLE.sub(value_of, data)
    return data


def _environment(source: _Source, data: dict[str, Any], env: Mapping[str, str]) -> None:
    listen = data.get("listen")
    if listen is None or isinstance(listen, dict):
        listen = dict(listen or {})
        if env.get("HOST"):
            listen["host"] = env["HOST"]
        if env.get("PORT"):
            if not env["PORT"].isdigit():
                raise ConfigError(
                    "The environment variable PORT is not a number.",
                    hint="Set it to the port to listen on, as in PORT=8787, or unset it.",
                )
            listen["port"] = int(env["PORT"])
        if listen:
            data["listen"] = listen
    _otel(data, env)
    db = data.get("db")
    if env.get("DATABASE_URL") and (db is None or isinstance(db, dict)):
        db = dict(db or {})
        if db.get("driver") in (None, "postgres") and not db.get("connection_string"):
            data["db"] = {**db, "driver": "postgres", "connection_string": env["DATABASE_URL"]}
    if isinstance(data.get("db"), dict) and data["db"].get("driver") is None:
        driver = "postgres" if data["db"].get("connection_string") else "sqlite"
        data["db"] = {**data["db"], "driver": driver}


def _otel(data: dict[str, Any], env: Mapping[str, str]) -> None:
    """Take OpenTelemetry's own variables when the file names no target."""
    endpoint = env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or env.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    if not endpoint or data.get("otlp") or data.get("langfuse"):
        return
    given = env.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or env.get("OTEL_EXPORTER_OTLP_HEADERS")
    pairs = [pair.partition("=") for pair in (given or "").split(",") if "=" in pair]
    headers = {unquote(key.strip()): unquote(value.strip()) for key, _, value in pairs}
    data["otlp"] = [{"endpoint": endpoint, "headers": headers}]


def _known_keys(source: _Source, kind: type, data: Any, path: _Path) -> None:
    """Refuse keys that a section does not have, and name the nearest one that it has."""
    if not isinstance(data, dict):
        return
    fields = _fields(kind)
    for key, value in data.items():
        if key not in fields:
            near = get_close_matches(str(key), fields, n=1, cutoff=0.5)
            hint = (
                f"Did you mean {near[0]}?" if near else f"Known keys: {', '.join(sorted(fields))}."
            )
            raise source.error((*path, str(key)), "this key is not known", hint=hint)
        for inner in _sections(fields[key]):
            if isinstance(value, list):
                for index, item in enumerate(value):
                    _known_keys(source, inner, item, (*path, key, index))
            else:
                _known_keys(source, inner, value, (*path, key))


@lru_cache(maxsize=64)
def _fields(kind: type) -> dict[str, Any]:
    return {field.name: field.type for field in msgspec.structs.fields(kind)}


def _sections(kind: Any) -> Iterator[type]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    else:
        for part in get_args(kind):
            yield from _sections(part)


def _check_agents(source: _Source, config: RelayConfig) -> None:
    names: dict[str, int] = {}
    owners: dict[bytes, int] = {}
    for index, agent in enumerate(config.agents):
        here: _Path = ("agents", index)
        if agent.name != agent.name.strip() or not agent.name.isprintable():
            raise source.error(
                (*here, "name"), "a name has no blanks around it and no control characters"
            )
        if agent.name in _RESERVED:
            raise source.error(
                (*here, "name"),
                "this name is reserved by Hermes",
                hint="Choose another one: its default profile is called so.",
            )
        if agent.name in names:
            raise source.error(
                (*here, "name"),
                f"the name is used by agent number {names[agent.name] + 1} already",
                hint="Give one of the two another name.",
            )
        names[agent.name] = index
        for secret in _check_tokens(source, agent, here):
            if secret in owners:
                raise source.error(
                    here,
                    f"its token is the one of agent number {owners[secret] + 1}: each agent needs its own",
                    hint=_MAKE_ONE,
                )
            owners[secret] = index
    for index, agent in enumerate(config.agents):
        for place, other in enumerate(agent.may_ask or ()):
            if other not in names:
                near = get_close_matches(other, names, n=1)
                raise source.error(
                    ("agents", index, "may_ask", place),
                    "no agent has this name",
                    hint=f"Did you mean {near[0]}?" if near else "",
                )


def _check_tokens(source: _Source, agent: AgentSection, here: _Path) -> list[bytes]:
    given = [key for key in ("token", "tokens", "token_sha256") if getattr(agent, key) is not None]
    if len(given) != 1:
        what = (
            "needs one of token, tokens, token_sha256"
            if not given
            else f"has {' and '.join(given)}: keep one"
        )
        raise source.error(here, what, hint=_MAKE_ONE if not given else "")
    spot: _Path = (*here, given[0])
    plain = [agent.token] if agent.token is not None else agent.tokens or []
    for token in plain:
        if len(token) < SHORTEST_TOKEN or token != token.strip() or not token.isprintable():
            raise source.error(
                spot,
                f"a token has at least {SHORTEST_TOKEN} characters and no blanks around it",
                hint=_MAKE_ONE,
            )
    try:
        secrets = _digests(agent)
    except ValueError:
        raise source.error(spot, "must be 64 hexadecimal digits (a SHA-256)", hint=_HASH) from None
    if not secrets:
        raise source.error(spot, "the list is empty", hint=_MAKE_ONE)
    return secrets


def _digests(agent: AgentSection) -> list[bytes]:
    if agent.token_sha256 is not None:
        listed = agent.token_sha256
        texts = [listed] if isinstance(listed, str) else listed
        raws = [bytes.fromhex(text) for text in texts]
        if any(len(raw) != 32 for raw in raws):
            raise ValueError
        return raws
    plain = [agent.token] if agent.token is not None else agent.tokens or []
    return [digest(token) for token in plain]


def _check_rest(source: _Source, config: RelayConfig) -> None:
    if config.ask_max_ms < config.ask_timeout_ms:
        raise source.error(
            ("ask_max_ms",),
            f"is the longest life of an ask and must not be below ask_timeout_ms ({config.ask_timeout_ms})",
        )
    if bool(config.listen.tls_cert) != bool(config.listen.tls_key):
        raise source.error(("listen",), "tls_cert and tls_key belong together: one is missing")
    if config.db.driver == "postgres" and not config.db.connection_string:
        raise source.error(
            ("db",), "postgres needs connection_string", hint="Set it here or in DATABASE_URL."
        )
