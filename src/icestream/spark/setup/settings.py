"""Spark settings that icestream reads or sets, and the defaults that reads take from a session."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from icestream.spark.setup.installed import pyspark_module

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY_SETTING = "spark.icestream.memory"
BATCH_ROWS_SETTING = "spark.sql.execution.arrow.maxRecordsPerBatch"
PUSHDOWN_SETTING = "spark.sql.python.filterPushdown.enabled"
BATCH_BYTES_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"

CATALOG_PREFIX = "catalog."

# Spark shows the options of a source in its plans, its UI and its event log. These settings hide
# the secrets of a catalog: the first where Spark shows options by name, the second where it shows
# SQL or requests of Spark Connect.
REDACTION_SETTINGS = {
    "spark.sql.redaction.options.regex": (
        r"(?i)url|uri\b|user|passw|passphrase|pwd|credential|sas\b|connection|dsn"
        r"|(account|private|api)[-_.]?key|^catalog[.]"
    ),
    "spark.sql.redaction.string.regex": (
        r'key: "(?i:catalog[.][^"]*)"\s*value: "[^"]*"'
        r"|(?i)catalog[.][\w.-]+[`\"']?\s*=?\s*\\?['\"][^'\"]*"
        r"|(?i)jdbc:[a-z](?:[{][^{}]*[}]|[^\s'\"{}])*|(?<=://)[^\s/'\"@]*:[^\s'\"]*@"
    ),
}

_BATCHES_PER_LIMIT = 16
# `icestream.memory.budget.DEFAULT_MEMORY` in bytes; a test compares them.
_DEFAULT_BYTES = 256_000_000
_CORES_SECONDS = 60
_cores: WeakKeyDictionary[Any, tuple[int, float]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """The defaults that reads take from a session. Their own options override them.

    Attributes:
        cores: Number of tasks that run at once.
        memory_bytes: The memory limit of each task.
        batch_rows: Maximum number of rows in a batch. By default the scan decides.
    """

    cores: int = 1
    memory_bytes: int = _DEFAULT_BYTES
    batch_rows: int | None = None


def batch_bytes(memory_bytes: int) -> str:
    """The maximum size of a batch that Spark sends to a task, which the task holds in addition."""
    return str(max(1, memory_bytes // _BATCHES_PER_LIMIT))


def cores_of(spark: SparkSession) -> int:
    """The number of tasks that the session runs at once, now.

    Executors come and go, so every plan asks again. Spark Connect needs a job for the answer, which
    is kept for a minute.
    """
    try:
        return int(spark.sparkContext.defaultParallelism)
    except AttributeError:  # Spark Connect has no context: count the parts of a range
        cores, until = _cores.get(spark, (0, 0.0))
        if time.monotonic() >= until:
            functions = pyspark_module("pyspark.sql.functions")
            parts = spark.range(1 << 20).select(functions.spark_partition_id().alias("part"))
            cores = int(parts.agg(functions.max("part")).collect()[0][0]) + 1
            _cores[spark] = cores, time.monotonic() + _CORES_SECONDS
        return cores
