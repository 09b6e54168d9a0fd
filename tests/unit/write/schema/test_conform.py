"""Batches become what files get: the right types and ids, checked values, and no copy without need.

What nested arrays of any form come to is in tests/property/test_conform.py.
"""

from __future__ import annotations

import datetime
import decimal
import io
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from icestream.errors import InvalidDataError, SchemaMismatchError, UnsupportedFeatureError
from icestream.write.schema.conform import Conformer
from icestream.write.schema.schema_plan import SchemaMode, plan_schema
from icestream.write.target import WriteTarget
from tests.support.scans import as_text
from tests.support.tables import all_types_rows, all_types_schema, data_file_paths, make_catalog

_MODES: list[SchemaMode] = ["freeze", "evolve", "discard"]


def _conformer(
    schema: Schema, given: pa.Schema, mode: SchemaMode = "freeze", **options: Any
) -> Conformer:
    return Conformer(given, schema, mode=mode, table="db.t", **options)


def _one(kind: IcebergType, *, required: bool = False) -> Schema:
    return Schema(NestedField(1, "c", kind, required=required))


def _convert(kind: IcebergType, array: pa.Array, **options: Any) -> pa.Array:
    batch = pa.record_batch([array], names=["c"])
    out = _conformer(_one(kind), batch.schema, **options).convert(batch)
    out.validate(full=True)
    return out.column(0)


def _write(batch: pa.RecordBatch) -> pq.ParquetFile:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_batches([batch]), file, store_decimal_as_integer=True)
    return pq.ParquetFile(io.BytesIO(file.getvalue()))


# What files get


def _parquet_schema(table: Table) -> str:
    path = data_file_paths(table)[0].removeprefix("file://")
    return str(pq.ParquetFile(path).schema).split("\n", 1)[1]


@pytest.mark.parametrize("mode", ["freeze", "discard"])
def test_files_get_the_parquet_schema_that_pyiceberg_writes(
    tmp_path: Path, mode: SchemaMode
) -> None:
    catalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", all_types_schema())
    rows = all_types_rows(50).combine_chunks()
    table.append(rows)
    (batch,) = rows.to_batches()
    conformer = _conformer(table.schema(), batch.schema, mode)
    out = conformer.convert(batch)
    out.validate(full=True)
    assert out.schema.equals(conformer.file_schema, check_metadata=True)
    written = _write(out)
    assert str(written.schema).split("\n", 1)[1] == _parquet_schema(table)
    assert as_text(out.to_pylist()) == as_text(rows.to_pylist())
    assert as_text(written.read().to_pylist()) == as_text(rows.to_pylist())
    catalog.close()


def test_names_that_files_can_not_have_are_written_as_pyiceberg_writes_them(
    tmp_path: Path,
) -> None:
    catalog = make_catalog(tmp_path)
    inner = StructType(NestedField(3, "ä ö", LongType(), doc="below"))
    table = catalog.create_table(
        "db.t",
        Schema(
            NestedField(1, "a.b", LongType(), doc="a comment"),
            NestedField(2, "9 lives", inner),
            NestedField(4, "plain", LongType()),
        ),
    )
    rows = pa.table(
        {"a.b": [1], "9 lives": pa.array([{"ä ö": 2}]), "plain": pa.array([3], pa.int64())}
    )
    table.append(rows)
    conformer = _conformer(table.schema(), rows.schema)
    out = conformer.convert(rows.to_batches()[0])
    assert out.schema.names == ["a_x2Eb", "_9_x20lives", "plain"]
    assert str(_write(out).schema).split("\n", 1)[1] == _parquet_schema(table)
    assert out.schema.field(0).metadata == {b"PARQUET:field_id": b"1", b"doc": b"a comment"}
    catalog.close()


