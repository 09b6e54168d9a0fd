"""Iceberg's partition transforms on whole Arrow arrays.

| transform | sources | result |
|---|---|---|
| identity | every primitive | the value |
| bucket[N] | all but boolean, float, double | int32: `(murmur3(value) & 0x7FFFFFFF) % N` |
| truncate[W] | int, long, decimal | the next lower multiple of W (of the unscaled value) |
| truncate[W] | string, binary | the first W code points, the first W bytes |
| year, month, day | date, timestamps | int32 since 1970-01-01 |
| hour | timestamps | int32 since 1970-01-01 |
| void | every primitive | null |

Results have Iceberg's internal form: dates, times and timestamps are integers, and a UUID is
sixteen bytes. Nulls stay null. Numbers are rounded towards negative infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from icestream.errors import InvalidDataError, UnsupportedFeatureError
from icestream.write.partition.decimals import Unscaled
from icestream.write.partition.murmur3 import hash_byte_strings, hash_longs

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_LONG_MIN = -(2**63)
_NANO_TYPES = (TimestampNanoType, TimestamptzNanoType)
_UNITS_PER_HOUR = {"us": 3_600 * 10**6, "ns": 3_600 * 10**9}

# The Arrow type of a column, and the Arrow type of its internal values (the same bytes).
_ARROW_TYPES: dict[type[IcebergType], tuple[pa.DataType, pa.DataType]] = {
    BooleanType: (pa.bool_(), pa.bool_()),
    IntegerType: (pa.int32(), pa.int32()),
    LongType: (pa.int64(), pa.int64()),
    FloatType: (pa.float32(), pa.float32()),
    DoubleType: (pa.float64(), pa.float64()),
    DateType: (pa.date32(), pa.int32()),
    TimeType: (pa.time64("us"), pa.int64()),
    TimestampType: (pa.timestamp("us"), pa.int64()),
    TimestamptzType: (pa.timestamp("us", tz="UTC"), pa.int64()),
    TimestampNanoType: (pa.timestamp("ns"), pa.int64()),
    TimestamptzNanoType: (pa.timestamp("ns", tz="UTC"), pa.int64()),
    UUIDType: (pa.binary(16), pa.binary(16)),
    UnknownType: (pa.null(), pa.null()),
}


def apply(
    transform: Transform[Any, Any],
    source_type: IcebergType,
    values: pa.Array,
    *,
    column: str = "value",
) -> pa.Array:
    """Apply a partition transform to every value.

    Args:
        transform: The transform.
        source_type: The column's Iceberg type.
        values: The column, in its Arrow type or in a type that casts to it safely.
        column: The column's name in error messages.

    Returns:
        One result for each value: int32 for bucket, year, month, day and hour, otherwise the
        type of the column's internal values. Large strings and binaries stay large.

    Raises:
        UnsupportedFeatureError: The transform is unknown, or does not support the column's type.
        InvalidDataError: A result is outside of its type's range.

    Memory: a few times the size of `values`, freed on return.
    """
    check(transform, source_type, column=column)
    if isinstance(transform, VoidTransform):
        return pa.nulls(len(values), _arrow_types(source_type, values.type)[1])
    inside = to_internal(source_type, values, column=column)
    if not len(inside):
        counted = isinstance(transform, (BucketTransform, TimeTransform))
        return pa.nulls(0, pa.int32() if counted else inside.type)
    if isinstance(transform, BucketTransform):
        return _bucket(transform.num_buckets, source_type, inside)
    if isinstance(transform, TruncateTransform):
        return _truncate(transform.width, source_type, inside, column)
    if isinstance(transform, TimeTransform):
        return _since_epoch(transform, source_type, inside, column)
    return inside


def check(transform: Transform[Any, Any], source_type: IcebergType, *, column: str) -> None:
    """Check that a transform is known and supports a column's type.

    Raises:
        UnsupportedFeatureError: If not.
    """
    known = (BucketTransform, IdentityTransform, TimeTransform, TruncateTransform, VoidTransform)
    if isinstance(transform, UnknownTransform) or not isinstance(transform, known):
        raise UnsupportedFeatureError(
            f"column {column!r} is transformed by {transform!r}, which icestream does not know: "
            "write to this table with the engine that made it"
        )
    if not transform.can_transform(source_type):
        raise UnsupportedFeatureError(
            f"column {column!r} is {source_type}, which the transform {transform} does not support"
        )
    number = 1
    if isinstance(transform, BucketTransform):
        number = transform.num_buckets
    elif isinstance(transform, TruncateTransform):
        number = transform.width
    if not 1 <= number <= _INT_MAX:
        raise UnsupportedFeatureError(
            f"column {column!r} is transformed by {transform}: its number must be from 1 to "
            f"{_INT_MAX}"
        )


def to_internal(source_type: IcebergType, values: pa.Array, *, column: str = "value") -> pa.Array:
    """Convert a column to Iceberg's internal values: dates, times and timestamps are integers.

    Raises:
        InvalidDataError: A value does not fit the type.
        UnsupportedFeatureError: Tables can't be partitioned by this type.
    """
    if isinstance(values.type, pa.BaseExtensionType):
        values = values.storage
    outside, inside = _arrow_types(source_type, values.type)
    if values.type != outside:
        try:
            values = values.cast(outside)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidDataError(
                f"column {column!r} has values that are not valid as {source_type}: {error}",
                column=column,
            ) from error
    return values if outside == inside else values.view(inside)


def _arrow_types(source_type: IcebergType, given: pa.DataType) -> tuple[pa.DataType, pa.DataType]:
    """The external and internal Arrow types. Large strings and binaries stay large."""
    if isinstance(source_type, StringType):
        exact = pa.large_string() if given == pa.large_string() else pa.string()
    elif isinstance(source_type, BinaryType):
        exact = pa.large_binary() if given == pa.large_binary() else pa.binary()
    elif isinstance(source_type, FixedType):
        exact = pa.binary(len(source_type))
    elif isinstance(source_type, DecimalType):
        exact = pa.decimal128(source_type.precision, source_type.scale)
    elif type(source_type) in _ARROW_TYPES:
        return _ARROW_TYPES[type(source_type)]
    else:
        raise UnsupportedFeatureError(f"icestream can't partition or sort by {source_type}")
    return exact, exact


def _bucket(buckets: int, source_type: IcebergType, values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):
        numbers = _numbers(values).astype(np.int64)
        if isinstance(source_type, _NANO_TYPES):
            numbers = numbers // 1_000  # Nanoseconds are hashed as microseconds.
        return _int32(_bucket_of(hash_longs(numbers), buckets), _nulls(values))
    # Hash each distinct value once: values in bucketed columns tend to repeat.
    encoded = values.dictionary_encode()
    hashes = hash_byte_strings(*_byte_strings(encoded.dictionary))
    return pa.array(_bucket_of(hashes, buckets)).take(encoded.indices)


def _bucket_of(hashes: npt.NDArray[np.uint32], buckets: int) -> npt.NDArray[np.int32]:
    return ((hashes & np.uint32(_INT_MAX)) % np.uint32(buckets)).astype(np.int32)


def _byte_strings(
    values: pa.Array,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bytes to hash, with the start and length of each value."""
    if pa.types.is_decimal(values.type):
        return Unscaled.of(values).minimal_bytes()
    if pa.types.is_fixed_size_binary(values.type):
        width = values.type.byte_width
        starts = (np.arange(len(values), dtype=np.int64) + values.offset) * width
        return _bytes(values.buffers()[1]), starts, np.full(len(values), width, dtype=np.int64)
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, offsets_buffer, data = values.buffers()
    if offsets_buffer is None or not len(values):
        return _bytes(None), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64 if large else np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    starts, stops = offsets[:-1].astype(np.int64), offsets[1:].astype(np.int64)
    return _bytes(data), starts, stops - starts


