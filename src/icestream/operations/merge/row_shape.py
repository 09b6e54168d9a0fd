"""Rows of the stream in the shape of the table's files."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.commit.snapshot.spec_schema import loosen
from icestream.operations.merge.keys.key_columns import KeyColumns
from icestream.write.schema.conform import Conformer
from icestream.write.schema.schema_plan import SchemaMode
from icestream.write.table_writer import TableWriter


class RowShape:
    """Conforms rows to the table. For rows that only delete, only the key columns must fit.

    Args:
        key: The key columns.
        writer: The writer of the table.
        columns: The columns of the stream.
        mode: What to do if they differ from the table's.
    """

    def __init__(
        self, key: KeyColumns, *, writer: TableWriter, columns: pa.Schema, mode: SchemaMode
    ) -> None:
        schema = writer.target.schema
        required = {field.field_id for field in schema.fields if field.required}
        missing = {field.field_id for field in schema.fields if field.name not in columns.names}
        self._file_schema = writer.file_schema
        self._mode: SchemaMode = "discard" if mode == "discard" else "freeze"
        self._table = writer.target.table
        self._columns = columns
        self._writer = writer
        self._updating = self._lenient(schema, required & missing)
        self._deleting = self._lenient(schema, required - key.ids)

    def __call__(
        self, batch: pa.RecordBatch, is_delete: npt.NDArray[np.bool_] | None
    ) -> pa.RecordBatch:
        """Rows in the shape of files; deleting rows may have nulls in required columns.

        Raises:
            InvalidDataError: If a value can't be stored.
        """
        given = batch.select(self._columns.names)
        if is_delete is None or self._deleting is None or not is_delete.any():
            return self._shaped(self._updating, given)
        deleting, others = np.flatnonzero(is_delete), np.flatnonzero(~is_delete)
        parts = [
            self._shaped(self._deleting, given.take(pa.array(deleting))),
            self._shaped(self._updating, given.take(pa.array(others))),
        ]
        place = np.empty(given.num_rows, np.int64)
        place[np.concatenate([deleting, others])] = np.arange(given.num_rows)
        return pa.concat_batches(parts).take(pa.array(place))

    def _lenient(self, schema: Schema, optional: set[int]) -> Conformer | None:
        if not optional:
            return None
        without_identifier = Schema(*schema.fields, schema_id=schema.schema_id)
        loosened = loosen(without_identifier, optional)  # Identifier fields can't be optional.
        return Conformer(self._columns, loosened, mode=self._mode, table=self._table)

    def _shaped(self, conformer: Conformer | None, rows: pa.RecordBatch) -> pa.RecordBatch:
        if conformer is None:
            return self._writer.conform(rows)
        columns = conformer.convert(rows).columns
        return pa.RecordBatch.from_arrays(columns, schema=self._file_schema)


def with_required(columns: pa.Schema, schema: Schema) -> pa.Schema:
    """The columns, with the table's missing required columns added."""
    arrow = schema_to_pyarrow(schema, include_field_ids=False)
    for field in schema.fields:
        if field.required and field.name not in columns.names:
            columns = columns.append(arrow.field(field.name))
    return columns
