"""The specification of a source, validated before anything is opened."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, quote_plus

import pyarrow as pa
from pydantic import BeforeValidator, Field, InstanceOf, PlainValidator, ValidationInfo
from pydantic.json_schema import SkipJsonSchema
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from icestream.catalogs.redaction import redact
from icestream.errors import InvalidArgumentError
from icestream.pipeline.request.database_address import (
    DatabaseAddress,
    is_database,
    placed_address,
    shown_address,
)
from icestream.pipeline.request.validation import (
    ONE_OR_MORE,
    NotBlank,
    RequestModel,
    Switch,
    Text,
    Texts,
    check_keys,
    expect,
    explained,
)
from icestream.write.sources.file_store import shown_path
from icestream.write.sources.formats import SourceFormat, needs_spark
from icestream.write.sources.text.text_format import CSV_OPTIONS

SourceKind = Literal["files", "table", "jdbc", "spark", "arrow", "frame"]
CatalogName = Annotated[str | SkipJsonSchema[Catalog], expect("give a catalog's name")]

_COMMA = re.compile(r"\s*,\s*")
_TABLE = "table:"
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://|file:/")
_IN_ADDRESS = ("table", "query", "user", "password")
# Keys that people try, and those that exist.
_OTHER_KEYS = {
    **dict.fromkeys(("file", "files", "folder", "glob"), "path"),
    **dict.fromkeys(("uri", "url", "connection", "dsn"), "database"),
}


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """One source of a load. Its `repr` and `text` contain no secrets.

    Attributes:
        kind: The kind of source.
        paths: Paths, globs or folders of files or of a Spark format.
        format: File format, by default derived from file names; or the name of a Spark format.
        hive_partitions: Whether folder names (`year=2025`) of files are columns.
        options: Reader options. Options with a dot (`s3.endpoint`) configure access to the store.
        table: Name of a table, or a PyIceberg table; or the name of a database table.
        where: Row filter of a table.
        columns: Columns of a table.
        branch: Branch of a table.
        catalog: Catalog of a table; by default the load's.
        url: Address of a database.
        query: Query of a database, instead of a table.
        value: An Arrow stream, a function that opens one, or a Spark DataFrame.
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
        """A short description of the source, without secrets."""
        if self.kind == "files":
            return ", ".join(redact(shown_path(path)) for path in self.paths)
        if self.kind == "table":
            name = ".".join(self.table.name()) if isinstance(self.table, Table) else self.table
            return f"table:{name}"
        if self.kind == "jdbc":
            return f"{self.shown_address} {self.table or redact(self.query or '')}"
        if self.kind == "spark":
            return " ".join([str(self.format), *(redact(shown_path(path)) for path in self.paths)])
        return f"a {type(self.value).__module__.partition('.')[0]} {type(self.value).__name__}"

    @property
    def address(self) -> DatabaseAddress:
        """The address of a database."""
        return DatabaseAddress.of(self.url or "", has_jar="jar" in self.options)

    @property
    def shown_address(self) -> str:
        """The address of a database, without secrets."""
        return shown_address(self.url or "")

    @property
    def can_be_incremental(self) -> bool:
        """Whether new files or rows since the last load can be determined."""
        return self.kind in ("files", "table")

    @classmethod
    def parse(cls, source: object, *, folder: Path | None = None) -> SourceSpec:
        """Parse a source.

        Args:
            source: Text, a mapping, a path, a PyIceberg table, an Arrow stream or a DataFrame.
            folder: Base folder for relative paths; by default the working directory.

        Raises:
            InvalidArgumentError: If it is not a source. The message says what to write.
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
    """Parse one source, or a list of sources. A list of Arrow batches or tables is one source.

    Raises:
        InvalidArgumentError: If the list is empty, or a value is not a source.
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
    _refuse_stdin((text,))
    if text.startswith(_TABLE):
        return _of_mapping({"table": text.removeprefix(_TABLE)}, folder)
    if is_database(text):
        address, _, query = text.partition("?")
        parameters = dict(parse_qsl(query, keep_blank_values=True))
        known: dict[str, Any] = {
            key: parameters.pop(key) for key in _IN_ADDRESS if key in parameters
        }
        rest = "&".join(f"{key}={quote_plus(value)}" for key, value in parameters.items())
        return _of_mapping({"jdbc": f"{address}?{rest}" if rest else address, **known}, folder)
    return SourceSpec("files", paths=(_placed(text, folder),))