def test_two_columns_that_would_have_one_name_in_files_are_refused() -> None:
    schema = Schema(NestedField(1, "a.b", LongType()), NestedField(2, "a_x2Eb", LongType()))
    with pytest.raises(UnsupportedFeatureError, match=r"a_x2Eb.*rename one"):
        _conformer(schema, pa.schema([]))
    nested = Schema(NestedField(9, "s", StructType(*schema.fields)))
    with pytest.raises(UnsupportedFeatureError, match=r"a_x2Eb.*rename one"):
        _conformer(nested, pa.schema([]))


def test_types_that_can_not_be_written_are_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match="unknown"):
        _conformer(_one(UnknownType()), pa.schema([]))


def test_columns_that_are_right_are_not_copied() -> None:
    kinds = {
        "i": (IntegerType(), pa.array([1, None, 3], pa.int32())),
        "s": (StringType(), pa.array(["a", None, "c"])),
        "d": (DecimalType(9, 2), pa.array([1, None, 3], pa.decimal128(9, 2))),
        "t": (TimestamptzType(), pa.array([1, None, 3], pa.timestamp("us", "Asia/Tokyo"))),
        "u": (UUIDType(), pa.array([b"x" * 16] * 3, pa.binary(16))),
    }
    schema = Schema(*(NestedField(n, k, v[0]) for n, (k, v) in enumerate(kinds.items(), 1)))
    batch = pa.record_batch([v[1] for v in kinds.values()], names=list(kinds)).slice(1)
    out = _conformer(schema, batch.schema).convert(batch)
    for before, after in zip(batch.columns, out.columns, strict=True):
        assert _addresses(after)[1:] == _addresses(before)[1:]


def _addresses(array: pa.Array) -> list[int | None]:
    array = array.storage if isinstance(array, pa.ExtensionArray) else array
    return [None if buffer is None else buffer.address for buffer in array.buffers()]


def test_nested_columns_share_their_values() -> None:
    values = pa.array(range(1000))
    lists = pa.ListArray.from_arrays(pa.array([0, 400, 1000], pa.int32()), values)
    structs = pa.StructArray.from_arrays([values], names=["x"])
    nested = ListType(2, LongType(), element_required=False)
    assert (
        _convert(nested, lists[1:]).values.buffers()[1].address == values[400:].buffers()[1].address
    )
    out = _convert(StructType(NestedField(2, "x", LongType())), structs)
    assert out.field(0).buffers()[1].address == values.buffers()[1].address


# Types

_MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, 123456)
_SECOND = _MOMENT.replace(microsecond=0)
_D = decimal.Decimal
_ID = uuid.UUID("12345678-1234-abcd-ef00-0123456789AB")


def _view(values: list[Any], kind: pa.DataType) -> pa.Array:
    return pa.array(values, pa.int64()).view(kind)


