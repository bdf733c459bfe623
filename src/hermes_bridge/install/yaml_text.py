"""A YAML file as text and tree at once: an edit touches the lines it is about and no other byte.

The tree knows where in the text each key and value stands. Every edit says what the file has to
mean afterwards; a text that would mean something else (an anchor used twice, say) is not made.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
Path = list[str]


class NotYaml(ValueError):
    """The text is no YAML; `line` counts from one, if it is known."""

    def __init__(self, line: int | None) -> None:
        super().__init__("no YAML")
        self.line = line


class Unsafe(ValueError):
    """The edit would change something else too."""


@dataclass(slots=True)
class Node:
    """One value and where it stands: `text[start:end]`; a block's end is its last value's."""

    kind: Literal["scalar", "map", "list", "alias"]
    start: int
    end: int
    flow: bool = False
    items: list["Node"] = field(default_factory=list)
    """A list's values; a mapping's keys and values in turn."""
    value: str = ""

    def pairs(self) -> Iterator[tuple["Node", "Node"]]:
        """Give a mapping's keys with their values."""
        return zip(self.items[::2], self.items[1::2], strict=True)


class YamlText:
    """The file: `data` is what it means, `text` how it is written."""

    def __init__(self, text: str) -> None:
        self._mark = "\ufeff" if text.startswith("\ufeff") else ""
        self._body = text.removeprefix("\ufeff")
        self.newline = "\r\n" if "\r\n" in text else "\n"
        self.root: Node | None = None
        self.data: Any = None
        self._read()

    @property
    def text(self) -> str:
        """The file as it is now."""
        return self._mark + self._body

    def put(self, path: Path, value: Any) -> None:
        """Set a key whose mapping is there. Raises: Unsafe."""
        parent, key = self._node(path[:-1]), path[-1]

        def meant(data: Any) -> None:
            _at(data, path[:-1])[key] = value

        pair = _pair(parent, key) if parent is not None else None
        if pair is not None:
            self._edit(meant, lambda: self._replaced(parent, pair, value))
        else:
            self._edit(meant, lambda: self._added(parent, {key: value}))

    def remove(self, path: Path) -> None:
        """Take a key out with its value; a mapping that has no other becomes `{}`. Raises: Unsafe."""
        parent = self._node(path[:-1])
        if parent is None or len(parent.items) == 2:  # one key, one value
            if path[:-1]:
                self.put(path[:-1], {})
            else:
                self._edit(lambda data: data.clear(), lambda: self._without(parent, path[-1]))
            return
        self._edit(
            lambda data: _at(data, path[:-1]).pop(path[-1]), lambda: self._without(parent, path[-1])
        )

    def append(self, path: Path, item: str) -> None:
        """Add to the end of a list that is there. Raises: Unsafe."""
        node = self._node(path)
        if node is None or node.kind != "list":
            raise Unsafe
        self._edit(lambda data: _at(data, path).append(item), lambda: self._longer(node, item))

    def drop(self, path: Path, item: str) -> None:
        """Take an item out of a list. Raises: Unsafe."""
        node, values = self._node(path), _at(self.data, path)
        rest = list(values)
        rest.remove(item)
        if node is None or node.kind != "list" or not rest:
            self.put(path, rest)
            return
        at = values.index(item)
        self._edit(lambda data: _at(data, path).remove(item), lambda: self._shorter(node, at))

    # How: each gives the whole new body

    def _added(self, parent: Node | None, pairs: dict[str, Any]) -> str:
        if parent is None or parent.kind == "scalar":  # the whole file is empty
            return self._at_end(self._block(pairs, 0))
        if parent.kind != "map":
            raise Unsafe
        if parent.flow:
            inner = _flow(pairs)[1:-1]
            last = parent.items[-1].end if parent.items else parent.end - 1
            return self._spliced(last, last, f", {inner}" if parent.items else inner)
        block = self._block(pairs, self._column(parent.items[0].start))
        if parent is self.root and not _ends_document(self._body):
            return self._at_end(block)
        return self._after_line(parent.end, block)

    def _replaced(self, parent: Node | None, pair: tuple[Node, Node], value: Any) -> str:
        key, old = pair
        empty = old.kind == "scalar" and old.start == old.end
        written = self._body[old.start : old.end]
        one_line = old.flow or (old.kind == "scalar" and "\n" not in written)
        if parent is not None and (parent.flow or not (value and isinstance(value, dict | list))):
            if value is None and not parent.flow:
                return self._spliced(self._body.index(":", key.end) + 1, old.end, "")
            if empty:
                after = self._body.index(":", key.end) + 1
                return self._spliced(after, after, " " + _flow(value))
            if one_line:
                return self._spliced(old.start, old.end, _flow(value))
        column = self._column(key.start)
        if empty:
            nested = self._block({key.value: value}, column).partition(self.newline)[2]
            return self._after_line(key.end, nested)
        start, end = self._lines(key.start, old.end)
        return self._spliced(start, end, self._block({key.value: value}, column))

    def _without(self, parent: Node | None, name: str) -> str:
        pair = _pair(parent, name) if parent is not None else None
        if parent is None or pair is None:
            raise Unsafe
        if parent.flow:
            at = parent.items.index(pair[0])
            return self._cut(parent, at, at + 1)
        return self._spliced(*self._lines(pair[0].start, pair[1].end), "")

    def _longer(self, node: Node, item: str) -> str:
        if node.flow:
            last = node.items[-1].end if node.items else node.end - 1
            written = _flow(item)
            return self._spliced(last, last, f", {written}" if node.items else written)
        indent = " " * self._column(node.start)
        return self._after_line(node.end, f"{indent}- {_flow(item)}{self.newline}")

    def _shorter(self, node: Node, at: int) -> str:
        if node.flow:
            return self._cut(node, at, at)
        item = node.items[at]
        return self._spliced(*self._lines(item.start, item.end), "")

    def _cut(self, node: Node, first: int, last: int) -> str:
        """Without these items of a flow collection, and one comma."""
        if first > 0:
            return self._spliced(node.items[first - 1].end, node.items[last].end, "")
        end = node.items[last + 1].start if last + 1 < len(node.items) else node.items[last].end
        return self._spliced(node.items[first].start, end, "")

    # Text

    def _spliced(self, start: int, end: int, new: str) -> str:
        return self._body[:start] + new + self._body[end:]

    def _lines(self, start: int, end: int) -> tuple[int, int]:
        """The whole lines from one place to another."""
        stop = self._body.find("\n", end)
        return self._body.rfind("\n", 0, start) + 1, len(self._body) if stop < 0 else stop + 1

    def _after_line(self, index: int, block: str) -> str:
        stop = self._body.find("\n", index)
        if stop < 0:
            return self._at_end(block)
        return self._spliced(stop + 1, stop + 1, block)

    def _at_end(self, block: str) -> str:
        gap = self.newline if self._body and not self._body.endswith("\n") else ""
        return self._body + gap + block

    def _column(self, index: int) -> int:
        line = self._body.rfind("\n", 0, index) + 1
        return index - line

    def _block(self, pairs: dict[str, Any], column: int) -> str:
        """Write pairs as a block, lists the way this file does."""
        written = yaml.dump(
            pairs, Dumper=_dumper(self._list_offset()), sort_keys=False, width=9_999
        )
        lines = written.splitlines()
        return "".join(f"{' ' * column}{line}{self.newline}" for line in lines)

    def _list_offset(self) -> bool:
        """Whether lists stand deeper than their key here."""
        for key, value in _all_pairs(self.root):
            if value.kind == "list" and not value.flow and value.items:
                return self._column(value.start) > self._column(key.start)
        return False

    # Tree

    def _edit(self, meant: Callable[[Any], Any], written: Callable[[], str]) -> None:
        """Make an edit, if the text then means what it has to."""
        wanted = _plain({} if self.data is None else self.data)
        meant(wanted)
        before = self._body
        try:
            self._body = written()
            self._read()
        except (NotYaml, Unsafe, ValueError) as error:
            self._body = before
            self._read()
            raise Unsafe from error
        got = {} if self.data is None else self.data
        if got != wanted and repr(_plain(got)) != repr(wanted):
            self._body = before
            self._read()
            raise Unsafe

    def _read(self) -> None:
        try:
            self.data = yaml.load(self._body, _Loader)  # noqa: S506 - both are safe loaders
            self.root = _tree(yaml.parse(self._body, _Loader))
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            raise NotYaml(mark.line + 1 if mark else None) from error
        except RecursionError as error:
            raise NotYaml(None) from error

    def _node(self, path: Path) -> Node | None:
        """Find a value. Raises: Unsafe when the way leads through an alias."""
        node = self.root
        for key in path:
            pair = _pair(node, key) if node is not None else None
            if pair is None or pair[1].kind == "alias":
                raise Unsafe
            node = pair[1]
        return node


