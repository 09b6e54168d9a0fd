"""`update`: sets columns of the rows that match a filter, in one snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.lookup import load_table
from icestream.errors import InvalidArgumentError
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.report.write_report import WriteReport
from icestream.spark.setup.registration import setting, task_memory
from icestream.spark.writing.rewrite_job import RowWorkers
from icestream.spark.writing.update_job import RowsUpdated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def update(
    spark: SparkSession,
    table: str | Table,
    set: Mapping[str, str],
    where: str | BooleanExpression | None = None,
    *,
    catalog: str | Catalog | None = None,
    memory: int | str | None = None,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
) -> WriteReport:
    """Set columns of the rows for which a filter is true, as exactly one snapshot.

    Tasks read the matching rows, Spark evaluates the expressions over them, and tasks rewrite the
    files. Rows for which the filter is null stay as they are. A row that already has the new values
    counts as unchanged, and a file without changed rows is not rewritten. If the table property
    `write.update.mode` is `merge-on-read`, files stay, and position delete files mark the old rows.

    Args:
        spark: A session, classic or Spark Connect.
        table: A name such as `"db.t"`, or a PyIceberg table.
        set: A Spark SQL expression for each column to set: `{"price": "price * 1.1"}`. All
            expressions see the row as it was before. Values are cast to the types of their columns
            as in Spark's own `UPDATE`.
        where: A filter string or a PyIceberg expression. By default all rows are updated.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default catalog.
        memory: Memory limit of each task. By default the limit of `icestream.spark.session`.
        branch: The branch that gets the snapshot; it must exist. By default `main`.
        properties: Properties for the snapshot's summary.
        load_id: Identifies this update: a second call with the same id does nothing.

    Returns:
        A report with `rows_updated` and `rows_unchanged`. `peak_bytes_held` is the highest value of
        all tasks and of this process.

    Raises:
        UnknownColumnError: If the table has no such column.
        InvalidArgumentError: If the filter or an expression is invalid.
        SchemaMismatchError: If the type of an expression does not fit its column.
        InvalidDataError: If a value can't be stored, such as null in a required column.
        TaskFailedError: If tasks failed after all retries. The table was not changed.
        CommitConflictError: If concurrent commits added or deleted rows that affect this update.

    Memory: each running task stays within `memory`, and so does this process, which holds the
        descriptions of the files with matching rows (about 400 bytes each).
    """
    if not set or not all(isinstance(each, str) for pair in set.items() for each in pair):
        raise InvalidArgumentError(
            f"set is {set!r}: give a SQL expression for each column, such as {{'price': '0'}}"
        )
    memory_bytes = task_memory(spark, memory)
    options = WriteOptions(
        memory=memory_bytes, branch=branch, properties=properties, load_id=load_id
    )
    workers = RowWorkers(spark, memory_bytes)
    case_sensitive = str(setting(spark, "spark.sql.caseSensitive")).lower() == "true"
    changes = RowsUpdated(set, where, workers, case_sensitive=case_sensitive)
    loaded = load_table(table, catalog)
    operation = WriteOperation(loaded, Operation.OVERWRITE, changes, options, verb="update")
    report = workers.completed(operation.run(lambda: iter(())))
    return replace(report, operation="update")