@pytest.mark.parametrize(
    ("kind", "array", "expected"),
    [
        (BooleanType(), pa.bool8().wrap_array(pa.array([0, 1, 2, None], pa.int8())), None),
        (IntegerType(), pa.array([255, None], pa.uint8()), [255, None]),
        (IntegerType(), pa.array([-128], pa.int8()), [-128]),
        (IntegerType(), pa.array([65535], pa.uint16()), [65535]),
        (LongType(), pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
        (LongType(), pa.array([2**63 - 1, None], pa.uint64()), [2**63 - 1, None]),
        (FloatType(), pa.array(np.array([1.5, np.inf], np.float16)), [1.5, float("inf")]),
        (DoubleType(), pa.array([1.5], pa.float32()), [1.5]),
        (DoubleType(), pa.array(np.array([0.5], np.float16)), [0.5]),
        (
            DecimalType(12, 4),
            pa.array([_D("1.25"), None], pa.decimal32(5, 2)),
            [_D("1.2500"), None],
        ),
        (DecimalType(38, 2), pa.array([_D("9.99")], pa.decimal256(30, 2)), [_D("9.99")]),
        (DecimalType(9, 1), pa.array([_D(1200)], pa.decimal128(3, -2)), [_D("1200.0")]),
        (DateType(), _view([86_400_000], pa.date64()), [datetime.date(1970, 1, 2)]),
        (TimeType(), pa.array([61], pa.time32("s")), [datetime.time(0, 1, 1)]),
        (TimeType(), _view([1_000], pa.time64("ns")), [datetime.time(0, 0, 0, 1)]),
        (TimestampType(), pa.array([_SECOND], pa.timestamp("s")), [_SECOND]),
        (TimestampType(), pa.array([_SECOND, None], pa.timestamp("ms")), [_SECOND, None]),
        (StringType(), pa.array(["a", None, "ü"], pa.large_string()), ["a", None, "ü"]),
        (StringType(), pa.array(["a", None, "ü" * 20], pa.string_view()), ["a", None, "ü" * 20]),
        (StringType(), pa.json_().wrap_array(pa.array(['{"a":1}'])), ['{"a":1}']),
        (BinaryType(), pa.array([b"a", None], pa.large_binary()), [b"a", None]),
        (BinaryType(), pa.array([b"a", None], pa.binary_view()), [b"a", None]),
        (BinaryType(), pa.array([b"abc"], pa.binary(3)), [b"abc"]),
        (FixedType(3), pa.array([b"abc", None], pa.large_binary()), [b"abc", None]),
        (FixedType(3), pa.array([b"abc", None], pa.binary_view()), [b"abc", None]),
        (UUIDType(), pa.array([_ID.bytes, None], pa.binary(16)), [_ID, None]),
        (UUIDType(), pa.array([_ID.bytes, None], pa.binary_view()), [_ID, None]),
        (UUIDType(), pa.array([None, str(_ID), str(_ID).upper()]), [None, _ID, _ID]),
        (UUIDType(), pa.array([str(_ID), None], pa.string_view()), [_ID, None]),
        (UUIDType(), pa.array([None, None], pa.string()), [None, None]),
        (FixedType(16), pa.uuid().wrap_array(pa.array([_ID.bytes], pa.binary(16))), [_ID.bytes]),
        (StringType(), pa.nulls(2), [None, None]),
        (StringType(), pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        (
            StringType(),
            pa.DictionaryArray.from_arrays([1, 0, None], ["a", None]),
            [None, "a", None],
        ),
        (LongType(), pa.RunEndEncodedArray.from_arrays([2, 3], [7, None])[1:], [7, None]),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value)[:20],
)
def test_values_of_other_types_stay_the_same_values(
    kind: IcebergType, array: pa.Array, expected: list[Any] | None
) -> None:
    out = _convert(kind, array)
    assert out.to_pylist() == (expected or [False, True, True, None])
    assert _convert(kind, array.slice(1)).to_pylist() == out.to_pylist()[1:]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "-03:30", "No/Where"])
def test_instants_stay_the_same_in_any_zone(unit: str, zone: str) -> None:
    seconds = pa.array([-1, None, 1_700_000_000], pa.timestamp("s", "UTC"))
    given = seconds.cast(pa.timestamp(unit, "UTC")).view(pa.timestamp(unit, zone))
    out = _convert(TimestamptzType(), given)
    assert out.type == pa.timestamp("us", "UTC")
    assert out.cast(pa.int64()).to_pylist() == [-1_000_000, None, 1_700_000_000_000_000]


def test_nanoseconds_are_cut_as_pyiceberg_cuts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    array = _view([-1, -1_001, 1_999, None], pa.timestamp("ns"))
    with pytest.raises(SchemaMismatchError, match="downcast-ns-timestamp-to-us-on-write"):
        _convert(TimestampType(), array)
    monkeypatch.setenv("PYICEBERG_DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE", "true")
    out = _convert(TimestampType(), array)
    assert out.cast(pa.int64()).to_pylist() == [0, -1, 1, None]
    with pytest.raises(SchemaMismatchError):
        _convert(TimestampType(), array, downcast_ns=False)


