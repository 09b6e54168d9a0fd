"""`delete`: deletes the rows of a table that match a filter, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.lookup import load_table
from icestream.operations.row_changes import MatchingRemoved
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.report.write_report import WriteReport
from icestream.spark.setup.registration import task_memory
from icestream.spark.writing.rewrite_job import RowWorkers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delete(
    spark: SparkSession,
    table: str | Table,
    where: str | BooleanExpression,
    *,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Delete the rows for which a filter is true, as exactly one snapshot.

    The result is the same as that of `icestream.delete`, but tasks read and rewrite the files. Rows
    for which the filter is null stay. Files whose rows all match are removed without being read.
    If the table property `write.delete.mode` is `merge-on-read`, files that keep rows stay, and
    position delete files mark the deleted rows. If no row matches, there is no snapshot.

    Args:
        spark: A session, classic or Spark Connect.
        table: A name such as `"db.t"`, or a PyIceberg table.
        where: A filter string or a PyIceberg expression.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default catalog.
        memory: Memory limit of each task. By default the limit of `icestream.spark.session`.
        branch: The branch that gets the snapshot; it must exist. By default `main`.
        properties: Properties for the snapshot's summary.
        load_id: Identifies this delete: a second call with the same id does nothing.

    Returns:
        A report. `peak_bytes_held` is the highest value of all tasks and of this process.

    Raises:
        InvalidArgumentError: If the filter does not fit the table.
        TaskFailedError: If tasks failed after all retries. The table was not changed.
        CommitConflictError: If concurrent commits added or deleted rows that affect this delete.

    Memory: each running task stays within `memory`, and so does this process, which holds the
        descriptions of the files with matching rows (about 400 bytes each).
    """
    memory_bytes = task_memory(spark, memory)
    options = WriteOptions(
        memory=memory_bytes, branch=branch, properties=properties, load_id=load_id
    )
    workers = RowWorkers(spark, memory_bytes)
    changes = MatchingRemoved(where, workers)
    loaded = load_table(table, catalog)
    operation = WriteOperation(loaded, Operation.DELETE, changes, options)
    return workers.completed(operation.run(lambda: iter(())))
