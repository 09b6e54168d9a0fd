"""Parses the options of `spark.read.format("icestream")`, which are all text."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from icestream.catalogs.redaction import redact
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import parse_bytes
from icestream.spark.setup.settings import CATALOG_PREFIX

NAME_IT = (
    'name it, as in .load("db.t"). For tables of CREATE TABLE ... USING icestream, Spark does not '
    "pass any name or option to a Python data source: use CREATE TEMPORARY VIEW ... USING "
    "icestream OPTIONS (path 'db.t'), or icestream.spark.sql"
)
_OWNER = "owner"
_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read.

    Attributes:
        table: The table's name.
        catalog: The catalog's name in PyIceberg's configuration, or None.
        catalog_properties: Properties of the catalog, in addition to the configuration.
        scan: Arguments of `icestream.scan`.
        memory_bytes: The memory limit of each task, if given.
        split_bytes: The size at which files are cut, if given.
        push_filters: Whether icestream applies the filters of a query instead of Spark.
        read_latest: Whether each query reads the table as it is then.
    """

    table: str
    catalog: str | None = None
    catalog_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    scan: Mapping[str, Any] = field(default_factory=dict)
    memory_bytes: int | None = None
    split_bytes: int | None = None
    push_filters: bool = False
    read_latest: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ReadOptions:
        """Parse the options.

        Raises:
            InvalidArgumentError: If an option is unknown or its value is invalid.
        """
        given = {key.lower(): value for key, value in options.items()}
        catalog_properties = options_below(given, CATALOG_PREFIX)
        given = {key: text for key, text in given.items() if not key.startswith(CATALOG_PREFIX)}
        table = given.pop("path", "")
        if not table or _OWNER in given:  # Spark adds an owner to CREATE TABLE
            raise InvalidArgumentError(f'format("icestream") needs a table: {NAME_IT}')
        catalog = given.pop("catalog", None)
        values: dict[str, Any] = {}
        for key, text in given.items():
            if key not in _PARSERS:
                known = ", ".join(sorted([*_PARSERS, "catalog", "catalog.<property>"]))
                raise InvalidArgumentError(
                    f'format("icestream") has no option {key!r}: the options are {known}'
                )
            values[key] = parse_option(key, text, _PARSERS[key])
        return cls(
            table=table,
            catalog=catalog,
            catalog_properties=catalog_properties,
            memory_bytes=values.pop("memory", None),
            split_bytes=values.pop("split-size", None),
            push_filters=values.pop("push-filters", False),
            read_latest=values.pop("read-latest", False),
            scan={
                "as_of" if key == "as-of-timestamp" else key.replace("-", "_"): value
                for key, value in values.items()
            },
        )


def options_below(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The options whose names start with a prefix, without the prefix."""
    return {
        key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)
    }


def parse_option(key: str, text: str, parse: Callable[[str], Any]) -> Any:
    """Parse the value of an option.

    Raises:
        InvalidArgumentError: If `parse` raises a `ValueError`. The message names the option.
    """
    try:
        return parse(text)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"option {key!r}: {error}") from error
    except ValueError as error:
        shown = redact(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
        raise InvalidArgumentError(f"option {key!r} is {shown!r}: {error}") from error


def parse_number(text: str) -> int:
    """Parse a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("give a whole number") from None


def parse_moment(text: str) -> datetime | int:
    """Parse a timestamp, or milliseconds since 1970."""
    if text.strip().lstrip("-").isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(
            "give milliseconds since 1970, or a timestamp such as '2026-01-31T12:00:00+00:00'"
        ) from None


def parse_flag(text: str) -> bool:
    """Parse true or false."""
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("give true or false")
    return text.strip().lower() == "true"


def _names(text: str) -> list[str]:
    if text.lstrip().startswith("["):
        try:
            names: list[str] = json.loads(text)
        except ValueError:
            raise ValueError('give names separated by commas, or a JSON list: ["a", "b"]') from None
        if not all(isinstance(name, str) for name in names):
            raise ValueError("the JSON list must contain names only")
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
    "read-latest": parse_flag,
}