def test_polars_frames_convert() -> None:
    polars = pytest.importorskip("polars")
    columns = {"s": ["a", None, "long enough for a view"], "l": [[1], None, []], "n": [None] * 3}
    frame = polars.DataFrame(columns).with_columns(
        c=polars.col("s").cast(polars.Categorical), e=polars.lit(1).cast(polars.UInt64)
    )
    schema = Schema(
        NestedField(1, "c", StringType()),
        NestedField(2, "s", StringType()),
        NestedField(3, "l", ListType(4, LongType(), element_required=False)),
        NestedField(5, "n", DoubleType()),
        NestedField(6, "e", LongType()),
    )
    batch = pa.RecordBatchReader.from_stream(frame).read_next_batch()
    out = _conformer(schema, batch.schema).convert(batch)
    assert out.to_pydict() == {**columns, "c": columns["s"], "e": [1] * 3}


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.int32()),
        pa.large_list(pa.int32()),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.int32()),
        pa.list_(pa.int32(), 2),
    ],
    ids=str,
)
def test_slices_of_lists_of_every_form_hold_their_own_values(kind: pa.DataType) -> None:
    values = [[1, 2], None, [3, None], [5, 6], [7, 8], None]
    array = pa.array(values, kind)
    wanted = ListType(2, LongType(), element_required=False)
    for first in range(6):
        for last in range(first, 7):
            out = _convert(wanted, array[first:last])
            assert out.to_pylist() == values[first:last]
            assert len(out.values) == sum(len(v) for v in values[first:last] if v)


def test_text_far_inside_a_large_array_is_counted_from_its_own_start() -> None:
    """The parent has 3 GB of text, in memory that is never touched."""
    text = pa.py_buffer(np.zeros(3 * 2**30, np.uint8))
    ends = np.array([0, 2**30, 3 * 2**30 - 5, 3 * 2**30 - 2, 3 * 2**30], np.int64)
    large = pa.LargeStringArray.from_buffers(4, pa.py_buffer(ends), text)
    assert _convert(StringType(), large[2:]).to_pylist() == ["\0" * 3, "\0" * 2]
    lists = pa.LargeListArray.from_arrays(pa.array([0, 2, 4]), large)
    nested = ListType(2, StringType(), element_required=False)
    assert _convert(nested, lists[1:]).to_pylist() == [["\0" * 3, "\0" * 2]]
    structs = pa.StructArray.from_arrays([large], names=["x"])
    out = _convert(StructType(NestedField(2, "x", StringType())), structs[2:])
    assert [row["x"] for row in out.to_pylist()] == ["\0" * 3, "\0" * 2]
    with pytest.raises(InvalidDataError, match="too large"):
        _convert(StringType(), large)


# Values that can't be stored


