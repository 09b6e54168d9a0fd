"""Partitions of batches: their numbers, their values and their paths."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import (
    PartitionField,
    PartitionFieldValue,
    PartitionKey,
    PartitionSpec,
    partition_record_value,
)
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from icestream.errors import InvalidArgumentError, InvalidDataError, UnsupportedFeatureError
from icestream.write.partition.partitioner import Partitioner
from tests.support.tables import (
    all_types_rows,
    all_types_schema,
    commit_files,
    data_files,
    make_catalog,
    write_parquet_file,
)

_PRIMITIVES = [field for field in all_types_schema().fields if field.field_type.is_primitive]


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SqlCatalog]:
    # PyIceberg 0.12's compiled Avro decoder reads doubles with the precision of floats.
    monkeypatch.setattr("pyiceberg.avro.file.new_decoder", StreamingBinaryDecoder)
    catalog = make_catalog(tmp_path)
    catalog.create_namespace_if_not_exists("db")
    yield catalog
    catalog.close()


def _schema(**kinds: IcebergType) -> Schema:
    fields = [NestedField(n + 1, name, kind) for n, (name, kind) in enumerate(kinds.items())]
    return Schema(*fields)


def _spec(*fields: tuple[int, Transform[Any, Any]] | tuple[int, Transform[Any, Any], str]) -> Any:
    return PartitionSpec(
        *(
            PartitionField(source, 1000 + n, transform, *(name or [f"p{n}"]))
            for n, (source, transform, *name) in enumerate(fields)
        )
    )


def _batch(schema: Schema, **columns: Any) -> pa.RecordBatch:
    arrow_schema = schema_to_pyarrow(schema)
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, field.type)
        for field, values in zip(arrow_schema, columns.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema)


def _arrow_batch(schema: Schema, rows: pa.Table) -> pa.RecordBatch:
    (batch,) = rows.cast(schema_to_pyarrow(schema)).combine_chunks().to_batches()
    return batch


def _keys(partitioner: Partitioner, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [partitioner.key(number) for number in partitioner.ids(batch).tolist()]


# Numbers


def test_partitions_are_numbered_as_they_are_first_seen_over_all_batches() -> None:
    schema = _schema(a=StringType())
    partitioner = Partitioner(schema, _spec((1, IdentityTransform())))
    assert len(partitioner) == 0
    assert partitioner.ids(_batch(schema, a=["c", "a", "c", None])).tolist() == [0, 1, 0, 2]
    assert partitioner.ids(_batch(schema, a=["b", None, "a", "b"])).tolist() == [3, 2, 1, 3]
    assert partitioner.ids(_batch(schema, a=[])).tolist() == []
    assert [partitioner.key(number) for number in range(len(partitioner))] == [
        ("c",),
        ("a",),
        (None,),
        ("b",),
    ]


def test_combinations_of_fields_are_numbered_as_they_are_first_seen() -> None:
    schema = _schema(a=LongType(), b=StringType(), c=LongType())
    spec = _spec((1, IdentityTransform()), (2, IdentityTransform()), (3, BucketTransform(1)))
    partitioner = Partitioner(schema, spec)
    batch = _batch(
        schema, a=[2, 1, 2, None, 1], b=["x", "x", None, None, "x"], c=[1, 2, 3, 4, None]
    )
    assert partitioner.ids(batch).tolist() == [0, 1, 2, 3, 4]
    assert _keys(partitioner, batch) == [
        (2, "x", 0),
        (1, "x", 0),
        (2, None, 0),
        (None, None, 0),
        (1, "x", None),
    ]
    again = _batch(schema, a=[1, 2, 3], b=["x", None, "x"], c=[None, 7, 7])
    assert partitioner.ids(again).tolist() == [4, 2, 5]


def test_many_combinations_are_numbered_like_a_dictionary_would() -> None:
    generator = np.random.default_rng(3)
    schema = _schema(a=LongType(), b=LongType(), c=LongType())
    partitioner = Partitioner(schema, _spec(*((n, IdentityTransform()) for n in (1, 2, 3))))
    numbers: dict[tuple[int, ...], int] = {}
    for _ in range(3):
        columns = {name: generator.integers(0, 30, 5000) for name in "abc"}
        rows = zip(*(column.tolist() for column in columns.values()), strict=True)
        expected = [numbers.setdefault(row, len(numbers)) for row in rows]
        assert partitioner.ids(_batch(schema, **columns)).tolist() == expected
    assert len(partitioner) == len(numbers)


def test_one_column_may_be_the_source_of_several_fields() -> None:
    schema = _schema(at=TimestampType())
    spec = _spec((1, YearTransform()), (1, BucketTransform(8)), (1, DayTransform()))
    partitioner = Partitioner(schema, spec)
    keys = _keys(partitioner, _batch(schema, at=[datetime(2017, 11, 16, 22, 31, 8), None]))
    assert keys == [(47, (-2047944441 & (2**31 - 1)) % 8, 17486), (None, None, None)]


def test_every_row_of_an_unpartitioned_table_is_in_partition_zero() -> None:
    schema = _schema(a=LongType())
    partitioner = Partitioner(schema, PartitionSpec())
    assert partitioner.ids(_batch(schema, a=[1, 2])).tolist() == [0, 0]
    assert (partitioner.key(0), partitioner.path(0)) == ((), "")


@pytest.mark.parametrize(
    ("kind", "unsigned", "nan_bits"),
    [
        (FloatType(), np.uint32, [0x7FC00000, 0xFFC00000, 0x7F800001]),
        (DoubleType(), np.uint64, [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001]),
    ],
)
def test_nan_is_one_partition_and_the_zeros_are_two(
    kind: IcebergType, unsigned: Any, nan_bits: list[int]
) -> None:
    schema = _schema(a=kind)
    partitioner = Partitioner(schema, _spec((1, IdentityTransform())))
    floats = schema_to_pyarrow(kind).to_pandas_dtype()
    nan = pa.array(np.array(nan_bits, dtype=unsigned).view(floats))
    others = pa.array([0.0, -0.0, None, 0.0, math.inf, -math.inf], nan.type)
    batch = _batch(schema, a=pa.concat_arrays([nan, others]))
    assert partitioner.ids(batch).tolist() == [0, 0, 0, 1, 2, 3, 1, 4, 5]
    assert partitioner.key(0)[0] is math.nan
    assert [math.copysign(1, partitioner.key(number)[0]) for number in (1, 2)] == [1.0, -1.0]
    assert [partitioner.path(number) for number in range(6)] == [
        "p0=nan",
        "p0=0.0",
        "p0=-0.0",
        "p0=null",
        "p0=inf",
        "p0=-inf",
    ]


# Values and paths


# PyIceberg 0.12 can't group by an Arrow uuid column.
@pytest.mark.parametrize(
    "field",
    [field for field in _PRIMITIVES if not isinstance(field.field_type, UUIDType)],
    ids=lambda field: field.name,
)
def test_values_and_paths_are_those_that_pyiceberg_writes(
    catalog: SqlCatalog, field: NestedField
) -> None:
    rows = all_types_rows(30, seed=4).select([field.name])
    if isinstance(field.field_type, (FloatType, DoubleType)):
        # PyIceberg 0.12 loses the rows of a NaN partition, and takes both zeros for each one.
        odd = pc.or_kleene(pc.is_nan(rows[field.name]), pc.equal(rows[field.name], 0))
        rows = rows.filter(pc.invert(odd.fill_null(False)))
    spec = _spec((1, IdentityTransform(), field.name))
    table = catalog.create_table(
        "db.t", _schema(**{field.name: field.field_type}), partition_spec=spec
    )
    table.append(rows)
    written = {
        (repr((file.partition[0],)), Path(file.file_path).parent.name): file.record_count
        for file in data_files(table)
    }
    partitioner = Partitioner(table.schema(), table.spec())
    ids = partitioner.ids(_arrow_batch(table.schema(), rows)).tolist()
    ours = Counter((repr(partitioner.key(n)), partitioner.path(n)) for n in ids)
    assert ours == written


_TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(5),
    TruncateTransform(4),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]


@pytest.mark.parametrize("transform", _TRANSFORMS, ids=str)
def test_values_and_paths_are_those_of_pyiceberg_for_each_row(
    transform: Transform[Any, Any],
) -> None:
    schema = all_types_schema()
    rows = all_types_rows(200, seed=5)
    batch = _arrow_batch(all_types_schema(), rows)
    for field in _PRIMITIVES:
        kind = field.field_type
        if not transform.can_transform(kind):
            continue
        column = _in_range(rows[field.name].combine_chunks(), transform)
        spec = _spec((field.field_id, transform, "a b/ü"))
        partitioner = Partitioner(schema, spec)
        batch = batch.set_column(
            batch.schema.get_field_index(field.name), batch.schema.field(field.name), column
        )
        ids = partitioner.ids(batch).tolist()
        for number, value in zip(ids, column.to_pylist(), strict=True):
            internal = partition_record_value(spec.fields[0], value, schema)
            expected = transform.transform(kind)(internal)
            (got,) = partitioner.key(number)
            got_internal = got.bytes if isinstance(got, UUID) else got
            assert repr(got_internal) == repr(expected), (field.name, value)
            if not isinstance(kind, UUIDType) or expected is None:
                path = spec.partition_to_path([expected], schema)
                assert partitioner.path(number) == path


def _in_range(column: pa.Array, transform: Transform[Any, Any]) -> pa.Array:
    """The column, with the smallest integers made null where they can't be truncated."""
    if not isinstance(transform, TruncateTransform):
        return column
    smallest = {pa.int32(): -(2**31) + 10, pa.int64(): -(2**63) + 10}.get(column.type)
    if smallest is not None:
        return pc.if_else(pc.less(column, smallest), None, column)
    if pa.types.is_decimal(column.type):
        limit = Decimal(f"{100 - 10**column.type.precision}E-{column.type.scale}")
        return pa.array(
            [None if v is not None and v < limit else v for v in column.to_pylist()], column.type
        )
    return column


