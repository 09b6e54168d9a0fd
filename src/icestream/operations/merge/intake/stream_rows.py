"""Rows of the stream, conformed to the table, with their keys and delete flags."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icestream.errors import InvalidDataError
from icestream.operations.merge.delete_flag import delete_mask
from icestream.operations.merge.keys.key_hash import KeyHash, Keys
from icestream.operations.merge.merge_plan import MergePlan
from icestream.operations.merge.row_shape import RowShape
from icestream.read.distant_years import shown_values
from icestream.report.counted import counted
from icestream.write.rules.stream_filter import decoded
from icestream.write.table_writer import TableWriter

LAST_BY = "icestream last by"
_NO_KEYS = Keys(np.empty(0, np.uint64), None, None)
_DELETE = pa.field("icestream delete", pa.bool_(), nullable=False)


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of the stream.

    Attributes:
        rows: The rows in the shape of files, and the columns that the merge itself uses.
        columns: The key columns of the rows.
        keys: The hashed keys.
    """

    rows: pa.RecordBatch
    columns: list[pa.Array]
    keys: Keys


class StreamRows:
    """Converts batches of the stream to rows, and decides which rows delete, change or insert.

    Args:
        plan: The plan of the merge.
        writer: Conforms rows to the table, and writes the rows that are inserted.
        key_hash: Hashes keys.
    """

    def __init__(self, plan: MergePlan, writer: TableWriter, key_hash: KeyHash) -> None:
        self.hash = key_hash
        self.plan = plan
        self.file_schema = writer.file_schema
        self._writer = writer
        self._arrays = plan.key.in_batches_of(writer.target.schema)
        mode = plan.options.schema_mode
        self._shape = RowShape(plan.key, writer=writer, columns=plan.columns, mode=mode)
        self._is_delete = delete_mask(plan.options.delete_when, plan.stream)

    def __call__(self, piece: pa.RecordBatch) -> KeyedRows:
        """The rows of a batch; keys may be null.

        Raises:
            InvalidDataError: If a value can't be stored.
        """
        flags = self._flags_of(piece)
        rows = self._shape(piece, self._only_deletes(piece, flags))
        columns = self._arrays(rows)
        keys = self.hash(columns) if columns else _NO_KEYS  # an update matches by position
        return KeyedRows(self._with_extras(rows, piece, flags), columns, keys)

    def refuse_null_keys(self, rows: KeyedRows, *, first_row: int) -> None:
        """Refuse rows with a null in their key, unless `null_keys` allows them.

        Args:
            rows: The rows.
            first_row: The number of earlier rows of the stream, for the message.

        Raises:
            InvalidDataError: If a key has a null.
        """
        if rows.keys.nulls is not None and self.plan.options.null_keys == "error":
            raise self._null_keys(rows.columns, rows.keys, first_row)

    def key_columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The key columns of rows that this object returned."""
        return self._arrays(rows)

    def is_deletion(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Marks rows that delete their matches."""
        if self.plan.options.when_matched == "delete":
            return np.ones(rows.num_rows, np.bool_)
        return self.flagged(rows)

    def flagged(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Marks rows for which `delete_when` is true."""
        if self._is_delete is None:
            return np.zeros(rows.num_rows, np.bool_)
        column = rows.column(rows.schema.get_field_index(_DELETE.name))
        flags: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
        return flags

    def changes(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Marks rows that change their matches."""
        if self.plan.options.when_matched == "ignore":
            return self.flagged(rows)
        return np.ones(rows.num_rows, np.bool_)

    def insert(self, rows: pa.RecordBatch) -> None:
        """Write rows that match nothing, except those that the merge does not insert."""
        if self.plan.options.when_not_matched == "insert":
            new = rows.filter(pa.array(~self.flagged(rows)))
            columns = new.columns[: len(self.file_schema)]
            rows = pa.RecordBatch.from_arrays(columns, schema=self.file_schema)
            self._writer.write_conformed(rows)

    def shown(self, columns: list[pa.Array]) -> list[str]:
        """Keys in readable form, for messages."""
        values = zip(*(shown_values(column) for column in columns), strict=True)
        return [
            ", ".join(f"{n} = {v!r}" for n, v in zip(self.plan.key.names, row, strict=True))
            for row in values
        ]

    def _flags_of(self, piece: pa.RecordBatch) -> pa.Array | None:
        return None if self._is_delete is None else pc.fill_null(self._is_delete(piece), False)

    def _only_deletes(
        self, piece: pa.RecordBatch, flags: pa.Array | None
    ) -> npt.NDArray[np.bool_] | None:
        """Marks rows that are never written because they only delete; None if there are none."""
        options = self.plan.options
        if options.when_matched == "delete" and options.when_not_matched == "ignore":
            return np.ones(piece.num_rows, np.bool_)
        return None if flags is None else flags.to_numpy(zero_copy_only=False)

    def _with_extras(
        self, rows: pa.RecordBatch, piece: pa.RecordBatch, flags: pa.Array | None
    ) -> pa.RecordBatch:
        columns, schema = rows.columns, rows.schema
        if flags is not None:
            columns = [*columns, flags]
            schema = schema.append(_DELETE)
        last_by = self.plan.options.last_by
        if last_by is not None:
            values = decoded(piece.column(piece.schema.get_field_index(last_by)))
            columns = [*columns, values]
            schema = schema.append(pa.field(LAST_BY, values.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _null_keys(self, columns: list[pa.Array], keys: Keys, first_row: int) -> InvalidDataError:
        assert keys.nulls is not None
        where = np.flatnonzero(keys.nulls)
        example = self.shown([column.take(pa.array(where[:1])) for column in columns])[0]
        names = self.plan.key.names
        missing = next(n for n, c in zip(names, columns, strict=True) if c.null_count)
        return InvalidDataError(
            f"there is a null in the key of {counted(len(where), 'row')} of the stream, such as "
            f"the one with {example} (row {first_row + int(where[0])}, counted from 0): fill them, "
            "or merge with null_keys='insert' to insert such rows without looking for matches",
            column=missing,
        )
