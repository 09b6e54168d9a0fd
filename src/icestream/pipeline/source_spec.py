"""Where rows come from, as the caller wrote it and checked before anything is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, quote_plus

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.errors import InvalidArgumentError
from icestream.pipeline.choice import check_choice, check_keys
from icestream.pipeline.file_store import shown_path
from icestream.redaction import redact, without_password

SourceKind = Literal["files", "table", "jdbc", "spark", "arrow", "frame"]
SourceFormat = Literal["parquet", "csv", "json", "arrow", "orc", "avro"]

_TABLE = "table:"
_DATABASES = ("jdbc:", "postgresql:", "postgres:")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://|file:/")
_KEYS = {
    "files": ("path", "paths", "format", "options", "hive_partitions"),
    "table": ("table", "where", "columns", "branch", "catalog"),
    "jdbc": ("jdbc", "table", "query", "user", "password", "options"),
    "spark": ("spark_format", "path", "paths", "options"),
}
# What a mapping is, by the first of these keys that it has.
_KIND_OF: tuple[tuple[str, SourceKind], ...] = (
    ("jdbc", "jdbc"),
    ("spark_format", "spark"),
    ("table", "table"),
    ("path", "files"),
    ("paths", "files"),
)
_IN_ADDRESS = ("table", "query", "user", "password")
_CSV_OPTIONS = ("delimiter", "quote", "escape", "header", "columns", "nulls", "multiline")


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source of a load. Texts about it hold no secret.

    Attributes:
        kind: What it is.
        paths: Of files, or of a Spark format: paths, globs or folders.
        format: Of files: None where their names say it. Of a Spark format: its name.
        hive_partitions: Of files: whether names of folders (`year=2025`) are columns.
        options: Of the reader; those with a dot in their names (`s3.endpoint`) give access.
        table: Of a table or a database: a name, or a PyIceberg table.
        where: Of a table: which rows.
        columns: Of a table: which columns.
        branch: Of a table: which branch.
        catalog: Of a table: its catalog; the load's by default.
        url: Of a database: its address.
        query: Of a database: SQL instead of a table.
        value: A stream, a function that opens one, or a Spark DataFrame.
    """

    kind: SourceKind
    paths: tuple[str, ...] = ()
    format: str | None = None
    hive_partitions: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    table: str | Table | None = None
    where: str | None = None
    columns: tuple[str, ...] | None = None
    branch: str | None = None
    catalog: str | Catalog | None = None
    url: str | None = None
    query: str | None = None
    value: object = None

    def __repr__(self) -> str:
        return f"SourceSpec({self.kind}: {self.text})"

    @property
    def text(self) -> str:
        """The source in a few words, without secrets."""
        if self.kind == "files":
            return ", ".join(redact(shown_path(path)) for path in self.paths)
        if self.kind == "table":
            name = ".".join(self.table.name()) if isinstance(self.table, Table) else self.table
            return f"table:{name}"
        if self.kind == "jdbc":
            return f"{without_password(self.url or '')} {self.table or redact(self.query or '')}"
        if self.kind == "spark":
            return " ".join([str(self.format), *(redact(shown_path(path)) for path in self.paths)])
        return f"a {type(self.value).__module__.partition('.')[0]} {type(self.value).__name__}"

    @property
    def can_be_incremental(self) -> bool:
        """Whether what is new since the last load can be told."""
        return self.kind in ("files", "table")

    @classmethod
    def parse(cls, source: object, *, folder: Path | None = None) -> SourceSpec:
        """Make a source of what the caller wrote.

        Args:
            source: Text, a mapping, a path, a PyIceberg table, an Arrow stream or a DataFrame.
            folder: What relative paths are relative to; the working directory by default.

        Raises:
            InvalidArgumentError: If it can't be a source; says what to write.
        """
        if isinstance(source, SourceSpec):
            return source
        if isinstance(source, str):
            return _of_text(source, folder)
        if isinstance(source, os.PathLike):
            return cls("files", paths=(_placed(os.fspath(source), folder),))
        if isinstance(source, Mapping):
            return _of_mapping(source, folder)
        if isinstance(source, Table):
            return cls("table", table=source)
        if source is None or isinstance(source, (bytes, bool, int, float)):
            raise InvalidArgumentError(
                f"a source is {source!r}: give a path such as 'data/*.parquet', 'table:db.t', a "
                "JDBC address, a mapping, an Arrow stream or a Spark DataFrame"
            )
        return cls("frame" if _is_spark_frame(source) else "arrow", value=source)


def parse_sources(source: object, *, folder: Path | None = None) -> tuple[SourceSpec, ...]:
    """One source, or the union of several.

    A list of Arrow batches or tables is one stream.

    Raises:
        InvalidArgumentError: If there is none, or one can't be a source.
    """
    if not isinstance(source, (list, tuple)):
        return (SourceSpec.parse(source, folder=folder),)
    if source and all(isinstance(each, (pa.RecordBatch, pa.Table)) for each in source):
        return (SourceSpec("arrow", value=source),)
    if not source:
        raise InvalidArgumentError("there is no source: give a path such as 'data/*.parquet'")
    return tuple(SourceSpec.parse(each, folder=folder) for each in source)


