"""Finds the files and table snapshots that a load reads, and their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.catalogs.lookup import load_table
from icestream.errors import InvalidArgumentError, UnknownColumnError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.pipeline.inputs.load_target import LoadTarget, open_load_catalog
from icestream.pipeline.request.load_spec import LoadSpec
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.read.filters.fitting import near_column
from icestream.write.sources.file_columns import (
    KnownTypes,
    are_all_looked_at,
    columns_of,
    partition_columns,
)
from icestream.write.sources.file_rows import FileRows
from icestream.write.sources.formats import TEXT_FORMATS, needs_spark
from icestream.write.sources.hive_partition import PartitionColumns
from icestream.write.sources.source_file import FileSource, find_files
from icestream.write.sources.text.text_format import CsvFormat


@dataclass(frozen=True, slots=True)
class TablePoint:
    """A table at one of its snapshots.

    Attributes:
        table: The table.
        snapshot_id: The snapshot to read; None if the table is empty.
        since: With `is_increment`, read rows appended after this snapshot; None for all appends.
        is_increment: Whether to read appended rows only.
    """

    table: Table
    snapshot_id: int | None
    since: int | None = None
    is_increment: bool = False


@dataclass(frozen=True, slots=True)
class LoadInput:
    """One source with its files or its table snapshot.

    Attributes:
        spec: The specification of the source.
        files: The files, if the source consists of files.
        stored: Columns in the files, once `with_columns` has determined them.
        partitions: Columns from folder names.
        memory_bytes: Memory limit of the load; on Spark, of each task.
        point: The snapshot of a table.
    """

    spec: SourceSpec
    files: FileSource | None = field(default=None, repr=False)
    stored: pa.Schema | None = None
    partitions: PartitionColumns = field(default_factory=PartitionColumns)
    memory_bytes: int = parse_bytes(DEFAULT_MEMORY)
    point: TablePoint | None = field(default=None, repr=False)

    @property
    def columns(self) -> pa.Schema | None:
        """All columns of the files; None if they are not yet determined."""
        return None if self.stored is None else self.partitions.over(self.stored)

    @property
    def rows(self) -> FileRows:
        """The reader of the files."""
        assert self.files is not None
        assert self.stored is not None
        csv = CsvFormat.of(self.files.options)
        return FileRows(self.stored, self.files.store, csv, self.partitions, self.memory_bytes)

    @property
    def has_text(self) -> bool:
        """Whether there are text files, which may have bad records."""
        return self.files is not None and any(f.format in TEXT_FORMATS for f in self.files.files)

    @property
    def can_reopen(self) -> bool:
        """Whether the same rows can be read again."""
        return self.spec.kind != "arrow" or callable(self.spec.value)


@dataclass(frozen=True, slots=True)
class LoadInputs:
    """All sources of a load."""

    inputs: tuple[LoadInput, ...]

    @property
    def files(self) -> int:
        """Number of files."""
        return sum(len(each.files.files) for each in self.inputs if each.files is not None)

    @property
    def bytes(self) -> int:
        """Size of the files."""
        return sum(each.files.bytes for each in self.inputs if each.files is not None)

    @property
    def has_text(self) -> bool:
        """Whether there are text files."""
        return any(each.has_text for each in self.inputs)

    @property
    def can_reopen(self) -> bool:
        """Whether the same rows can be read again."""
        return all(each.can_reopen for each in self.inputs)

    def with_memory(self, memory_bytes: int) -> LoadInputs:
        """The same inputs with another memory limit."""
        return LoadInputs(tuple(replace(each, memory_bytes=memory_bytes) for each in self.inputs))

    def with_columns(self, spec: LoadSpec, target: LoadTarget) -> LoadInputs:
        """The same inputs, after determining the columns of files.

        Raises:
            UnknownColumnError: If the load gives a type for a column that does not exist.
        """
        known = _known_types(spec, target)
        memory = spec.memory_bytes
        inputs = LoadInputs(
            tuple(
                each
                if each.files is None or not each.files.files
                else replace(
                    each,
                    memory_bytes=memory,
                    stored=columns_of(each.files, known, memory),
                    partitions=partition_columns(each.files, known),
                )
                for each in self.inputs
            )
        )
        if spec.schema is not None and not spec.incremental:
            inputs.check_types(spec.schema, target)
        return inputs

    def check_types(self, given: pa.Schema, target: LoadTarget) -> None:
        """Refuse a type for a column that neither the files nor the table have.

        Later lines of JSON files may have columns that the first lines lack, and so may further
        CSV files if there are many. Such sources are not checked.

        Args:
            given: The columns that the load gives types for.
            target: The target of the load.

        Raises:
            UnknownColumnError: If there is no such column.
        """
        names: dict[str, None] = {}
        for each in self.inputs:
            if each.files is None or each.stored is None or not are_all_looked_at(each.files):
                return
            names |= dict.fromkeys([*each.stored.names, *each.partitions.schema.names])
        of_table = () if target.table is None else target.table.schema().as_struct().fields
        known = {*names, *(field.name for field in of_table)}
        for name in given.names:
            if name not in known:
                raise UnknownColumnError(
                    f"schema names {name!r}, but the source has no such column: "
                    f"{near_column(name, list(names))}"
                )


def find_inputs(spec: LoadSpec, target: LoadTarget, *, may_be_empty: bool = False) -> LoadInputs:
    """List the files and load the tables of all sources.

    Args:
        spec: The load.
        target: The target of the load.
        may_be_empty: Whether a path may match no files.

    Raises:
        SourceError: If a path matches no files.
        CatalogError: If a table does not exist.
    """
    return LoadInputs(tuple(_find(source, spec, target, may_be_empty) for source in spec.sources))


def _find(source: SourceSpec, spec: LoadSpec, target: LoadTarget, may_be_empty: bool) -> LoadInput:
    if source.kind == "files" and not needs_spark(source.format):
        files = find_files(source, _access(target.catalog), may_be_empty=may_be_empty)
        CsvFormat.of(files.options)  # raises if they are invalid
        return LoadInput(source, files=files)
    if source.kind == "table":
        return LoadInput(source, point=_pinned(source, target))
    return LoadInput(source)


def _known_types(spec: LoadSpec, target: LoadTarget) -> KnownTypes:
    """The types of source columns, from the load's options and the table."""
    table, casts = None, None
    # With a transform, the files may have other columns than the table.
    if target.table is not None and spec.transform is None:
        table = schema_to_pyarrow(target.table.schema(), include_field_ids=False)
    if spec.select is not None:
        kinds: dict[str, set[pa.DataType]] = {}
        loaded: dict[str, pa.DataType] = {}
        for column in spec.select:
            if column.source is not None and column.kind is not None:
                kinds.setdefault(column.source, set()).add(column.kind)
            elif column.source is not None and table is not None and column.name in table.names:
                loaded[column.source] = table.field(column.name).type
        casts = pa.schema(
            [(name, pa.string() if len(each) > 1 else each.pop()) for name, each in kinds.items()]
        )
        table = None if table is None else pa.schema(list(loaded.items()))
    return KnownTypes(
        spec.schema, table, casts, fills=spec.mode != "merge", is_new=target.table is None
    )


def _pinned(source: SourceSpec, target: LoadTarget) -> TablePoint:
    if isinstance(source.table, Table):
        table = source.table
        table.refresh()
    else:
        assert source.table is not None
        catalog: Catalog = target.catalog
        if source.catalog is not None:
            catalog = open_load_catalog(source.catalog, make=False)
        table = load_table(source.table, catalog)
    branch = source.branch or MAIN_BRANCH
    head = table.metadata.snapshot_by_name(branch)
    if head is None and branch != MAIN_BRANCH:
        known = ", ".join(sorted(table.metadata.refs)) or "none"
        raise InvalidArgumentError(f"{source.text} has no branch {branch!r}: it has {known}")
    return TablePoint(table, head.snapshot_id if head is not None else None)


def _access(catalog: Catalog) -> Mapping[str, str]:
    """The catalog's properties that configure access to files."""
    kept = ("s3.", "gcs.", "adls.", "hdfs.", "client.")
    return {key: str(value) for key, value in catalog.properties.items() if key.startswith(kept)}
