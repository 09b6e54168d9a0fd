"""A frame of orders, the table for it, and what is left of both in storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

import icestream as ice

ORDERS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "region", StringType()),
    NestedField(3, "price", DoubleType()),
)
ORDERS_DDL = "id long, region string, price double"


def orders(spark: Any, rows: int, *, tasks: int = 3, first: int = 0) -> Any:
    """Orders with ids from `first` on, in four regions."""
    from pyspark.sql import functions as sf

    ids = spark.range(first, first + rows, numPartitions=tasks)
    region = sf.concat(sf.lit("r"), sf.col("id") % 4)
    return ids.select("id", region.alias("region"), (sf.col("id") / 8).alias("price"))


def order_ids(table: Table, **options: Any) -> list[int]:
    """The ids in a table, as it is now."""
    batches = ice.scan(table.refresh(), **options)
    return sorted(number for batch in batches for number in batch["id"].to_pylist())


def stored(folder: Path) -> set[str]:
    """All files below a folder but the catalog and the tables' metadata."""
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return {name for name in names if not name.endswith((".metadata.json", ".db", ".db-journal"))}
