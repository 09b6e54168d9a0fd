"""Casts of a load: each value keeps its meaning exactly, or an error names it.

Arrow's own casts round some values without an error: doubles to floats or decimals, timestamps to
dates. So the result of such a cast is cast back and compared.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import UUIDType

from icestream.errors import InvalidArgumentError, InvalidDataError
from icestream.read.project.conversion import uuid_text
from icestream.write.schema.types import Convert, conversion, is_bytes, is_text
from icestream.write.sources.batch_columns import cast_text

_SHOWN_CHARACTERS = 80
_MOST_SCALE = 19  # an int64 has 19 digits, and a decimal 38


class ExactCast:
    """Casts the values of one column.

    Args:
        name: The column's name, for messages.
        source: The type of the values.
        target: The wanted type.

    Raises:
        InvalidArgumentError: If no cast between the types is exact.
    """

    def __init__(self, name: str, source: pa.DataType, target: pa.DataType) -> None:
        self._name = name
        self._target = target
        convert = _converter(source, target)
        try:
            if convert is None:
                raise pa.ArrowNotImplementedError(f"{source} has no exact cast to {target}")
            convert(pa.nulls(0, source))
        except pa.ArrowException as error:
            raise InvalidArgumentError(
                f"select casts {name!r} to {target}, and the source has {source}: there is no "
                "exact cast between them. Choose another type, or use a SQL transform"
            ) from error
        self._convert = convert

    def __call__(self, array: pa.Array) -> pa.Array:
        """Cast values.

        Raises:
            InvalidDataError: With the first value that does not fit.
        """
        try:
            return self._convert(array)
        except pa.ArrowInvalid as error:
            value = _first_bad(array, self._convert)
            text = str(value)
            shown = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
            raise InvalidDataError(
                f"column {self._name!r} has the value {shown!r}, which {self._target} can't hold "
                "exactly: choose another type in select, leave such rows out with where, or "
                "convert them with a SQL transform",
                column=self._name,
            ) from error


def _converter(source: pa.DataType, target: pa.DataType) -> Convert | None:
    """The conversion, which raises `pa.ArrowInvalid` at a bad value; None if there is none."""
    types = pa.types
    if source.equals(target):
        return lambda array: array
    if types.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    if isinstance(target, pa.UuidType):
        return conversion(source, UUIDType(), downcast_ns=False)
    if isinstance(source, pa.UuidType) and is_text(target) and not types.is_dictionary(target):
        return lambda array: uuid_text(array).cast(target)
    if isinstance(source, pa.BaseExtensionType):
        return None
    if is_text(source) or is_text(target):
        if types.is_nested(source) or types.is_nested(target):
            return None
        return lambda array: cast_text(array, target)
    if _is_number(source) and _is_number(target):
        return _of_numbers(source, target)
    days = types.is_date(source) or types.is_timestamp(source)
    if days and (types.is_date(target) or types.is_timestamp(target)):
        return _and_back(source, target)
    if types.is_time(source) and types.is_time(target):
        return _plain(target)
    if _is_binary(source) and _is_binary(target):
        return _plain(target)
    if types.is_nested(source) and types.is_nested(target):
        cast = _and_back(source, target)
        # Arrow also casts the elements of lists that are outside a slice: leave them out.
        return lambda array: cast(array.take(pa.array(np.arange(len(array)))))
    return None


def _of_numbers(source: pa.DataType, target: pa.DataType) -> Convert:
    types = pa.types
    if types.is_decimal(target) and types.is_floating(source):
        # The shortest text that means the same number. Arrow's direct cast rounds.
        return lambda array: array.cast(pa.string()).cast(target)
    if types.is_decimal(target) and types.is_integer(source):
        make = pa.decimal128 if target.scale <= _MOST_SCALE else pa.decimal256
        wide = make(38 if target.scale <= _MOST_SCALE else 76, target.scale)
        return lambda array: array.cast(wide).cast(target)
    if types.is_decimal(source) and types.is_floating(target):
        back = _of_numbers(target, source)

        def convert(array: pa.Array) -> pa.Array:
            numbers = array.cast(pa.string()).cast(target)  # Arrow's direct cast is not exact.
            return _checked(array, numbers, back(numbers))

        return convert
    if types.is_boolean(target) or types.is_floating(source):
        return _and_back(source, target)
    return _plain(target)


def _plain(target: pa.DataType) -> Convert:
    return lambda array: array.cast(target)


def _and_back(source: pa.DataType, target: pa.DataType) -> Convert:
    def convert(array: pa.Array) -> pa.Array:
        values = array.cast(target)
        return _checked(array, values, values.cast(source))

    return convert


def _checked(array: pa.Array, values: pa.Array, back: pa.Array) -> pa.Array:
    """The values, if they are the same as before when they are cast back."""
    if pa.types.is_floating(array.type):
        nan = pc.and_(pc.is_nan(array), pc.is_nan(back))
        is_same = pc.all(pc.or_(pc.equal(array, back), nan)).as_py() is not False
    else:
        is_same = array.equals(back)
    if not is_same:
        raise pa.ArrowInvalid("a value changes when it is cast")
    return values


def _first_bad(array: pa.Array, convert: Convert) -> pa.Scalar:
    """The first value that can't be converted."""
    while len(array) > 1:
        left = array.slice(0, len(array) // 2)
        try:
            convert(left)
        except pa.ArrowInvalid:
            array = left
        else:
            array = array.slice(len(left))
    return array[0]


def _is_number(kind: pa.DataType) -> bool:
    types = pa.types
    whole = types.is_integer(kind) or types.is_boolean(kind)
    return bool(whole or types.is_floating(kind) or types.is_decimal(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(is_bytes(kind) or pa.types.is_fixed_size_binary(kind))
