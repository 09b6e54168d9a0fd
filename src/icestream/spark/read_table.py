"""Plan here, read there: an Iceberg table as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table

from icestream.catalogs import load_table
from icestream.memory import parse_bytes
from icestream.read.scan import scan
from icestream.spark.installed import pyspark_module
from icestream.spark.planned_frame import planned_frame
from icestream.spark.planning import plan_tasks
from icestream.spark.registration import session_defaults
from icestream.spark.types import spark_schema

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

    The table is loaded and planned here and now, so that the DataFrame always reads the same
    snapshot; its files are read by the executors' Python workers when Spark runs a query. Spark
    does not tell Python which columns a query needs: name them with `columns`.

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
        metadata_columns: What comes after the columns, of `_file`, `_pos`, `_partition` and
            `_spec_id`; as in `icestream.scan`.
        memory: What each task may hold; what `icestream.spark.session` was given by default.
        split_size: Where large files are cut, and about what each task reads; by default enough
            tasks are made to keep all cores busy, of 512 MB at most.
        case_sensitive: Whether column names are matched by case.

    Raises:
        CatalogError: If the catalog can't be reached, has no such table, or planning fails.
        InvalidArgumentError: If an argument does not fit.
        UnsupportedFeatureError: If Spark has no type for one of the columns.

    Memory: each running task stays within `memory`, beside Python and Spark themselves.
    """
    pyspark_module()  # before anything is read: its absence is what there is to say
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
    plan = plan_tasks(
        planned, session_defaults(spark), memory_bytes=memory_bytes, split_bytes=split_bytes
    )
    return planned_frame(spark, plan, schema)
