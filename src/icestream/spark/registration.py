"""`format("icestream")` for a session, with the settings that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from icestream.memory import DEFAULT_MEMORY, parse_bytes
from icestream.spark.cores import cores_of
from icestream.spark.installed import pyspark_module
from icestream.spark.secrets import REDACTION_SETTINGS
from icestream.spark.settings import (
    BATCH_BYTES_SETTING,
    BATCH_ROWS_SETTING,
    MEMORY_SETTING,
    PUSHDOWN_SETTING,
    batch_bytes,
)
from icestream.spark.task_plan import SessionDefaults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Done once for a session, as long as they are the same: it is a call to the JVM.
_registered: WeakKeyDictionary[Any, SessionDefaults] = WeakKeyDictionary()


def register(spark: SparkSession) -> None:
    """Make `format("icestream")` known to a session: classic, on a cluster, or Spark Connect.

    Reads by the format take the session's cores, `spark.icestream.memory` and Arrow batch size as
    they are now; call it again when they change. Settings that reads need, and those that keep
    credentials out of plans and the event log, are made unless the session has others.

    Args:
        spark: The session.

    Raises:
        MissingExtraError: If PySpark is not installed.
    """
    source = pyspark_module("icestream.spark.source").IcestreamSource
    _configure(spark)
    defaults = session_defaults(spark)
    if _registered.get(spark) == defaults:
        return
    # A class of its own for this session: Spark sends it to where the planning happens, by value,
    # and that process knows of no session.
    spark.dataSource.register(type(source.__name__, (source,), {"defaults": defaults}))
    _registered[spark] = defaults


def register_again(spark: SparkSession) -> None:
    """The same for a session whose workers now find other code: Spark noted what they find."""
    _registered.pop(spark, None)
    register(spark)


def session_defaults(spark: SparkSession) -> SessionDefaults:
    """What reads take from the session."""
    batch_rows = int(setting(spark, BATCH_ROWS_SETTING) or 0)
    return SessionDefaults(
        cores=cores_of(spark),
        memory_bytes=parse_bytes(setting(spark, MEMORY_SETTING) or DEFAULT_MEMORY),
        batch_rows=batch_rows if batch_rows > 0 else None,
    )


def setting(spark: SparkSession, name: str) -> str | None:
    """A setting of the session, or None."""
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
        if setting(spark, name) is None:  # with a default given, Spark's own does not count
            spark.conf.set(name, value)
