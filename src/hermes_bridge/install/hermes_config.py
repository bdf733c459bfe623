"""Edits of a Hermes `config.yaml` that keep its comments, its order and its quotes.

Every edit knows how to take itself back, for a file that others have changed since.
"""

import difflib
import io
import itertools
from collections.abc import MutableMapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from hermes_bridge.errors import ConfigError

Edit = dict[str, Any]
"""What was done, for the manifest: `{"do": ..., "at": [keys], ...}`, JSON."""


class HermesConfig:
    """One parsed `config.yaml`."""

    def __init__(self, text: str, name: str = "config.yaml") -> None:
        self.name = name
        self._yaml = YAML()
        self._yaml.preserve_quotes = True
        self._yaml.width = 10_000
        self._yaml.indent(**_indent_of(text))
        try:
            tree = self._yaml.load(text)
        except YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f", line {mark.line + 1}" if mark else ""
            raise ConfigError(
                f"{name} is not valid YAML{where}; nothing was changed.",
                hint="Mend that line; `hermes config check` shows what Hermes thinks of the file.",
            ) from error
        if tree is None:
            tree = CommentedMap()
        if not isinstance(tree, MutableMapping):
            raise _wrong(name, "the file", "a mapping of settings")
        self.tree: Any = tree
        self._comment_only = text if not tree and text.strip() else ""
        self._source, self._plain = text, self._dumped()

    def text(self) -> str:
        """Give the file as it is now: lines that no edit touched stand as they stood."""
        edited = self._dumped()
        if self._comment_only:
            gap = "" if self._comment_only.endswith("\n") else "\n"
            return self._comment_only + gap + edited
        merged = _merged(self._source, self._plain, edited)
        return merged if _same(merged, edited) else edited

    def _dumped(self) -> str:
        out = io.StringIO()
        self._yaml.dump(self.tree, out)
        return out.getvalue()

    def get(self, *keys: str) -> Any:
        """Give a value, `None` when it is not there."""
        node: Any = self.tree
        for key in keys:
            if not isinstance(node, MutableMapping) or key not in node:
                return None
            node = node[key]
        return node

    def add_to_list(self, keys: list[str], item: str) -> list[Edit]:
        """Have `item` in a list; a single name that stands there is kept as the list's first."""
        parent, edits = self._mapping(keys[:-1])
        value = parent.get(keys[-1])
        if isinstance(value, list):
            if item in value:
                return edits
            value.append(item)
            return [*edits, {"do": "listed", "at": keys, "item": item}]
        if value is None or isinstance(value, str):
            known = keys[-1] in parent
            parent[keys[-1]] = CommentedSeq([value, item] if value else [item])
            edit = {"do": "made_list", "at": keys, "item": item, "was": value, "known": known}
            return [*edits, edit]
        raise _wrong(self.name, ".".join(keys), "a list of names")

    def drop_from_list(self, keys: list[str], item: str) -> list[Edit]:
        """Have `item` no longer in a list."""
        value = self.get(*keys)
        if isinstance(value, list) and item in value:
            value.remove(item)
            return [{"do": "unlisted", "at": keys, "item": item}]
        return []

    def set(self, keys: list[str], value: Any) -> list[Edit]:
        """Set a value; a mapping is written as a block."""
        parent, edits = self._mapping(keys[:-1])
        known, was = keys[-1] in parent, parent.get(keys[-1])
        if known and was == value:
            return edits
        parent[keys[-1]] = _commented(value)
        return [*edits, {"do": "set", "at": keys, "value": value, "was": was, "known": known}]

    def undo(self, edits: list[Edit]) -> None:
        """Take edits back, as far as what they wrote is still there."""
        for edit in reversed(edits):
            *above, last = edit["at"]
            parent = self.get(*above) if above else self.tree
            if not isinstance(parent, MutableMapping):
                continue
            if edit["do"] == "made_map":
                if last in parent and not parent[last]:
                    _restore(parent, last, edit)
            elif edit["do"] == "set":
                if parent.get(last) == edit["value"]:
                    _restore(parent, last, edit)
            elif isinstance(parent.get(last), list):
                self._undo_list(parent, last, edit)

    def _undo_list(self, parent: Any, last: str, edit: Edit) -> None:
        names, item = parent[last], edit["item"]
        if edit["do"] == "unlisted":
            if item not in names:
                names.append(item)
            return
        if item in names:
            names.remove(item)
        if edit["do"] == "made_list" and list(names) == ([edit["was"]] if edit["was"] else []):
            _restore(parent, last, edit)

    def _mapping(self, keys: list[str]) -> tuple[Any, list[Edit]]:
        """Walk to a mapping, making the ones that are missing."""
        node, edits = self.tree, []
        for depth, key in enumerate(keys):
            value = node.get(key)
            if value is None:
                edits.append({"do": "made_map", "at": keys[: depth + 1], "known": key in node})
                node[key] = value = CommentedMap()
            if not isinstance(value, MutableMapping):
                raise _wrong(self.name, ".".join(keys[: depth + 1]), "a mapping")
            node = value
        return node, edits


def _merged(source: str, plain: str, edited: str) -> str:
    """Carry the difference of two dumps over to the text that the first was read from."""
    lines, old, new = (text.splitlines(keepends=True) for text in (source, plain, edited))
    if len(lines) != len(old):
        return edited
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    out: list[str] = []
    steps = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for kind, start, end, new_start, new_end in steps:
        out += lines[start:end] if kind == "equal" else new[new_start:new_end]
    return "".join(out)


def _same(one: str, other: str) -> bool:
    """Whether two texts mean the same."""
    try:
        return bool(YAML(typ="safe").load(one) == YAML(typ="safe").load(other))
    except YAMLError:
        return False


def _restore(parent: Any, key: str, edit: Edit) -> None:
    if edit["known"]:
        parent[key] = edit.get("was")
    else:
        del parent[key]


def _wrong(name: str, where: str, wanted: str) -> ConfigError:
    return ConfigError(
        f"{name}: {where} should be {wanted} and is something else; nothing was changed.",
        hint="Mend it by hand, then run this again.",
    )


def _commented(value: Any) -> Any:
    if isinstance(value, dict):
        return CommentedMap((k, _commented(v)) for k, v in value.items())
    if isinstance(value, list):
        return CommentedSeq(_commented(v) for v in value)
    return DoubleQuotedScalarString(value) if value == "off" else value


def _indent_of(text: str) -> dict[str, int]:
    """Write lists the way the file does: `- x` under its key, or two spaces in."""
    lines = text.splitlines()
    for above, line in itertools.pairwise(lines):
        stripped = line.lstrip(" ")
        if stripped.startswith("- ") and above.rstrip().endswith(":"):
            offset = len(line) - len(stripped) - (len(above) - len(above.lstrip(" ")))
            if offset >= 0:
                return {"mapping": 2, "sequence": offset + 2, "offset": offset}
    return {"mapping": 2, "sequence": 2, "offset": 0}
