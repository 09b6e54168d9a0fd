"""A frame under a name, for SQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_lock = threading.RLock()  # views are the session's: one at a time


@contextmanager
def as_view(spark: SparkSession, frame: DataFrame, name: str) -> Iterator[None]:
    """The frame as a temporary view; one of that name is put back afterwards."""
    with _lock:
        temporary = [each.name for each in spark.catalog.listTables() if each.isTemporary]
        before = spark.table(name) if name in temporary else None
        frame.createOrReplaceTempView(name)
        try:
            yield
        finally:
            if before is not None:
                before.createOrReplaceTempView(name)
            else:
                spark.catalog.dropTempView(name)
