"""A table with dates and timestamps of years that Python does not have."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DateType, LongType, NestedField, TimestampType, TimestamptzType

from icestream.write.partition.spec_text import partition_spec

_DAYS = ["-4712-01-01", "0000-12-31", "2020-05-05", "9999-12-31", "10000-01-01", "20000-06-06"]
_MOMENTS = [
    "-0044-03-15T10:00:00.000001",
    "0000-12-31T23:59:59.999999",
    "2020-05-05T05:05:05",
    "9999-12-31T23:59:59.999999",
    "10000-01-01T00:00:00",
    "20000-06-06T01:00:00",
]
# Each partition field that dates and timestamps can have.
PARTITIONS = [
    *("year(d)", "month(d)", "day(d)", "d", "bucket(4, d)"),
    *("year(ts)", "month(ts)", "day(ts)", "hour(ts)", "ts", "bucket(4, ts)"),
    *("year(tz)", "month(tz)", "day(tz)", "hour(tz)", "tz"),
]
# Filters with the ids of the rows that match.
FILTERS = {
    "d >= '9999-12-31'": [3, 4, 5],
    "d > '10000-01-01'": [5],
    "d = '+20000-06-06'": [5],
    "d in ('20000-06-06', '2020-05-05')": [2, 5],
    "d < '0001-01-01'": [0, 1],
    "d = '-4712-01-01'": [0],
    "ts > '9999-12-31T00:00:00'": [3, 4, 5],
    "ts >= '10000-01-01T00:00:00'": [4, 5],
    "ts < '0001-01-01T00:00:00'": [0, 1],
    "ts = '-0044-03-15T10:00:00.000001'": [0],
    "tz >= '10000-01-01T02:00:00+02:00'": [4, 5],
}
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "d", DateType()),
    NestedField(3, "ts", TimestampType()),
    NestedField(4, "tz", TimestamptzType()),
)


def distant_rows(first: int = 0) -> pa.Table:
    """Seven rows, the last one of nulls; `first` is the first id."""
    days = np.array([np.datetime64(day, "D") for day in _DAYS]).astype(np.int32)
    micros = np.array([np.datetime64(moment, "us") for moment in _MOMENTS]).astype(np.int64)
    moments = pa.array([*micros.tolist(), None], pa.int64())
    return pa.table(
        {
            "id": pa.array(range(first, first + len(_DAYS) + 1), pa.int64()),
            "d": pa.array([*days.tolist(), None], pa.int32()).cast(pa.date32()),
            "ts": moments.cast(pa.timestamp("us")),
            "tz": moments.cast(pa.timestamp("us", "UTC")),
        }
    )


def distant_table(catalog: Catalog, partition: str | None = None) -> Table:
    """An empty table for these rows."""
    if partition is None:
        return catalog.create_table("db.distant", SCHEMA)
    spec = partition_spec([partition], SCHEMA)
    return catalog.create_table("db.distant", SCHEMA, partition_spec=spec)
