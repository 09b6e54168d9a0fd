"""Rows of a partition come together before they are written."""

from __future__ import annotations

import datetime as dt
import itertools
import uuid
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import functions as sf

import icestream as ice
import icestream.spark as ice_spark
from icestream.spark.writing.distribution import Distributed
from icestream.spark.writing.partition_expressions import expression
from icestream.write.partition import transforms
from tests.support.spark_orders import order_ids, orders

ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
MOMENTS = [
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2024, 2, 29, 0, 0, 0, 1),
    dt.datetime(2024, 2, 29, 23, 59, 59, 999_999),
    dt.datetime(2024, 3, 1),
    dt.datetime(2024, 3, 31, 2, 30),
    dt.datetime(1, 1, 1),
]
TEXTS = ["", "a", "ab", "abc", "abcd", "abcde", "äöü€", "𝄞𝄞𝄞𝄞x", "iceberg"]
BYTES = [text.encode() for text in TEXTS]
NUMBERS = [0, 1, -1, 7, -7, 10, -10, 34, 2**31 - 1, -(2**31) + 10]
LONGS = [*NUMBERS, 2**62, -(2**62)]
DECIMALS = [Decimal("14.20"), Decimal("-0.01"), Decimal("10.65"), Decimal("0.00")]
UUIDS = [uuid.UUID(int=n) for n in (0, 1, 2**127, 0xF79C3E09677C4BBDA479)]
DATES = [moment.date() for moment in MOMENTS]

BUCKET, TRUNCATE = BucketTransform(5), TruncateTransform(4)
TIMES = (YearTransform(), MonthTransform(), DayTransform(), HourTransform())
COLUMNS: dict[str, tuple[PrimitiveType, str, list[Any], tuple[Transform[Any, Any], ...]]] = {
    "int": (IntegerType(), "int", NUMBERS, (BUCKET, TRUNCATE, IdentityTransform())),
    "long": (LongType(), "long", LONGS, (BUCKET, TRUNCATE)),
    "string": (StringType(), "string", TEXTS, (BUCKET, TRUNCATE)),
    "binary": (BinaryType(), "binary", BYTES, (BUCKET, TRUNCATE)),
    "fixed": (FixedType(3), "binary", [b"abc", b"\0\0\1"], (BUCKET,)),
    "uuid": (UUIDType(), "string", [str(value) for value in UUIDS], (BUCKET,)),
    "decimal": (DecimalType(9, 2), "decimal(9, 2)", DECIMALS, (BUCKET, TRUNCATE)),
    "date": (DateType(), "date", DATES, (BUCKET, *TIMES[:3])),
    "ntz": (TimestampType(), "timestamp_ntz", MOMENTS, (BUCKET, *TIMES)),
    "ltz": (
        TimestamptzType(),
        "timestamp",
        [moment.replace(tzinfo=dt.UTC) for moment in MOMENTS],
        (BUCKET, *TIMES),
    ),
}


def _stored(kind: PrimitiveType, values: list[Any]) -> pa.Array:
    if isinstance(kind, UUIDType):
        values = [value and uuid.UUID(value).bytes for value in values]
        return pa.array(values, pa.binary(16))
    if isinstance(kind, FixedType):
        return pa.array(values, pa.binary(3))
    if isinstance(kind, DecimalType):
        return pa.array(values, pa.decimal128(9, 2))
    return pa.array(values)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_expressions_tell_partitions_apart_as_the_transforms_do(spark: Any, zone: str) -> None:
    rows = max(len(values) for _, _, values, _ in COLUMNS.values()) + 1
    padded = {
        name: [*values, *[None] * (rows - len(values))]
        for name, (_, _, values, _) in COLUMNS.items()
    }
    ddl = ", ".join(f"`{name}` {kind}" for name, (_, kind, _, _) in COLUMNS.items())
    schema = Schema(
        *(NestedField(i, name, kind) for i, (name, (kind, *_)) in enumerate(COLUMNS.items(), 1))
    )
    frame = spark.createDataFrame(list(zip(*padded.values(), strict=True)), f"struct<{ddl}>")
    cases = [
        (name, transform) for name, (_, _, _, several) in COLUMNS.items() for transform in several
    ]
    keys = [
        expression(schema, schema.find_field(name).field_id, transform, frame.columns)
        for name, transform in cases
    ]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        named = [key.alias(f"key{number}") for number, key in enumerate(keys)]
        found = frame.coalesce(1).select(*named).toArrow().to_pydict()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    for number, (name, transform) in enumerate(cases):
        kind = COLUMNS[name][0]
        values = transforms.apply(transform, kind, _stored(kind, padded[name])).to_pylist()
        pairs = set(zip(values, found[f"key{number}"], strict=True))
        told = f"{name} by {transform}: {sorted(map(str, pairs))}"
        assert len(pairs) == len(set(values)) == len(set(found[f"key{number}"])), told


