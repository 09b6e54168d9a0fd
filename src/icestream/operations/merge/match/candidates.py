"""Selects the files that may hold keys of the stream, by metadata alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.table import FileScanTask
from pyiceberg.types import DateType, IntegerType, LongType, TimestampType, TimestamptzType

from icestream.operations.merge.keys.key_columns import KeyColumns

_INTEGERS = (IntegerType, LongType, DateType, TimestampType, TimestamptzType)


class KeyGaps:
    """Excludes files whose bounds lie in a gap between the keys of the stream.

    Args:
        key: The key columns. The first column of integers, dates or timestamps is used.
        columns: The values of the key columns in the stream.
    """

    def __init__(self, key: KeyColumns, columns: Sequence[pa.Array]) -> None:
        self._values = None
        for field, column in zip(key.fields, columns, strict=True):
            if isinstance(field.field_type, _INTEGERS):
                self._field = field
                plain = column.drop_null()
                bits = pa.int64() if plain.type.bit_width == 64 else pa.int32()
                self._values = np.sort(plain.view(bits).to_numpy().astype(np.int64))
                break

    def may_hold(self, task: FileScanTask) -> bool:
        """Whether a key of the stream lies between a file's lowest and highest key."""
        if self._values is None:
            return True
        lower = (task.file.lower_bounds or {}).get(self._field.field_id)
        upper = (task.file.upper_bounds or {}).get(self._field.field_id)
        if not lower or not upper:
            return True
        low, high = _integer(lower), _integer(upper)
        first = np.searchsorted(self._values, low)
        return bool(first < len(self._values) and self._values[first] <= high)


def _integer(value: bytes) -> int:
    """The value of a bound. It can be shorter than the type of a column that was widened later."""
    kind = IntegerType() if len(value) == 4 else LongType()
    return int(from_bytes(kind, value))
