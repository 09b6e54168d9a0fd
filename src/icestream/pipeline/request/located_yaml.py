"""Parses YAML into plain values with line numbers, and expands variables.

Scalars follow YAML 1.2: `NO` is text, not a boolean, `2026-11-16` is text, and `010` is ten. A
duplicate key is an error; PyYAML would use the last one. `${NAME}` and `${NAME:-default}` are
variables, and `$$` is a dollar sign.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from icestream.errors import InvalidArgumentError
from icestream.pipeline.request.validation import Path, suggestion

_RESOLVERS = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+0123456789."),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
)
_TAG = "tag:yaml.org,2002:"
_VARIABLE = re.compile(r"\$(?:\$|\{([^{}]*)\})")
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """PyYAML's safe loader with the scalars of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}


for _name, _pattern, _first in _RESOLVERS:
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(f"(?:{_pattern})$"), list(_first))


@dataclass(frozen=True, slots=True)
class LocatedYaml:
    """A YAML document.

    Attributes:
        where: The file's name, for messages.
        value: The document as dictionaries, lists, texts and numbers.
        lines: The line number of each value, by the keys that lead to it.
    """

    where: str
    value: Any = field(repr=False)
    lines: Mapping[Path, int] = field(repr=False)

    @classmethod
    def parse(cls, text: str, where: str, variables: Mapping[str, str]) -> LocatedYaml:
        """Parse a document.

        Args:
            text: The YAML.
            where: The file's name.
            variables: Values of variables. A scalar with a variable is always text.

        Raises:
            InvalidArgumentError: If the text is not valid YAML, or a variable has no value. The
                message names the line.
        """
        try:
            root = yaml.compose(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            raise InvalidArgumentError(
                f"{where}:{line}: this is not valid YAML: {error.problem or error.context}"
            ) from error
        except yaml.YAMLError as error:
            raise InvalidArgumentError(f"{where}: this is not valid YAML: {error}") from error
        lines: dict[Path, int] = {}
        value = None if root is None else _Reading(where, lines, variables).value(root, ())
        return cls(where, value, lines)

    def error(self, path: Path, message: str) -> InvalidArgumentError:
        """An error about the value at a path, with the line of the value or of its parent."""
        while path not in self.lines and path:
            path = path[:-1]
        return InvalidArgumentError(f"{self.where}:{self.lines.get(path, 1)}: {message}")


class _Reading:
    """Converts YAML nodes to values."""

    def __init__(self, where: str, lines: dict[Path, int], variables: Mapping[str, str]) -> None:
        self._where = where
        self._lines = lines
        self._variables = variables
        self._open: list[int] = []

    def value(self, node: yaml.Node, path: Path) -> Any:
        self._lines.setdefault(path, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise self._error(node, "an alias refers to a value that contains it")
        self._open.append(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.value(each, (*path, n)) for n, each in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.pop()

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, "a key is not text")
            key = key_node.value
            if key in values:
                raise self._error(key_node, f"{key!r} is given twice: remove one of them")
            self._lines[(*path, key)] = key_node.start_mark.line + 1
            values[key] = self.value(value_node, (*path, key))
        return values

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            text = _expand(node.value, self._variables)
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
        raise self._error(node, f"the tag {node.tag!r} is not supported: remove it")

    def _error(self, node: yaml.Node, message: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"{self._where}:{node.start_mark.line + 1}: {message}")


def _expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace the variables in a text with their values. The values are not expanded again.

    Raises:
        InvalidArgumentError: If a variable has no value and no default, or is not well-formed.
    """

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        parts = _NAME.fullmatch(match[1])
        if parts is None:
            raise InvalidArgumentError(
                f"{match[0]!r} is not a variable: write ${{NAME}} or ${{NAME:-default}}, and $$ "
                "for a dollar sign"
            )
        name, default = parts.groups()
        text = variables.get(name)
        if default is not None:
            return text or default
        if text is None:
            raise InvalidArgumentError(_missing(name, variables))
        return text

    return _VARIABLE.sub(value, text)


def _missing(name: str, variables: Mapping[str, str]) -> str:
    near = suggestion(name, tuple(variables))
    hint = f" ({near})" if near.startswith("did you mean") else ""
    return (
        f"the variable {name!r} is not set{hint}: set it in the environment, or give a default, as "
        f"in ${{{name}:-default}}"
    )
