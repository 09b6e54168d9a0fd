"""UUIDs written as text, as Spark and DuckDB hand them over, become their sixteen bytes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

_TEXT_BYTES = 36
_HYPHENS = [8, 13, 18, 23]
_DIGITS = [at for at in range(_TEXT_BYTES) if at not in _HYPHENS]
_NO_DIGIT = 255
_VALUES = np.full(256, _NO_DIGIT, dtype=np.uint8)
for _value, _digit in enumerate("0123456789abcdef"):
    _VALUES[ord(_digit)] = _VALUES[ord(_digit.upper())] = _value


def uuid_bytes(text: pa.StringArray) -> pa.FixedSizeBinaryArray:
    """The bytes of UUIDs in their usual form, `8-4-4-4-12` digits of either case.

    Raises:
        pa.ArrowInvalid: If a value is anything else.
    """
    given = text.drop_null()
    count = len(given)
    offsets = np.frombuffer(given.buffers()[1], np.int32, count + 1, given.offset * 4)
    wrong = np.flatnonzero(np.diff(offsets) != _TEXT_BYTES)
    if len(wrong):
        raise _no_uuid(given[int(wrong[0])])
    if not count:
        return pa.nulls(len(text), pa.binary(16))
    letters = np.frombuffer(given.buffers()[2], np.uint8, count * _TEXT_BYTES, int(offsets[0]))
    letters = letters.reshape(count, _TEXT_BYTES)
    digits = _VALUES[letters[:, _DIGITS]]
    bad = (digits == _NO_DIGIT).any(axis=1) | (letters[:, _HYPHENS] != ord("-")).any(axis=1)
    if bad.any():
        raise _no_uuid(given[int(np.flatnonzero(bad)[0])])
    packed = np.ascontiguousarray(digits[:, ::2] << 4 | digits[:, 1::2])
    made = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(packed)])
    if count == len(text):
        return made
    valid = text.is_valid().to_numpy(zero_copy_only=False)
    return made.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def _no_uuid(value: pa.Scalar) -> pa.ArrowInvalid:
    return pa.ArrowInvalid(f"{value.as_py()[:50]!r} is no UUID")
