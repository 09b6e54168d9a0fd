"""Types: which are stored in which, and that no value changes on the way."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from icestream.write.schema.types import (
    conversion,
    file_type,
    hint,
    keep,
    new_type,
    plain,
    widened,
)

_IDS = [uuid.UUID(f"{digit}123{digit * 4}-89ab-cdef-fedc-ba9876543210") for digit in "5ae"]


def _converted(array: pa.Array, wanted: PrimitiveType) -> pa.Array:
    convert = conversion(plain(array.type), wanted, downcast_ns=False)
    assert convert is not None
    return convert(array)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()], ids=str)
def test_uuids_written_as_text_become_their_bytes(kind: pa.DataType) -> None:
    texts = ["not seen", str(_IDS[0]), None, str(_IDS[1]).upper(), str(_IDS[2])]
    array = _converted(pa.array(texts, kind).slice(1), UUIDType())
    assert array.type == pa.uuid()
    assert array.to_pylist() == [_IDS[0], None, _IDS[1], _IDS[2]]
    assert _converted(pa.array([None, None], kind), UUIDType()).null_count == 2
    assert len(_converted(pa.array([], kind), UUIDType())) == 0


@pytest.mark.parametrize(
    "text", ["", "x", _IDS[0].hex, f"{{{_IDS[0]}}}", str(_IDS[0])[:-1] + "g", "0" * 36]
)
def test_text_in_another_form_is_not_a_uuid(text: str) -> None:
    with pytest.raises(pa.ArrowInvalid, match="is not a valid UUID"):
        _converted(pa.array([str(_IDS[0]), text]), UUIDType())


def test_what_is_right_is_kept_and_what_loses_is_refused() -> None:
    assert conversion(pa.int64(), LongType(), downcast_ns=False) is keep
    refused = [
        (pa.int64(), IntegerType()),
        (pa.uint32(), IntegerType()),
        (pa.int32(), DoubleType()),
        (pa.float64(), FloatType()),
        (pa.string(), BinaryType()),
        (pa.decimal128(10, 3), DecimalType(10, 2)),
        (pa.timestamp("us", "UTC"), TimestampType()),
        (pa.timestamp("ns"), TimestampType()),
        (pa.binary(15), UUIDType()),
    ]
    for source, wanted in refused:
        assert conversion(source, wanted, downcast_ns=False) is None, (source, wanted)
    assert conversion(pa.timestamp("ns"), TimestampType(), downcast_ns=True) is not None


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(pa.ArrowInvalid):
        _converted(pa.array([2**63], pa.uint64()), LongType())
    with pytest.raises(pa.ArrowInvalid):
        _converted(pa.array([b"abc"], pa.binary_view()), FixedType(2))


def test_only_the_promotions_of_iceberg_widen_a_column() -> None:
    assert widened(pa.int64(), IntegerType()) == LongType()
    assert widened(pa.float64(), FloatType()) == DoubleType()
    assert widened(pa.decimal128(12, 2), DecimalType(9, 2)) == DecimalType(12, 2)
    assert widened(pa.decimal128(12, 3), DecimalType(9, 2)) is None
    assert widened(pa.string(), IntegerType()) is None


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (pa.uint16(), IntegerType()),
        (pa.uint64(), LongType()),
        (pa.float16(), FloatType()),
        (pa.bool8(), BooleanType()),
        (pa.large_string(), StringType()),
        (pa.binary(3), FixedType(3)),
        (pa.decimal128(5, -2), DecimalType(7, 0)),
        (pa.timestamp("s", "Europe/Berlin"), TimestamptzType()),
        (pa.timestamp("ns"), None),
        (pa.duration("s"), None),
    ],
    ids=str,
)
def test_a_new_column_has_the_narrowest_type_that_fits(
    source: pa.DataType, expected: PrimitiveType | None
) -> None:
    assert new_type(source, format_version=2, downcast_ns=False) == expected
    if expected is not None:
        assert conversion(source, expected, downcast_ns=False) is not None
        assert conversion(file_type(expected), expected, downcast_ns=False) is keep


def test_nanoseconds_have_a_type_from_version_3_on() -> None:
    kind = pa.timestamp("ns")
    assert new_type(kind, format_version=3, downcast_ns=False) == TimestampNanoType()
    assert new_type(kind, format_version=2, downcast_ns=True) == TimestampType()
    assert "cast it to microseconds" in hint(kind, TimestampType())
    assert "assume_timezone" in hint(pa.timestamp("us"), TimestamptzType())
    assert hint(pa.int64(), StringType()) == ""