def _bytes(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"" if buffer is None else buffer, dtype=np.uint8)


def _truncate(width: int, source_type: IcebergType, values: pa.Array, column: str) -> pa.Array:
    if isinstance(source_type, StringType):
        try:
            return pc.utf8_slice_codeunits(values, 0, width)
        except pa.ArrowInvalid as error:
            raise InvalidDataError(
                f"column {column!r} has text that is not valid UTF-8: {error}", column=column
            ) from error
    if isinstance(source_type, BinaryType):
        return pc.binary_slice(values, 0, width)
    nulls = _nulls(values)
    if isinstance(source_type, DecimalType):
        floored = Unscaled.of(values).floor(width)
        limit = 1 - 10**source_type.precision
        _refuse(floored.below(limit), nulls, values, f"truncate[{width}]", column)
        return floored.to_arrow(values.type, nulls)
    numbers = _numbers(values).astype(np.int64)
    rest = numbers % np.int64(width)
    lowest = _INT_MIN if values.type == pa.int32() else _LONG_MIN
    _refuse(numbers < lowest + rest, nulls, values, f"truncate[{width}]", column)
    return pa.array((numbers - rest).astype(values.type.to_pandas_dtype()), mask=nulls)


def _since_epoch(
    transform: TimeTransform[Any], source_type: IcebergType, values: pa.Array, column: str
) -> pa.Array:
    numbers = _numbers(values).astype(np.int64)
    nulls = _nulls(values)
    hour = _UNITS_PER_HOUR["ns" if isinstance(source_type, _NANO_TYPES) else "us"]
    if isinstance(transform, HourTransform):
        hours = numbers // hour
        outside = (hours < _INT_MIN) | (hours > _INT_MAX)
        _refuse(outside, nulls, values, "hour", column)
        return _int32(hours, nulls)
    days = numbers if isinstance(source_type, DateType) else numbers // (24 * hour)
    if isinstance(transform, DayTransform):
        return _int32(days, nulls)
    if not isinstance(transform, (MonthTransform, YearTransform)):
        raise UnsupportedFeatureError(f"icestream does not know the transform {transform!r}")
    return _int32(_calendar(days, "M" if isinstance(transform, MonthTransform) else "Y"), nulls)


