"""`read`: plans a table in this process and reads it on executors, as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from icestream.catalogs.lookup import load_table
from icestream.memory.budget import parse_bytes
from icestream.read.scan import planned_by, scan
from icestream.spark.arrow.types import spark_schema
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.registration import session_defaults
from icestream.spark.tasks.manifest_tasks import SparkManifests
from icestream.spark.tasks.planned_frame import planned_frame
from icestream.spark.tasks.shown_work import read_name
from icestream.spark.tasks.task_plan import plan_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(
    spark: SparkSession,
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    where: str | BooleanExpression | None = None,
    columns: Sequence[str] | None = None,
    snapshot_id: int | None = None,
    branch: str | None = None,
    tag: str | None = None,
    as_of: datetime | int | None = None,
    metadata_columns: Sequence[str] | None = None,
    memory: int | str | None = None,
    split_size: int | str | None = None,
    case_sensitive: bool = True,
) -> DataFrame:
    """Read a table, or a part of it, as a DataFrame.

    The scan is planned immediately, so the DataFrame always reads the same snapshot. The executors'
    Python workers read its files when Spark runs a query. Spark does not pass on which columns a
    query needs, so name these in `columns`.

    Args:
        spark: A session, classic or Spark Connect.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default catalog.
        where: Filter string or PyIceberg expression that selects rows. Files and row groups without
            matching rows are not read.
        columns: Columns to read, in this order. By default all.
        snapshot_id: Read this snapshot.
        branch: Read the head of this branch.
        tag: Read the snapshot with this tag.
        as_of: Read the table as it was at this time, a datetime or milliseconds since 1970.
        metadata_columns: Metadata columns to add after the others: any of `_file`, `_pos`,
            `_partition` and `_spec_id`.
        memory: Memory limit of each task. By default the limit of `icestream.spark.session`.
        split_size: Size at which large files are split, and the approximate size of a task. By
            default there are enough tasks to keep all cores busy, of at most 512 MB each.
        case_sensitive: Whether column names are case-sensitive.

    Raises:
        CatalogError: If the catalog can't be reached, has no such table, or planning fails.
        InvalidArgumentError: If an argument is invalid.
        UnsupportedFeatureError: If Spark has no type for one of the columns.

    Memory: each running task stays within `memory`, in addition to Python and Spark themselves.
    """
    pyspark_module()  # raise before anything is read if PySpark is missing
    loaded = load_table(table, catalog)
    memory_bytes = None if memory is None else parse_bytes(memory)
    split_bytes = None if split_size is None else parse_bytes(split_size, name="split_size")
    planned = scan(
        loaded,
        where=where,
        columns=columns,
        snapshot_id=snapshot_id,
        branch=branch,
        tag=tag,
        as_of=as_of,
        metadata_columns=metadata_columns,
        case_sensitive=case_sensitive,
    )
    schema = spark_schema(planned.schema, table=".".join(loaded.name()))
    defaults = session_defaults(spark)
    manifests = SparkManifests(spark, memory_bytes or defaults.memory_bytes)
    plan = plan_tasks(
        planned_by(planned, manifests),
        defaults,
        memory_bytes=memory_bytes,
        split_bytes=split_bytes,
    )
    name = read_name(".".join(loaded.name()), planned.schema.names, where)
    return planned_frame(spark, plan, schema, name=name)
