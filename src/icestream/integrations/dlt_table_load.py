"""Loads the files of one Iceberg table in a dlt package, as one snapshot."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from dlt.common.destination.exceptions import (
    DestinationTerminalException,
    DestinationUndefinedEntity,
)
from dlt.common.schema.utils import (
    get_columns_names_with_prop,
    get_first_column_name_with_prop,
    get_nested_tables,
    get_root_table,
    has_table_seen_data,
)
from dlt.common.storages.load_package import ParsedLoadJobFileName
from dlt.destinations.impl.filesystem.filesystem import TableFormatLoadFilesystemJob
from dlt.destinations.impl.filesystem.iceberg_adapter import (
    TABLE_PROPERTIES_HINT,
    create_identity_specs,
    parse_partition_hints,
)
from dlt.destinations.impl.filesystem.iceberg_partition_spec import build_iceberg_partition_spec
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.commit.new_table import new_table_schema
from icestream.errors import (
    InvalidArgumentError,
    InvalidDataError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from icestream.integrations.dlt_rows import PackageRows, RootKeys
from icestream.memory.budget import MemoryBudget, parse_bytes
from icestream.operations.append import append
from icestream.operations.merge.merge import merge
from icestream.operations.merge.replace_keys import replace_keys
from icestream.operations.overwrite import overwrite
from icestream.report.write_report import WriteReport
from icestream.write.rules.duckdb_query import quoted

# A retry does not help if the rows or the hints are wrong. After `MemoryBudgetError`, the package
# stays, and the next run loads it with a higher limit.
_LASTING = (InvalidArgumentError, InvalidDataError, SchemaMismatchError, UnsupportedFeatureError)
_NAMES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class TableHints:
    """The hints of a table in dlt's schema.

    Attributes:
        strategy: `"append"`, `"replace"`, `"upsert"` or `"insert-only"`.
        key: The columns that decide which rows match.
        root_key: In a nested table, the column with the row key of the root row.
        hard_delete: The column that marks rows to delete, and whether it is boolean.
        last_by: The column that decides which row with the same key is the last one.
        is_nested: Whether it has rows of lists in another table.
    """

    strategy: str
    key: tuple[str, ...]
    root_key: str | None
    hard_delete: tuple[str, bool] | None
    last_by: str | None
    is_nested: bool

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> TableHints:
        """Read the hints of a table that dlt has prepared for the load."""
        prepared: Any = table
        disposition = str(table["write_disposition"])
        strategy = str(table["x-merge-strategy"]) if disposition == "merge" else disposition
        is_nested = "parent" in table
        if is_nested:
            key = [row_key_of(table)]
        else:
            key = get_columns_names_with_prop(prepared, "primary_key")
        flag = get_first_column_name_with_prop(prepared, "hard_delete")
        is_deduplicated = bool(table.get("x-stage-data-deduplicated"))
        return cls(
            strategy,
            tuple(key),
            get_first_column_name_with_prop(prepared, "root_key") if is_nested else None,
            (flag, table["columns"][flag].get("data_type") == "bool") if flag else None,
            None if is_deduplicated else get_first_column_name_with_prop(prepared, "dedup_sort"),
            is_nested,
        )

    @property
    def delete_when(self) -> str | None:
        """The filter for rows that delete."""
        if self.hard_delete is None:
            return None
        name, is_bool = self.hard_delete
        return f"{quoted(name)} = true" if is_bool else f"{quoted(name)} is not null"

    def deletes(self, batch: pa.RecordBatch) -> pa.Array:
        """Marks rows that delete."""
        assert self.hard_delete is not None
        name, is_bool = self.hard_delete
        column = batch.column(name)
        return pc.fill_null(column, False) if is_bool else pc.is_valid(column)


def row_key_of(table: Mapping[str, Any]) -> str:
    """The column that dlt fills with a unique value for each row."""
    columns: Any = table
    return str(
        get_first_column_name_with_prop(columns, "row_key")
        or get_first_column_name_with_prop(columns, "unique")
    )


class IcestreamLoadJob(TableFormatLoadFilesystemJob):
    """Loads the files of a table, as one snapshot.

    The load id is dlt's, so that a job that runs again after its commit does nothing. If nested
    rows are replaced, the job also has the files of the root table: all nested rows of the root
    rows in the load are deleted.
    """

    def run(self) -> None:
        """Load the files.

        Raises:
            DestinationTerminalException: If the rows or the hints are wrong.
        """
        config: Any = self._job_client.config
        with _turns.take(config.parallel_tables):
            budget = MemoryBudget(max(1, parse_bytes(config.memory) // config.parallel_tables))
            try:
                self._load(budget)
            except _LASTING as error:
                raise DestinationTerminalException(f"{type(error).__name__}: {error}") from error

    def _load(self, budget: MemoryBudget) -> WriteReport | None:
        hints = TableHints.of(self._load_table)
        own = [path for path in self.file_paths if _table_of(path) == self.load_table_name]
        rows = PackageRows(own, budget) if own else None
        table = self._table(rows)
        if table is None:
            return None
        settings: dict[str, Any] = {
            "memory": budget,
            "schema_mode": "evolve",
            "load_id": self._load_id,
        }
        if hints.strategy == "append":
            return append(table, rows, **settings)
        if hints.strategy == "replace":
            return overwrite(table, rows, **settings)
        if hints.is_nested:
            return self._merge_nested(table, rows, hints, settings)
        assert rows is not None
        settings["on_duplicate"] = "last"
        if hints.strategy == "insert-only":
            rows.dropped = hints.deletes if hints.hard_delete else None
            return merge(table, rows, on=hints.key, when_matched="ignore", **settings)
        if self._has_nested_rows():
            settings["on_duplicate"] = "error"
        return merge(
            table,
            rows,
            on=hints.key,
            delete_when=hints.delete_when,
            last_by=hints.last_by,
            **settings,
        )

    def _merge_nested(
        self, table: Table, rows: PackageRows | None, hints: TableHints, settings: dict[str, Any]
    ) -> WriteReport:
        """Replace the nested rows of all root rows in the load; or insert new ones."""
        root = get_root_table(self._schema.tables, self.load_table_name)
        root_hints = TableHints.of(self._job_client.prepare_load_table(str(root["name"])))
        paths = [path for path in self.file_paths if _table_of(path) == root["name"]]
        keys = RootKeys(paths, row_key_of(root), settings["memory"])
        if rows is not None and root_hints.hard_delete and hints.root_key:
            gone = keys.deleted(root_hints.hard_delete[0], root_hints.deletes)
            if len(gone):
                root_key = hints.root_key
                rows.dropped = lambda batch: pc.is_in(batch.column(root_key), value_set=gone)
        stream: Any = iter(()) if rows is None else rows
        if hints.strategy == "insert-only":
            return merge(
                table, stream, on=hints.key, when_matched="ignore", on_duplicate="last", **settings
            )
        if hints.root_key not in table.schema().column_names:
            return merge(table, stream, on=hints.key, on_duplicate="last", **settings)
        return replace_keys(
            table, stream, keys=keys.named(hints.root_key), on=[hints.root_key], **settings
        )

    def _has_nested_rows(self) -> bool:
        nested = get_nested_tables(self._schema.tables, self.load_table_name, include_self=False)
        return any(has_table_seen_data(table) for table in nested)

    def _table(self, rows: PackageRows | None) -> Table | None:
        """The Iceberg table, created if it does not exist; None if there are no rows for it."""
        try:
            return self._open()
        except DestinationUndefinedEntity:
            if rows is None:
                return None
        client: Any = self._job_client
        hints: Any = self._load_table
        name = f"{client.dataset_name}.{self.load_table_name}"
        properties = {
            **(client.config.iceberg_table_properties or {}),
            **(hints.get(TABLE_PROPERTIES_HINT) or {}),
        }
        schema = _as_required(new_table_schema(name, rows.schema, properties).schema, rows.schema)
        try:
            created: Table = client.get_open_table_catalog("iceberg").create_table(
                name,
                schema,
                location=client.get_open_table_location("iceberg", self.load_table_name),
                partition_spec=_partition_spec(name, schema, self._partitions()),
                properties=properties,
            )
            return created
        except TableAlreadyExistsError:
            return self._open()

    def _open(self) -> Table:
        table: Table = self._job_client.load_open_table("iceberg", self.load_table_name)
        return table

    def _partitions(self) -> list[Any]:
        """The partitions of a new table, from dlt's hints."""
        hints: Any = self._load_table
        legacy = get_columns_names_with_prop(hints, "partition")
        hinted = parse_partition_hints(hints)
        for each in hinted:
            if each.transform == "identity" and each.source_column in legacy:
                raise InvalidArgumentError(
                    f"{self.load_table_name}.{each.source_column} has the hint partition and is in "
                    "the partitions of iceberg_adapter: give one of them",
                )
        return [*create_identity_specs(legacy), *hinted]


