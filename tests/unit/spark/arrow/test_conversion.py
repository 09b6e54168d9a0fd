"""Arrow batches as Spark wants them."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from icestream.errors import UnsupportedFeatureError
from icestream.read.project.projection import table_arrow_schema
from icestream.spark.arrow.conversion import SparkBatches, spark_arrow_schema
from icestream.spark.arrow.types import spark_schema
from tests.support.tables import all_types_rows, all_types_schema

_UUIDS = [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1), uuid.UUID(int=0x123456789ABCDEF << 40)]


def _uuids(values: list[uuid.UUID | None]) -> pa.Array:
    storage = pa.array([v and v.bytes for v in values], pa.binary(16))
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)


def _converted(array: pa.Array) -> pa.Array:
    batch = pa.record_batch([array], names=["c"])
    converted = SparkBatches(batch.schema)(batch)
    converted.validate(full=True)
    return converted.column(0)


def test_the_arrow_schema_is_the_one_spark_compares_with() -> None:
    schema = table_arrow_schema(all_types_schema())
    schema = pa.schema([field for field in schema if field.name != "time"])
    expected = to_arrow_schema(spark_schema(schema, table="db.t"), timezone="UTC")
    actual = spark_arrow_schema(schema)
    assert actual.equals(expected)
    assert str(actual) == str(expected)


def test_nullability_is_kept_on_every_level() -> None:
    inner = pa.struct([pa.field("x", pa.large_string(), nullable=False)])
    schema = pa.schema(
        [
            pa.field("l", pa.large_list(pa.field("element", inner, nullable=False)), False),
            pa.field("m", pa.map_(pa.large_string(), pa.field("value", pa.int64(), False))),
        ]
    )
    spark = spark_schema(schema, table="db.t")
    assert spark.simpleString() == "struct<l:array<struct<x:string>>,m:map<string,bigint>>"
    assert not spark["l"].nullable
    assert not spark["l"].dataType.containsNull
    assert not spark["l"].dataType.elementType["x"].nullable
    assert spark["m"].nullable
    assert not spark["m"].dataType.valueContainsNull
    assert spark_arrow_schema(schema).equals(to_arrow_schema(spark, timezone="UTC"))


def test_values_of_every_type_survive() -> None:
    rows = all_types_rows(300).drop_columns(["time"])
    [batch] = rows.combine_chunks().to_batches()
    for part in (batch, batch.slice(7, 101), batch.slice(0, 0)):
        converted = SparkBatches(batch.schema)(part)
        converted.validate(full=True)
        expected = part.to_pylist()
        for row in expected:
            row["uuid"] = row["uuid"] and str(row["uuid"])
        assert repr(converted.to_pylist()) == repr(expected)


@pytest.mark.parametrize("values", [_UUIDS, [None, *_UUIDS, None], [None, None], []])
def test_uuids_become_text(values: list[uuid.UUID | None]) -> None:
    expected = [v and str(v) for v in values]
    assert _converted(_uuids(values)).to_pylist() == expected
    assert _converted(_uuids([*_UUIDS, *values])[3:]).to_pylist() == expected


def test_uuids_inside_of_lists_maps_and_structs_become_text() -> None:
    a, b, c = _UUIDS
    ids = _uuids([a, None, b, c])
    lists = pa.LargeListArray.from_arrays(
        pa.array([0, 2, 2, 4], pa.int64()), ids, mask=pa.array([False, True, False])
    )
    keys = pa.array(["w", "x", "y", "z"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), keys, ids)
    structs = pa.StructArray.from_arrays([ids], names=["id"], mask=pa.array([False] * 3 + [True]))
    assert _converted(lists).to_pylist() == [[str(a), None], None, [str(b), str(c)]]
    assert _converted(lists[1:]).to_pylist() == [None, [str(b), str(c)]]
    assert _converted(maps[1:]).to_pylist() == [[("x", None), ("y", str(b))]]
    assert _converted(structs[1:]).to_pylist() == [{"id": None}, {"id": str(b)}, None]


def test_columns_that_are_right_already_are_not_copied() -> None:
    array = pa.array([1, 2, 3])
    assert _converted(array).buffers()[1].address == array.buffers()[1].address


def test_times_have_nanoseconds_in_spark() -> None:
    times = pa.array([1, None], pa.int64()).cast(pa.time64("us"))
    assert _converted(times).cast(pa.int64()).to_pylist() == [1000, None]


def test_a_time_is_refused_by_a_pyspark_without_that_type(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.time64("us"))])
    assert spark_schema(schema, table="db.t").simpleString() == "struct<id:bigint,at:time(6)>"
    monkeypatch.delattr("pyspark.sql.types.TimeType")
    with pytest.raises(UnsupportedFeatureError, match=r"no type for 'at' \(time\) of db.t"):
        spark_schema(schema, table="db.t")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.timestamp("ns"), "timestamp_ns"),
        (pa.timestamp("ns", tz="UTC"), "timestamptz_ns"),
        (pa.null(), "unknown"),
    ],
)
def test_a_type_that_spark_lacks_is_refused_by_column_with_a_remedy(
    kind: pa.DataType, name: str
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("at", kind),
            pa.field("deep", pa.large_list(pa.field("element", pa.struct([pa.field("x", kind)])))),
        ]
    )
    with pytest.raises(UnsupportedFeatureError) as caught:
        spark_schema(schema, table="db.t")
    assert str(caught.value) == (
        f"Spark has no type for 'at' ({name}), 'deep.element.x' ({name}) of db.t: "
        "select other columns, such as columns=['id']"
    )
