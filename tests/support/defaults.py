"""A version-3 table with default values and nanosecond timestamps."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)

from tests.support.catalogs import make_catalog
from tests.support.data_files import add_parquet_file
from tests.support.evolution import EvolvedTable
from tests.support.v3_tables import create_v3_table, v3_schema_updates

_DEFAULTS = {
    "country": (StringType(), "nowhere"),
    "visits": (LongType(), 42),
    "active": (BooleanType(), True),
    "score": (DoubleType(), 1.5),
    "price": (DecimalType(9, 2), Decimal("12.50")),
    "since": (DateType(), date(2020, 2, 29)),
}


def v3_table_with_defaults(tmp_path: Path) -> EvolvedTable:
    """Return a table whose first file was written before its columns with defaults were added.

    Rows of that file must show each column's `initial-default`, later nulls must stay null. The
    columns `at_ns` and `at_ns_tz` hold nanoseconds, as integers in the expected rows.
    """
    catalog = make_catalog(tmp_path)
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "at_ns", TimestampNanoType()),
        NestedField(3, "at_ns_tz", TimestamptzNanoType()),
        NestedField(4, "info", StructType(NestedField(5, "a", LongType()))),
    )
    table = create_v3_table(catalog, "db.defaults", schema)
    nanos = [1_700_000_000_123_456_789, None, -1]
    first = {
        "id": pa.array([0, 1, 2], pa.int64()),
        "at_ns": pa.array(nanos, pa.timestamp("ns")),
        "at_ns_tz": pa.array(nanos, pa.timestamp("ns", "UTC")),
        "info": pa.array([{"a": 1}, None, {"a": None}], pa.struct({"a": pa.int64()})),
    }
    add_parquet_file(table, pa.table(first))
    with v3_schema_updates(table), table.update_schema() as update:
        for name, (field_type, default) in _DEFAULTS.items():
            update.add_column(name, field_type, default_value=default)
        update.add_column("zone", StringType(), required=True, default_value="UTC")
        update.add_column(("info", "b"), LongType(), default_value=7)
    values = {
        "info": pa.array(
            [{"a": 5, "b": None}, None], pa.struct({"a": pa.int64(), "b": pa.int64()})
        ),
        "country": pa.array(["somewhere", None]),
        "visits": pa.array([1, None], pa.int64()),
        "active": pa.array([False, None]),
        "score": pa.array([0.25, None]),
        "price": pa.array([Decimal("1.00"), None], pa.decimal128(9, 2)),
        "since": pa.array([date(1969, 12, 31), None]),
        "zone": pa.array(["CET", "EST"]),
    }
    second = {
        "id": pa.array([3, 4], pa.int64()),
        "at_ns": pa.array([1, None], pa.timestamp("ns")),
        "at_ns_tz": pa.array([None, 2], pa.timestamp("ns", "UTC")),
        **values,
    }
    add_parquet_file(table, pa.table(second))
    defaults = {name: default for name, (_, default) in _DEFAULTS.items()} | {"zone": "UTC"}
    infos = [{"a": 1, "b": 7}, None, {"a": None, "b": 7}]
    written = [{name: values[name][row].as_py() for name in values} for row in range(2)]
    expected = [
        {"id": i, "at_ns": nanos[i], "at_ns_tz": nanos[i], "info": infos[i], **defaults}
        for i in range(3)
    ]
    expected.append({"id": 3, "at_ns": 1, "at_ns_tz": None, **written[0]})
    expected.append({"id": 4, "at_ns": None, "at_ns_tz": 2, **written[1]})
    return EvolvedTable(table, expected)
