"""`overwrite(partitions="dynamic")`: the partitions that the stream has rows for are replaced."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import icestream as ice
from tests.support.delete_files import commit_position_deletes
from tests.support.loads import (
    BY_PART,
    batch,
    by,
    ids,
    listing,
    make_table,
    rows_of,
    snapshots_of,
    summary_of,
)
from tests.support.tables import data_file_paths, data_files


@pytest.mark.parametrize("version", [1, 2])
def test_partitions_that_were_written_are_replaced_in_one_snapshot(
    catalog: SqlCatalog, version: int
) -> None:
    table = make_table(catalog, spec=BY_PART, version=version)
    ice.append(table, batch([(1, 1), (2, 2), (3, 2), (4, None)]))
    ice.append(table, batch([(5, 2), (6, 3)]))
    report = ice.overwrite(table, batch([(7, 2), (8, 9)]), partitions="dynamic")
    assert rows_of(table) == [(1, 1), (4, None), (6, 3), (7, 2), (8, 9)]
    assert len(snapshots_of(table)) == 3
    assert (report.rows_inserted, report.rows_deleted) == (2, 3)
    assert (report.files_added, report.files_removed) == (2, 2)
    assert summary_of(table)["total-records"] == "5"


def test_the_null_partition_is_one_like_others(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(1, 1), (4, None), (5, None)]))
    report = ice.overwrite(table, batch([(6, None)]), partitions="dynamic")
    assert rows_of(table) == [(1, 1), (6, None)]
    assert report.rows_deleted == 2


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
def test_the_nan_partition_is_one_like_others(catalog: SqlCatalog, kind: Any) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", kind))
    spec = by(2, IdentityTransform(), "x")
    table = catalog.create_table("db.nan", schema, partition_spec=spec)
    arrow = pa.schema([("id", pa.int64()), ("x", pa.float32() if kind == FloatType() else "f8")])
    values = [0.1, math.nan, math.nan, None, math.inf]
    ice.append(table, pa.table({"id": [1, 2, 3, 4, 5], "x": values}, schema=arrow))
    new = pa.table({"id": [6, 7], "x": [math.nan, 0.1]}, schema=arrow)
    report = ice.overwrite(table, new, partitions="dynamic")
    assert report.rows_deleted == 3
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [4, 5, 6, 7]


def test_an_empty_stream_replaces_nothing(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(1, 1), (4, None)]))
    before = listing(table)
    for source in (iter(()), ids(0, 0)):
        report = ice.overwrite(table, source, partitions="dynamic")
        assert (report.snapshot_id, report.rows_deleted) == (None, 0)
    assert listing(table) == before


def test_rows_go_by_their_partition_under_the_current_spec(catalog: SqlCatalog) -> None:
    """Whatever spec their file has: files of older ones are looked into."""
    table = make_table(catalog)
    ice.append(table, batch([(1, 1), (2, 2), (3, 3)]))
    ice.append(table, batch([(4, 4)]))
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(4), "id_bucket")
    ice.append(table, batch([(5, 2), (6, 6)]))
    with table.update_spec() as update:
        update.remove_field("id_bucket")
        update.add_identity("part")
    ice.append(table, batch([(7, 2), (8, 3)]))
    untouched = {f.file_path for f in data_files(table) if f.spec_id == 0 and f.record_count == 1}
    report = ice.overwrite(table, batch([(50, 2), (51, 77)]), partitions="dynamic")
    assert rows_of(table) == [(1, 1), (3, 3), (4, 4), (6, 6), (8, 3), (50, 2), (51, 77)]
    assert (report.rows_inserted, report.rows_deleted) == (2, 3)
    assert untouched <= {file.file_path for file in data_files(table)}


def test_deleted_rows_of_older_specs_do_not_come_back(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, batch([(1, 1), (2, 2), (3, 3), (4, 2)]))
    commit_position_deletes(table, {data_file_paths(table)[0]: [2, 3]})  # ids 3 and 4
    with table.update_spec() as update:
        update.add_identity("part")
    report = ice.overwrite(table, batch([(50, 2)]), partitions="dynamic")
    assert rows_of(table) == [(1, 1), (50, 2)]
    assert report.rows_deleted == 1


def test_deleted_rows_of_replaced_partitions_do_not_count(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, batch([(1, 1), (2, 1), (3, 2)]))
    path = next(f.file_path for f in data_files(table) if f.partition[0] == 1)
    commit_position_deletes(table, {path: [0]})
    report = ice.overwrite(table, batch([(9, 1)]), partitions="dynamic")
    assert report.rows_deleted == 1
    assert rows_of(table) == [(3, 2), (9, 1)]


_KEYS: dict[str, tuple[Any, Any, list[Any]]] = {
    "boolean": (BooleanType(), pa.bool_(), [True, False]),
    "decimal": (DecimalType(20, 2), pa.decimal128(20, 2), [Decimal("1.10"), Decimal("-7.00")]),
    "date": (DateType(), pa.date32(), [date(2024, 2, 29), date(1969, 12, 31)]),
    "time": (TimeType(), pa.time64("us"), [datetime(2024, 1, 1, 1).time(), datetime.min.time()]),
    "timestamp": (
        TimestampType(),
        pa.timestamp("us"),
        [datetime(2024, 1, 1, 1, 2, 3, 4), datetime(1969, 12, 31)],
    ),
    "timestamptz": (
        TimestamptzType(),
        pa.timestamp("us", "UTC"),
        [datetime(2024, 1, 1, 1, 2, 3, 4), datetime(1969, 12, 31)],
    ),
    "string": (StringType(), pa.string(), ["a/b=c %", ""]),
    "binary": (BinaryType(), pa.binary(), [b"\x00\xff", b""]),
    "fixed": (FixedType(3), pa.binary(3), [b"abc", b"\x00\x00\xff"]),
    "uuid": (UUIDType(), pa.binary(16), [b"0123456789abcdef", bytes(16)]),
}


@pytest.mark.parametrize("name", _KEYS)
def test_values_read_from_manifests_equal_those_written(catalog: SqlCatalog, name: str) -> None:
    """A partition is known again, whatever its type: else its rows would be doubled."""
    kind, arrow_type, values = _KEYS[name]
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "key", kind))
    spec = by(2, IdentityTransform())
    table = catalog.create_table("db.keys", schema, partition_spec=spec)
    arrow = pa.schema([("id", pa.int64()), ("key", arrow_type)])
    ice.append(table, pa.table({"id": [1, 2, 3], "key": [*values, None]}, schema=arrow))
    for number, value in ((11, values[0]), (12, values[1])):
        new = pa.table({"id": [number], "key": [value]}, schema=arrow)
        assert ice.overwrite(table, new, partitions="dynamic").rows_deleted == 1
    found = sorted(i for b in ice.scan(table) for i in b["id"].to_pylist())
    assert found == [3, 11, 12]


@pytest.mark.parametrize(
    "transform", [DayTransform(), MonthTransform(), BucketTransform(5)], ids=str
)
def test_transformed_partitions_are_replaced_whole(catalog: SqlCatalog, transform: Any) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))
    table = catalog.create_table("db.at", schema, partition_spec=by(2, transform))
    moments = [datetime(2024, 1, 1, hour) for hour in (1, 1, 1)] + [datetime(1969, 12, 31, 23)]
    ice.append(table, pa.table({"id": [1, 2, 3, 4], "at": moments}))
    new = pa.table({"id": [9], "at": moments[:1]})
    assert ice.overwrite(table, new, partitions="dynamic").rows_deleted == 3
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [4, 9]


def test_a_spec_of_two_fields_goes_by_both(catalog: SqlCatalog) -> None:
    table = make_table(catalog, spec=BY_PART)
    with table.update_spec() as update:
        update.add_field("id", TruncateTransform(10), "tens")
    ice.append(table, batch([(1, 1), (11, 1), (12, 1), (13, 2)]))
    ice.overwrite(table, batch([(15, 1)]), partitions="dynamic")
    assert rows_of(table) == [(1, 1), (13, 2), (15, 1)]


def test_a_spec_whose_fields_were_all_dropped_is_no_partitioning(catalog: SqlCatalog) -> None:
    """As in version 1: else everything would be replaced."""
    table = make_table(catalog, spec=by(2, VoidTransform()), version=1)
    ice.append(table, ids(0, 3))
    with pytest.raises(ice.InvalidArgumentError, match="is not partitioned"):
        ice.overwrite(table, ids(9, 10), partitions="dynamic")


def test_a_spec_that_was_removed_since_the_table_was_loaded_is_noticed(
    catalog: SqlCatalog, other: SqlCatalog
) -> None:
    table = make_table(catalog, spec=BY_PART)
    ice.append(table, ids(0, 3))
    with other.load_table("db.t").update_spec() as update:
        update.remove_field("part")
    with pytest.raises(ice.InvalidArgumentError, match="is not partitioned"):
        ice.overwrite(table, ids(9, 10), partitions="dynamic")
    assert len(rows_of(table)) == 3


def test_it_works_inside_the_default_memory_beside_a_schema_change(catalog: SqlCatalog) -> None:
    table = make_table(catalog)
    ice.append(table, batch([(1, 1), (2, 2)]))
    with table.update_spec() as update:
        update.add_identity("part")
    new = pa.table({"id": [9], "part": [2], "text": ["text 9"], "more": [5]})
    report = ice.overwrite(table, new, partitions="dynamic", schema_mode="evolve")
    assert report.schema_changes
    assert rows_of(table) == [(1, 1), (9, 2)]
    assert table.scan().to_arrow()["more"].to_pylist() in ([5, None], [None, 5])