def test_a_path_is_what_the_partition_key_of_pyiceberg_makes_of_it() -> None:
    schema = _schema(day=DateType(), category=StringType(), at=TimestamptzType())
    spec = _spec(
        (1, IdentityTransform(), "day"),
        (2, IdentityTransform(), "a/b=c"),
        (3, HourTransform(), "h"),
    )
    partitioner = Partitioner(schema, spec)
    category = "x y/z%=ü\U0001f9ca"
    batch = _batch(schema, day=[date(2024, 2, 29)], category=[category], at=[-1])
    partitioner.ids(batch)
    values = [
        PartitionFieldValue(field, value)
        for field, value in zip(spec.fields, partitioner.key(0), strict=True)
    ]
    key = PartitionKey(values, spec, schema)
    assert partitioner.path(0) == key.to_path()
    assert partitioner.path(0).startswith("day=2024-02-29/a%2Fb%3Dc=x+y%2Fz%25%3D")


@pytest.mark.parametrize("field", _PRIMITIVES, ids=lambda field: field.name)
def test_a_manifest_gives_back_the_values_that_were_written(
    catalog: SqlCatalog, field: NestedField
) -> None:
    rows = all_types_rows(12, seed=6).select([field.name])
    spec = _spec((1, IdentityTransform(), field.name))
    table = catalog.create_table(
        "db.t", _schema(**{field.name: field.field_type}), partition_spec=spec
    )
    partitioner = Partitioner(table.schema(), table.spec())
    batch = _arrow_batch(table.schema(), rows)
    ids = partitioner.ids(batch)
    files = [
        write_parquet_file(
            table,
            pa.Table.from_batches([batch.filter(pa.array(ids == number))]),
            partition=Record(*partitioner.key(number)),
        )
        for number in range(len(partitioner))
    ]
    commit_files(table, files)
    read_back = {repr((file.partition[0],)) for file in data_files(table)}
    assert read_back == {repr(partitioner.key(n)) for n in range(len(partitioner))}


