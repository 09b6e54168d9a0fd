"""A table read as described by options, for batch reads and streams.

The driver pins the table, plans a scan and divides it into shares. Each task reads one share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from icestream.catalogs.file_access import without_catalog_secrets
from icestream.catalogs.lookup import load_table, open_catalog
from icestream.errors import InvalidArgumentError
from icestream.read.filters.fitting import parse_filter
from icestream.read.filters.parser import ParsedFilter
from icestream.read.scan import Scan, scan
from icestream.spark.arrow.types import spark_schema
from icestream.spark.format.read_options import ReadOptions
from icestream.spark.setup.settings import SessionDefaults
from icestream.spark.tasks.planned_frame import read_share
from icestream.spark.tasks.task_plan import plan_tasks


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """The state of a table at the time a frame was created. The frame always reads this state.

    Attributes:
        name: The table's name.
        metadata: The table's metadata.
        metadata_location: The path of the metadata file.
        io: The file system, without properties that only the catalog needs.
    """

    name: tuple[str, ...]
    metadata: TableMetadata
    metadata_location: str
    io: FileIO

    @classmethod
    def load(cls, options: ReadOptions, catalog: Catalog | None = None) -> PinnedTable:
        """Load the current state of the table.

        Args:
            options: The options, which name the table and the catalog.
            catalog: The catalog, if it is already open.

        Raises:
            CatalogError: If the catalog can't be reached, or has no such table.
        """
        catalog = catalog or open_catalog(options.catalog, options.catalog_properties)
        table = load_table(options.table, catalog)
        io = without_catalog_secrets(table.io)
        return cls(table.name(), table.metadata, table.metadata_location, io)

    def table(self) -> Table:
        """The table, without its catalog."""
        return StaticTable(
            self.name, self.metadata, self.metadata_location, self.io, NoopCatalog("pinned")
        )


class Share(InputPartition):  # type: ignore[misc]
    """The pickled splits of one task, which the base class stores as `value`."""


@dataclass(frozen=True, slots=True)
class ShareReader:
    """In a task: reads its share.

    Attributes:
        memory_bytes: The memory limit of the task.
        batch_rows: Maximum number of rows in a batch. By default the scan decides.

    Memory: the scan stays within the limit. One batch more is on its way to the JVM.
    """

    memory_bytes: int
    batch_rows: int | None

    def __call__(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Share):  # not Spark's placeholder for a plan without partitions
            yield from read_share(partition.value, self.memory_bytes, self.batch_rows)


@dataclass(frozen=True, slots=True)
class TableRead:
    """A read of a pinned table with options."""

    pinned: PinnedTable
    options: ReadOptions
    defaults: SessionDefaults

    @property
    def memory_bytes(self) -> int:
        """The memory limit of each task."""
        return self.options.memory_bytes or self.defaults.memory_bytes

    @property
    def share_reader(self) -> ShareReader:
        """The reader for the tasks, without the table's metadata and catalog."""
        return ShareReader(self.memory_bytes, self.defaults.batch_rows)

    def scan(self, more: BooleanExpression | None = None) -> Scan:
        """The scan for the options. `more` is an additional filter."""
        arguments = dict(self.options.scan)
        if more is not None:
            where = parse_filter(arguments.get("where", "true"))
            given = where.expression if isinstance(where, ParsedFilter) else where
            arguments["where"] = And(given, more)
        return scan(self.pinned.table(), **arguments, memory=self.memory_bytes)

    def schema(self) -> StructType:
        """The Spark schema of the read."""
        return spark_schema(self.scan().schema, table=".".join(self.pinned.name))

    def of_schema(self, schema: StructType) -> TableRead:
        """The read with the columns that Spark requests, which may come from a user's schema.

        Raises:
            InvalidArgumentError: If the columns have other types.
        """
        if "columns" in self.options.scan and self.schema() == schema:
            return self
        names = [field.name for field in schema.fields]
        metadata = [n for n in self.options.scan.get("metadata_columns", ()) if n in names]
        columns = [name for name in names if name not in metadata]
        arguments = {**self.options.scan, "columns": columns, "metadata_columns": metadata}
        narrowed = replace(self, options=replace(self.options, scan=arguments))
        known = narrowed.schema()
        if known != schema:
            raise InvalidArgumentError(
                f"the given schema is {schema.simpleString()}, but {'.'.join(self.pinned.name)} is "
                f"read as {known.simpleString()}: leave .schema(...) out, and name columns with "
                'option("columns", ...)'
            )
        return narrowed

    def shares(self, planned: Scan) -> list[Share]:
        """Read the manifests of a scan, and divide its files into shares."""
        plan = plan_tasks(
            planned,
            self.defaults,
            memory_bytes=self.memory_bytes,
            split_bytes=self.options.split_bytes,
        )
        return [Share(share) for share in plan.shares]
