"""YAML as plain values, each with the line it is on.

Scalars are those of YAML 1.2, which is what people expect: `NO` is a country and no boolean,
`2026-11-16` a text, `010` ten. Keys that are there twice are refused; PyYAML takes the last one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from icestream.errors import InvalidArgumentError

Path = tuple[str | int, ...]

_RESOLVERS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
)
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's safe loader with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _name, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"(?:{_pattern})$"), list(_first))


@dataclass(frozen=True, slots=True)
class LocatedYaml:
    """A document.

    Attributes:
        where: The file's name, for messages.
        value: The whole document: dictionaries, lists, texts, numbers.
        lines: The line of each value, counted from 1, by the keys that lead to it.
    """

    where: str
    value: Any
    lines: Mapping[Path, int] = field(repr=False)

    @classmethod
    def parse(cls, text: str, where: str, expand: Callable[[str], str]) -> LocatedYaml:
        """Read a document.

        Args:
            text: The YAML.
            where: The file's name.
            expand: Puts the values of variables into a text. What has a variable stays text.

        Raises:
            InvalidArgumentError: If it is no YAML, or a variable is missing; with the line.
        """
        try:
            root = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise InvalidArgumentError(
                f"{where}:{line}: this is no YAML: {error.problem or error.context}"
            ) from error
        except yaml.YAMLError as error:
            raise InvalidArgumentError(f"{where}: this is no YAML: {error}") from error
        lines: dict[Path, int] = {}
        value = None if root is None else _Reading(where, lines, expand).value(root, ())
        return cls(where, value, lines)

    def error(self, path: Path, message: str) -> InvalidArgumentError:
        """An error about the value that some keys lead to, or about what holds it."""
        while path not in self.lines and path:
            path = path[:-1]
        return InvalidArgumentError(f"{self.where}:{self.lines.get(path, 1)}: {message}")


class _Reading:
    """Makes values of nodes."""

    def __init__(self, where: str, lines: dict[Path, int], expand: Callable[[str], str]) -> None:
        self._where = where
        self._lines = lines
        self._expand = expand
        self._open: list[int] = []

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise self._error(node, "an alias is inside of what it stands for")
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(each, (*path, n)) for n, each in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.pop()

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, "a key is no text")
            key = key_node.value
            if key in found:
                raise self._error(key_node, f"{key!r} is there twice: leave one out")
            self._lines[(*path, key)] = key_node.start_mark.line + 1
            found[key] = self.value(value_node, (*path, key))
        return found

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            text = self._expand(node.value)
        except InvalidArgumentError as error:
            raise self._error(node, str(error)) from error
        kind = node.tag.removeprefix(_TAG)
        if "$" in node.value or kind == "str":
            return text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        if kind in ("int", "float"):
            return int(text) if kind == "int" else float(text)
        raise self._error(node, f"{node.tag!r} is no tag that is known here: leave it out")

    def _error(self, node: yaml.Node, message: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self._where}:{node.start_mark.line + 1}: {message}")