def _dumper(deeper_lists: bool) -> Any:
    class Dumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, indentless and not deeper_lists)

    return Dumper


def _flow(value: Any) -> str:
    written: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, width=9_999)
    return written.removesuffix("...\n").strip()


def _at(data: Any, path: Path) -> Any:
    for key in path:
        data = data[key]
    return data


def _plain(value: Any) -> Any:
    """A copy in which nothing stands twice."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _pair(node: Node | None, name: str) -> tuple[Node, Node] | None:
    """The key and value of a name; the last counts, as it does for Hermes."""
    if node is None or node.kind != "map":
        return None
    found = [pair for pair in node.pairs() if pair[0].kind == "scalar" and pair[0].value == name]
    return found[-1] if found else None


def _all_pairs(node: Node | None) -> Iterator[tuple[Node, Node]]:
    if node is not None and node.kind == "map":
        for key, value in node.pairs():
            yield key, value
            yield from _all_pairs(value)


def _ends_document(text: str) -> bool:
    return any(line.rstrip() == "..." for line in text.splitlines())


def _tree(events: Iterator[Any]) -> Node | None:
    """Build the tree of the first document."""
    stack: list[Node] = []
    for event in events:
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            kind: Any = "map" if isinstance(event, yaml.MappingStartEvent) else "list"
            stack.append(Node(kind, start, end, flow=bool(event.flow_style)))
            continue
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            node = stack.pop()
            node.end = end if node.flow else max((item.end for item in node.items), default=end)
        elif isinstance(event, yaml.ScalarEvent):
            block = event.style in ("|", ">")
            node = Node("scalar", start, end - 1 if block else end, value=event.value)
        elif isinstance(event, yaml.AliasEvent):
            node = Node("alias", start, end)
        else:
            continue
        if not stack:
            return node
        stack[-1].items.append(node)
    return None
