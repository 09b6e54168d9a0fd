"""Rows of the stream as a merge works with them: conformed, with keys and what they ask for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from icestream.errors import InvalidDataError
from icestream.upsert.delete_flag import delete_mask
from icestream.upsert.key_hash import KeyHash, Keys
from icestream.upsert.merge_plan import MergePlan
from icestream.upsert.own_columns import decoded
from icestream.upsert.row_shape import RowShape
from icestream.write.table_writer import TableWriter

LAST_BY = "icestream last by"
_DELETE = pa.field("icestream delete", pa.bool_(), nullable=False)


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows of the stream.

    Attributes:
        rows: As files get them, and the columns that the merge itself needs.
        columns: The key's columns of them.
        keys: The same as numbers.
    """

    rows: pa.RecordBatch
    columns: list[pa.Array]
    keys: Keys


class StreamRows:
    """Makes rows of batches of the stream.

    Args:
        plan: What the merge does.
        writer: Conforms rows to the table.
        key_hash: Makes numbers of keys.
    """

    def __init__(self, plan: MergePlan, writer: TableWriter, key_hash: KeyHash) -> None:
        self.hash = key_hash
        self._plan = plan
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
        return KeyedRows(self._with_extras(rows, piece, flags), columns, self.hash(columns))

    def refuse_null_keys(self, rows: KeyedRows, *, first_row: int) -> None:
        """Refuse rows with a null in their key, unless the caller wants them.

        Args:
            rows: The rows.
            first_row: How many rows of the stream came before, for the message.

        Raises:
            InvalidDataError: If there is one.
        """
        if rows.keys.nulls is not None and self._plan.options.null_keys == "error":
            raise self._null_keys(rows.columns, rows.keys, first_row)

    def key_columns(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The key's columns of rows that were made here."""
        return self._arrays(rows)

    def is_deletion(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows delete what they match."""
        if self._plan.options.when_matched == "delete":
            return np.ones(rows.num_rows, np.bool_)
        return self.flagged(rows)

    def flagged(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows the stream itself says are deleted."""
        if self._is_delete is None:
            return np.zeros(rows.num_rows, np.bool_)
        column = rows.column(rows.schema.get_field_index(_DELETE.name))
        flags: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
        return flags

    def changes(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows change what they match."""
        if self._plan.options.when_matched == "ignore":
            return self.flagged(rows)
        return np.ones(rows.num_rows, np.bool_)

    def inserted(self, rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch | None:
        """What is written of rows that match nothing; None if nothing is.

        Args:
            rows: The rows.
            schema: Of files.
        """
        if self._plan.options.when_not_matched == "ignore":
            return None
        new = rows.filter(pa.array(~self.flagged(rows)))
        return pa.RecordBatch.from_arrays(new.columns[: len(schema)], schema=schema)

    def shown(self, columns: list[pa.Array]) -> list[str]:
        """Keys for people to read."""
        values = zip(*(column.to_pylist() for column in columns), strict=True)
        return [
            ", ".join(f"{n} = {v!r}" for n, v in zip(self._plan.key.names, row, strict=True))
            for row in values
        ]

    def _flags_of(self, piece: pa.RecordBatch) -> pa.Array | None:
        return None if self._is_delete is None else pc.fill_null(self._is_delete(piece), False)

    def _only_deletes(
        self, piece: pa.RecordBatch, flags: pa.Array | None
    ) -> npt.NDArray[np.bool_] | None:
        """Which rows are never written, as all they do is delete; None if none is such."""
        options = self._plan.options
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
        last_by = self._plan.options.last_by
        if last_by is not None:
            values = decoded(piece.column(piece.schema.get_field_index(last_by)))
            columns = [*columns, values]
            schema = schema.append(pa.field(LAST_BY, values.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _null_keys(self, columns: list[pa.Array], keys: Keys, first_row: int) -> InvalidDataError:
        assert keys.nulls is not None
        where = np.flatnonzero(keys.nulls)
        example = self.shown([column.take(pa.array(where[:1])) for column in columns])[0]
        names = self._plan.key.names
        missing = next(n for n, c in zip(names, columns, strict=True) if c.null_count)
        return InvalidDataError(
            f"{len(where)} rows of the stream have a null in their key, such as the one with "
            f"{example} (row {first_row + int(where[0])}, counted from 0): fill them, or merge "
            "with null_keys='insert' to insert such rows without looking for matches",
            column=missing,
        )