@pytest.mark.parametrize(
    ("kind", "array", "row", "says"),
    [
        (LongType(), pa.array([0, 2**63, 2**64 - 1], pa.uint64()), 1, "9223372036854775808"),
        (TimeType(), _view([1000, 2000, 2001], pa.time64("ns")), 2, "2001"),
        (DateType(), _view([0, 86_400_000, 1], pa.date64()), 2, "would lose data: 1"),
        (TimestampType(), _view([0, 2**62], pa.timestamp("s")), 1, "out of bounds"),
        (TimestamptzType(), _view([0, 2**60], pa.timestamp("ms", "UTC")), 1, "out of bounds"),
        (FixedType(2), pa.array([b"ab", None, b"a"]), 2, "widths must match"),
        (UUIDType(), pa.array([b"x" * 16, b"x" * 15]), 1, "widths must match"),
        (UUIDType(), pa.array([None, str(_ID), "no uuid"]), 2, "'no uuid' is not a valid UUID"),
        (UUIDType(), pa.array([str(_ID), str(_ID).replace("-", "+")]), 1, "is not a valid UUID"),
        (UUIDType(), pa.array([str(_ID), str(_ID).replace("a", "g")]), 1, "is not a valid UUID"),
        (UUIDType(), pa.array([str(_ID), "ü" * 18]), 1, "is not a valid UUID"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else str(value)[:20],
)
def test_a_value_that_does_not_fit_is_named_with_its_column_and_row(
    kind: IcebergType, array: pa.Array, row: int, says: str
) -> None:
    good = pa.record_batch([array.slice(0, 1)] * 1, names=["c"])
    bad = pa.record_batch([array], names=["c"])
    conformer = _conformer(_one(kind), good.schema)
    for _ in range(3):
        conformer.convert(good)
    with pytest.raises(InvalidDataError, match=r"column 'c' of the stream .* in db\.t: ") as caught:
        conformer.convert(bad)
    assert caught.value.column == "c"
    assert says in str(caught.value)
    assert f"first in row {3 + row}, counted from 0" in str(caught.value)
    deep = pa.StructArray.from_arrays(
        [pa.ListArray.from_arrays(pa.array(range(len(array) + 1), pa.int32()), array)], names=["x"]
    )
    nested = StructType(NestedField(2, "x", ListType(3, kind, element_required=False)))
    with pytest.raises(InvalidDataError, match=f"'c.x.element'.*first in row {row},") as caught:
        _convert(nested, deep)
    assert caught.value.column == "c.x.element"


def test_values_that_a_null_hides_are_not_looked_at() -> None:
    numbers = pa.array([1, 2**64 - 1, 3], pa.uint64())
    hide = pa.array([False, True, False])
    structs = pa.StructArray.from_arrays([numbers], names=["x"], mask=hide)
    out = _convert(StructType(NestedField(2, "x", LongType())), structs)
    assert out.to_pylist() == [{"x": 1}, None, {"x": 3}]
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), numbers, mask=hide)
    out = _convert(ListType(2, LongType(), element_required=False), lists)
    assert out.to_pylist() == [[1], None, [3]]
    assert len(out.values) == 2


def test_places_outside_of_a_dictionary_are_refused() -> None:
    """Arrow checks them where it makes dictionaries, not where it takes them over."""
    for places in ([0, 2, 0], [0, -1, 0]):
        array = pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), ["a", "b"], safe=False)
        for whole in (array, pa.StructArray.from_arrays([array], names=["x"])):
            kind: IcebergType = StringType()
            if whole is not array:
                kind = StructType(NestedField(2, "x", kind))
            batch = pa.record_batch([whole], names=["c"])
            with pytest.raises(InvalidDataError, match="out of bounds; first in row 1"):
                _conformer(_one(kind), batch.schema).convert(batch)
            with pytest.raises(InvalidDataError, match="out of bounds; first in row 1"):
                list(_conformer(_one(kind), batch.schema).pieces(batch, max_bytes=1))


# Nulls in required columns


def test_nulls_in_a_required_column_are_counted_and_the_first_is_named() -> None:
    schema = _one(LongType(), required=True)
    conformer = _conformer(schema, pa.schema([("c", pa.int64())]))
    assert conformer.file_schema.field("c").nullable is False
    conformer.convert(pa.record_batch({"c": [1, 2, 3]}))
    with pytest.raises(
        InvalidDataError, match=r"'c' .*required, and null 2 times.*first in row 4,"
    ) as caught:
        conformer.convert(pa.record_batch({"c": [1, None, 3, None]}))
    assert caught.value.column == "c"
    assert conformer.loosened == set()


def test_nulls_inside_dictionaries_and_runs_are_found() -> None:
    schema = _one(StringType(), required=True)
    for array in (
        pa.DictionaryArray.from_arrays([0, 1], ["a", None]),
        pa.RunEndEncodedArray.from_arrays([1, 2], ["a", None]),
        pa.DictionaryArray.from_arrays([0, None], ["a", None]),
    ):
        batch = pa.record_batch([array], names=["c"])
        with pytest.raises(InvalidDataError, match="null 1 times"):
            _conformer(schema, batch.schema).convert(batch)


