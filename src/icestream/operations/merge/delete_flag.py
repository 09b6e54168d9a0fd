"""`delete_when`: a filter on the stream's columns that marks its rows as deletes."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression

from icestream.read.project.row_filter import Mask
from icestream.write.rules.stream_filter import StreamFilter

_OPTION = "delete_when"


def delete_mask(where: str | BooleanExpression | None, stream: pa.Schema) -> Mask | None:
    """A function that marks the deleting rows of a batch; None without a filter.

    Raises:
        InvalidArgumentError: If the filter does not fit the stream.
    """
    return None if where is None else StreamFilter.of(where, stream, option=_OPTION).mask


def delete_columns(where: str | BooleanExpression | None, stream: pa.Schema) -> list[str]:
    """The columns of the stream that the filter needs.

    Raises:
        InvalidArgumentError: If the filter does not fit the stream.
    """
    return [] if where is None else list(StreamFilter.of(where, stream, option=_OPTION).columns)
