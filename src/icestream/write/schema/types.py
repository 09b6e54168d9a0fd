"""Which Arrow types may be stored in which Iceberg types, and how values get from one to the other.

| Arrow, in the stream | Iceberg, in the table |
|---|---|
| bool, bool8 | boolean |
| int8, int16, int32, uint8, uint16 | int, long |
| int64, uint32, uint64 (values checked) | long |
| half float, float | float, double |
| double | double |
| decimal32 to decimal256 | a decimal with no fewer decimals and no fewer digits before them |
| string, large_string, string_view | string; uuid (values checked: `8-4-4-4-12` digits) |
| binary, large_binary, binary_view | binary; fixed[n] and uuid (lengths checked) |
| fixed_size_binary(n) | fixed[n], binary; uuid if n is 16 |
| arrow.uuid | uuid; by its storage fixed[16] and binary |
| date32, date64 (values checked: whole days) | date |
| time32, time64 (values checked: whole microseconds) | time |
| timestamp s, ms, us without zone | timestamp, timestamp_ns |
| timestamp s, ms, us with any zone | timestamptz, timestamptz_ns: the same instant |
| timestamp ns | timestamp_ns, timestamptz_ns; in microseconds only as configured, see below |
| list, large_list, list_view, large_list_view, fixed_size_list | list |
| struct, map | struct, map |
| null | any optional column |
| dictionary, run_end_encoded | what their values may be stored in |
| other extension types | what their storage may be stored in |

Everything else is a difference: text is not stored as bytes, numbers not as text, integers not as
floats, and timestamps with a zone not as timestamps without. Nothing is rounded or cut, with one
exception: nanoseconds are cut to microseconds, towards 1970, if PyIceberg's own configuration
allows it (`downcast-ns-timestamp-to-us-on-write`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyiceberg.table import DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
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
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.config import Config

from icestream.errors import UnsupportedFeatureError

Convert = Callable[[pa.Array], pa.Array]
"""Turns an array of the stream into one for the file; raises `pa.ArrowInvalid` at a bad value."""

MAX_PRECISION = 38
_UTC = "UTC"
_FILE_TYPES: dict[type[PrimitiveType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", _UTC),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", _UTC),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
}
_TIMESTAMPS = (TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_ZONED = (TimestamptzType, TimestamptzNanoType)
_UUID_BYTES = 36
_HYPHENS = [8, 13, 18, 23]
_DIGITS = [at for at in range(_UUID_BYTES) if at not in _HYPHENS]
_NO_DIGIT = 255
_VALUES = np.full(256, _NO_DIGIT, dtype=np.uint8)
for _value, _digit in enumerate("0123456789abcdef"):
    _VALUES[ord(_digit)] = _VALUES[ord(_digit.upper())] = _value


def downcasts_nanoseconds() -> bool:
    """Whether PyIceberg's configuration lets nanoseconds be cut to microseconds."""
    return bool(Config().get_bool(DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE))


def file_type(wanted: PrimitiveType) -> pa.DataType:
    """The Arrow type in which a file gets a column: PyIceberg's, with 32-bit offsets for text.

    Raises:
        UnsupportedFeatureError: If values of the type can't be written.
    """
    if isinstance(wanted, DecimalType):
        return pa.decimal128(wanted.precision, wanted.scale)
    if isinstance(wanted, FixedType):
        return pa.binary(len(wanted))
    kind = _FILE_TYPES.get(type(wanted))
    if kind is None:
        raise UnsupportedFeatureError(f"columns of type {wanted} can't be written yet")
    return kind


def plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values, without dictionaries, run lengths and extensions of no meaning."""
    while True:
        if isinstance(kind, (pa.DictionaryType, pa.RunEndEncodedType)):
            kind = kind.value_type
        elif is_wrapper(kind):
            kind = kind.storage_type
        else:
            return kind


def is_wrapper(kind: pa.DataType) -> bool:
    """Whether it is an extension of no meaning, whose values are those of its storage."""
    known = (pa.UuidType, pa.Bool8Type)
    return isinstance(kind, pa.BaseExtensionType) and not isinstance(kind, known)


def is_list(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's list types."""
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


def keep(array: pa.Array) -> pa.Array:
    """The conversion of what is right as it is."""
    return array


