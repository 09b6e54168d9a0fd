"""`orphans`: finds and deletes files in storage that a table does not refer to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from icestream.catalogs.credentials import table_access
from icestream.catalogs.lookup import load_table
from icestream.operations.upkeep.orphans import DEFAULT_AGE, find_orphans
from icestream.report.upkeep_report import OrphansReport
from icestream.spark.setup.registration import task_memory
from icestream.spark.tasks.storage_tasks import SparkStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def orphans(
    spark: SparkSession,
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    older_than: timedelta | float | datetime = DEFAULT_AGE,
    delete: bool = False,
    folders: Sequence[str] = (),
    other_tables: Literal["refuse", "keep"] = "refuse",
    dropped: Collection[str] = (),
    only_catalog: bool = False,
    memory: int | str | None = None,
) -> OrphansReport:
    """Find files below the table's location that nothing in the table refers to, and delete them.

    The same as `icestream.orphans`, but tasks list the folders and delete the files. This process
    reads the table's references and decides which files are orphans. It also lists folders on a
    local disk, unless all tasks run on this machine.

    Args:
        spark: A session, classic or Spark Connect.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default catalog.
        older_than: Minimum age of orphans since their last write: a duration, seconds, or a
            point in time (UTC if it has no time zone). See `icestream.orphans` for this argument
            and those that are not listed here.
        delete: Whether to delete the orphans.
        folders: Further folders that hold only this table's files.
        other_tables: What to do if other tables may have files in the same folders.
        dropped: Ids (UUIDs) of other tables that are dropped: their files are orphans.
        only_catalog: Whether no other catalog has this table.
        memory: Memory limit of this process for the search. By default the limit of
            `icestream.spark.session`.

    Returns:
        The orphans, the files deleted, and counts of files kept because they are too young or
        belong to another table.

    Raises:
        CatalogError: If other tables may have files here, the catalog fails to list or load them,
            the table's metadata can't be read or a folder can't be listed; then nothing is deleted.
        TaskFailedError: If tasks failed to list folders after all retries; nothing is deleted.

    Memory: this process stays within `memory`; names of files go to disk beyond a share of it. A
        task holds the names of one folder.
    """
    loaded = load_table(table, catalog)
    return find_orphans(
        loaded,
        older_than=older_than,
        delete=delete,
        folders=folders,
        other_tables=other_tables,
        dropped=dropped,
        only_catalog=only_catalog,
        memory=task_memory(spark, memory),
        storage=SparkStorage(spark, table_access(loaded)),
    )
