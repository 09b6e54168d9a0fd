"""A dlt destination: load packages go into Iceberg tables, in constant memory.

```python
import dlt
from icestream.integrations.dlt_destination import icestream_destination

destination = icestream_destination(catalog="prod", memory="256MB")
pipeline = dlt.pipeline("shop", destination=destination, dataset_name="raw")
pipeline.run(orders, write_disposition="merge", primary_key="id")
```

dlt cuts the rows of a table into several files, each a job of its own. The first job of a table
loads all of its files, as one snapshot, under a load id that is made of the pipeline, the package
and the table; the others find that load there and do nothing. So a `replace` replaces once, nobody
sees half of a package, and a package that is loaded again after a failure is not loaded twice.

Nested tables (`orders__items`) are refused before anything of their root table is loaded: dlt hands
their rows over without the key of their parent, and a merge would add them again each time. dlt
makes none for this destination unless `max_table_nesting` asks for them.
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

from icestream.catalogs import open_catalog
from icestream.commit.append import append
from icestream.commit.new_table import NewTable
from icestream.commit.overwrite import overwrite
from icestream.errors import (
    InvalidArgumentError,
    InvalidDataError,
    MissingExtraError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from icestream.report import WriteReport
from icestream.upsert.merge import merge
from icestream.write.source_files import SourceFiles

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

# Trying again does not help where the rows or the hints are at fault.
_LASTING = (InvalidArgumentError, InvalidDataError, SchemaMismatchError, UnsupportedFeatureError)


@dlt.destination(
    name="icestream",
    loader_file_format="parquet",
    batch_size=0,  # The path of a file instead of its rows.
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
    """Load a table's share of a dlt load package into an Iceberg table.

    dlt calls this for each file; you call it for a destination, with the arguments below, which may
    come from dlt's configuration as well (`destination.icestream.catalog`).

    Args:
        items: dlt's: the path of a Parquet file.
        table: dlt's: the table's schema and hints.
        catalog: The catalog's name in PyIceberg's configuration; the default one unless told.
        catalog_properties: Properties over those of the configuration.
        namespace: Where tables are; the pipeline's dataset by default.
        memory: The most bytes held for each table that is loaded at the time.
        branch: The branch that gets the snapshots; it must exist.
    """
    try:
        job = _Job(Path(items), table)
        opened = open_catalog(catalog, catalog_properties)
        with closing(opened):
            into = job.table(opened, namespace or job.dataset)
            job.load(into, memory=memory, branch=branch)
    except _LASTING as error:
        raise DestinationTerminalException(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Hints:
    """What dlt's schema says of a table.

    Attributes:
        disposition: `"append"`, `"replace"` or `"merge"`.
        columns: Those to load: dlt's own are left out.
        key: The primary key.
        partition_by: Columns with the hint `partition`.
        delete_when: A filter for rows that delete, from the hint `hard_delete`.
        last_by: The column by which the last of rows with the same key counts.
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

        disposition = str(table.get("write_disposition", "append"))
        if disposition == "merge":
            _check_merge(table, hinted("primary_key"), hinted("merge_key"))
        flags = [_deletes(name, columns[name]) for name in hinted("hard_delete")]
        sorts = {name: columns[name]["dedup_sort"] for name in hinted("dedup_sort")}
        if "asc" in sorts.values():
            raise UnsupportedFeatureError(
                f"{table['name']} wants the first row of a key (dedup_sort='asc'): icestream keeps "
                "the last, so say 'desc' of a column that falls"
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
            f"{table['name']} is to be merged by {strategy!r}: icestream merges by 'upsert' and "
            "'delete-insert'"
        )
    if other and set(other) != set(key):
        raise UnsupportedFeatureError(
            f"{table['name']} has a merge_key, by which dlt deletes rows that the load does not "
            "have: icestream merges by primary_key alone"
        )


def _refuse_nested(storage: PackageStorage, load_id: str, name: str) -> None:
    """Refuse a table if it is nested, or has nested tables in the package.

    Raises:
        UnsupportedFeatureError: Naming the nested table.
    """
    tables = storage.load_schema(load_id).tables
    root = _root_of(tables, name)
    for _, job in storage.list_all_jobs_with_states(load_id):
        nested = job.table_name
        if nested in tables and tables[nested].get("parent") and _root_of(tables, nested) == root:
            raise UnsupportedFeatureError(
                f"{nested} has nested rows of {root}, without the key of the row that they belong "
                "to: icestream loads no nested tables. Set max_table_nesting=0 on the resource or "
                f"source, so that nested values are stored as JSON in {root}, and drop this "
                "package: pipeline.abort_packages()"
            )


def _root_of(tables: Mapping[str, Any], name: str) -> str:
    while parent := tables[name].get("parent"):
        name = parent
    return name


def _deletes(name: str, column: Mapping[str, Any]) -> str:
    """The filter for rows that say that theirs is deleted."""
    quoted = '"' + name.replace('"', '""') + '"'
    return f"{quoted} = true" if column.get("data_type") == "bool" else f"{quoted} is not null"


class _Job:
    """All files of a table in a package."""

    def __init__(self, path: Path, table: Mapping[str, Any]) -> None:
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
        self._files = SourceFiles(sorted(path for path in paths if path.suffix == ".parquet"))

    def table(self, catalog: Catalog, namespace: str) -> Table:
        """The Iceberg table, which is created if it is not there."""
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

    def load(self, table: Table, *, memory: str, branch: str | None) -> WriteReport:
        """Load the rows, once."""
        rows, hints = self._rows(), self._hints
        settings: dict[str, Any] = {
            "memory": memory,
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
        return append(table, rows, **settings)  # As dlt does: a merge without a key appends.

    def _rows(self) -> _Rows:
        return _Rows(self._files, self._hints.columns)


class _Rows:
    """The columns of the files that are loaded, as a stream that can be opened again."""

    def __init__(self, files: SourceFiles, columns: tuple[str, ...]) -> None:
        there = set(files.schema.names)
        self._files = files
        self._columns = [name for name in columns if name in there]
        self.schema = pa.schema([files.schema.field(name) for name in self._columns])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._files:
            yield batch.select(self._columns)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)
