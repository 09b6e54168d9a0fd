"""Registers `format("icestream")` in a session, and sets the settings that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.spark.setup.installed import pyspark_module
from icestream.spark.setup.settings import (
    BATCH_BYTES_SETTING,
    BATCH_ROWS_SETTING,
    MEMORY_SETTING,
    PUSHDOWN_SETTING,
    REDACTION_SETTINGS,
    SessionDefaults,
    batch_bytes,
    cores_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Registering calls the JVM, so it is repeated only when the defaults of a session change.
_registered: WeakKeyDictionary[Any, SessionDefaults] = WeakKeyDictionary()


def register(spark: SparkSession) -> None:
    """Register `format("icestream")` in a session.

    Reads with the format use the session's cores, `spark.icestream.memory` and Arrow batch size at
    the time of this call. Call it again when they change. It also sets the settings that reads need
    and those that keep credentials out of plans and the event log, unless the session has set them.

    Args:
        spark: A session, classic or Spark Connect.

    Raises:
        MissingExtraError: If PySpark is not installed.
    """
    source = pyspark_module("icestream.spark.data_source").IcestreamSource
    _configure(spark)
    defaults = session_defaults(spark)
    if _registered.get(spark) == defaults:
        return
    # Each session registers its own subclass with its defaults: Spark sends the class by value to
    # the process that plans, where there is no session.
    spark.dataSource.register(type(source.__name__, (source,), {"defaults": defaults}))
    _registered[spark] = defaults


def register_again(spark: SparkSession) -> None:
    """Register again after the workers' code has changed, because Spark caches data sources."""
    _registered.pop(spark, None)
    register(spark)


def session_defaults(spark: SparkSession) -> SessionDefaults:
    """The current defaults of a session."""
    batch_rows = int(setting(spark, BATCH_ROWS_SETTING) or 0)
    return SessionDefaults(
        cores=cores_of(spark),
        memory_bytes=parse_bytes(setting(spark, MEMORY_SETTING) or DEFAULT_MEMORY),
        batch_rows=batch_rows if batch_rows > 0 else None,
    )


def task_memory(spark: SparkSession, memory: int | str | None) -> int:
    """The memory limit of a task: the caller's, or else the session's."""
    if memory is not None:
        return parse_bytes(memory)
    return parse_bytes(setting(spark, MEMORY_SETTING) or DEFAULT_MEMORY)


def setting(spark: SparkSession, name: str) -> str | None:
    """The value of a setting, or None if the session has not set it."""
    value: str | None = spark.conf.get(name, None)
    return value


def _configure(spark: SparkSession) -> None:
    memory_bytes = parse_bytes(setting(spark, MEMORY_SETTING) or DEFAULT_MEMORY)
    wanted = {
        PUSHDOWN_SETTING: "true",
        BATCH_BYTES_SETTING: batch_bytes(memory_bytes),
        **REDACTION_SETTINGS,
    }
    for name, value in wanted.items():
        if setting(spark, name) is None:  # Spark's own defaults do not count as set
            spark.conf.set(name, value)