def test_a_uuid_partition_is_a_uuid_and_its_path_reads_like_one() -> None:
    one = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    schema = _schema(u=UUIDType())
    partitioner = Partitioner(schema, _spec((1, IdentityTransform(), "u")))
    batch = _batch(schema, u=pa.array([one.bytes, None], pa.uuid()))
    assert _keys(partitioner, batch) == [(one,), (None,)]
    assert partitioner.path(0) == f"u={one}"


@pytest.mark.parametrize("precision", [1, 9, 18, 19, 38])
def test_the_largest_decimals_are_kept(precision: int) -> None:
    largest, smallest = Decimal(10**precision - 1), Decimal(1 - 10**precision)
    schema = _schema(a=DecimalType(precision, 0))
    partitioner = Partitioner(schema, _spec((1, IdentityTransform())))
    batch = _batch(schema, a=[largest, smallest, None, largest])
    assert _keys(partitioner, batch) == [(largest,), (smallest,), (None,), (largest,)]


def test_nanoseconds_are_kept() -> None:
    schema = _schema(at=TimestampNanoType())
    partitioner = Partitioner(schema, _spec((1, IdentityTransform())))
    assert _keys(partitioner, _batch(schema, at=[1_001, 1_002])) == [(1_001,), (1_002,)]


# Where the columns are


