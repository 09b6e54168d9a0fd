"""PyIceberg's scans, which stream within a memory limit."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, IncrementalAppendScan
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from icestream.integrations.pyiceberg_tables.arrow_scan import ArrowScan, EncodedScan
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.read.decode.files import RetryPolicy
from icestream.read.order import Order
from icestream.read.plan.scan_plan import plan_tasks
from icestream.read.request import ScanRequest, request, with_fields
from icestream.read.scan import Scan, read_tasks

_ALL_ROWS = AlwaysTrue()
_Memory = int | str | MemoryBudget


class StreamingScan(DataScan):
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

    def count(self) -> int:
        """The number of rows. Only files that may have other rows, or deleted ones, are read."""
        whole = request(self.update(selected_fields=("*",), limit=None))
        budget = as_budget(self.memory)
        rows = 0

        def to_read() -> Iterator[FileScanTask]:
            nonlocal rows
            for task in plan_tasks(whole, budget=budget):
                if task.residual == _ALL_ROWS and not task.delete_files:
                    rows += task.file.record_count
                else:
                    yield task

        with read_tasks(_narrow(whole), to_read(), budget) as batches:
            read: int = sum(batch.num_rows for batch in batches)
        return rows + read

    def _reading(
        self,
        batch_size: int | None,
        order: Order | None,
        dictionary_columns: tuple[str, ...] = (),
    ) -> EncodedScan:
        scan = Scan(
            with_fields(request(self), self.projection()),
            memory=self.memory,
            batch_size=self.batch_size if batch_size is None else batch_size,
            order=order,
            policy=RetryPolicy(),
        )
        return EncodedScan(scan, dictionary_columns)


class StreamingIncrementalScan(IncrementalAppendScan):
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

    def to_record_batches(
        self, batch_size: int | None = None, order: Order | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows one batch at a time. Files are closed if the iteration ends early.

        Args:
            batch_size: Maximum number of rows in a batch; that of the scan by default.
            order: `TaskOrder()` (the default) or `ArrivalOrder(...)`.
        """
        return self._arrow_scan(batch_size, order).to_record_batches(self.plan_files())

    def to_arrow_batch_reader(
        self, batch_size: int | None = None, order: Order | None = None
    ) -> pa.RecordBatchReader:
        """Read the rows as a `pa.RecordBatchReader`.

        Args:
            batch_size: Maximum number of rows in a batch; that of the scan by default.
            order: `TaskOrder()` (the default) or `ArrivalOrder(...)`.
        """
        scan = self._arrow_scan(batch_size, order)
        return pa.RecordBatchReader.from_batches(
            scan.schema, scan.to_record_batches(self.plan_files())
        )

    def to_arrow(self) -> pa.Table:
        """Read all rows into one table, whatever its size.

        Memory: reading stays within the limit; the result comes on top.
        """
        return self._arrow_scan(None, None).to_table(self.plan_files(), short_strings=True)

    def _arrow_scan(self, batch_size: int | None, order: Order | None) -> ArrowScan:
        return ArrowScan(
            self.table_metadata,
            self.io,
            self.projection(),
            self.row_filter,
            self.case_sensitive,
            self.limit,
            batch_size=self.batch_size if batch_size is None else batch_size,
            memory=self.memory,
            order=order,
        )


def _narrow(scan: ScanRequest) -> ScanRequest:
    """The same request for one column."""
    fields = scan.context.schema.fields
    narrow = next((field for field in fields if field.field_type.is_primitive), fields[0])
    return with_fields(scan, Schema(narrow))
