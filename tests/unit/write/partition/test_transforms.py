"""Partition transforms: the values of the specification, the edges of every type, and refusals."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
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
    LongType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from icestream.errors import InvalidDataError, UnsupportedFeatureError
from icestream.write.partition.transforms import apply

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_MOMENT = datetime(2017, 11, 16, 22, 31, 8)
_MOMENT_NANOS = 1_510_871_468_000_000_000
_US, _US_UTC = pa.timestamp("us"), pa.timestamp("us", tz="UTC")
_NS, _NS_UTC = pa.timestamp("ns"), pa.timestamp("ns", tz="UTC")
_UUID = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")


def _applied(
    transform: Transform[Any, Any], kind: IcebergType, values: list[Any], arrow_type: pa.DataType
) -> list[Any]:
    result = apply(transform, kind, pa.array(values, arrow_type))
    result.validate(full=True)
    return result.to_pylist()  # type: ignore[no-any-return]


# Appendix B of the Iceberg specification: "32-bit hash requirements".
_APPENDIX_B = [
    (IntegerType(), pa.int32(), 34, 2017239379),
    (LongType(), pa.int64(), 34, 2017239379),
    (DecimalType(9, 2), pa.decimal128(9, 2), Decimal("14.20"), -500754589),
    (DecimalType(38, 2), pa.decimal128(38, 2), Decimal("14.20"), -500754589),
    (DateType(), pa.date32(), date(2017, 11, 16), -653330422),
    (TimeType(), pa.time64("us"), time(22, 31, 8), -662762989),
    (TimestampType(), _US, _MOMENT, -2047944441),
    (TimestampType(), _US, _MOMENT + timedelta(microseconds=1), -1207196810),
    (
        TimestamptzType(),
        _US_UTC,
        datetime(2017, 11, 16, 14, 31, 8, tzinfo=timezone(-timedelta(hours=8))),
        -2047944441,
    ),
    (
        TimestamptzType(),
        _US_UTC,
        datetime(2017, 11, 16, 14, 31, 8, 1, tzinfo=timezone(-timedelta(hours=8))),
        -1207196810,
    ),
    (TimestampNanoType(), _NS, _MOMENT_NANOS, -2047944441),
    (TimestampNanoType(), _NS, _MOMENT_NANOS + 1_001, -1207196810),
    (TimestamptzNanoType(), _NS_UTC, _MOMENT_NANOS, -2047944441),
    (TimestamptzNanoType(), _NS_UTC, _MOMENT_NANOS + 1_001, -1207196810),
    (StringType(), pa.string(), "iceberg", 1210000089),
    (StringType(), pa.large_string(), "iceberg", 1210000089),
    (UUIDType(), pa.binary(16), _UUID.bytes, 1488055340),
    (FixedType(4), pa.binary(4), b"\x00\x01\x02\x03", -188683207),
    (BinaryType(), pa.binary(), b"\x00\x01\x02\x03", -188683207),
    (BinaryType(), pa.large_binary(), b"\x00\x01\x02\x03", -188683207),
]


@pytest.mark.parametrize(("kind", "arrow_type", "value", "expected"), _APPENDIX_B)
@pytest.mark.parametrize("buckets", [1, 16, 1000, _INT_MAX])
def test_buckets_follow_the_hashes_of_the_specification(
    kind: IcebergType, arrow_type: pa.DataType, value: Any, expected: int, buckets: int
) -> None:
    got = _applied(BucketTransform(buckets), kind, [None, value, value], arrow_type)
    bucket = (expected & _INT_MAX) % buckets
    assert got == [None, bucket, bucket]


def test_a_uuid_extension_column_is_hashed_by_its_bytes() -> None:
    column = pa.array([_UUID.bytes, None], pa.uuid())
    hashed = (1488055340 & _INT_MAX) % 100
    assert apply(BucketTransform(100), UUIDType(), column).to_pylist() == [hashed, None]
    assert apply(IdentityTransform(), UUIDType(), column).to_pylist() == [_UUID.bytes, None]


@pytest.mark.parametrize(
    ("unscaled", "length"),
    [(0, 1), (127, 1), (128, 2), (-128, 1), (-129, 2), (2**63 - 1, 8), (-(2**63), 8), (2**63, 9)],
)
def test_decimals_are_hashed_by_as_few_bytes_as_hold_them(unscaled: int, length: int) -> None:
    decimal = _applied(
        BucketTransform(_INT_MAX),
        DecimalType(38, 0),
        [Decimal(unscaled)],
        pa.decimal128(38, 0),
    )
    written = unscaled.to_bytes(length, "big", signed=True)
    assert decimal == _applied(BucketTransform(_INT_MAX), BinaryType(), [written], pa.binary())


@pytest.mark.parametrize(
    ("width", "kind", "arrow_type", "value", "expected"),
    [
        (10, IntegerType(), pa.int32(), 1, 0),
        (10, IntegerType(), pa.int32(), -1, -10),
        (10, IntegerType(), pa.int32(), -10, -10),
        (10, IntegerType(), pa.int32(), _INT_MAX, 2147483640),
        (2, IntegerType(), pa.int32(), _INT_MIN, _INT_MIN),
        (_INT_MAX, IntegerType(), pa.int32(), -1, -_INT_MAX),
        (10, LongType(), pa.int64(), 1, 0),
        (10, LongType(), pa.int64(), -1, -10),
        (10, LongType(), pa.int64(), 2**63 - 1, 9223372036854775800),
        (2, LongType(), pa.int64(), -(2**63), -(2**63)),
        (50, DecimalType(9, 2), pa.decimal128(9, 2), Decimal("10.65"), Decimal("10.50")),
        (50, DecimalType(9, 2), pa.decimal128(9, 2), Decimal("-0.01"), Decimal("-0.50")),
        (3, DecimalType(38, 0), pa.decimal128(38, 0), Decimal(-(10**37)), Decimal(-(10**37) - 2)),
        (7, DecimalType(38, 0), pa.decimal128(38, 0), Decimal(2**64 + 5), Decimal(2**64 + 5)),
        (7, DecimalType(38, 0), pa.decimal128(38, 0), Decimal(2**64 + 4), Decimal(2**64 - 2)),
        (10, DecimalType(38, 0), pa.decimal128(38, 0), Decimal(-(2**64)), Decimal(-(2**64) - 4)),
        (3, StringType(), pa.string(), "iceberg", "ice"),
        (3, StringType(), pa.large_string(), "ic", "ic"),
        (2, StringType(), pa.string(), "ü\U0001f9cax", "ü\U0001f9ca"),
        (2, StringType(), pa.string(), "", ""),
        (3, BinaryType(), pa.binary(), b"\xff\x00\x01\x02", b"\xff\x00\x01"),
        (3, BinaryType(), pa.large_binary(), b"\xff", b"\xff"),
    ],
)
def test_truncate_rounds_down_and_cuts_off(
    width: int, kind: IcebergType, arrow_type: pa.DataType, value: Any, expected: Any
) -> None:
    got = _applied(TruncateTransform(width), kind, [value, None], arrow_type)
    assert got == [expected, None]


@pytest.mark.parametrize(
    ("width", "kind", "arrow_type", "value"),
    [
        (10, IntegerType(), pa.int32(), _INT_MIN),
        (_INT_MAX, IntegerType(), pa.int32(), -_INT_MAX - 1),
        (10, LongType(), pa.int64(), -(2**63)),
        (10, DecimalType(4, 2), pa.decimal128(4, 2), Decimal("-99.99")),
        (10, DecimalType(18, 0), pa.decimal128(18, 0), Decimal(1 - 10**18)),
        (10, DecimalType(38, 0), pa.decimal128(38, 0), Decimal(1 - 10**38)),
    ],
)
def test_a_truncated_value_below_its_type_is_refused_with_the_column(
    width: int, kind: IcebergType, arrow_type: pa.DataType, value: Any
) -> None:
    with pytest.raises(InvalidDataError, match=r"'a\.b'.*" + str(value).replace(".", r"\.")) as e:
        apply(TruncateTransform(width), kind, pa.array([0, value], arrow_type), column="a.b")
    assert e.value.column == "a.b"


def test_what_lies_under_a_null_is_never_out_of_range() -> None:
    validity = pa.array([True, False]).buffers()[1]
    numbers = pa.array([5, _INT_MIN], pa.int32()).buffers()[1]
    hidden = pa.Array.from_buffers(pa.int32(), 2, [validity, numbers])
    assert apply(TruncateTransform(10), IntegerType(), hidden).to_pylist() == [0, None]


@pytest.mark.parametrize(
    ("moment", "years", "months", "days", "hours"),
    [
        (datetime(1970, 1, 1), 0, 0, 0, 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999), -1, -1, -1, -1),
        (datetime(1969, 1, 1), -1, -12, -365, -365 * 24),
        (datetime(1968, 12, 31, 23), -2, -13, -366, -366 * 24 + 23),
        (datetime(2017, 11, 16, 22, 31, 8), 47, 574, 17486, 419686),
        (datetime(2000, 2, 29, 1), 30, 361, 11016, 264385),
        (datetime(1900, 3, 1), -70, -838, -25508, -612192),
        (datetime(1, 1, 1), -1969, -23628, -719162, -719162 * 24),
        (datetime(9999, 12, 31, 23, 59, 59, 999_999), 8029, 96359, 2932896, 70389527),
    ],
)
def test_times_are_counted_from_1970_downwards_too(
    moment: datetime, years: int, months: int, days: int, hours: int
) -> None:
    counted = {YearTransform(): years, MonthTransform(): months, DayTransform(): days}
    for transform, expected in counted.items():
        assert _applied(transform, DateType(), [moment.date(), None], pa.date32()) == [
            expected,
            None,
        ]
    for transform, expected in {**counted, HourTransform(): hours}.items():
        assert _applied(transform, TimestampType(), [None, moment], _US) == [None, expected]
        aware = moment.replace(tzinfo=UTC)
        assert _applied(transform, TimestamptzType(), [None, aware], _US_UTC) == [None, expected]


@pytest.mark.parametrize(
    ("nanos", "years", "months", "days", "hours"),
    [
        (-1, -1, -1, -1, -1),
        (0, 0, 0, 0, 0),
        (_MOMENT_NANOS, 47, 574, 17486, 419686),
        (-(2**63), -293, -3508, -106752, -2562048),
        (2**63 - 1, 292, 3507, 106751, 2562047),
    ],
)
def test_nanoseconds_are_counted_from_1970_downwards_too(
    nanos: int, years: int, months: int, days: int, hours: int
) -> None:
    for kind, arrow_type in ((TimestampNanoType(), _NS), (TimestamptzNanoType(), _NS_UTC)):
        values = [nanos, None]
        assert _applied(YearTransform(), kind, values, arrow_type) == [years, None]
        assert _applied(MonthTransform(), kind, values, arrow_type) == [months, None]
        assert _applied(DayTransform(), kind, values, arrow_type) == [days, None]
        assert _applied(HourTransform(), kind, values, arrow_type) == [hours, None]


def test_dates_far_outside_of_pythons_are_counted() -> None:
    # 400 years are 146,097 days, whatever the first one is.
    days = [0, 146_097 * 30, -146_097 * 30, 146_097 * 14_000 + 31]
    assert _applied(YearTransform(), DateType(), days, pa.date32()) == [
        0,
        12_000,
        -12_000,
        5_600_000,
    ]
    assert _applied(MonthTransform(), DateType(), days, pa.date32())[3] == 5_600_000 * 12 + 1


def test_months_of_many_rows_are_those_of_each_row() -> None:
    days = list(range(-1000, 1000)) * 2
    for transform in (MonthTransform(), YearTransform()):
        together = _applied(transform, DateType(), days, pa.date32())
        one_by_one = [_applied(transform, DateType(), [day], pa.date32())[0] for day in days]
        assert together == one_by_one


def test_an_hour_beyond_32_bits_is_refused() -> None:
    column = pa.array([0, 2**63 - 1], _US)
    with pytest.raises(InvalidDataError, match="hour is out of range"):
        apply(HourTransform(), TimestampType(), column, column="at")


@pytest.mark.parametrize(
    ("kind", "arrow_type", "value", "expected"),
    [
        (BooleanType(), pa.bool_(), True, True),
        (IntegerType(), pa.int32(), 7, 7),
        (LongType(), pa.int64(), 7, 7),
        (FloatType(), pa.float32(), 0.5, 0.5),
        (DoubleType(), pa.float64(), 0.1, 0.1),
        (DecimalType(9, 2), pa.decimal128(9, 2), Decimal("1.20"), Decimal("1.20")),
        (DateType(), pa.date32(), date(1970, 1, 3), 2),
        (TimeType(), pa.time64("us"), time(0, 0, 1), 1_000_000),
        (TimestampType(), _US, datetime(1970, 1, 1, 0, 0, 1), 1_000_000),
        (TimestamptzType(), _US_UTC, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), 1_000_000),
        (TimestampNanoType(), _NS, 1_001, 1_001),
        (TimestamptzNanoType(), _NS_UTC, 1_001, 1_001),
        (StringType(), pa.string(), "ü", "ü"),
        (UUIDType(), pa.binary(16), _UUID.bytes, _UUID.bytes),
        (FixedType(2), pa.binary(2), b"ab", b"ab"),
        (BinaryType(), pa.binary(), b"", b""),
    ],
)
def test_identity_gives_values_as_iceberg_keeps_them(
    kind: IcebergType, arrow_type: pa.DataType, value: Any, expected: Any
) -> None:
    column = pa.array([value, None], arrow_type)
    result = apply(IdentityTransform(), kind, column)
    assert result.to_pylist() == [expected, None]
    moment = pa.types.is_time(arrow_type) or pa.types.is_timestamp(arrow_type)
    days = pa.types.is_date(arrow_type)
    assert result.type == (pa.int32() if days else pa.int64() if moment else arrow_type)
    void = apply(VoidTransform(), kind, column)
    assert void.to_pylist() == [None, None]
    assert void.type == result.type


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (StringType(), pa.array(["a", None, "b", "a"]).dictionary_encode(), ["a", None, "b", "a"]),
        (StringType(), pa.array(["a", None, ""], pa.string_view()), ["a", None, ""]),
        (BinaryType(), pa.array([b"a", None], pa.binary_view()), [b"a", None]),
        (IntegerType(), pa.array([1, None], pa.int8()), [1, None]),
        (DateType(), pa.array([date(1970, 1, 2), None], pa.date64()), [1, None]),
        (TimeType(), pa.array([1, None], pa.time32("s")), [1_000_000, None]),
        (TimestampType(), pa.array([1, None], pa.timestamp("s")), [1_000_000, None]),
        (TimestamptzType(), pa.array([1, None], pa.timestamp("us", "Asia/Tokyo")), [1, None]),
        (
            DecimalType(9, 2),
            pa.array([Decimal("1.20"), None], pa.decimal256(9, 2)),
            [Decimal("1.20"), None],
        ),
        (UnknownType(), pa.nulls(2), [None, None]),
    ],
)
def test_other_arrow_forms_of_a_type_are_taken_too(
    kind: IcebergType, given: pa.Array, expected: list[Any]
) -> None:
    assert apply(IdentityTransform(), kind, given).to_pylist() == expected


def test_a_value_that_is_none_of_its_type_is_refused_with_the_column() -> None:
    with pytest.raises(InvalidDataError, match=r"'a'.*int") as error:
        apply(IdentityTransform(), IntegerType(), pa.array([2**40]), column="a")
    assert error.value.column == "a"


_EVERY_TRANSFORM = [
    IdentityTransform(),
    BucketTransform(16),
    TruncateTransform(3),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]


@pytest.mark.parametrize("transform", _EVERY_TRANSFORM, ids=str)
@pytest.mark.parametrize(
    ("kind", "arrow_type", "values"),
    [
        (BooleanType(), pa.bool_(), [True, None, False, True]),
        (IntegerType(), pa.int32(), [1, None, -5, 70]),
        (LongType(), pa.int64(), [1, None, -5, 2**40]),
        (FloatType(), pa.float32(), [1.0, None, float("inf"), -0.0]),
        (DoubleType(), pa.float64(), [1.0, None, float("inf"), -0.0]),
        (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("1.2"), None, Decimal("-3"), Decimal(4)]),
        (DateType(), pa.date32(), [1, None, -700, 20_000]),
        (TimeType(), pa.time64("us"), [1, None, 10**9, 5]),
        (TimestampType(), _US, [1, None, -(10**15), 10**15]),
        (TimestamptzType(), _US_UTC, [1, None, -(10**15), 10**15]),
        (TimestampNanoType(), _NS, [1, None, -(10**18), 10**18]),
        (StringType(), pa.string(), ["a", None, "", "longer than that"]),
        (StringType(), pa.large_string(), ["a", None, "", "longer than that"]),
        (UUIDType(), pa.uuid(), [b"0" * 16, None, b"1" * 16, _UUID.bytes]),
        (FixedType(3), pa.binary(3), [b"abc", None, b"\0\0\0", b"xyz"]),
        (BinaryType(), pa.binary(), [b"a", None, b"", b"longer than that"]),
        (BinaryType(), pa.large_binary(), [b"a", None, b"", b"longer than that"]),
    ],
    ids=lambda value: str(value) if isinstance(value, (IcebergType, pa.DataType)) else "",
)
def test_slices_empty_and_null_columns_are_transformed_like_whole_ones(
    transform: Transform[Any, Any], kind: IcebergType, arrow_type: pa.DataType, values: list[Any]
) -> None:
    if not transform.can_transform(kind):
        with pytest.raises(UnsupportedFeatureError, match="does not support"):
            apply(transform, kind, pa.array(values, arrow_type))
        return
    whole = apply(transform, kind, pa.array(values, arrow_type))
    doubled = pa.array(values * 2, arrow_type)
    for start, stop in ((0, 4), (3, 4), (1, 7), (5, 5), (8, 8)):
        sliced = apply(transform, kind, doubled.slice(start, stop - start))
        assert sliced.type == whole.type
        assert sliced.to_pylist() == (whole.to_pylist() * 2)[start:stop]
    nulls = apply(transform, kind, pa.array([None, None], arrow_type))
    assert (nulls.type, nulls.to_pylist()) == (whole.type, [None, None])
    empty = apply(transform, kind, pa.array([], arrow_type))
    assert (empty.type, len(empty)) == (whole.type, 0)


def test_an_unknown_transform_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'a'.*zorder"):
        apply(UnknownTransform("zorder"), LongType(), pa.array([1]), column="a")


@pytest.mark.parametrize(
    "transform",
    [BucketTransform(0), BucketTransform(2**31), TruncateTransform(0), TruncateTransform(2**31)],
    ids=str,
)
def test_a_bucket_count_or_width_outside_of_an_int_is_refused(
    transform: Transform[Any, Any],
) -> None:
    with pytest.raises(UnsupportedFeatureError, match="from 1 to 2147483647"):
        apply(transform, LongType(), pa.array([1]))


def test_a_nested_column_is_refused() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'a'.*struct"):
        apply(IdentityTransform(), StructType(), pa.array([{}], pa.struct([])), column="a")
