"""One load as the caller asked for it: every argument is checked here, before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.commit.load import check_properties
from icestream.commit.load_id import check_load_id
from icestream.errors import InvalidArgumentError
from icestream.memory import parse_bytes
from icestream.pipeline.choice import check_choice, check_keys
from icestream.pipeline.source_spec import SourceSpec, parse_sources
from icestream.upsert.options import (
    Isolation,
    MergeOptions,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.write.schema import SchemaMode, check_mode

LoadMode = Literal["append", "replace", "merge"]
Engine = Literal["spark", "local"]
BadRecords = Literal["fail", "quarantine"]
Transform = str | Callable[[Any], Any]

_MERGE = (
    "when_matched",
    "when_not_matched",
    "update_columns",
    "delete_when",
    "on_duplicate",
    "last_by",
    "null_keys",
    "skip_unchanged",
    "write_mode",
    "isolation",
)


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """One load: described in `icestream.load`.

    Attributes:
        sources: What is read; several are their union, by name.
        into: The table.
        name: What the load is called in reports; the table's name by default.
    """

    sources: tuple[SourceSpec, ...]
    into: str | Table
    name: str = ""
    catalog: str | Catalog | None = None
    mode: LoadMode = "append"
    keys: tuple[str, ...] | None = None
    schema_mode: SchemaMode = "freeze"
    transform: Transform | None = None
    schema: pa.Schema | None = None
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    table_properties: Mapping[str, str] = field(default_factory=dict)
    create: bool = True
    memory: int | str | None = None
    engine: Engine = "spark"
    master: str | None = None
    remote: str | None = None
    branch: str | None = None
    load_id: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    bad_records: BadRecords = "fail"
    quarantine: str | None = None
    incremental: bool = False
    checkpoint: str | None = None
    again: bool = False
    when_matched: WhenMatched = "update"
    when_not_matched: WhenNotMatched = "insert"
    update_columns: tuple[str, ...] | None = None
    delete_when: str | None = None
    on_duplicate: OnDuplicate = "error"
    last_by: str | None = None
    null_keys: NullKeys = "error"
    skip_unchanged: bool = True
    write_mode: WriteMode | None = None
    isolation: Isolation | None = None

    @classmethod
    def of(
        cls, sources: object, into: str | Table, *, folder: Path | None = None, **options: Any
    ) -> LoadSpec:
        """A load of arguments as users write them; checked.

        Args:
            sources: Anything that `SourceSpec.parse` takes, or a list of it.
            into: The table.
            folder: What relative paths are relative to; the working directory by default.
            **options: The other attributes. None stands for what is the default.

        Raises:
            InvalidArgumentError: If an argument is unknown, or can't be used.
        """
        check_keys("the load", options, LOAD_OPTIONS)
        told = {key: value for key, value in options.items() if value is not None}
        for key in ("keys", "update_columns", "partition_by", "sort_by"):
            if key in told:
                told[key] = _texts(key, told[key])
        if "schema" in told:
            told["schema"] = _schema(told["schema"])
        for key in ("checkpoint", "transform"):
            if isinstance(told.get(key), Path):
                told[key] = str(told[key])
        spec = cls(parse_sources(sources, folder=folder), into, **told)
        spec.check()
        return spec if spec.name else replace(spec, name=spec.table_name)

    @classmethod
    def from_mapping(
        cls,
        name: str,
        mapping: Mapping[str, Any],
        *,
        folder: Path | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> LoadSpec:
        """A load as a file of YAML or JSON describes it.

        Args:
            name: The load's name.
            mapping: `source` (or `sources`), `into`, and options as of `icestream.load`.
            folder: What relative paths are relative to.
            defaults: Options where the mapping says nothing.

        Raises:
            InvalidArgumentError: If something is missing, unknown, or can't be used.
        """
        check_keys(f"load {name!r}", mapping, LOAD_KEYS)
        told: dict[str, Any] = {**(defaults or {}), **mapping}
        given = [told.pop(key) for key in ("source", "sources") if key in told]
        if len(given) != 1:
            raise InvalidArgumentError(
                f"load {name!r} needs its sources said once: give one of 'source' and 'sources'"
            )
        if not isinstance(told.get("into"), str):
            raise InvalidArgumentError(
                f"load {name!r} has no 'into': name the table, as in 'shop.orders'"
            )
        into = told.pop("into")
        return cls.of(given[0], into, folder=folder, **{**told, "name": name})

    @property
    def table_name(self) -> str:
        """The table's name."""
        return ".".join(self.into.name()) if isinstance(self.into, Table) else self.into

    @property
    def quarantine_name(self) -> str:
        """The table that bad records go to."""
        return self.quarantine or f"{self.table_name}_quarantine"

    @property
    def merge_options(self) -> dict[str, Any]:
        """The arguments of `icestream.merge` that say what becomes of rows."""
        return {"on": self.keys, **{name: getattr(self, name) for name in _MERGE}}

    def check(self) -> None:
        """Refuse what can't be, or does not go together.

        Raises:
            InvalidArgumentError: Naming the argument.
        """
        _check_table(self.into)
        check_choice("mode", self.mode, get_args(LoadMode))
        check_choice("engine", self.engine, get_args(Engine))
        check_choice("bad_records", self.bad_records, get_args(BadRecords))
        check_mode(self.schema_mode)
        check_load_id(self.load_id)
        check_properties(self.properties)
        if self.memory is not None:
            parse_bytes(self.memory)
        told = self.transform
        if told is not None and not (callable(told) or _is_text(told)):
            raise InvalidArgumentError(
                f"transform is {told!r}: give SQL such as 'SELECT * FROM source', or a function"
            )
        self._check_merge()
        self._check_places()
        self._check_incremental()
        if self.quarantine is not None and self.bad_records != "quarantine":
            raise InvalidArgumentError(
                f"quarantine is {self.quarantine!r}: give bad_records='quarantine', too"
            )

    def _check_merge(self) -> None:
        if self.mode == "merge":
            MergeOptions(schema_mode=self.schema_mode, **self.merge_options).check()
            return
        plain = {each.name: each.default for each in fields(type(self))}
        for name in ("keys", *_MERGE):
            if getattr(self, name) != plain[name]:
                raise InvalidArgumentError(f"{name} is for mode='merge', and mode is {self.mode!r}")

    def _check_places(self) -> None:
        if self.branch == "":
            raise InvalidArgumentError("branch is empty: name a branch, or leave it out for main")
        if self.engine == "local" and (self.master or self.remote):
            raise InvalidArgumentError(
                "master and remote say where Spark runs, and engine is 'local': leave them out"
            )
        if self.master and self.remote:
            raise InvalidArgumentError(
                f"master is {self.master!r} and remote is {self.remote!r}: give one of them"
            )
        if isinstance(self.into, Table) and self.catalog is not None:
            raise InvalidArgumentError(
                f"{self.table_name} is a loaded table, which has its catalog: leave catalog out"
            )
        if self.engine == "local":
            for source in self.sources:
                if source.kind in ("spark", "frame") or source.format == "avro":
                    raise InvalidArgumentError(
                        f"{source.text} is read by Spark, and engine is 'local': give "
                        "engine='spark'"
                    )

    def _check_incremental(self) -> None:
        if self.again and self.load_id is not None:
            raise InvalidArgumentError(
                "load_id names a load that is done once, and again repeats it: leave one of them "
                "out"
            )
        if self.again and self.incremental:
            raise InvalidArgumentError(
                "an incremental load has each file once, and again repeats it: leave again out, "
                "or delete the checkpoint to load everything"
            )
        if not self.incremental:
            if self.checkpoint is not None:
                raise InvalidArgumentError(
                    f"checkpoint is {self.checkpoint!r}: give incremental=True, too"
                )
            return
        if self.mode == "replace":
            raise InvalidArgumentError(
                "an incremental load only has what is new, and mode='replace' would delete the "
                "rest: give mode='append' or mode='merge'"
            )
        if self.load_id is not None:
            raise InvalidArgumentError(
                "an incremental load names its loads itself: leave load_id out"
            )
        for source in self.sources:
            if not source.can_be_incremental:
                raise InvalidArgumentError(
                    f"what is new in {source.text} can't be told: an incremental load reads files "
                    "or tables"
                )


