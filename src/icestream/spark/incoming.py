"""Batches from Spark as an Iceberg table wants them: text becomes uuids, binary fixed bytes.

Spark has neither type: uuids are strings there, and fixed bytes are binary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, NestedField, UUIDType

from icestream.errors import InvalidDataError

_UUID_BYTES = 16
_UUID_TEXT = r"^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$"
# The value of each hexadecimal digit, by its character.
_DIGITS = np.zeros(256, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGITS[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)

Convert = Callable[[pa.Array, str], pa.Array]


class TableBatches:
    """Turns batches of a Spark frame into batches that fit a table; compiled once.

    Args:
        arrow_schema: The frame's schema.
        schema: The table's.
    """

    def __init__(self, arrow_schema: pa.Schema, schema: Schema) -> None:
        self._converts = [_converter(f, _field_of(schema, f.name)) for f in arrow_schema]
        self.schema = pa.schema(
            [
                field if found is None else pa.field(field.name, found[1], field.nullable)
                for field, found in zip(arrow_schema, self._converts, strict=True)
            ]
        )

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not any(self._converts):
                yield batch
                continue
            arrays = [
                array if found is None else found[0](array, field.name)
                for array, found, field in zip(
                    batch.columns, self._converts, self.schema, strict=True
                )
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _field_of(schema: Schema, name: str) -> NestedField | None:
    return next((field for field in schema.fields if field.name == name), None)


def _converter(field: pa.Field, wanted: NestedField | None) -> tuple[Convert, pa.DataType] | None:
    if wanted is None:
        return None
    if isinstance(wanted.field_type, UUIDType) and _is_text(field.type):
        return _uuid, pa.binary(_UUID_BYTES)
    if isinstance(wanted.field_type, FixedType) and _is_binary(field.type):
        return _fixed(len(wanted.field_type)), pa.binary(len(wanted.field_type))
    return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _uuid(text: pa.Array, column: str) -> pa.Array:
    valid = pc.match_substring_regex(text, _UUID_TEXT)
    if pc.all(valid).as_py() is False:
        example = text.filter(pc.invert(valid))[0].as_py()
        raise InvalidDataError(
            f"column {column!r} holds {example!r}, which is no uuid: mend it, or make the table's "
            "column a string",
            column=column,
        )
    digits = pc.replace_substring(text.drop_null(), "-", "").cast(pa.large_binary())
    characters = np.frombuffer(digits.buffers()[2] or b"", np.uint8)
    values = _DIGITS[characters[: len(digits) * 2 * _UUID_BYTES]]
    raw = (values[0::2] << 4 | values[1::2]).tobytes()
    packed = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_UUID_BYTES), len(digits), [None, pa.py_buffer(raw)]
    )
    if not text.null_count:
        return packed
    places = pc.subtract(pc.cumulative_sum(text.is_valid().cast(pa.int64())), 1)
    return packed.take(pc.if_else(text.is_valid(), places, None))


def _fixed(length: int) -> Convert:
    def convert(array: pa.Array, column: str) -> pa.Array:
        wrong = pc.not_equal(pc.binary_length(array), length)
        if pc.any(wrong).as_py():
            raise InvalidDataError(
                f"column {column!r} has a value of other than {length} bytes, which the table's "
                f"fixed[{length}] can't hold",
                column=column,
            )
        return array.cast(pa.binary(length))

    return convert