_DEEP = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(
        2,
        "s",
        StructType(
            NestedField(3, "x", LongType(), required=True),
            NestedField(
                4, "t", StructType(NestedField(5, "y", StringType(), required=True)), required=True
            ),
        ),
    ),
    NestedField(6, "l", ListType(7, LongType(), element_required=True)),
    NestedField(8, "m", MapType(9, StringType(), 10, LongType(), value_required=True)),
    identifier_field_ids=[1],
)
_DEEP_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("x", pa.int64()), ("t", pa.struct([("y", pa.string())]))])),
        ("l", pa.list_(pa.int64())),
        ("m", pa.map_(pa.string(), pa.int64())),
    ]
)


def _deep(**columns: Any) -> pa.RecordBatch:
    row = {"id": 1, "s": {"x": 1, "t": {"y": "a"}}, "l": [1], "m": [("k", 1)]}
    hidden = {"id": 2, "s": None, "l": None, "m": None}
    return pa.RecordBatch.from_pylist([row, hidden, {**row, **columns}], schema=_DEEP_ARROW)


_WRONG = [
    ({"s": {"x": None, "t": {"y": "a"}}}, "s.x", 3),
    ({"s": {"x": 1, "t": None}}, "s.t", 4),
    ({"s": {"x": 1, "t": {"y": None}}}, "s.t.y", 5),
    ({"l": [1, None]}, "l.element", 7),
    ({"m": [("k", None)]}, "m.value", 10),
]


@pytest.mark.parametrize("mode", ["freeze", "discard"])
@pytest.mark.parametrize(("columns", "name", "field_id"), _WRONG)
def test_nulls_in_required_fields_below_are_found(
    mode: SchemaMode, columns: dict[str, Any], name: str, field_id: int
) -> None:
    with pytest.raises(InvalidDataError, match=f"'{name}'.*first in row 2") as caught:
        _conformer(_DEEP, _DEEP_ARROW, mode).convert(_deep(**columns))
    assert caught.value.column == name


def test_required_fields_below_a_null_can_be_written_to_files() -> None:
    """Parquet's writer refuses marks of null in them, though nobody can see those."""
    batch = _deep()
    out = _conformer(_DEEP, _DEEP_ARROW).convert(batch)
    out.validate(full=True)
    assert _write(out).read().to_pylist() == batch.to_pylist()
    absent = _conformer(_DEEP, pa.schema([("id", pa.int64())]))
    out = absent.convert(pa.record_batch({"id": [1, 2]}))
    assert _write(out).read().to_pylist() == [
        {"id": n, "s": None, "l": None, "m": None} for n in (1, 2)
    ]


@pytest.mark.parametrize(("columns", "name", "field_id"), _WRONG)
def test_evolve_notes_the_fields_that_have_to_become_optional(
    columns: dict[str, Any], name: str, field_id: int
) -> None:
    conformer = _conformer(_DEEP, _DEEP_ARROW, "evolve")
    conformer.convert(_deep())
    assert conformer.loosened == set()
    out = conformer.convert(_deep(**columns))
    assert conformer.loosened == {field_id}
    assert _write(out).read().to_pylist() == _deep(**columns).to_pylist()
    conformer.convert(_deep())
    assert conformer.loosened == {field_id}


def test_evolve_lets_files_hold_nulls_but_not_in_identifiers_and_keys() -> None:
    conformer = _conformer(_DEEP, _DEEP_ARROW, "evolve")
    schema = conformer.file_schema
    assert schema.field("id").nullable is False
    assert schema.field("s").type.field("x").nullable is True
    assert schema.field("l").type.value_field.nullable is True
    assert schema.field("m").type.key_field.nullable is False
    assert schema.field("m").type.item_field.nullable is True
    frozen = _conformer(_DEEP, _DEEP_ARROW).file_schema
    assert frozen.field("s").type.field("x").nullable is False
    assert frozen.field("s").nullable is True
    with pytest.raises(InvalidDataError, match=r"'id'.*required"):
        conformer.convert(_deep(id=None))