def test_the_source_may_be_inside_of_structs_and_is_null_where_one_is() -> None:
    inner = StructType(NestedField(4, "b", IntegerType()))
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "a", StructType(NestedField(3, "s", inner))),
    )
    partitioner = Partitioner(schema, _spec((4, TruncateTransform(10))))
    rows = [{"s": {"b": 7}}, {"s": {"b": None}}, {"s": None}, None, {"s": {"b": -7}}]
    batch = _batch(schema, id=range(5), a=rows)
    assert _keys(partitioner, batch) == [(0,), (None,), (None,), (None,), (-10,)]
    assert _keys(partitioner, batch.slice(3)) == [(None,), (-10,)]


def test_what_lies_under_a_null_struct_makes_no_partition() -> None:
    schema = Schema(NestedField(1, "a", StructType(NestedField(2, "b", IntegerType()))))
    (arrow_field,) = schema_to_pyarrow(schema)
    struct = pa.StructArray.from_arrays(
        [pa.array([1, 2], pa.int32())], fields=list(arrow_field.type), mask=pa.array([False, True])
    )
    partitioner = Partitioner(schema, _spec((2, IdentityTransform())))
    assert _keys(partitioner, _batch(schema, a=struct)) == [(1,), (None,)]


def test_columns_are_found_by_field_id_whatever_they_are_called() -> None:
    schema = _schema(**{"a b": LongType(), "c": LongType()})
    partitioner = Partitioner(schema, _spec((2, IdentityTransform())))
    plain, other = schema_to_pyarrow(schema)
    swapped = pa.schema([other.with_name("a_x20b"), plain.with_name("c")])
    assert _keys(partitioner, _batch(schema, a=[1], c=[2])) == [(2,)]
    batch = pa.RecordBatch.from_arrays([pa.array([3]), pa.array([4])], schema=swapped)
    assert _keys(partitioner, batch) == [(3,)]
    assert _keys(partitioner, _batch(schema, a=[5], c=[6])) == [(6,)]


def test_a_batch_without_the_source_column_is_refused() -> None:
    schema = _schema(a=LongType(), b=LongType())
    partitioner = Partitioner(schema, _spec((2, IdentityTransform())))
    batch = _batch(schema, a=[1], b=[2]).select(["a"])
    with pytest.raises(InvalidArgumentError, match=r"field id 2 \('b'\).*\['a'\]"):
        partitioner.ids(batch)


