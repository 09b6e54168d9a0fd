"""`append`: adds the rows of a DataFrame to a table, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.report.write_report import WriteReport
from icestream.spark.writing.distribution import Distribution
from icestream.spark.writing.table_write import FrameWriteOptions
from icestream.spark.writing.written_frame import Creation, frame_options, write_frame
from icestream.write.schema.schema_plan import SchemaMode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append(
    frame: DataFrame,
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
    create: bool = False,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    table_properties: Mapping[str, str] | None = None,
    distribution: Distribution | None = None,
) -> WriteReport:
    """Append a DataFrame to a table, as exactly one snapshot.

    The executors' Python workers write the data files, and this process commits them.

    Args:
        frame: The rows to append.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default catalog.
        memory: Memory limit of each task. By default the limit of `icestream.spark.session`.
        schema_mode: How to treat columns that differ from the table's, as in `icestream.append`.
        branch: Branch to write to. By default `main`.
        properties: Properties for the snapshot's summary.
        load_id: Unique id of this load. A second load with the same id does nothing.
        create: Whether to create the table if it does not exist, with the frame's columns and in
            the same commit. A failed load leaves no table. If another writer creates the table in
            the meantime, the frame is computed again and appended to that table.
        partition_by: Partition fields of a new table: `["day(ts)", "bucket(16, id)", "region"]`.
        sort_by: Sort order of a new table: `["price desc nulls last"]`.
        table_properties: Properties of a new table.
        distribution: How Spark distributes rows to the tasks that write them: `"none"`, `"hash"`
            (by partition) or `"range"` (by partition and sort order). The default is the table
            property `write.distribution-mode`, or else `"range"` for a table with a sort order,
            `"hash"` for a partitioned table and `"none"` for others.

    Returns:
        A report of the write. `peak_bytes_held` is the highest value of all tasks.

    Raises:
        SchemaMismatchError: If the frame does not fit the table. Nothing was written.
        UnsupportedFeatureError: If Iceberg has no type for a column. Nothing was written.
        CatalogError: If the catalog can't be reached, or has no such table.
        TaskFailedError: If tasks failed after all retries. If icestream refused a row, its own
            error is raised instead, such as `InvalidDataError`. The table was not changed.
        CommitConflictError: If the commit was refused.

    Memory: each running task stays within `memory`, in addition to Python and Spark themselves.
    """
    memory_bytes, case_sensitive = frame_options(frame, memory)
    options = FrameWriteOptions(
        "append",
        memory=memory_bytes,
        schema_mode=schema_mode,
        branch=branch,
        properties=properties,
        load_id=load_id,
        case_sensitive=case_sensitive,
    )
    creation = Creation.of(create, partition_by, sort_by, table_properties)
    return write_frame(frame, table, catalog, options, creation=creation, distribution=distribution)
