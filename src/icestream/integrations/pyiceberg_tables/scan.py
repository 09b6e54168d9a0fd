"""PyIceberg's scans, which stream within a memory limit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.table import DataScan, IncrementalAppendScan
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from icestream.integrations.pyiceberg_tables.arrow_scan import EncodedScan
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.read.decode.files import RetryPolicy
from icestream.read.order import Order
from icestream.read.request import request, with_fields
from icestream.read.scan import Scan

_ALL_ROWS = AlwaysTrue()
_Memory = int | str | MemoryBudget


class _StreamingReads:
    """The methods of PyIceberg's scans that return rows.

    Attributes:
        memory: Memory limit of each read.
        batch_size: Maximum number of rows in a batch.
    """

    memory: _Memory
    batch_size: int | None

    def to_record_batches(
        self, batch_size: int | None = None, order: Order | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows one batch at a time. Files are closed if the iteration ends early.

        Args:
            batch_size: Maximum number of rows in a batch; that of the scan by default.
            order: `TaskOrder()` (the default) or `ArrivalOrder(...)`.
        """
        return iter(self._reading(batch_size, order))

    def to_arrow_batch_reader(
        self,
        dictionary_columns: tuple[str, ...] = (),
        batch_size: int | None = None,
        order: Order | None = None,
    ) -> pa.RecordBatchReader:
        """Read the rows as a `pa.RecordBatchReader`.

        Args:
            dictionary_columns: Columns to return dictionary-encoded.
            batch_size: Maximum number of rows in a batch; that of the scan by default.
            order: `TaskOrder()` (the default) or `ArrivalOrder(...)`.
        """
        return self._reading(batch_size, order, dictionary_columns).to_reader()

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """Read all rows into one table, whatever its size.

        Args:
            dictionary_columns: Columns to return dictionary-encoded.

        Memory: reading stays within the limit; the result comes on top.
        """
        return self._reading(None, None, dictionary_columns).to_short_table()

    def _reading(
        self,
        batch_size: int | None,
        order: Order | None,
        dictionary_columns: tuple[str, ...] = (),
    ) -> EncodedScan:
        assert isinstance(self, (DataScan, IncrementalAppendScan))
        scan = Scan(
            with_fields(request(self), self.projection()),
            memory=self.memory,
            batch_size=self.batch_size if batch_size is None else batch_size,
            order=order,
            policy=RetryPolicy(),
        )
        return EncodedScan(scan, dictionary_columns)


class StreamingScan(_StreamingReads, DataScan):
    """A PyIceberg `DataScan` whose rows are read by icestream.

    Args:
        table_metadata: The table.
        io: Opens its files.
        row_filter: Row filter, as a string or a PyIceberg expression.
        selected_fields: The columns to return, in the order of the table.
        case_sensitive: Whether column names are case-sensitive.
        snapshot_id: The snapshot to read.
        options: PyIceberg's options of a scan.
        limit: Maximum number of rows to return.
        catalog: The table's catalog.
        table_identifier: The table's name.
        memory: Memory limit of each read.
        batch_size: Maximum number of rows in a batch.
    """

    # PyIceberg copies a scan by the names of these parameters.
    def __init__(
        self,
        table_metadata: TableMetadata,
        io: FileIO,
        row_filter: str | BooleanExpression = _ALL_ROWS,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        snapshot_id: int | None = None,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
        catalog: Catalog | None = None,
        table_identifier: Identifier | None = None,
        memory: _Memory = DEFAULT_MEMORY,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(
            table_metadata=table_metadata,
            io=io,
            row_filter=row_filter,
            selected_fields=selected_fields,
            case_sensitive=case_sensitive,
            snapshot_id=snapshot_id,
            options=options,
            limit=limit,
            catalog=catalog,
            table_identifier=table_identifier,
        )
        self.memory = memory
        self.batch_size = batch_size

    def count(self) -> int:
        """The number of rows, without the limit of the scan, as PyIceberg counts them.

        Only files that may have other rows, or deleted ones, are read.
        """
        return Scan(
            request(self.update(limit=None)), memory=self.memory, policy=RetryPolicy()
        ).count()


class StreamingIncrementalScan(_StreamingReads, IncrementalAppendScan):
    """A PyIceberg `IncrementalAppendScan` whose rows are read by icestream.

    Args:
        table_metadata: The table.
        io: Opens its files.
        row_filter: Row filter, as a string or a PyIceberg expression.
        selected_fields: The columns to return, in the order of the table.
        case_sensitive: Whether column names are case-sensitive.
        from_snapshot_id: The first snapshot; the oldest one by default.
        from_snapshot_inclusive: Whether to read the first snapshot, too.
        to_snapshot_id: The last snapshot; the current one by default.
        options: PyIceberg's options of a scan.
        limit: Maximum number of rows to return.
        memory: Memory limit of each read.
        batch_size: Maximum number of rows in a batch.
    """

    # PyIceberg copies a scan by the names of these parameters.
    def __init__(
        self,
        table_metadata: TableMetadata,
        io: FileIO,
        row_filter: str | BooleanExpression = _ALL_ROWS,
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        from_snapshot_id: int | None = None,
        from_snapshot_inclusive: bool = False,
        to_snapshot_id: int | None = None,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
        memory: _Memory = DEFAULT_MEMORY,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(
            table_metadata=table_metadata,
            io=io,
            row_filter=row_filter,
            selected_fields=selected_fields,
            case_sensitive=case_sensitive,
            from_snapshot_id=from_snapshot_id,
            from_snapshot_inclusive=from_snapshot_inclusive,
            to_snapshot_id=to_snapshot_id,
            options=options,
            limit=limit,
        )
        self.memory = memory
        self.batch_size = batch_size
