"""A table as a dataset of Arrow, from which DuckDB takes the columns and rows that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.table import Table

from icestream.memory.budget import MemoryBudget
from icestream.pipeline.query.arrow_filter import iceberg_filter
from icestream.read.scan import Scan, scan

_BATCH_ROWS = 16_384


class TableDataset(ds.Dataset):  # type: ignore[misc, unused-ignore]
    """A table that DuckDB scans.

    DuckDB calls `scanner` for each use of the table in a query, with the columns and the filter
    that it pushes down. It does not apply this filter again.

    Args:
        table: The table.
        budget: The budget of all scans of the query.
        failed: Called with an error of a scan, because DuckDB would only pass on its text.
    """

    def __init__(
        self, table: Table, budget: MemoryBudget, failed: Callable[[BaseException], None]
    ) -> None:
        self._table = table
        self._budget = budget
        self._failed = failed
        self._scans: list[Scan] = []
        with scan(table, memory=budget) as whole:
            self._schema = whole.schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of the table."""
        return self._schema

    @property
    def scans(self) -> Sequence[Scan]:
        """The scans so far."""
        return self._scans

    def scanner(
        self, columns: list[str] | None = None, filter: Any = None, **_: object
    ) -> _Scanner:
        """Begin a scan."""
        return _Scanner(self._reader(columns, filter))

    def close(self) -> None:
        """End all scans."""
        for each in self._scans:
            each.close()

    def _reader(self, columns: list[str] | None, row_filter: Any) -> pa.RecordBatchReader:
        names = self._schema.names if columns is None else columns
        needed = names if row_filter is None else [*names, *_columns_of(row_filter, self._schema)]
        where = None
        if row_filter is not None:
            where = iceberg_filter(str(row_filter), self._table.schema())
        reading = scan(
            self._table,
            columns=list(dict.fromkeys(needed)),
            where=where,
            memory=self._budget,
            batch_size=_BATCH_ROWS,
        )
        self._scans.append(reading)
        delivered = pa.schema([self._schema.field(name) for name in names])

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch in reading:
                    if row_filter is not None:
                        matching = pa.Table.from_batches([batch]).filter(row_filter).to_batches()
                    else:
                        matching = [batch]
                    for rows in matching:
                        yield rows.select(names)
                    del batch, matching
            except GeneratorExit:  # DuckDB needs no more rows
                raise
            except BaseException as error:
                self._failed(error)
                raise

        return pa.RecordBatchReader.from_batches(delivered, batches())


class _Scanner:
    """The only method of Arrow's scanner that DuckDB calls."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches."""
        return self._reader


def _columns_of(row_filter: Any, schema: pa.Schema) -> list[str]:
    """The columns whose names occur in a filter. Too many do no harm."""
    text = str(row_filter)
    return [name for name in schema.names if name in text]
