"""Edits of a Hermes `config.yaml`: settings by name, each with the way to take it back.

How the text is changed without touching anything else is `yaml_text.py`'s business.
"""

from collections.abc import Callable
from typing import Any

from hermes_bridge.errors import ConfigError
from hermes_bridge.install.yaml_text import NotYaml, Unsafe, YamlText

Edit = dict[str, Any]
"""What was done, for the manifest: `{"do": ..., "at": [keys], ...}`, JSON."""


class HermesConfig:
    """One parsed `config.yaml`."""

    def __init__(self, text: str, name: str = "config.yaml") -> None:
        self.name = name
        try:
            self._yaml = YamlText(text)
        except NotYaml as error:
            where = f", line {error.line}" if error.line else ""
            raise ConfigError(
                f"{name} is not valid YAML{where}; nothing was changed.",
                hint="Mend that line; `hermes config check` shows what Hermes thinks of the file.",
            ) from error
        if not isinstance(self._yaml.data, dict | None):
            raise _wrong(name, "the file", "a mapping of settings")

    def text(self) -> str:
        """Give the file as it is now: lines that no edit touched stand as they stood."""
        return self._yaml.text

    def get(self, *keys: str) -> Any:
        """Give a value, `None` when it is not there."""
        node: Any = self._yaml.data
        for key in keys:
            if not isinstance(node, dict) or key not in node:
                return None
            node = node[key]
        return node

    def add_to_list(self, keys: list[str], item: str) -> list[Edit]:
        """Have `item` in a list; a single name that stands there is kept as the list's first."""
        edits, value = self._mapping(keys[:-1], {keys[-1]: [item]}), self.get(*keys)
        if edits:
            made: Edit = {"do": "made_list", "at": keys, "item": item, "was": None, "known": False}
            return [*edits, made]
        if isinstance(value, list):
            if item in value:
                return []
            edit: Edit = {"do": "listed", "at": keys, "item": item}
            if value:
                self._do(keys, lambda: self._yaml.append(keys, item))
            else:
                self._put(keys, [item])
            return [edit]
        if value is None or isinstance(value, str):
            edit = {"do": "made_list", "at": keys, "item": item, "was": value}
            edit["known"] = keys[-1] in (self.get(*keys[:-1]) or {})
            self._put(keys, [value, item] if value else [item])
            return [edit]
        raise _wrong(self.name, ".".join(keys), "a list of names")

    def drop_from_list(self, keys: list[str], item: str) -> list[Edit]:
        """Have `item` no longer in a list."""
        value = self.get(*keys)
        if isinstance(value, list) and item in value:
            self._do(keys, lambda: self._yaml.drop(keys, item))
            return [{"do": "unlisted", "at": keys, "item": item}]
        return []

    def set(self, keys: list[str], value: Any) -> list[Edit]:
        """Set a value; a mapping is written as a block."""
        edits = self._mapping(keys[:-1], {keys[-1]: value})
        if edits:
            return [*edits, {"do": "set", "at": keys, "value": value, "was": None, "known": False}]
        parent = self.get(*keys[:-1]) or {}
        known, was = keys[-1] in parent, parent.get(keys[-1])
        if known and was == value:
            return []
        self._put(keys, value)
        return [{"do": "set", "at": keys, "value": value, "was": was, "known": known}]

    def undo(self, edits: list[Edit]) -> None:
        """Take edits back, as far as what they wrote is still there."""
        for edit in reversed(edits):
            *above, last = edit["at"]
            parent = self.get(*above) if above else self._yaml.data
            if not isinstance(parent, dict) or last not in parent:
                continue
            if edit["do"] == "made_map":
                if not parent[last]:
                    self._restore(edit)
            elif edit["do"] == "set":
                if parent[last] == edit["value"]:
                    self._restore(edit)
            elif isinstance(parent[last], list):
                self._undo_list(parent[last], edit)

    def _undo_list(self, names: list[Any], edit: Edit) -> None:
        at, item = edit["at"], edit["item"]
        if edit["do"] == "unlisted":
            if item not in names:
                self._put(at, [*names, item])
            return
        rest = [name for name in names if name != item]
        if edit["do"] == "made_list" and rest == ([edit["was"]] if edit["was"] else []):
            self._restore(edit)
        elif item in names:
            self._do(at, lambda: self._yaml.drop(at, item))

    def _restore(self, edit: Edit) -> None:
        if edit["known"]:
            self._put(edit["at"], edit.get("was"))
        else:
            self._do(edit["at"], lambda: self._yaml.remove(edit["at"]))

    def _mapping(self, keys: list[str], inner: dict[str, Any]) -> list[Edit]:
        """Make the mappings that are missing on the way, with `inner` in the last one.

        Gives the edits of that; none when the way is there already.
        """
        data = self._yaml.data or {}
        for depth, key in enumerate(keys, 1):
            value = data.get(key)
            if value is None:
                for name in reversed(keys[depth:]):
                    inner = {name: inner}
                ways = [keys[:n] for n in range(depth, len(keys) + 1)]
                edits = [{"do": "made_map", "at": way, "known": False} for way in ways]
                edits[0]["known"] = key in data
                self._put(ways[0], inner)
                return edits
            if not isinstance(value, dict):
                raise _wrong(self.name, ".".join(keys[:depth]), "a mapping")
            data = value
        return []

    def _put(self, keys: list[str], value: Any) -> None:
        self._do(keys, lambda: self._yaml.put(keys, value))

    def _do(self, keys: list[str], edit: Callable[[], None]) -> None:
        try:
            edit()
        except Unsafe as error:
            raise ConfigError(
                f"{self.name}: {'.'.join(keys)} is written in a way (an anchor, an alias) in which "
                "a change would change something else too; nothing was changed.",
                hint="Write that part without & and *, or make the change by hand "
                "(see what is put where in the guide for bots).",
            ) from error


def _wrong(name: str, where: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"{name}: {where} should be {wanted} and is something else; nothing was changed.",
        hint="Mend it by hand, then run this again.",
    )