def _of_text(text: str, folder: Path | None) -> SourceSpec:
    if not text.strip():
        raise InvalidArgumentError("a source is empty: give a path such as 'data/*.parquet'")
    if text.startswith(_TABLE):
        return _of_mapping({"table": text.removeprefix(_TABLE)}, folder)
    if text.startswith(_DATABASES):
        address, _, query = text.partition("?")
        told = dict(parse_qsl(query, keep_blank_values=True))
        known: dict[str, Any] = {key: told.pop(key) for key in _IN_ADDRESS if key in told}
        rest = "&".join(f"{key}={quote_plus(value)}" for key, value in told.items())
        return _of_mapping({"jdbc": f"{address}?{rest}" if rest else address, **known}, folder)
    return SourceSpec("files", paths=(_placed(text, folder),))


def _of_mapping(source: Mapping[str, Any], folder: Path | None) -> SourceSpec:
    kind = next((kind for key, kind in _KIND_OF if key in source), None)
    if kind is None:
        known = tuple(key for keys in _KEYS.values() for key in keys)
        check_keys("a source", source, known)
        raise InvalidArgumentError(
            f"a source has {', '.join(map(repr, source)) or 'nothing'}: give 'path', 'table', "
            "'jdbc' or 'spark_format', too"
        )
    check_keys(f"a source of kind {kind!r}", source, _KEYS[kind])
    told = dict(source)
    options = told.pop("options", None) or {}
    if not isinstance(options, Mapping):
        raise InvalidArgumentError(f"options of a source are {options!r}: give names and values")
    if options.get("jar"):
        jars = [_placed(jar.strip(), folder) for jar in str(options["jar"]).split(",")]
        options = {**options, "jar": ",".join(jars)}
    if kind == "jdbc":
        return _database(told, options)
    if kind == "table":
        return _table(told)
    paths = _paths(told, folder)
    if kind == "spark":
        return SourceSpec(
            "spark", paths=paths, format=_text_of("spark_format", told), options=options
        )
    if not paths:
        raise InvalidArgumentError("a source has no path: give one such as 'data/*.parquet'")
    format_ = told.get("format")
    if format_ is not None:
        check_choice("format", format_, get_args(SourceFormat))
    _check_options(options, format_)
    hive = told.get("hive_partitions", True)
    if not isinstance(hive, bool):
        raise InvalidArgumentError(f"hive_partitions is {hive!r}: give true or false")
    kind = "spark" if format_ == "avro" else "files"  # which only Spark reads
    return SourceSpec(kind, paths=paths, format=format_, options=options, hive_partitions=hive)


def _paths(told: Mapping[str, Any], folder: Path | None) -> tuple[str, ...]:
    given: list[Any] = []
    for key in ("path", "paths"):
        value = told.get(key, [])
        given += [value] if isinstance(value, (str, os.PathLike)) else list(value)
    for each in given:
        if not isinstance(each, (str, os.PathLike)) or not os.fspath(each):
            raise InvalidArgumentError(f"a path is {each!r}: give text such as 'data/*.parquet'")
    return tuple(_placed(os.fspath(each), folder) for each in given)


def _database(told: Mapping[str, Any], options: Mapping[str, Any]) -> SourceSpec:
    url = _text_of("jdbc", told)
    if ("table" in told) == ("query" in told):
        raise InvalidArgumentError(
            f"the source {without_password(url)} needs a table or a query, and not both: give "
            "'table', as in jdbc:postgresql://host/db?table=orders, or 'query'"
        )
    access = {key: str(told[key]) for key in ("user", "password") if key in told}
    return SourceSpec(
        "jdbc",
        url=url,
        table=_text_of("table", told) if "table" in told else None,
        query=_text_of("query", told) if "query" in told else None,
        options={**options, **access},
    )


def _table(told: Mapping[str, Any]) -> SourceSpec:
    table = told["table"]
    if not isinstance(table, (str, Table)) or not table:
        raise InvalidArgumentError(f"table is {table!r}: give a name such as 'db.t'")
    columns = told.get("columns")
    if isinstance(columns, str):
        columns = [name.strip() for name in columns.split(",")]
    return SourceSpec(
        "table",
        table=table,
        where=told.get("where"),
        columns=None if columns is None else tuple(columns),
        branch=told.get("branch"),
        catalog=told.get("catalog"),
    )


def _check_options(options: Mapping[str, Any], format_: str | None) -> None:
    own = [key for key in options if "." not in str(key)]
    if format_ not in (None, "csv", "avro") and own:
        raise InvalidArgumentError(
            f"{own[0]!r} is an option of CSV files, and the format is {format_!r}: leave it out"
        )
    if format_ != "avro":
        check_keys("options of files", own, _CSV_OPTIONS)


def _text_of(key: str, told: Mapping[str, Any]) -> str:
    value = told.get(key)
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgumentError(f"{key} of a source is {value!r}: give text")
    return value


def _placed(path: str, folder: Path | None) -> str:
    if folder is None or _SCHEME.match(path) or Path(path).is_absolute():
        return path
    return str(folder / path)


def _is_spark_frame(source: object) -> bool:
    kind = type(source)
    return kind.__module__.startswith("pyspark.") and kind.__name__ == "DataFrame"


def described(sources: Sequence[SourceSpec]) -> str:
    """All sources in a few words."""
    return "; ".join(source.text for source in sources)