def _calendar(days: npt.NDArray[np.int64], unit: str) -> npt.NDArray[np.int64]:
    """The month ("M") or year ("Y") of each day, from a lookup table if their range is short."""
    first, last = int(days.min()), int(days.max())
    short = last - first < len(days)
    dates = (np.arange(first, last + 1) if short else days).astype("datetime64[D]")
    numbers: npt.NDArray[np.int64] = dates.astype(f"datetime64[{unit}]").view(np.int64)
    return numbers[days - first] if short else numbers


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    """The integers of an array, without a copy. Values at null positions are undefined."""
    dtype = values.type.to_pandas_dtype()
    buffer = values.buffers()[1]
    return np.frombuffer(buffer, dtype=dtype)[values.offset : values.offset + len(values)]


def _nulls(values: pa.Array) -> npt.NDArray[np.bool_] | None:
    if not values.null_count:
        return None
    nulls: npt.NDArray[np.bool_] = values.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _int32(numbers: npt.NDArray[Any], nulls: npt.NDArray[np.bool_] | None) -> pa.Array:
    return pa.array(numbers.astype(np.int32), mask=nulls)


def _refuse(
    outside: npt.NDArray[np.bool_],
    nulls: npt.NDArray[np.bool_] | None,
    values: pa.Array,
    transform: str,
    column: str,
) -> None:
    """Raise if a result is outside of its type's range. Null positions are ignored."""
    if nulls is not None:
        outside = outside & ~nulls
    if outside.any():
        value = values[int(np.argmax(outside))].as_py()
        raise InvalidDataError(
            f"column {column!r} has the value {value}, whose {transform} is out of range: "
            "change the value, or partition the table in another way",
            column=column,
        )
