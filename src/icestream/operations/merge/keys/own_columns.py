"""Columns of a stream that a merge uses but does not write, in types that Arrow computes with."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from icestream.errors import InvalidArgumentError
from icestream.write.rules.stream_filter import decoded


def check_order(name: str, kind: pa.DataType) -> None:
    """Refuse a column whose values can't be sorted.

    Raises:
        InvalidArgumentError: If it is nested, or of a type that Arrow does not sort.
    """
    try:
        pc.sort_indices(decoded(pa.nulls(0, kind)))
    except pa.ArrowException as error:
        raise InvalidArgumentError(
            f"last_by names {name!r}, a column of type {kind}, which has no order: name a column "
            "of numbers, text, dates or times"
        ) from error