def conversion(source: pa.DataType, wanted: PrimitiveType, *, downcast_ns: bool) -> Convert | None:
    """How arrays of a `plain` type become what the file gets; None where they may not."""
    target = file_type(wanted)
    if source == target:
        return keep
    if isinstance(source, pa.BaseExtensionType):
        return _from_extension(source, wanted, downcast_ns)
    if isinstance(wanted, _TIMESTAMPS):
        return _timestamp(source, target, downcast_ns)
    if isinstance(wanted, UUIDType):
        stored = conversion(source, FixedType(16), downcast_ns=downcast_ns)
        if is_text(source):
            stored = _uuid_bytes
        return None if stored is None else lambda array: target.wrap_array(stored(array))
    if isinstance(wanted, StringType):
        return _shorter(target) if is_text(source) else None
    if isinstance(wanted, BinaryType):
        fits = is_bytes(source) or pa.types.is_fixed_size_binary(source)
        return _shorter(target) if fits else None
    if isinstance(wanted, FixedType):
        return _fixed(target) if is_bytes(source) else None
    return _cast(target) if _castable(source, wanted) else None


def _from_extension(
    source: pa.BaseExtensionType, wanted: PrimitiveType, downcast_ns: bool
) -> Convert | None:
    if isinstance(source, pa.Bool8Type) and isinstance(wanted, BooleanType):
        return lambda array: array.storage.cast(pa.bool_())
    stored = conversion(source.storage_type, wanted, downcast_ns=downcast_ns)
    return None if stored is None else lambda array: stored(array.storage)


def _cast(target: pa.DataType) -> Convert:
    return lambda array: array.cast(target)


def _shorter(target: pa.DataType) -> Convert:
    """Text or bytes with 32-bit offsets, which fit in one array up to 2 GB."""

    def convert(array: pa.Array) -> pa.Array:
        try:
            return array.cast(target)
        except pa.ArrowInvalid:
            if not array.offset:
                raise
            # A slice far inside a large parent: its own bytes may fit, counted from its start.
            return pa.concat_arrays([array]).cast(target)

    return convert


def _fixed(target: pa.DataType) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        if pa.types.is_binary_view(array.type):
            array = array.cast(pa.large_binary())
        return array.cast(target)

    return convert


def _uuid_bytes(text: pa.Array) -> pa.FixedSizeBinaryArray:
    """The bytes of UUIDs written as text, `8-4-4-4-12` digits of either case.

    Raises:
        pa.ArrowInvalid: If a value is anything else.
    """
    given = text.cast(pa.string()).drop_null()
    count = len(given)
    offsets = np.frombuffer(given.buffers()[1], np.int32, count + 1, given.offset * 4)
    wrong = np.flatnonzero(np.diff(offsets) != _UUID_BYTES)
    if len(wrong):
        raise _no_uuid(given[int(wrong[0])])
    if not count:
        return pa.nulls(len(text), pa.binary(16))
    letters = np.frombuffer(given.buffers()[2], np.uint8, count * _UUID_BYTES, int(offsets[0]))
    letters = letters.reshape(count, _UUID_BYTES)
    digits = _VALUES[letters[:, _DIGITS]]
    bad = (digits == _NO_DIGIT).any(axis=1) | (letters[:, _HYPHENS] != ord("-")).any(axis=1)
    if bad.any():
        raise _no_uuid(given[int(np.flatnonzero(bad)[0])])
    packed = np.ascontiguousarray(digits[:, ::2] << 4 | digits[:, 1::2])
    uuids = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(packed)])
    if count == len(text):
        return uuids
    valid = text.is_valid().to_numpy(zero_copy_only=False)
    return uuids.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _no_uuid(value: pa.Scalar) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"{value.as_py()[:50]!r} is not a valid UUID")


def _castable(source: pa.DataType, wanted: PrimitiveType) -> bool:
    types = pa.types
    if isinstance(wanted, IntegerType):
        return bool(types.is_integer(source) and _integer_bits(source) <= 32)
    if isinstance(wanted, LongType):
        return bool(types.is_integer(source))  # uint64: the cast finds what does not fit
    if isinstance(wanted, (FloatType, DoubleType)):
        return bool(types.is_floating(source) and source.bit_width <= file_type(wanted).bit_width)
    if isinstance(wanted, DecimalType):
        return bool(types.is_decimal(source) and _decimal_fits(source, wanted))
    if isinstance(wanted, DateType):
        return bool(types.is_date(source))
    if isinstance(wanted, TimeType):
        return bool(types.is_time(source))
    return False


