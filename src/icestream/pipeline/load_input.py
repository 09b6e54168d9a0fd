"""What a load reads, found and pinned: the files, the tables' snapshots, and their columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from icestream.catalogs import load_table
from icestream.errors import InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY, parse_bytes
from icestream.pipeline.file_columns import KnownTypes, columns_of, partition_columns
from icestream.pipeline.file_rows import FileRows
from icestream.pipeline.load_spec import LoadSpec
from icestream.pipeline.load_target import LoadTarget, open_load_catalog
from icestream.pipeline.source_file import TEXT_FORMATS, FileSource, find_files
from icestream.pipeline.source_spec import SourceSpec
from icestream.pipeline.text_format import CsvFormat
from icestream.pipeline.text_lines import MOST_LINE_BYTES, line_limit
from icestream.write.hive_partition import PartitionColumns


@dataclass(frozen=True, slots=True)
class TablePoint:
    """A table at one of its snapshots.

    Attributes:
        table: The table.
        snapshot_id: The snapshot that is read; None: the table is empty.
        since: Only what was appended after this snapshot; None: all rows.
        is_increment: Whether `since` counts: all that was ever appended, if it is None.
    """

    table: Table
    snapshot_id: int | None
    since: int | None = None
    is_increment: bool = False


@dataclass(frozen=True, slots=True)
class LoadInput:
    """One source, found.

    Attributes:
        spec: What the caller asked for.
        files: Of files.
        stored: Of files: the columns that they have themselves, once they are decided.
        partitions: Of files: the columns that their folders hold.
        most_line_bytes: Of files of text: how long a line may be.
        point: Of a table.
    """

    spec: SourceSpec
    files: FileSource | None = field(default=None, repr=False)
    stored: pa.Schema | None = None
    partitions: PartitionColumns = field(default_factory=PartitionColumns)
    most_line_bytes: int = MOST_LINE_BYTES
    point: TablePoint | None = field(default=None, repr=False)

    @property
    def columns(self) -> pa.Schema | None:
        """All columns of files, once they are decided."""
        return None if self.stored is None else self.partitions.over(self.stored)

    @property
    def rows(self) -> FileRows:
        """The reader of its files."""
        assert self.files is not None
        assert self.stored is not None
        csv = CsvFormat.of(self.files.options)
        return FileRows(self.stored, self.files.store, csv, self.partitions, self.most_line_bytes)

    @property
    def has_text(self) -> bool:
        """Whether there are files of text, which may have bad lines."""
        return self.files is not None and any(f.format in TEXT_FORMATS for f in self.files.files)

    @property
    def can_reopen(self) -> bool:
        """Whether the same rows can be read a second time."""
        return self.spec.kind != "arrow" or callable(self.spec.value)


@dataclass(frozen=True, slots=True)
class LoadInputs:
    """All sources of a load."""

    inputs: tuple[LoadInput, ...]

    @property
    def files(self) -> int:
        """How many files there are."""
        return sum(len(each.files.files) for each in self.inputs if each.files is not None)

    @property
    def bytes(self) -> int:
        """Their size."""
        return sum(each.files.bytes for each in self.inputs if each.files is not None)

    @property
    def has_text(self) -> bool:
        """Whether there are files of text."""
        return any(each.has_text for each in self.inputs)

    @property
    def can_reopen(self) -> bool:
        """Whether the same rows can be read a second time."""
        return all(each.can_reopen for each in self.inputs)

    def with_columns(self, spec: LoadSpec, target: LoadTarget) -> LoadInputs:
        """The same, with the columns of files decided."""
        table = None
        # What a transform makes of columns is its own affair: they need not be the table's.
        if target.table is not None and spec.transform is None:
            table = schema_to_pyarrow(target.table.schema(), include_field_ids=False)
        known = KnownTypes(spec.schema, table, fills=spec.mode != "merge")
        memory = spec.memory if spec.memory is not None else DEFAULT_MEMORY
        most = line_limit(parse_bytes(memory))
        return LoadInputs(
            tuple(
                each
                if each.files is None or not each.files.files
                else replace(
                    each,
                    most_line_bytes=most,
                    stored=columns_of(each.files, known, most),
                    partitions=partition_columns(each.files, known),
                )
                for each in self.inputs
            )
        )


def find_inputs(spec: LoadSpec, target: LoadTarget, *, may_be_empty: bool = False) -> LoadInputs:
    """List files, and look tables up.

    Args:
        spec: The load.
        target: Its table.
        may_be_empty: Whether it is fine if a path has no file.

    Raises:
        SourceError: If there is no such file.
        CatalogError: If there is no such table.
    """
    return LoadInputs(tuple(_find(source, spec, target, may_be_empty) for source in spec.sources))


def _find(source: SourceSpec, spec: LoadSpec, target: LoadTarget, may_be_empty: bool) -> LoadInput:
    if source.kind == "files" and source.format != "avro":
        found = find_files(source, access_of(target.catalog), may_be_empty=may_be_empty)
        csv = CsvFormat.of(found.options)
        if csv.multiline and spec.bad_records == "quarantine":
            raise InvalidArgumentError(
                "bad_records='quarantine' needs a record on each line: leave the option multiline "
                "out"
            )
        return LoadInput(source, files=found)
    if source.kind == "table":
        return LoadInput(source, point=_pinned(source, target))
    return LoadInput(source)


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


def access_of(catalog: Catalog) -> Mapping[str, str]:
    """What of a catalog's properties gives access to files."""
    kept = ("s3.", "gcs.", "adls.", "hdfs.", "client.")
    return {key: str(value) for key, value in catalog.properties.items() if key.startswith(kept)}