@pytest.mark.parametrize("mode", _MODES)
def test_a_null_key_of_a_map_is_refused(mode: SchemaMode) -> None:
    """Arrow allows none, but does not look into dictionaries."""
    keys = pa.DictionaryArray.from_arrays([0, 1], ["a", None])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), keys, pa.array([1, 2]))
    batch = pa.record_batch([pa.array([1, 2]), maps], names=["id", "m"])
    with pytest.raises(InvalidDataError, match=r"'m\.key'.*first in row 1") as caught:
        _conformer(_DEEP, batch.schema, mode).convert(batch)
    assert caught.value.column == "m.key"


def test_lists_of_nothing_are_stored_where_elements_are_required() -> None:
    batch = pa.record_batch([[1, 2], pa.array([[], None])], names=["id", "l"])
    out = _conformer(_DEEP, batch.schema).convert(batch)
    assert out.column("l").to_pylist() == [[], None]
    batch = pa.record_batch([[1], pa.array([[None]])], names=["id", "l"])
    with pytest.raises(InvalidDataError, match=r"'l\.element'"):
        _conformer(_DEEP, batch.schema).convert(batch)


# Columns


def test_columns_are_put_in_the_tables_order_and_missing_ones_are_null() -> None:
    batch = pa.record_batch({"m": pa.array([[("k", 1)]], _DEEP_ARROW.field("m").type), "id": [7]})
    out = _conformer(_DEEP, batch.schema).convert(batch)
    assert out.schema.names == ["id", "s", "l", "m"]
    assert out.to_pylist() == [{"id": 7, "s": None, "l": None, "m": [("k", 1)]}]


def test_missing_columns_of_one_type_share_one_array() -> None:
    schema = Schema(*(NestedField(n, f"c{n}", LongType()) for n in range(1, 101)))
    batch = pa.record_batch({"c1": range(10_000)})
    out = _conformer(schema, batch.schema).convert(batch)
    assert out.get_total_buffer_size() < 4 * batch.nbytes
    assert out.column(99).null_count == 10_000


def test_unknown_columns_are_left_out_only_with_discard_or_if_they_have_no_type() -> None:
    schema = _one(StructType(NestedField(2, "x", LongType())))
    row = {"c": {"y": 1, "x": 2}, "d": 3}
    batch = pa.RecordBatch.from_pylist([row])
    assert _conformer(schema, batch.schema, "discard").convert(batch).to_pylist() == [
        {"c": {"x": 2}}
    ]
    for mode in ("freeze", "evolve"):
        with pytest.raises(SchemaMismatchError) as caught:
            _conformer(schema, batch.schema, mode)
        assert len(caught.value.differences) == 2
    nothing = pa.RecordBatch.from_pylist([{"c": {"y": None, "x": 2}, "d": None}])
    out = _conformer(schema, nothing.schema, "evolve").convert(nothing)
    assert out.to_pylist() == [{"c": {"x": 2}}]


def test_what_was_planned_is_converted(tmp_path: Path) -> None:
    """Evolved columns, wider types and left out ones together."""
    catalog = make_catalog(tmp_path)
    table = catalog.create_table("db.t", _DEEP)
    rows = [
        {"id": 1, "s": {"x": 2, "t": {"y": "a", "z": None}, "w": [0.5]}, "new": b"1", "null": None}
    ]
    batch = pa.RecordBatch.from_pylist(rows)
    plan = plan_schema(WriteTarget.of(table), batch.schema, mode="evolve")
    assert set(plan.discarded) == {"null", "s.t.z"}
    out = Conformer(batch.schema, plan.schema, mode="evolve", table="db.t").convert(batch)
    assert out.to_pylist() == [
        {
            "id": 1,
            "s": {"x": 2, "t": {"y": "a"}, "w": [0.5]},
            "l": None,
            "m": None,
            "new": b"1",
        }
    ]
    new = plan.schema.find_field("new").field_id
    assert out.schema.field("new").metadata[b"PARQUET:field_id"] == str(new).encode()
    catalog.close()


