"""The metadata tables of a table, such as `db.t.snapshots`, from PyIceberg's `table.inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.table import Table

from icestream.errors import MemoryBudgetError
from icestream.memory.budget import DEFAULT_MEMORY, parse_bytes
from icestream.spark.setup.registration import setting
from icestream.spark.setup.settings import MEMORY_SETTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Whether the size of a metadata table grows with the number of files.
METADATA_TABLES = {
    "snapshots": False,
    "history": False,
    "refs": False,
    "manifests": False,
    "metadata_log_entries": False,
    "files": True,
    "data_files": True,
    "delete_files": True,
    "entries": True,
    "partitions": True,
}
# Measured with PyIceberg 0.12: 20 kB for a file of 50 columns.
_FILE_BYTES = 2_000
_COLUMN_BYTES = 400


def metadata_frame(
    spark: SparkSession, table: Table, name: str, *, memory: int | str | None
) -> DataFrame:
    """A metadata table of the table's current snapshot, as a frame.

    Args:
        spark: The session.
        table: The table.
        name: One of `METADATA_TABLES`.
        memory: The memory limit; by default the session's.

    Raises:
        MemoryBudgetError: If the metadata table has a row for each file, and the table has too many
            files for the limit.

    Memory: the metadata table is built in this process. Its estimated size is at most `memory`.
    """
    if METADATA_TABLES[name]:
        limit = parse_bytes(memory or setting(spark, MEMORY_SETTING) or DEFAULT_MEMORY)
        _check_size(table, name, limit)
    rows: pa.Table = getattr(table.inspect, name)()
    return spark.createDataFrame(_as_spark_has_it(rows))


def _check_size(table: Table, name: str, limit: int) -> None:
    snapshot = table.current_snapshot()
    summary: Any = snapshot.summary if snapshot and snapshot.summary else {}
    counts = (
        [summary[key] or 0 for key in ("total-data-files", "total-delete-files")] if summary else []
    )
    files = sum(map(int, counts))
    needed = files * (_FILE_BYTES + _COLUMN_BYTES * len(table.schema().column_names))
    if needed > limit:
        raise MemoryBudgetError(
            f"{'.'.join(table.name())}.{name} needs about {needed:,} bytes for {files:,} files, "
            f"and the memory limit is {limit:,} bytes: raise memory, or use icestream.health",
            needed_bytes=needed,
            limit_bytes=limit,
        )


def _as_spark_has_it(rows: pa.Table) -> pa.Table:
    """Cast times to UTC, as in the metadata tables of Iceberg's runtime."""
    fields = [
        pa.field(each.name, pa.timestamp("us", "UTC") if _is_time(each.type) else each.type)
        for each in rows.schema
    ]
    return rows.cast(pa.schema(fields))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)