def test_a_void_field_is_null_and_needs_no_column() -> None:
    schema = _schema(a=LongType(), b=LongType())
    spec = _spec((9, VoidTransform(), "gone"), (2, IdentityTransform(), "b"), (1, VoidTransform()))
    partitioner = Partitioner(schema, spec)
    batch = _batch(schema, a=[1, 2], b=[5, 5])
    assert partitioner.ids(batch.select(["b"])).tolist() == [0, 0]
    assert partitioner.key(0) == (None, 5, None)
    assert partitioner.path(0) == "gone=null/b=5/p2=null"


# Refusals


def test_a_spec_whose_column_was_dropped_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'gone'.*column 9"):
        Partitioner(_schema(a=LongType()), _spec((9, IdentityTransform(), "gone")))


def test_an_unknown_transform_is_refused_before_any_batch() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'a'.*zorder"):
        Partitioner(_schema(a=LongType()), _spec((1, UnknownTransform("zorder"))))


# The hours of the year 246953 no longer fit into 32 bits.
_LAST_HOUR = (2**31 - 1) * 3_600_000_000


@pytest.mark.parametrize(
    ("kind", "transform", "good", "bad"),
    [
        (DateType(), IdentityTransform(), [-(2**31), 2**31 - 1], []),
        (DateType(), DayTransform(), [-(2**31), 2**31 - 1], []),
        *(
            (kind, transform, [-(2**63), 2**63 - 1], [])
            for kind in (TimestampType(), TimestamptzType())
            for transform in (IdentityTransform(), DayTransform())
        ),
        *(
            (kind, HourTransform(), [_LAST_HOUR], [_LAST_HOUR + 3_600_000_000])
            for kind in (TimestampType(), TimestamptzType())
        ),
        (TimeType(), IdentityTransform(), [0, 86_399_999_999], [-1, 86_400_000_000]),
        (IntegerType(), TruncateTransform(10), [-(2**31) + 8], [-(2**31)]),
    ],
)
def test_a_value_out_of_range_is_refused_with_its_column(
    kind: IcebergType, transform: Transform[Any, Any], good: list[int], bad: list[int]
) -> None:
    schema = _schema(a=kind)
    partitioner = Partitioner(schema, _spec((1, transform)))
    arrow_type = schema_to_pyarrow(kind)
    for value in good:
        partitioner.ids(_batch(schema, a=pa.array([value], arrow_type)))
    for number in range(len(partitioner)):
        assert partitioner.path(number)
    for value in bad:
        with pytest.raises(InvalidDataError, match=r"'a'.*out of range") as error:
            partitioner.ids(_batch(schema, a=pa.array([value], arrow_type)))
        assert error.value.column == "a"


def test_years_and_buckets_of_dates_without_a_name_are_partitions() -> None:
    schema = _schema(a=DateType())
    spec = _spec((1, YearTransform()), (1, MonthTransform()), (1, BucketTransform(4)))
    partitioner = Partitioner(schema, spec)
    partitioner.ids(_batch(schema, a=pa.array([146_097 * 30], pa.date32())))
    assert partitioner.path(0).startswith("p0=13970/p1=13970-01/p2=")


@pytest.mark.parametrize("transform", [IdentityTransform(), TruncateTransform(2)], ids=str)
def test_text_that_is_no_utf8_is_refused_with_its_column(transform: Transform[Any, Any]) -> None:
    schema = _schema(a=StringType())
    buffers = pa.array([b"\xff\xfeabc"], pa.large_binary()).buffers()
    column = pa.Array.from_buffers(pa.large_string(), 1, buffers)
    batch = pa.RecordBatch.from_arrays([column], schema=_large(schema))
    with pytest.raises(InvalidDataError, match=r"'a'.*UTF-8"):
        Partitioner(schema, _spec((1, transform))).ids(batch)


def _large(schema: Schema) -> pa.Schema:
    return pa.schema([field.with_type(pa.large_string()) for field in schema_to_pyarrow(schema)])


def test_an_empty_batch_has_no_partitions() -> None:
    schema = _schema(a=LongType())
    partitioner = Partitioner(schema, _spec((1, IdentityTransform())))
    assert partitioner.ids(_batch(schema, a=[])).tolist() == []
    assert len(partitioner) == 0