def _table_of(path: str) -> str:
    return ParsedLoadJobFileName.parse(Path(path).name).table_name if path else ""


def _as_required(schema: Schema, rows: pa.Schema) -> Schema:
    """The schema, with columns required that are not nullable in dlt's files."""
    return Schema(
        *(
            field.model_copy(update={"required": not rows.field(field.name).nullable})
            for field in schema.fields
        )
    )


def _partition_spec(table: str, schema: Schema, partitions: Sequence[Any]) -> PartitionSpec:
    if not partitions:
        return UNPARTITIONED_PARTITION_SPEC
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    names = dict.fromkeys(each.source_column for each in partitions)
    unknown = [name for name in names if name not in arrow.names]
    if unknown:
        raise InvalidArgumentError(
            f"the partitions of {table} name the column {unknown[0]!r}, which the load does not "
            f"have: it has {', '.join(arrow.names[:_NAMES_SHOWN])}"
        )
    columns = pa.schema([arrow.field(name) for name in names])
    spec, numbered = build_iceberg_partition_spec(columns, partitions)
    return PartitionSpec(
        *(
            PartitionField(
                source_id=schema.find_field(
                    str(numbered.find_column_name(each.source_id))
                ).field_id,
                field_id=each.field_id,
                transform=each.transform,
                name=each.name,
            )
            for each in spec.fields
        )
    )


class _Turns:
    """Lets a number of jobs of this process run at the same time."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0

    @contextmanager
    def take(self, most: int) -> Iterator[None]:
        """Wait until fewer than this number of jobs run."""
        with self._changed:
            self._changed.wait_for(lambda: self._running < most)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()


_turns = _Turns()