LOAD_OPTIONS = tuple(each.name for each in fields(LoadSpec) if each.name not in ("sources", "into"))
LOAD_KEYS = ("source", "sources", "into", *(name for name in LOAD_OPTIONS if name != "name"))


def _check_table(into: object) -> None:
    if isinstance(into, Table):
        return
    if not isinstance(into, str):
        raise InvalidArgumentError(
            f"into is a {type(into).__name__}: give a name such as 'db.t', or a PyIceberg table"
        )
    if "" in into.split(".") or "." not in into:
        raise InvalidArgumentError(
            f"into is {into!r}, which names no table: write its namespace, too, as in 'db.t'"
        )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, Sequence) and all(_is_text(each) for each in value):
        return tuple(value)
    raise InvalidArgumentError(f"{name} is {value!r}: give a list of texts")


def _schema(value: object) -> pa.Schema:
    """Column types, given as an Arrow schema or as names and type names."""
    if isinstance(value, pa.Schema):
        return value
    if not isinstance(value, Mapping):
        raise InvalidArgumentError(
            f"schema is a {type(value).__name__}: give a pyarrow.Schema, or names and types such "
            "as {'id': 'int64', 'price': 'decimal(10,2)'}"
        )
    return pa.schema([(str(name), _type(str(name), kind)) for name, kind in value.items()])


def _type(name: str, kind: object) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    from pyiceberg.io.pyarrow import schema_to_pyarrow
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    try:
        return pa.type_for_alias(str(kind))
    except ValueError:
        pass
    try:
        field_ = NestedField.model_validate(
            {"id": 1, "name": name, "type": str(kind), "required": False}
        )
        return schema_to_pyarrow(Schema(field_), include_field_ids=False).field(0).type
    except Exception:
        raise InvalidArgumentError(
            f"schema says that {name!r} is {kind!r}: give a type of Arrow or Iceberg, such as "
            "'int64', 'string', 'decimal(10, 2)', 'date' or 'timestamptz'"
        ) from None
