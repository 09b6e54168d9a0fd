"""The specification of one load. It validates all arguments before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    field_validator,
    model_validator,
)
from pydantic.dataclasses import dataclass
from pydantic.json_schema import SkipJsonSchema
from pyiceberg.table import Table

from icestream.commit.outcome.load_id import check_load_id
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.operations.merge.merge_options import MERGE_RULES, MergeOptions, MergeRules
from icestream.operations.write_options import check_properties
from icestream.pipeline.request.column_spec import ColumnTypes, RowFilter, Selection
from icestream.pipeline.request.source_spec import CatalogName, SourceSpec, parse_sources
from icestream.pipeline.request.validation import (
    CONFIG,
    NotBlank,
    Switch,
    Texts,
    about,
    check_keys,
    error_at,
    expect,
    explained,
    listed,
    locate_unknown_keys,
    truth_of_text,
)
from icestream.write.rules.column_rules import ColumnRules
from icestream.write.rules.duckdb_query import DuckdbQuery, refuse_small_memory
from icestream.write.rules.row_local import (
    refuse_unless_plan_is_row_local,
    refuse_unless_row_local,
)
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.sources.formats import needs_spark

LoadMode = Literal["append", "replace", "merge"]
EngineName = Literal["auto", "spark", "local", "iceberg-jar"]
BadRecords = Literal["fail", "quarantine"]
TransformEngine = Literal["spark", "duckdb"]
Transform = str | Callable[[Any], Any]


def _size(value: int | str) -> int | str:
    parse_bytes(value)
    return value


def _snapshot_properties(value: Mapping[str, str]) -> Mapping[str, str]:
    check_properties(value)
    return value


def _table_name(into: str | Table) -> str | Table:
    if isinstance(into, str) and ("" in into.split(".") or "." not in into):
        raise InvalidArgumentError(
            f"into is {into!r}, which is not a table name: write namespace and name, as in 'db.t'"
        )
    return into


_text_of_path = BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)
_Transform = Annotated[
    NotBlank | SkipJsonSchema[Callable[[Any], Any]],
    _text_of_path,
    expect("give SQL such as 'SELECT * FROM source', or a function"),
]
_Memory = Annotated[int | str, PlainValidator(_size, json_schema_input_type=int | str)]
_Branch = Annotated[str, Field(min_length=1), expect("name a branch, or leave it out to use main")]
_Properties = Annotated[Mapping[str, Any], AfterValidator(_snapshot_properties)]
_Folder = Annotated[str, _text_of_path]
_TableName = Annotated[
    str | SkipJsonSchema[Table],
    AfterValidator(_table_name),
    expect("give a name such as 'db.t', or a PyIceberg table"),
]


_ON_OTHER_COLUMNS = "Refuse (freeze), add (evolve) or drop (discard) columns that the table lacks."


@dataclass(frozen=True, slots=True, kw_only=True, config=CONFIG)
class LoadOptions(MergeRules):
    """Options of a load that a pipeline file may also set for all loads, under `defaults`."""

    what: ClassVar[str] = "defaults"
    catalog: CatalogName | None = Field(
        default=None, description="Name of a configured catalog.", repr=False
    )
    mode: Annotated[LoadMode, about("Append, replace all rows, or merge rows by key.")] = "append"
    keys: Annotated[Texts | None, about("Key of a merge; by default the identifier fields.")] = None
    schema_mode: Annotated[SchemaMode, about(_ON_OTHER_COLUMNS)] = "freeze"
    select: Annotated[Selection | None, about("Columns to load: names, renames, constants.")] = None
    where: Annotated[RowFilter | None, about("Rows to load, such as price > 0.")] = None
    transform: Annotated[_Transform | None, about("SQL that reads the view `source`.")] = None
    transform_engine: Annotated[
        TransformEngine, about("What runs SQL on Spark; duckdb runs in tasks, on their rows.")
    ] = "spark"
    schema: Annotated[ColumnTypes | None, about("Column types of CSV and JSON: {id: int64}.")] = (
        None
    )
    partition_by: Annotated[Texts, about("Partitions of a new table, such as [day(ts)].")] = ()
    sort_by: Annotated[Texts, about("Sort order of a new table, such as [price desc].")] = ()
    table_properties: Mapping[str, Any] = Field(
        default_factory=dict, description="Properties of a new table.", repr=False
    )
    create: Annotated[Switch, about("Create the table if it does not exist.")] = True
    memory: Annotated[_Memory | None, about("Limit such as 256MB; on Spark, for each task.")] = None
    engine: Annotated[EngineName, about("auto, spark, local (here), or iceberg-jar.")] = "auto"
    master: Annotated[str | None, about("Spark's master URL; local[*] by default.")] = None
    remote: str | None = Field(
        default=None, description="A Spark Connect address, instead of master.", repr=False
    )
    branch: Annotated[_Branch | None, about("An existing branch to write to.")] = None
    properties: _Properties = Field(
        default_factory=dict, description="Properties for the snapshot's summary.", repr=False
    )
    bad_records: Annotated[BadRecords, about("What to do with lines that can't be read.")] = "fail"
    incremental: Annotated[
        Switch, about("Load only files and rows that are new since the last run.")
    ] = False
    again: Annotated[Switch, about("Append inputs again that were loaded before.")] = False

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        known = sorted((each.name for each in fields(cls)), key=MERGE_RULES.__contains__)
        locate_unknown_keys(cls.what, value, known)
        return {key: each for key, each in value.items() if each is not None}

    _listed = field_validator(
        "update_columns", mode="before", json_schema_input_type=str | list[str]
    )(listed)
    _truth = field_validator("skip_unchanged", mode="before")(truth_of_text)


@dataclass(frozen=True, slots=True, kw_only=True, config=CONFIG)
class TableLoad(LoadOptions):
    """Options that only a single load may set, not `defaults`."""

    into: Annotated[_TableName, about("The table, such as shop.orders.")]
    quarantine: Annotated[str | None, about("The table for bad records.")] = None
    checkpoint: Annotated[_Folder | None, about("Folder that records incremental progress.")] = None


@dataclass(frozen=True, slots=True, kw_only=True, config=CONFIG)
class LoadSpec(TableLoad):
    """One load, with the options that `icestream.load` describes.

    Attributes:
        sources: The sources. Several are read as their union; columns are matched by name.
        name: The load's name in reports; by default the table's name.
        load_id: The id that the load commits with.
    """

    sources: tuple[SourceSpec, ...]
    name: str = ""
    load_id: str | None = None

    @classmethod
    def of(
        cls, sources: object, into: str | Table, *, folder: Path | None = None, **options: Any
    ) -> LoadSpec:
        """Validate the arguments of a load.

        Args:
            sources: Anything that `SourceSpec.parse` accepts, or a list of such values.
            into: The table.
            folder: Base folder for relative paths; by default the working directory.
            **options: The other attributes. None means the default.

        Raises:
            InvalidArgumentError: If an argument is unknown or not valid.
        """
        check_keys("the load", options, LOAD_OPTIONS)
        check_load_id(options.get("load_id"))
        given = {key: value for key, value in options.items() if value is not None}
        with explained():
            spec = cls(sources=parse_sources(sources, folder=folder), into=into, **given)
            spec.check()
        return spec if spec.name else replace(spec, name=spec.table_name)

    @property
    def table_name(self) -> str:
        """The table's name."""
        return ".".join(self.into.name()) if isinstance(self.into, Table) else self.into

    @property
    def quarantine_name(self) -> str:
        """The table for bad records."""
        return self.quarantine or f"{self.table_name}_quarantine"

    @property
    def memory_bytes(self) -> int:
        """The memory limit, or the default limit."""
        return parse_bytes(DEFAULT_MEMORY if self.memory is None else self.memory)

    @property
    def rules(self) -> ColumnRules:
        """The rows and columns of the sources that are loaded."""
        return ColumnRules(self.select, self.where)

    def needed_columns(self, columns: pa.Schema) -> frozenset[str] | None:
        """The columns of the sources that the rules need, at least one; None for all.

        Raises:
            InvalidArgumentError: If the rules do not fit these columns.
        """
        if not self.rules:
            return None
        needed = self.rules.over(columns).needed or columns.names[:1]
        return None if len(needed) == len(columns.names) else frozenset(needed)

    def task_query(self, columns: pa.Schema, memory_bytes: int) -> DuckdbQuery | None:
        """The SQL that Spark's tasks run over rows with these columns; None if they run none.

        Args:
            columns: The columns, after the rules.
            memory_bytes: Memory limit of each task. Half of it is for DuckDB.

        Raises:
            InvalidArgumentError: If the SQL does not fit the columns, or is not row-local.
            MemoryBudgetError: If the limit is too small for DuckDB.
        """
        if self.transform_engine != "duckdb":
            return None
        refuse_small_memory(memory_bytes, "a SQL transform in Spark's tasks")
        sql = str(self.transform)
        refuse_unless_plan_is_row_local(sql, columns)
        return DuckdbQuery(sql, memory_bytes // 2, place="In Spark's tasks")

    @property
    def write_options(self) -> dict[str, Any]:
        """The arguments that the verb of the load takes."""
        options = self.commit_options
        return options | self.merge_options if self.mode == "merge" else options

    @property
    def commit_options(self) -> dict[str, Any]:
        """The arguments that every verb takes."""
        names = ("schema_mode", "branch", "properties", "load_id")
        return {name: getattr(self, name) for name in names}

    @property
    def merge_options(self) -> dict[str, Any]:
        """The arguments of `icestream.merge` that decide what happens to rows."""
        return {"on": self.keys, **{name: getattr(self, name) for name in MERGE_RULES}}

    def check(self) -> None:
        """Refuse options that can't be combined.

        Raises:
            ValidationError: With the option. `explained` turns it into an `InvalidArgumentError`.
        """
        for option, message in self._conflicts():
            raise error_at((option,), message)

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        """Options that can't be combined with others, each with a message."""
        local = self.engine == "local"
        if self.mode == "merge":
            try:
                MergeOptions(schema_mode=self.schema_mode, **self.merge_options).check()
            except InvalidArgumentError as error:  # the message begins with the option
                yield str(error).partition(" ")[0], str(error)
        else:
            defaults = {each.name: each.default for each in fields(MergeRules)} | {"keys": None}
            for name, default in defaults.items():
                if getattr(self, name) != default:
                    yield name, f"{name} is for mode='merge', and mode is {self.mode!r}"
        if local and (self.master or self.remote):
            where = "master and remote say where Spark runs, and engine is 'local'"
            yield "master" if self.master else "remote", f"{where}: leave them out"
        if self.engine == "iceberg-jar":
            yield from self._jar_conflicts()
        if self.transform_engine == "duckdb":
            yield from self._duckdb_conflicts()
        if self.master and self.remote:
            both = f"master is {self.master!r} and remote is {self.remote!r}"
            yield "master", f"{both}: give one of them"
        if isinstance(self.into, Table) and self.catalog is not None:
            name = self.table_name
            yield "catalog", f"{name} is a loaded table and has its own catalog: leave catalog out"
        if self.quarantine is not None and self.bad_records != "quarantine":
            message = f"quarantine is {self.quarantine!r}: give bad_records='quarantine', too"
            yield "quarantine", message
        if self.checkpoint is not None and not self.incremental:
            yield "checkpoint", f"checkpoint is {self.checkpoint!r}: give incremental=True, too"
        if self.again and self.load_id is not None:
            once = "a load with a load_id runs once, and again repeats it"
            yield "again", f"{once}: leave one of them out"
        if self.again and self.incremental:
            once = "an incremental load loads each file once, and again repeats it"
            yield "again", f"{once}: leave again out, or delete the checkpoint to load everything"
        if self.incremental and self.mode == "replace":
            new = (
                "an incremental load reads only new rows, and mode='replace' would delete the rest"
            )
            yield "incremental", f"{new}: give mode='append' or mode='merge'"
        if self.incremental and self.load_id is not None:
            yield "load_id", "an incremental load chooses its own load ids: leave load_id out"
        for source in self.sources:
            if local and (source.kind in ("spark", "frame") or needs_spark(source.format)):
                spark = f"only Spark can read {source.text}, and engine is 'local'"
                yield "engine", f"{spark}: give engine='spark'"
            if self.incremental and not source.can_be_incremental:
                message = f"an incremental load reads files or tables, and {source.text} is neither"
                yield "incremental", message

    def _duckdb_conflicts(self) -> Iterator[tuple[str, str]]:
        """What DuckDB can't do in Spark's tasks."""
        tasks = "transform_engine='duckdb' runs SQL in Spark's tasks"
        if self.engine not in ("auto", "spark"):
            yield "transform_engine", f"{tasks}, and engine is {self.engine!r}: leave it out"
        if not isinstance(self.transform, str):
            yield "transform_engine", f"{tasks}, and transform is not SQL: leave it out"
            return
        try:
            refuse_unless_row_local(self.transform)
        except InvalidArgumentError as error:
            yield "transform", str(error)

    def _jar_conflicts(self) -> Iterator[tuple[str, str]]:
        """Options that Iceberg's own runtime can't follow."""
        runtime = "Iceberg's runtime takes it from the table's properties"
        for name in ("write_mode", "isolation"):
            if getattr(self, name) is not None:
                yield name, f"{name} is not for engine='iceberg-jar', because {runtime}"
        if self.on_duplicate == "last" and self.last_by is None:
            order = "on Spark without an order of the rows"
            yield "last_by", f"on_duplicate='last' needs last_by, {order}: name a column"
        if self.delete_when is not None and not isinstance(self.delete_when, str):
            yield "delete_when", "delete_when must be text if engine is 'iceberg-jar'"


LOAD_OPTIONS = tuple(each.name for each in fields(LoadSpec) if each.name not in ("sources", "into"))
