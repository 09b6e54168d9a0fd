"""How many tasks a session runs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from icestream.spark.installed import pyspark_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Asked of a session once: it may be a job.
_cores: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def cores_of(spark: SparkSession) -> int:
    """Tasks that run at once."""
    if spark not in _cores:
        try:
            _cores[spark] = int(spark.sparkContext.defaultParallelism)
        except AttributeError:  # Spark Connect has no context: see how it cuts a range
            functions = pyspark_module("pyspark.sql.functions")
            parts = spark.range(1 << 20).select(functions.spark_partition_id().alias("part"))
            _cores[spark] = int(parts.agg(functions.max("part")).collect()[0][0]) + 1
    return _cores[spark]
