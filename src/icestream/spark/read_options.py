"""What `spark.read.format("icestream")` was asked for: options, which are text."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from icestream.errors import InvalidArgumentError
from icestream.memory import parse_bytes
from icestream.redaction import redact
from icestream.spark.secrets import CATALOG_PREFIX

_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read, as its options say.

    Attributes:
        table: The table's name.
        catalog: The catalog's name in PyIceberg's configuration, or None.
        catalog_properties: Properties of it, beside those of the configuration.
        scan: Arguments of `icestream.scan`.
        memory_bytes: What a task may hold, if said.
        split_bytes: Where files are cut, if said.
        push_filters: Whether filters of a query are taken over from Spark.
    """

    table: str
    catalog: str | None = None
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    scan: Mapping[str, Any] = field(default_factory=dict)
    memory_bytes: int | None = None
    split_bytes: int | None = None
    push_filters: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """The read that the options describe.

        Raises:
            InvalidArgumentError: If one is unknown, or its value does not fit; it is named.
        """
        given = {key.lower(): value for key, value in options.items()}
        catalog_properties = {
            key.removeprefix(CATALOG_PREFIX): given.pop(key)
            for key in list(given)
            if key.startswith(CATALOG_PREFIX)
        }
        table = given.pop("path", "")
        if not table:
            raise InvalidArgumentError(
                'format("icestream") needs a table: name it, as in .load("db.t")'
            )
        catalog = given.pop("catalog", None)
        values: dict[str, Any] = {}
        for key, text in given.items():
            if key not in _PARSERS:
                known = ", ".join(sorted([*_PARSERS, "catalog", "catalog.<property>"]))
                raise InvalidArgumentError(
                    f'format("icestream") has no option {key!r}: there are {known}'
                )
            values[key] = parse_option(key, text, _PARSERS[key])
        return cls(
            table=table,
            catalog=catalog,
            catalog_properties=catalog_properties,
            memory_bytes=values.pop("memory", None),
            split_bytes=values.pop("split-size", None),
            push_filters=values.pop("push-filters", False),
            scan={_ARGUMENTS.get(key, key): value for key, value in values.items()},
        )


def parse_option(key: str, text: str, parse: Callable[[str], Any]) -> Any:
    """The value of an option.

    Raises:
        InvalidArgumentError: If `parse` has a `ValueError` for it; the option is named.
    """
    try:
        return parse(text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"option {key!r}: {error}") from error
    except ValueError as error:
        shown = redact(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
        raise InvalidArgumentError(f"option {key!r} is {shown!r}: {error}") from error


def parse_number(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("give a whole number") from None


def parse_moment(text: str) -> datetime | int:
    """A moment, or milliseconds since 1970."""
    if text.strip().lstrip("-").isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            "give milliseconds since 1970, or a moment such as '2026-01-31T12:00:00+00:00'"
        ) from None


def parse_flag(text: str) -> bool:
    """True or false."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.strip().lower() == "true"


def _names(text: str) -> list[str]:
    if text.lstrip().startswith("["):
        try:
            names: list[str] = json.loads(text)
        except ValueError:
            raise ValueError('give names with commas between, or a JSON list: ["a", "b"]') from None
        if not all(isinstance(name, str) for name in names):
            raise ValueError("the JSON list must hold names")
    else:
        names = next(csv.reader([text], skipinitialspace=True, strict=True), [])
        names = [name.strip() for name in names]
    if not all(names):
        raise ValueError("a name is empty")
    return names


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty: leave it out")
    return text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "snapshot-id": parse_number,
    "as-of-timestamp": parse_moment,
    "branch": _text,
    "tag": _text,
    "where": _text,
    "columns": _names,
    "metadata-columns": _names,
    "case-sensitive": parse_flag,
    "memory": lambda text: parse_bytes(text, name="memory"),
    "split-size": lambda text: parse_bytes(text, name="split-size"),
    "push-filters": parse_flag,
}
_ARGUMENTS = {
    "snapshot-id": "snapshot_id",
    "as-of-timestamp": "as_of",
    "metadata-columns": "metadata_columns",
    "case-sensitive": "case_sensitive",
}
