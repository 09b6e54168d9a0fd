"""Rows of the stream with the same key: refuses them, or keeps the last row of each key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from icestream.errors import DuplicateKeysError
from icestream.operations.merge.intake.stream_rows import LAST_BY, StreamRows
from icestream.operations.merge.keys.key_index import KeyIndex, Rows
from icestream.report.counted import counted

_MOST_EXAMPLES = 5


class DuplicateKeys:
    """Applies `on_duplicate` and `last_by`.

    Attributes:
        rows_superseded: The number of rows that another row with the same key replaced.

    Args:
        rows_of: Finds the key columns of rows.
    """

    def __init__(self, rows_of: StreamRows) -> None:
        self.rows_superseded = 0
        self._plan = rows_of.plan
        self._rows_of = rows_of

    def resolve(self, rows: pa.RecordBatch, index: KeyIndex) -> npt.NDArray[np.bool_]:
        """Leave one row for each key in the index, and mark the rows that stay.

        Args:
            rows: Rows of the stream, with all rows of each of their keys.
            index: The index of these rows.

        Raises:
            DuplicateKeysError: If rows have the same key, and `on_duplicate` is `"error"`.
        """
        kept = np.ones(rows.num_rows, np.bool_)
        repeated = index.repeated()
        if len(repeated):
            if self._plan.options.on_duplicate == "error":
                raise self._refusal(rows, repeated)
            last_by = None
            if self._plan.options.last_by is not None:
                last_by = rows.column(rows.schema.get_field_index(LAST_BY))
            superseded = index.keep_last(last_by)
            kept[superseded] = False
            self.rows_superseded += len(superseded)
        return kept

    def _refusal(self, rows: pa.RecordBatch, repeated: Rows) -> DuplicateKeysError:
        some = rows.take(pa.array(repeated[: 4 * _MOST_EXAMPLES]))
        all_shown = self._rows_of.shown(self._rows_of.key_columns(some))
        shown = list(dict.fromkeys(all_shown))[:_MOST_EXAMPLES]
        return DuplicateKeysError(
            f"{counted(len(repeated), 'row')} of the stream repeat the key of another row, such as "
            f"{'; '.join(shown)}: remove them, or merge with on_duplicate='last', and with "
            "last_by=COLUMN if a column decides which row is the last. Nothing was changed",
            column=", ".join(self._plan.key.names),
            examples=tuple(shown),
        )
