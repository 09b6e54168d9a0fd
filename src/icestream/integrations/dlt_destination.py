"""A dlt destination for catalogs of PyIceberg's configuration; deprecated.

`dlt_filesystem.py` replaces it, and also loads nested tables, dlt's own columns, and the state of
pipelines.

dlt splits the rows of a table into several files, and runs a job for each file. The first job of a
table loads all of its files as one snapshot. Its load id consists of the pipeline, the package and
the table. The other jobs find this load in the table and do nothing. A `replace` therefore replaces
once, nobody sees half of a package, and a package is not loaded twice after a failure.

The destination refuses nested tables (`orders__items`) before it loads any row of their root table.
dlt passes their rows without the key of their parent, so a merge would add them again each time.
dlt creates nested tables for this destination only if `max_table_nesting` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.table import Table

from icestream.catalogs.lookup import open_catalog
from icestream.commit.new_table import NewTable
from icestream.errors import (
    InvalidArgumentError,
    InvalidDataError,
    MissingExtraError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from icestream.memory.budget import MemoryBudget
from icestream.operations.append import append
from icestream.operations.merge.merge import merge
from icestream.operations.overwrite import overwrite
from icestream.report.deprecation import deprecated
from icestream.report.write_report import WriteReport
from icestream.write.sources.file_stream import SourceFiles

try:
    import dlt
    from dlt.common.configuration.container import Container
    from dlt.common.destination.exceptions import DestinationTerminalException
    from dlt.common.schema import TTableSchema
    from dlt.common.storages.load_package import (
        LoadPackageStateInjectableContext,
        PackageStorage,
    )
except ModuleNotFoundError as error:
    raise MissingExtraError("dlt is not installed: pip install 'icestream[dlt]'") from error

# A retry does not help if the rows or the hints are wrong.
_LASTING = (InvalidArgumentError, InvalidDataError, SchemaMismatchError, UnsupportedFeatureError)


@deprecated(
    since="0.1",
    removed_in="0.3",
    instead="icestream.integrations.dlt_filesystem.filesystem",
)
@dlt.destination(
    name="icestream",
    loader_file_format="parquet",
    batch_size=0,  # pass the path of a file instead of its rows
    naming_convention="snake_case",
    loader_parallelism_strategy="table-sequential",
)
def icestream_destination(
    items: Any,
    table: TTableSchema,
    catalog: str | None = None,
    catalog_properties: dict[str, str] | None = None,
    namespace: str | None = None,
    memory: str = "256MB",
    branch: str | None = None,
) -> None:
    """Load a table's share of a dlt load package into an Iceberg table (deprecated).

    Use `icestream.integrations.dlt_filesystem.filesystem` instead.

    Call it with the arguments below to create a destination. dlt's configuration can set them, too
    (`destination.icestream.catalog`). dlt then calls the function for each file, and passes `items`
    and `table`.

    Args:
        items: Path of a Parquet file, passed by dlt.
        table: Schema and hints of the table, passed by dlt.
        catalog: Name of a catalog in PyIceberg's configuration. None for the default catalog.
        catalog_properties: Properties that override those of the configuration.
        namespace: Namespace of the tables. None for the dataset of the pipeline.
        memory: Maximum number of bytes to hold for each table. dlt may load several at a time.
        branch: Branch to commit to. It must exist.
    """
    try:
        job = _Job(Path(items), table, MemoryBudget(memory))
        opened = open_catalog(catalog, catalog_properties)
        with closing(opened):
            into = job.table(opened, namespace or job.dataset)
            job.load(into, branch=branch)
    except _LASTING as error:
        raise DestinationTerminalException(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Hints:
    """The hints of a table in dlt's schema.

    Attributes:
        disposition: `"append"`, `"replace"` or `"merge"`.
        columns: Columns to load, without those that dlt adds.
        key: Columns of the primary key.
        partition_by: Columns with the hint `partition`.
        delete_when: Filter for rows that delete, from the hint `hard_delete`.
        last_by: Column that decides which row with the same key is the last one.
    """

    disposition: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    partition_by: tuple[str, ...]
    delete_when: str | None
    last_by: str | None

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> _Hints:
        columns: Mapping[str, Mapping[str, Any]] = table["columns"]

        def hinted(hint: str) -> tuple[str, ...]:
            return tuple(name for name, column in columns.items() if column.get(hint))

        if table.get("x-iceberg-partition") or table.get("x-iceberg-table-properties"):
            raise UnsupportedFeatureError(
                f"{table['name']} has hints of iceberg_adapter, which this destination can't apply:"
                " use icestream.integrations.dlt_filesystem.filesystem"
            )
        disposition = str(table.get("write_disposition", "append"))
        if disposition == "merge":
            _check_merge(table, hinted("primary_key"), hinted("merge_key"))
        flags = [_deletes(name, columns[name]) for name in hinted("hard_delete")]
        sorts = {name: columns[name]["dedup_sort"] for name in hinted("dedup_sort")}
        if "asc" in sorts.values():
            raise UnsupportedFeatureError(
                f"{table['name']} keeps the first row of a key (dedup_sort='asc'), and icestream "
                "keeps only the last: use dedup_sort='desc' with a column whose values decrease"
            )
        return cls(
            disposition,
            tuple(columns),
            hinted("primary_key"),
            hinted("partition"),
            " or ".join(flags) or None,
            next(iter(sorts), None),
        )


def _check_merge(table: Mapping[str, Any], key: tuple[str, ...], other: tuple[str, ...]) -> None:
    strategy = table.get("x-merge-strategy", "delete-insert")
    if strategy not in ("delete-insert", "upsert"):
        raise UnsupportedFeatureError(
            f"{table['name']} has the merge strategy {strategy!r}: icestream supports 'upsert' and "
            "'delete-insert'"
        )
    if other and set(other) != set(key):
        raise UnsupportedFeatureError(
            f"{table['name']} has a merge_key, which deletes rows that are not in the load: "
            "icestream merges only by primary_key"
        )


def _refuse_nested(storage: PackageStorage, load_id: str, name: str) -> None:
    """Raise an error if a table is nested, or has nested tables in the package.

    Raises:
        UnsupportedFeatureError: If there is a nested table. The message names it.
    """
    tables = storage.load_schema(load_id).tables
    root = _root_of(tables, name)
    for _, job in storage.list_all_jobs_with_states(load_id):
        nested = job.table_name
        if nested in tables and tables[nested].get("parent") and _root_of(tables, nested) == root:
            raise UnsupportedFeatureError(
                f"{nested} has nested rows of {root} without the key of their parent rows, and "
                "icestream does not load nested tables. Set max_table_nesting=0 on the resource or "
                f"source, so that nested values are stored as JSON in {root}, and drop this "
                "package: pipeline.abort_packages()"
            )


def _root_of(tables: Mapping[str, Any], name: str) -> str:
    while parent := tables[name].get("parent"):
        name = parent
    return name


def _deletes(name: str, column: Mapping[str, Any]) -> str:
    """Return the filter for rows in which the column marks a delete."""
    quoted = '"' + name.replace('"', '""') + '"'
    return f"{quoted} = true" if column.get("data_type") == "bool" else f"{quoted} is not null"


class _Job:
    """The load of all files of a table in a package."""

    def __init__(self, path: Path, table: Mapping[str, Any], budget: MemoryBudget) -> None:
        self._budget = budget
        self._name = str(table["name"])
        self._hints = _Hints.of(table)
        pipeline = dlt.current.pipeline()
        package = Container()[LoadPackageStateInjectableContext]
        self.dataset = str(pipeline.dataset_name or pipeline.pipeline_name)
        self._load_id = f"dlt:{pipeline.pipeline_name}:{package.load_id}:{self._name}"
        _refuse_nested(package.storage, package.load_id, self._name)
        states = package.storage.list_job_with_states_for_table(package.load_id, self._name)
        folder = path.parents[1]
        paths = [folder / state / job.file_name() for state, job in states]
        parquet = sorted(path for path in paths if path.suffix == ".parquet")
        self._files = SourceFiles(parquet, memory=budget)

    def table(self, catalog: Catalog, namespace: str) -> Table:
        """Load the Iceberg table, or create it if it does not exist."""
        name = f"{namespace}.{self._name}"
        try:
            return catalog.load_table(name)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(namespace)
        hints = self._hints
        new = NewTable.plan(catalog, name, self._rows().schema, partition_by=hints.partition_by)
        try:
            return catalog.create_table(
                name,
                new.metadata.schema(),
                partition_spec=new.metadata.spec(),
                properties=new.metadata.properties,
            )
        except TableAlreadyExistsError:
            return catalog.load_table(name)

    def load(self, table: Table, *, branch: str | None) -> WriteReport:
        """Load the rows, unless another job has loaded them."""
        rows, hints = self._rows(), self._hints
        settings: dict[str, Any] = {
            "memory": self._budget,
            "branch": branch,
            "load_id": self._load_id,
            "schema_mode": "evolve",
        }
        if hints.disposition == "replace":
            return overwrite(table, rows, **settings)
        if hints.disposition == "merge" and hints.key:
            return merge(
                table,
                rows,
                on=hints.key,
                delete_when=hints.delete_when,
                on_duplicate="last",
                last_by=hints.last_by,
                **settings,
            )
        return append(table, rows, **settings)  # like dlt, append if a merge has no key

    def _rows(self) -> _Rows:
        return _Rows(self._files, self._hints.columns)


class _Rows:
    """The rows of the files, with the columns to load. The stream can be read several times."""

    def __init__(self, files: SourceFiles, columns: tuple[str, ...]) -> None:
        present = set(files.schema.names)
        self._files = files
        self._columns = [name for name in columns if name in present]
        self.schema = pa.schema([files.schema.field(name) for name in self._columns])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._files:
            yield batch.select(self._columns)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)
