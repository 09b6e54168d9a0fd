"""`compact`: rewrites small files and files with deleted rows into files of the target size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from icestream.catalogs.lookup import load_table
from icestream.operations.upkeep.compact import run_compaction
from icestream.report.upkeep_report import CompactReport
from icestream.spark.setup.registration import task_memory
from icestream.spark.writing.compact_job import CompactWorkers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def compact(
    spark: SparkSession,
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    where: str | BooleanExpression | None = None,
    target_file_bytes: int | str | None = None,
    min_files: int = 2,
    memory: int | str | None = None,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    progress: Callable[[CompactReport], None] | None = None,
) -> CompactReport:
    """Rewrite small files, and files with deleted rows, into files of the target size.

    The same as `icestream.compact`, but tasks rewrite the files. The work is done in groups. Each
    group is one Spark job and one snapshot, and large enough to keep all cores busy. A conflict
    with a concurrent change costs one group. A failed task ends the call, and the groups before it
    stay compacted.

    Args:
        spark: A session, classic or Spark Connect.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default catalog.
        where: Rewrite only files that may hold rows matching this filter. All rows of these files
            are kept.
        target_file_bytes: The target size of files; `write.target-file-size-bytes` by default.
        min_files: Minimum number of small files in a partition to rewrite them. Files with deleted
            rows are always rewritten.
        memory: Memory limit of each task. By default the limit of `icestream.spark.session`.
        branch: The branch to compact; the main branch by default.
        properties: Properties for the snapshots' summaries.
        progress: Called with a report before the first group and after each group.

    Returns:
        A report. `peak_bytes_held` is the highest value of all tasks and of this process.

    Raises:
        TaskFailedError: If tasks failed after all retries.
        CommitConflictError: If every group conflicted with concurrent changes; nothing was changed.
        CommitUnknownError: If a commit may or may not have happened.

    Memory: each running task stays within `memory`, and so does this process, which holds the
        descriptions of the files to rewrite (about 400 bytes each).
    """
    memory_bytes = task_memory(spark, memory)
    workers = CompactWorkers(spark, memory_bytes)
    report = run_compaction(
        load_table(table, catalog),
        where=where,
        target_file_bytes=target_file_bytes,
        min_files=min_files,
        memory=memory_bytes,
        branch=branch,
        properties=properties,
        progress=progress,
        workers=workers,
    )
    return workers.completed(report)
