"""Plan here, read there: an Iceberg table as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from icestream.memory import DEFAULT_MEMORY, parse_bytes
from icestream.read.scan import Scan, scan
from icestream.read.split import Split
from icestream.spark.installed import pyspark_module
from icestream.spark.packing import pack, wanted_tasks
from icestream.spark.session import BATCH_ROWS_SETTING, MEMORY_SETTING
from icestream.spark.tables import load_table
from icestream.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SMALLEST_CUT_BYTES = 8 << 20

# Both are asked of a session once: registering is a call to the JVM, counting cores may be a job.
_registered: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()
_cores: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


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
    memory: int | str | None = None,
    case_sensitive: bool = True,
) -> DataFrame:
    """Read a table, or a part of it, as a DataFrame.

    The table is loaded and planned here and now, so that the DataFrame always reads the same
    snapshot; its files are read by the executors' Python workers when Spark runs a query. Spark
    does not tell a Python data source which columns a query needs: name them with `columns`.

    Args:
        spark: A session, classic or Spark Connect.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default one.
        where: Which rows: a filter string or a PyIceberg expression. Files and row groups without
            such rows are not read.
        columns: Which columns; all by default.
        snapshot_id: Read this snapshot; branch, tag and as_of likewise, as in `icestream.scan`.
        branch: Read the head of this branch.
        tag: Read this tag.
        as_of: Read the table as it was then.
        memory: What each task may hold; what `icestream.spark.session` was given by default.
        case_sensitive: Whether column names are matched by case.

    Raises:
        CatalogError: If the catalog can't be reached, has no such table, or planning fails.
        InvalidArgumentError: If an argument does not fit.
        UnsupportedFeatureError: If Spark has no type for one of the columns.

    Memory: each running task stays within `memory`, beside Python and Spark themselves.
    """
    source = pyspark_module("icestream.spark.source")
    loaded = load_table(table, catalog)
    memory_bytes = parse_bytes(_setting(spark, MEMORY_SETTING) or DEFAULT_MEMORY)
    if memory is not None:
        memory_bytes = parse_bytes(memory)
    planned = scan(
        loaded,
        where=where,
        columns=columns,
        snapshot_id=snapshot_id,
        branch=branch,
        tag=tag,
        as_of=as_of,
        memory=memory_bytes,
        case_sensitive=case_sensitive,
    )
    schema = spark_schema(planned.schema, table=".".join(loaded.name()))
    tasks = wanted_tasks(_cores_of(spark))
    plan = source.TaskPlan.of(
        pack(_splits(planned, tasks), tasks=tasks),
        memory_bytes=memory_bytes,
        batch_rows=_batch_rows(spark),
    )
    _register(spark, source.IcestreamSource)
    reader = spark.read.format(source.FORMAT).schema(schema)
    return reader.option(source.PLAN_OPTION, plan.to_option()).load()


def _splits(planned: Scan, tasks: int) -> list[Split]:
    """The splits by the table's own target size, or smaller ones if tasks would go without."""
    splits = planned.splits()
    fair_bytes = sum(split.bytes for split in splits) // tasks
    target = max(fair_bytes, _SMALLEST_CUT_BYTES)
    if any(split.bytes > target for split in splits):
        return planned.splits(target)
    return splits


def _register(spark: SparkSession, source: Any) -> None:
    if spark not in _registered:
        spark.dataSource.register(source)
        _registered[spark] = True


def _batch_rows(spark: SparkSession) -> int | None:
    rows = int(_setting(spark, BATCH_ROWS_SETTING) or 0)
    return rows if rows > 0 else None


def _setting(spark: SparkSession, name: str) -> str | None:
    value: str | None = spark.conf.get(name, None)
    return value


def _cores_of(spark: SparkSession) -> int:
    """Tasks that run at once."""
    if spark not in _cores:
        try:
            _cores[spark] = int(spark.sparkContext.defaultParallelism)
        except AttributeError:  # Spark Connect has no context: see how it cuts a range
            functions = pyspark_module("pyspark.sql.functions")
            parts = spark.range(1 << 20).select(functions.spark_partition_id().alias("part"))
            _cores[spark] = int(parts.agg(functions.max("part")).collect()[0][0]) + 1
    return _cores[spark]