def _of_mapping(source: Mapping[str, Any], folder: Path | None) -> SourceSpec:
    model = next((model for key, model in _MODELS.items() if key in source), None)
    if model is None:
        known = dict.fromkeys(key for model in _MODELS.values() for key in model.model_fields)
        other = next((key for key in source if key in _OTHER_KEYS), None)
        if other is not None:
            raise InvalidArgumentError(
                f"a source has {other!r}, which is unknown: did you mean {_OTHER_KEYS[other]!r}?"
            )
        check_keys("a source", source, known)
        raise InvalidArgumentError(
            f"a source has {', '.join(map(repr, source)) or 'nothing'}: give 'path', 'table', "
            "'database' or 'spark_format' as well"
        )
    with explained():
        spec = model.model_validate(source).spec
    _refuse_stdin(spec.paths)
    options = dict(spec.options)
    if options.get("jar"):
        jars = [_placed(jar.strip(), folder) for jar in str(options["jar"]).split(",")]
        options["jar"] = ",".join(jars)
    return replace(
        spec,
        paths=tuple(_placed(each, folder) for each in spec.paths),
        options=options,
        url=None if spec.url is None else placed_address(spec.url, folder),
    )


_Path = Annotated[
    str, Field(min_length=1), expect("give text such as 'data/*.parquet'", name="a path")
]
_Paths = Annotated[tuple[_Path, ...], ONE_OR_MORE]
_Columns = Annotated[
    Texts,
    BeforeValidator(lambda text: _COMMA.split(text.strip()) if isinstance(text, str) else text),
]
_TableName = Annotated[NotBlank | SkipJsonSchema[Table], expect("give a name such as 'db.t'")]
_Filter = Annotated[
    str | SkipJsonSchema[InstanceOf[BooleanExpression]], expect("give text such as 'id > 1'")
]
_Plain = Annotated[str, BeforeValidator(str)]
_Options = Annotated[dict[str, Any], expect("give names and values")]


class _PathsModel(RequestModel):
    path: _Paths = Field((), description="A path, glob or folder, or a list of them.")
    paths: _Paths = Field((), description="The same as path.")
    options: _Options | None = Field(None, description="Options of the reader.", repr=False)


class FilesModel(_PathsModel):
    """Parquet, ORC, CSV, JSON lines, Arrow or Avro files."""

    what = "a source of kind 'files'"
    format: SourceFormat | None = Field(
        None, description="The file format; derived from the file names by default."
    )
    hive_partitions: Switch = Field(True, description="Read folders (year=2025) as columns.")

    @property
    def spec(self) -> SourceSpec:
        if not (*self.path, *self.paths):
            raise InvalidArgumentError("a source has no path: give one such as 'data/*.parquet'")
        own = [key for key in self.options or {} if "." not in key]
        if self.format not in (None, "csv") and not needs_spark(self.format) and own:
            raise InvalidArgumentError(
                f"{own[0]!r} is an option of CSV files, and the format is {self.format!r}: leave "
                "it out"
            )
        if not needs_spark(self.format):
            check_keys("options of files", own, CSV_OPTIONS)
        return SourceSpec(
            "spark" if needs_spark(self.format) else "files",
            paths=(*self.path, *self.paths),
            format=self.format,
            options=self.options or {},
            hive_partitions=self.hive_partitions,
        )


