"""Orders to read: partitions by region, several appends, and rows deleted by position."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from tests.support.delete_files import commit_position_deletes
from tests.support.tables import data_file_paths

ORDERS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType()),
    NestedField(3, "price", DoubleType()),
    NestedField(4, "note", StringType()),
)
BY_REGION = PartitionSpec(
    PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="region")
)


def regional_orders(start: int, stop: int) -> pa.Table:
    ids = np.arange(start, stop)
    return pa.table(
        {
            "id": ids,
            "region": pa.array(["north", "south", None, "west"]).take(pa.array(ids % 4)),
            "price": ids % 1000 / 8,
            "note": pa.array([f"note {i}" if i % 3 else None for i in ids]),
        },
        schema=pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("region", pa.string()),
                pa.field("price", pa.float64()),
                pa.field("note", pa.string()),
            ]
        ),
    )


def partitioned_orders(catalog: Catalog) -> Table:
    """A partitioned table of three appends, with rows deleted by position in two files."""
    table = catalog.create_table("db.orders", ORDERS, partition_spec=BY_REGION)
    for start in (0, 4000, 8000):
        table.append(regional_orders(start, start + 4000))
    paths = data_file_paths(table)
    commit_position_deletes(table, {paths[0]: range(0, 500, 3), paths[-1]: [0, 999]})
    return table
