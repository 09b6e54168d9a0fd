"""Convert primitive types: Iceberg's promotions, and the Arrow types of a column."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    PrimitiveType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

_UTC = {"UTC", "+00:00", "Etc/UTC", "Z", "GMT", "Etc/GMT"}
_NO_ZONE = (TimestampType, TimestampNanoType)
_ZONED = (TimestamptzType, TimestamptzNanoType)
_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
_UUID_BYTES = 16
_UUID_CHARACTERS = 36
# Positions of the two digits of each byte in 01234567-89ab-cdef-0123-456789abcdef.
_UUID_PLACES = np.array([0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34])

Convert = Callable[[pa.Array], pa.Array]


def convert_primitive(
    source: pa.DataType, target: pa.DataType, wanted: IcebergType, *, downcast_ns: bool
) -> Convert | None:
    """A function from arrays of `source` to arrays of `target`; None if not convertible."""
    if not isinstance(wanted, PrimitiveType):
        return None
    if isinstance(source, pa.DictionaryType):
        return _from_dictionary(source, target, wanted, downcast_ns)
    if pa.types.is_null(target):
        return _cast(target)
    if isinstance(wanted, _NO_ZONE + _ZONED):
        return _timestamp(source, target, wanted, downcast_ns)
    if isinstance(target, pa.BaseExtensionType):
        return _to_extension(source, target)
    if isinstance(source, pa.BaseExtensionType):
        if source.storage_type == target:
            return lambda array: array.storage
        stored = convert_primitive(source.storage_type, target, wanted, downcast_ns=downcast_ns)
        return None if stored is None else lambda array: stored(array.storage)
    return _cast(target) if _castable(source, target, wanted) else None


def _from_dictionary(
    source: pa.DictionaryType, target: pa.DataType, wanted: IcebergType, downcast_ns: bool
) -> Convert | None:
    if source.value_type == target:
        return lambda array: array.dictionary_decode()
    convert = convert_primitive(source.value_type, target, wanted, downcast_ns=downcast_ns)
    if convert is None:
        return None

    def decode(array: pa.DictionaryArray) -> pa.Array:
        values = array.dictionary
        if len(values) > len(array) or isinstance(target, pa.BaseExtensionType):
            return convert(array.dictionary_decode())
        # There are fewer distinct values than rows, so convert them before expanding.
        return pa.DictionaryArray.from_arrays(array.indices, convert(values)).dictionary_decode()

    return decode


def _cast(target: pa.DataType) -> Convert:
    return lambda array: array.cast(target)


def _castable(source: pa.DataType, target: pa.DataType, wanted: PrimitiveType) -> bool:
    types = pa.types
    if types.is_integer(target):
        if types.is_signed_integer(source):
            return bool(source.bit_width <= target.bit_width)
        return bool(types.is_unsigned_integer(source) and source.bit_width < target.bit_width)
    if types.is_floating(target):
        return bool(types.is_floating(source) and source.bit_width <= target.bit_width)
    if isinstance(wanted, DecimalType):
        fits = types.is_decimal(source) and source.scale == target.scale
        return bool(fits and source.precision <= target.precision)
    if is_text(target) or _is_bytes(target):
        return is_text(source) or _is_bytes(source)
    if types.is_fixed_size_binary(target):  # ORC stores plain bytes. The cast checks the length.
        same = types.is_fixed_size_binary(source) and source.byte_width == target.byte_width
        return bool(same or _is_bytes(source))
    if types.is_time(target):
        return bool(types.is_time(source))
    if types.is_date(target):
        return bool(types.is_date(source))
    return bool(source == target)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's string types."""
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


def _timestamp(
    source: pa.DataType, target: pa.DataType, wanted: IcebergType, downcast_ns: bool
) -> Convert | None:
    if pa.types.is_date(source):  # Version 3 promotes dates to timestamp, not to timestamptz.
        return _cast(target) if isinstance(wanted, _NO_ZONE) else None
    if not pa.types.is_timestamp(source):
        return None
    if source.tz is not None and source.tz not in _UTC:
        return None
    if downcast_ns and source.unit == "ns" and target.unit == "us":
        return lambda array: array.cast(target, safe=False)
    return _cast(target)  # ORC always has nanoseconds. The cast fails if any would be lost.


def _to_extension(source: pa.DataType, target: pa.BaseExtensionType) -> Convert | None:
    storage = target.storage_type
    if isinstance(source, pa.BaseExtensionType):
        if source.storage_type != storage:
            return None
        return lambda array: target.wrap_array(array.storage)
    if source == storage:
        return lambda array: target.wrap_array(array)
    if _is_bytes(source) or (_is_bytes(storage) and is_text(source)):
        return lambda array: target.wrap_array(array.cast(storage))
    return None


def uuid_text(array: pa.ExtensionArray) -> pa.StringArray:
    """UUIDs as text, in lower case."""
    storage: pa.FixedSizeBinaryArray = array.storage
    count, data = len(storage), storage.buffers()[1]
    if data is None:
        return pa.nulls(count, pa.string())
    first = storage.offset * _UUID_BYTES
    raw = np.frombuffer(data, np.uint8)[first : first + count * _UUID_BYTES]
    raw = raw.reshape(count, _UUID_BYTES)
    text = np.full((count, _UUID_CHARACTERS), ord("-"), np.uint8)
    text[:, _UUID_PLACES] = _HEX_DIGITS[raw >> 4]
    text[:, _UUID_PLACES + 1] = _HEX_DIGITS[raw & 15]
    offsets = np.arange(count + 1, dtype=np.int32) * _UUID_CHARACTERS
    validity = None
    if storage.null_count:
        valid = storage.is_valid().to_numpy(zero_copy_only=False)
        validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text), validity)