class TableModel(RequestModel):
    """An Iceberg table."""

    what = "a source of kind 'table'"
    table: _TableName = Field(description="The table, such as db.t.")
    where: _Filter | None = Field(None, description="A filter: which rows to read.")
    columns: _Columns | None = Field(None, description="Which columns to read.")
    branch: str | None = Field(None, description="Which branch to read.")
    catalog: CatalogName | None = Field(
        None, description="The catalog of the table; the load's catalog by default."
    )

    @property
    def spec(self) -> SourceSpec:
        return SourceSpec("table", **dict(self))


class DatabaseModel(RequestModel):
    """A table or a query of a database."""

    what = "a source of kind 'jdbc'"
    jdbc: Text | None = Field(
        None, description="The address, such as jdbc:postgresql://host/db.", repr=False
    )
    database: Text | None = Field(
        None,
        description="The same: sqlite:///x.db, adbc:DRIVER:URI, ...",
        repr=False,
    )
    table: Text | None = Field(None, description="The table to read.")
    query: Text | None = Field(None, description="A query instead of a table.", repr=False)
    user: _Plain | None = Field(None, description="The name to log in with.")
    password: _Plain | None = Field(None, description="Use a variable: ${PASSWORD}.", repr=False)
    options: _Options | None = Field(None, description="Options of the reader.", repr=False)

    @property
    def spec(self) -> SourceSpec:
        url = self.jdbc or self.database or ""
        shown = shown_address(url)
        if not is_database(url):
            raise InvalidArgumentError(
                f"{shown!r} is not the address of a database: write sqlite:///x.db, "
                "duckdb:///x.duckdb, postgresql://host/db, adbc:DRIVER:URI or jdbc:..."
            )
        if (self.table is None) == (self.query is None):
            raise InvalidArgumentError(
                f"the source {shown} needs a table or a query, and not both: give 'table', as in "
                f"{shown}?table=orders, or 'query'"
            )
        access = self.model_dump(include={"user", "password"}, exclude_none=True)
        options = {**(self.options or {}), **access}
        return SourceSpec("jdbc", url=url, table=self.table, query=self.query, options=options)


class SparkModel(_PathsModel):
    """Any format that Spark reads."""

    what = "a source of kind 'spark'"
    spark_format: Text = Field(description="The format's name in Spark.")

    @property
    def spec(self) -> SourceSpec:
        paths = (*self.path, *self.paths)
        return SourceSpec(
            "spark", paths=paths, format=self.spark_format, options=self.options or {}
        )


# The first of these keys that a source has decides its kind.
_MODELS: dict[str, type[DatabaseModel | SparkModel | TableModel | FilesModel]] = {
    "jdbc": DatabaseModel,
    "database": DatabaseModel,
    "spark_format": SparkModel,
    "table": TableModel,
    "path": FilesModel,
    "paths": FilesModel,
}
_Written = str | FilesModel | TableModel | DatabaseModel | SparkModel


def _validated_sources(value: object, info: ValidationInfo) -> tuple[SourceSpec, ...]:
    return parse_sources(value, folder=(info.context or {}).get("folder"))


Sources = Annotated[
    tuple[SourceSpec, ...],
    PlainValidator(_validated_sources, json_schema_input_type=_Written | list[_Written]),
]
"""The type of `source` in a pipeline file. Relative paths start at the context's folder."""


def _refuse_stdin(paths: Sequence[str]) -> None:
    if "-" in paths:
        raise InvalidArgumentError(
            "a source is '-', and standard input is not read: save the rows to a file, and give "
            "its path"
        )


def _placed(path: str, folder: Path | None) -> str:
    if folder is None or _SCHEME.match(path) or Path(path).is_absolute():
        return path
    return str(folder / path)


def _is_spark_frame(source: object) -> bool:
    kind = type(source)
    return kind.__module__.startswith("pyspark.") and kind.__name__ == "DataFrame"
