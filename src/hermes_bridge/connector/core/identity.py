"""Identities: which bot, which account, which gateway may speak for it; and how a table changes.

The identity file is the seed's: a JSON array of rows. The one rule above all: an identity is
spoken for only by a connection that proved one of *its* gateway's secrets and declared *it*.
Error texts never hold a value of the table, because every second value is a secret.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hermes_bridge.connector.core.mention import Mentions
from hermes_bridge.errors import ConfigError

AGENTSCHAT = "agentschat"
_REQUIRED = ("botId", "token", "gatewayId", "secret")
_OPTIONAL = ("agentId", "profile", "platform", "wakeUrl")
_LISTS = ("secrets", "owners")
_RESERVED_PROFILE = "main"


class Identity(msgspec.Struct, frozen=True):
    """One bot: its account on a platform and the gateway that runs it."""

    bot_id: str
    token: str
    gateway_id: str
    secrets: tuple[str, ...]
    agent_id: str
    platform: str = AGENTSCHAT
    profile: str = ""
    owners: tuple[str, ...] = ()
    wake_url: str = ""

    def __repr__(self) -> str:
        return f"Identity({self.bot_id!r} on {self.platform!r} for {self.gateway_id!r})"

    def owned_by(self, person: str) -> bool:
        """Whether `person` may give this agent commands."""
        return person in self.owners


class IdentityTable:
    """All identities of a connector, in the file's order. Never changed, only replaced."""

    def __init__(self, rows: Iterable[Identity]) -> None:
        self.rows = tuple(rows)
        self._by_bot = {row.bot_id: row for row in self.rows}
        self._by_agent: dict[tuple[str, str], list[Identity]] = {}
        self._secrets: dict[str, list[str]] = {}
        for row in self.rows:
            self._by_agent.setdefault((row.platform, row.agent_id), []).append(row)
            known = self._secrets.setdefault(row.gateway_id, [])
            known += [secret for secret in row.secrets if secret not in known]
        ids = {each for row in self.rows for each in (row.bot_id, row.agent_id)}
        self.mentions = Mentions(ids)
        self.platforms = frozenset(row.platform for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def get(self, bot_id: str) -> Identity | None:
        """Give the identity of a bot id."""
        return self._by_bot.get(bot_id)

    def of_agent(self, platform: str, agent_id: str) -> list[Identity]:
        """Give the identities that use one account of a platform."""
        return self._by_agent.get((platform, agent_id), [])

    def secrets_of(self, gateway_id: str) -> list[str]:
        """Give every secret that a gateway may use, in the table's order."""
        return self._secrets.get(gateway_id, [])

    def all_secrets(self) -> list[str]:
        """Give every value of the table that must never be shown."""
        return [each for row in self.rows for each in (row.token, *row.secrets)]


class Difference(msgspec.Struct, frozen=True):
    """What a new table changes: accounts to start, to stop, and to start again."""

    added: tuple[Identity, ...]
    removed: tuple[Identity, ...]
    changed: tuple[tuple[Identity, Identity], ...]


def difference(old: IdentityTable, new: IdentityTable) -> Difference:
    """Compare two tables by bot id. A row that is equal in every field is in none of the lists."""
    added = tuple(row for row in new.rows if old.get(row.bot_id) is None)
    removed = tuple(row for row in old.rows if new.get(row.bot_id) is None)
    changed = []
    for row in new.rows:
        before = old.get(row.bot_id)
        if before is not None and before != row:
            changed.append((before, row))
    return Difference(added, removed, tuple(changed))


def account_moved(before: Identity, after: Identity) -> bool:
    """Whether a changed row needs a new login at the platform."""
    account = (before.platform, before.token, before.agent_id)
    return account != (after.platform, after.token, after.agent_id)


def read_table(text: str | bytes, *, source: str) -> IdentityTable:
    """Read the seed's JSON array. Raises `ConfigError` that names the row and the fields."""
    try:
        rows = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise ConfigError(
            f"{source}: not valid JSON",
            hint="It must be an array of objects with botId, token, gatewayId and secret.",
        ) from None
    return table_of(rows, source=source)


def table_of(rows: object, *, source: str) -> IdentityTable:
    """Make a table of decoded rows. Raises `ConfigError` that names the row and the fields."""
    if not isinstance(rows, list) or not rows:
        raise ConfigError(
            f"{source}: not a non-empty array of identities",
            hint="Write at least one object with botId, token, gatewayId and secret.",
        )
    found: list[Identity] = []
    for index, row in enumerate(rows):
        identity = _identity(row, index, source)
        if any(identity.bot_id == other.bot_id for other in found):
            raise ConfigError(
                f"{source}: entry {index}: duplicate botId",
                hint="One row a bot. Two valid secrets of a rotation go into the list `secrets`.",
            )
        found.append(identity)
    return IdentityTable(found)


def _identity(row: object, index: int, source: str) -> Identity:
    if not isinstance(row, Mapping):
        raise ConfigError(f"{source}: entry {index}: not an object", hint="Each row is an object.")
    wrong = _wrong_fields(row)
    if wrong:
        raise ConfigError(
            f"{source}: entry {index}: missing or invalid string fields: {', '.join(wrong)}",
            hint="Texts must not be blank; `secrets` and `owners` are lists of texts.",
        )
    profile = str(row.get("profile") or "").strip()
    if profile == _RESERVED_PROFILE:
        raise ConfigError(
            f"{source}: entry {index}: the profile name 'main' is reserved",
            hint="Hermes keeps its default sessions there. Leave `profile` out, or rename it.",
        )
    secrets = list(row.get("secrets") or [])
    if row.get("secret"):
        secrets = [row["secret"], *(each for each in secrets if each != row["secret"])]
    return Identity(
        bot_id=row["botId"],
        token=row["token"],
        gateway_id=row["gatewayId"],
        secrets=tuple(secrets),
        agent_id=row.get("agentId") or row["botId"],
        platform=row.get("platform") or AGENTSCHAT,
        profile=profile,
        owners=tuple(row.get("owners") or ()),
        wake_url=row.get("wakeUrl") or "",
    )


def _wrong_fields(row: Mapping[str, Any]) -> list[str]:
    required = [name for name in _REQUIRED if name != "secret" or not row.get("secrets")]
    wrong = [name for name in required if not _filled(row.get(name))]
    optional = [*_OPTIONAL, *(["secret"] if "secret" not in required else [])]
    wrong += [name for name in optional if row.get(name) is not None and not _filled(row[name])]
    for name in _LISTS:
        value = row.get(name)
        if value is not None and not (isinstance(value, list) and all(map(_filled, value))):
            wrong.append(name)
    return wrong


def _filled(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())