def _files(table: Table) -> Counter[str]:
    """Files to each partition."""
    return Counter(str(task.file.partition) for task in table.refresh().scan().plan_files())


def test_a_partition_gets_one_file_from_many_tasks_by_default(
    spark: Any, catalog: SqlCatalog
) -> None:
    options = {"create": True, "partition_by": ["bucket(2, id)", "region"], "catalog": catalog}
    before = spark.conf.get(ADVISORY, None)
    ice_spark.append(orders(spark, 800, tasks=4), "db.hash", **options)
    assert spark.conf.get(ADVISORY, None) == before
    together = catalog.load_table("db.hash")
    assert order_ids(together) == list(range(800))
    assert set(_files(together).values()) == {1}

    ice_spark.append(orders(spark, 800, tasks=4), "db.none", distribution="none", **options)
    scattered = catalog.load_table("db.none")
    assert _files(scattered).keys() == _files(together).keys()
    assert set(_files(scattered).values()) == {4}


@pytest.mark.slow
def test_the_tables_property_says_how(spark: Any, catalog: SqlCatalog) -> None:
    options = {"create": True, "partition_by": ["region"], "catalog": catalog}
    none = {"write.distribution-mode": "none"}
    ice_spark.append(orders(spark, 80, tasks=2), "db.t", table_properties=none, **options)
    assert set(_files(catalog.load_table("db.t")).values()) == {2}
    odd = {"write.distribution-mode": "sideways"}
    with pytest.raises(ice.InvalidArgumentError, match="'sideways': set it to 'none'"):
        ice_spark.append(orders(spark, 8), "db.odd", table_properties=odd, **options)


@pytest.mark.slow
def test_a_sorted_table_gets_ranges(spark: Any, catalog: SqlCatalog) -> None:
    frame = orders(spark, 4000, tasks=4).withColumn("id", sf.expr("(id * 7919) % 4000"))
    spark.conf.set("spark.sql.adaptive.coalescePartitions.minPartitionSize", "1")
    try:
        ice_spark.append(frame, "db.t", catalog=catalog, create=True, sort_by=["id desc"])
    finally:
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.minPartitionSize")
    table = catalog.load_table("db.t")
    assert order_ids(table) == list(range(4000))
    ranges = []
    for task in table.scan().plan_files():
        ids = pq.read_table(task.file.file_path.removeprefix("file://"))["id"].to_pylist()
        assert ids == sorted(ids, reverse=True)
        ranges.append((min(ids), max(ids)))
    ranges.sort()
    assert len(ranges) > 1
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ranges))


@pytest.mark.slow
def test_a_partition_that_is_larger_than_a_few_files_goes_to_several_tasks(
    spark: Any, catalog: SqlCatalog
) -> None:
    rows = spark.range(300_000, numPartitions=6)
    region = sf.when(sf.col("id") % 100 == 0, "small").otherwise("large")
    frame = rows.select("id", region.alias("region"), sf.rand(1).alias("price"))
    report = ice_spark.append(
        frame,
        "db.t",
        catalog=catalog,
        create=True,
        partition_by=["region"],
        table_properties={"write.target-file-size-bytes": str(64 << 10)},
    )
    table = catalog.load_table("db.t")
    assert report.rows_inserted == 300_000
    tasks: dict[str, set[str]] = {}
    for task in table.scan().plan_files():
        name = task.file.file_path.rpartition("/")[2]
        tasks.setdefault(task.file.partition[0], set()).add(name.split("-")[0])
    assert len(tasks["large"]) > 1
    assert len(tasks["small"]) == 1


def test_writes_that_overlap_leave_the_sessions_own_setting(spark: Any) -> None:
    spark.conf.set(ADVISORY, "77")
    first, second = (Distributed(spark.range(1), size).settings() for size in (1000, 2000))
    first.__enter__()
    second.__enter__()
    assert spark.conf.get(ADVISORY) == "2000"
    first.__exit__(None, None, None)
    assert spark.conf.get(ADVISORY) != "77", "the second is still at work"
    second.__exit__(None, None, None)
    assert spark.conf.get(ADVISORY) == "77"
    spark.conf.unset(ADVISORY)