def _integer_bits(kind: pa.DataType) -> int:
    """Bits that a signed integer needs for all values of the type."""
    return int(kind.bit_width) + bool(pa.types.is_unsigned_integer(kind))


def _decimal_fits(source: pa.DataType, wanted: DecimalType) -> bool:
    whole = source.precision - source.scale
    return bool(source.scale <= wanted.scale and whole <= wanted.precision - wanted.scale)


def _timestamp(source: pa.DataType, target: pa.DataType, downcast_ns: bool) -> Convert | None:
    if not pa.types.is_timestamp(source) or (source.tz is None) != (target.tz is None):
        return None
    if source.unit == "ns" and target.unit == "us":
        return (lambda array: array.cast(target, safe=False)) if downcast_ns else None
    if source.unit == target.unit:  # another name of a zone, the same instants
        return lambda array: array.view(target)
    return _cast(target)


def is_text(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's string types."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Whether it is one of Arrow's binary types of variable length."""
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def widened(source: pa.DataType, wanted: PrimitiveType) -> PrimitiveType | None:
    """The wider type that a column may be given so that the stream fits; None if there is none."""
    types = pa.types
    if isinstance(wanted, IntegerType) and types.is_integer(source):
        return LongType()
    if isinstance(wanted, FloatType) and types.is_float64(source):
        return DoubleType()
    if isinstance(wanted, DecimalType) and types.is_decimal(source):
        whole = max(source.precision - source.scale, wanted.precision - wanted.scale)
        if source.scale <= wanted.scale and whole + wanted.scale <= MAX_PRECISION:
            return DecimalType(whole + wanted.scale, wanted.scale)
    return None


def new_type(
    source: pa.DataType, *, format_version: int, downcast_ns: bool
) -> PrimitiveType | None:
    """The type of a new column for values of a `plain` type; None if Iceberg has none."""
    types = pa.types
    if isinstance(source, pa.UuidType):
        return UUIDType()
    if isinstance(source, pa.Bool8Type):
        return BooleanType()
    if types.is_timestamp(source):
        return _new_timestamp(source, format_version, downcast_ns)
    if types.is_decimal(source):
        scale = max(source.scale, 0)
        precision = max(source.precision - source.scale, 0) + scale
        return DecimalType(precision, scale) if precision <= MAX_PRECISION else None
    if types.is_fixed_size_binary(source):
        return FixedType(source.byte_width)
    candidates: tuple[PrimitiveType, ...] = (
        BooleanType(),
        IntegerType(),
        LongType(),
        FloatType(),
        DoubleType(),
        DateType(),
        TimeType(),
        StringType(),
        BinaryType(),
    )
    fitting = (c for c in candidates if conversion(source, c, downcast_ns=False) is not None)
    return next(fitting, None)


def _new_timestamp(
    source: pa.DataType, format_version: int, downcast_ns: bool
) -> PrimitiveType | None:
    if source.unit != "ns" or downcast_ns:
        return TimestampType() if source.tz is None else TimestamptzType()
    if format_version < 3:
        return None
    return TimestampNanoType() if source.tz is None else TimestamptzNanoType()


def hint(source: pa.DataType, wanted: PrimitiveType | None) -> str:
    """What to do about timestamps that may not be stored as they are; empty for other types."""
    if not pa.types.is_timestamp(source):
        return ""
    if wanted is not None and not isinstance(wanted, _TIMESTAMPS):
        return ""
    if wanted is not None and isinstance(wanted, _ZONED) != (source.tz is not None):
        if source.tz is None:
            return " (it has no zone: say which one it is in with pyarrow.compute.assume_timezone)"
        return " (it has a zone: drop it with pyarrow.compute.local_timestamp)"
    if source.unit == "ns":
        return (
            " (its nanoseconds do not fit: cast it to microseconds, or have them cut by setting "
            f"{DOWNCAST_NS_TIMESTAMP_TO_US_ON_WRITE} in PyIceberg's configuration)"
        )
    return ""
