"""Columns of a stream that only the merge itself looks at, as Arrow can compute with them."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from icestream.errors import InvalidArgumentError


def decoded(array: pa.Array) -> pa.Array:
    """The values, without dictionaries, run lengths, extensions and views."""
    while True:
        kind = array.type
        if pa.types.is_dictionary(kind):
            array = array.dictionary_decode()
        elif pa.types.is_run_end_encoded(kind):
            array = pc.run_end_decode(array)
        elif isinstance(array, pa.ExtensionArray):
            array = array.storage
        elif pa.types.is_string_view(kind):
            array = array.cast(pa.large_string())
        elif pa.types.is_binary_view(kind):
            array = array.cast(pa.large_binary())
        else:
            return array


def check_order(name: str, kind: pa.DataType) -> None:
    """Refuse a column by whose values rows can't be put in order.

    Raises:
        InvalidArgumentError: If it is nested, or of a type that Arrow does not sort.
    """
    try:
        pc.sort_indices(decoded(pa.nulls(0, kind)))
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"last_by names {name!r}, a column of {kind}: such values have no order. Name a column "
            "of numbers, text or moments"
        ) from error
