"""Readers of `format("icestream")` that plan a table themselves, where Spark plans.

One of them takes the filters of the query over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.io import FileIO
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from icestream.catalogs import load_table, open_catalog
from icestream.errors import InvalidArgumentError
from icestream.file_access import without_catalog_secrets
from icestream.read.request import request
from icestream.read.scan import Scan, scan
from icestream.spark.filters import pushed
from icestream.spark.planning import plan_tasks
from icestream.spark.read_options import ReadOptions
from icestream.spark.share_reader import Share, ShareReader
from icestream.spark.task_plan import SessionDefaults, TaskPlan
from icestream.spark.types import spark_schema


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A table as it was when a frame was made of it: that is what the frame reads, always.

    Attributes:
        name: The table's name.
        metadata: What the catalog said.
        metadata_location: Where that is stored.
        io: How files are opened, without what only the catalog needs.
    """

    name: tuple[str, ...]
    metadata: TableMetadata
    metadata_location: str
    io: FileIO

    @classmethod
    def load(cls, options: ReadOptions, catalog: Catalog | None = None) -> PinnedTable:
        """Ask the catalog.

        Args:
            options: Which table.
            catalog: The catalog that they name, if it is open already.

        Raises:
            CatalogError: If it can't be reached, or has no such table.
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


@dataclass(frozen=True, slots=True)
class TableRead:
    """A read by options, of a table that is known."""

    pinned: PinnedTable
    options: ReadOptions
    defaults: SessionDefaults

    def scan(self, more: BooleanExpression | None = None) -> Scan:
        """The scan that the options ask for; `more` narrows it."""
        arguments = dict(self.options.scan)
        if more is not None:
            where = arguments.get("where")
            arguments["where"] = more if where is None else And(parse(where), more)
        memory_bytes = self.options.memory_bytes or self.defaults.memory_bytes
        return scan(self.pinned.table(), **arguments, memory=memory_bytes)

    def schema(self) -> StructType:
        """What Spark is told that the read delivers."""
        return spark_schema(self.scan().schema, table=".".join(self.pinned.name))

    def of_schema(self, schema: StructType) -> TableRead:
        """The read, with the columns that Spark wants: a user may have named them by a schema.

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
                f"the schema given is {schema.simpleString()}, and {'.'.join(self.pinned.name)} is "
                f"read as {known.simpleString()}: leave .schema(...) out, and name columns with "
                'option("columns", ...)'
            )
        return narrowed

    def plan(self, more: BooleanExpression | None = None) -> TaskPlan:
        """Read the manifests, and share the files out."""
        return plan_tasks(
            self.scan(more),
            self.defaults,
            memory_bytes=self.options.memory_bytes,
            split_bytes=self.options.split_bytes,
        )


class TableReader(ShareReader):
    """Plans a table when Spark asks for its partitions."""

    def __init__(self, read: TableRead) -> None:
        memory_bytes = read.options.memory_bytes or read.defaults.memory_bytes
        super().__init__(TaskPlan((), memory_bytes, read.defaults.batch_rows))
        self._read: TableRead | None = read
        self._more: BooleanExpression = AlwaysTrue()

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: neither the table's metadata nor how to reach its catalog."""
        return {**super().__getstate__(), "_read": None}

    def partitions(self) -> list[Share]:
        """Plan, and hand out one share for each task."""
        assert self._read is not None
        return [Share(share) for share in self._read.plan(self._more).shares]


class PushingReader(TableReader):
    """The same, and takes over those filters of the query that it can apply exactly."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Take filters over; those that are returned stay with Spark."""
        assert self._read is not None
        context = request(
            self._read.pinned.table(),
            **{k: v for k, v in self._read.options.scan.items() if k != "where"},
        ).context
        taken = [(each, pushed(each, context.schema)) for each in filters]
        for _, expression in taken:
            if expression is not None:
                self._more = And(self._more, expression)
        return [each for each, expression in taken if expression is None]