def test_batches_without_rows_convert() -> None:
    out = _conformer(_DEEP, _DEEP_ARROW).convert(_deep().slice(0, 0))
    assert out.num_rows == 0
    out.validate(full=True)


# Pieces


def _pieces(kind: IcebergType, array: pa.Array, max_bytes: int) -> list[pa.RecordBatch]:
    batch = pa.record_batch([array], names=["c"])
    conformer = _conformer(_one(kind), batch.schema)
    pieces = list(conformer.pieces(batch, max_bytes=max_bytes))
    assert [v for p in pieces for v in p.column(0).to_pylist()] == array.to_pylist()
    return pieces


_LONG_TEXT = [f"{n:0100}" for n in range(10_000)]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(_LONG_TEXT),
        pa.array(_LONG_TEXT, pa.string_view()),
        pa.array(_LONG_TEXT).dictionary_encode(),
        pa.array(_LONG_TEXT[:3] * 3_333 + [None]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0] * 10_000), pa.array(["x" * 100])),
        pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.uint64()), pa.array(["x" * 100])),
        pa.RunEndEncodedArray.from_arrays([10_000], ["x" * 100]),
        pa.array(_LONG_TEXT * 2, pa.large_string())[5_000:15_000],
        pa.array(_LONG_TEXT * 2, pa.string_view())[5_000:15_000],
    ],
    ids=lambda array: str(array.type)[:20],
)
def test_batches_are_cut_by_the_bytes_they_will_take(array: pa.Array) -> None:
    """Neither the size nor the slices of views and dictionaries show these bytes."""
    pieces = _pieces(StringType(), array, 100_000)
    assert max(piece.nbytes for piece in pieces) <= 125_000
    assert len(pieces) <= 14


def test_lists_structs_and_maps_are_cut_by_what_is_in_them() -> None:
    text = pa.array(_LONG_TEXT, pa.string_view())
    ones = pa.array(range(len(text) + 1), pa.int32())
    lists = pa.ListArray.from_arrays(ones, text)
    structs = pa.StructArray.from_arrays([text], names=["x"])
    maps = pa.MapArray.from_arrays(ones, pa.array(_LONG_TEXT), text)
    for kind, array, most in (
        (ListType(2, StringType(), element_required=False), lists, 14),
        (StructType(NestedField(2, "x", StringType())), structs, 14),
        (MapType(2, StringType(), 3, StringType(), value_required=False), maps, 28),
    ):
        pieces = _pieces(kind, array, 100_000)
        assert max(piece.nbytes for piece in pieces) <= 125_000
        assert len(pieces) <= most


def test_uneven_rows_are_cut_where_the_bytes_are() -> None:
    array = pa.array(["x"] * 1_000 + ["y" * 50_000] * 10 + ["z"] * 1_000)
    pieces = _pieces(StringType(), array, 120_000)
    assert max(piece.nbytes for piece in pieces) <= 120_000
    assert all(piece.num_rows for piece in pieces)


def test_one_row_may_take_more_than_is_asked_for() -> None:
    pieces = _pieces(StringType(), pa.array(["x" * 1_000] * 3), 10)
    assert [piece.num_rows for piece in pieces] == [1, 1, 1]


def test_missing_and_widened_columns_count_as_what_they_become() -> None:
    schema = Schema(*(NestedField(n, f"c{n}", LongType()) for n in range(1, 101)))
    batch = pa.record_batch({"c1": pa.array([1] * 10_000, pa.int8())})
    pieces = list(_conformer(schema, batch.schema).pieces(batch, max_bytes=800_000))
    assert len(pieces) == 10


def test_a_batch_within_the_limit_is_one_piece() -> None:
    batch = _deep()
    conformer = _conformer(_DEEP, _DEEP_ARROW)
    (piece,) = conformer.pieces(batch, max_bytes=1_000_000)
    assert piece.num_rows == 3
    assert list(conformer.pieces(batch.slice(0, 0), max_bytes=1)) != []
    assert conformer.rows == 3
