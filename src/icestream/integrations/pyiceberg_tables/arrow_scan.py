"""`ArrowScan`: reads PyIceberg's tasks as a stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadata

from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget
from icestream.read.decode.files import RetryPolicy
from icestream.read.order import Order
from icestream.read.plan.scan_plan import TaskSplits
from icestream.read.request import request, with_fields
from icestream.read.scan import Scan


class ArrowScan:
    """Reads PyIceberg's `FileScanTask`s, with the methods of PyIceberg's own `ArrowScan`.

    Attributes:
        schema: The Arrow schema of every batch.

    Args:
        table_metadata: The table.
        io: Opens its files.
        projected_schema: The fields to return.
        row_filter: Row filter, as a string or a PyIceberg expression.
        case_sensitive: Whether names in the filter are case-sensitive.
        limit: Maximum number of rows to return.
        dictionary_columns: Columns to return dictionary-encoded.
        batch_size: Maximum number of rows in a batch; 131,072 by default.
        memory: Memory limit of each read: a string such as `"256MB"`, a number of bytes, or a
            `MemoryBudget` shared with other work.
        order: `TaskOrder()` (the default) or `ArrivalOrder(...)`.

    Memory: decoders, queued batches and delete positions together stay within `memory`. `to_table`
        also holds its result.
    """

    def __init__(
        self,
        table_metadata: TableMetadata,
        io: FileIO,
        projected_schema: Schema,
        row_filter: str | BooleanExpression = AlwaysTrue(),  # noqa: B008 - as in PyIceberg
        case_sensitive: bool = True,
        limit: int | None = None,
        *,
        dictionary_columns: Sequence[str] = (),
        batch_size: int | None = None,
        memory: int | str | MemoryBudget = DEFAULT_MEMORY,
        order: Order | None = None,
    ) -> None:
        scan = DataScan(table_metadata, io, row_filter, case_sensitive=case_sensitive, limit=limit)
        self._request = with_fields(request(scan), projected_schema)
        self._dictionary_columns = dictionary_columns
        self._batch_size = batch_size
        self._memory = memory
        self._order = order
        self.schema = self._reading([]).schema

    def to_record_batches(
        self,
        tasks: Iterable[FileScanTask],
        batch_size: int | None = None,
        order: Order | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read tasks one batch at a time. Files are closed if the iteration ends early.

        Args:
            tasks: The files to read, from `DataScan.plan_files()`.
            batch_size: Maximum number of rows in a batch; that of the `ArrowScan` by default.
            order: The order of batches; that of the `ArrowScan` by default.
        """
        return iter(self._reading(tasks, batch_size, order))

    def to_record_batches_streaming(
        self,
        tasks: Iterable[FileScanTask],
        batch_size: int | None = None,
        order: Order | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same as `to_record_batches`, which streams as well.

        Args:
            tasks: The files to read, from `DataScan.plan_files()`.
            batch_size: Maximum number of rows in a batch; that of the `ArrowScan` by default.
            order: The order of batches; that of the `ArrowScan` by default.
        """
        return self.to_record_batches(tasks, batch_size, order)

    def to_table(self, tasks: Iterable[FileScanTask]) -> pa.Table:
        """Read all rows of tasks into one table.

        Args:
            tasks: The files to read, from `DataScan.plan_files()`.
        """
        return self._reading(tasks).to_table()

    def _reading(
        self,
        tasks: Iterable[FileScanTask],
        batch_size: int | None = None,
        order: Order | None = None,
    ) -> EncodedScan:
        scan = Scan(
            None,
            splits=TaskSplits(self._request, tasks),
            context=self._request.context,
            memory=self._memory,
            batch_size=self._batch_size if batch_size is None else batch_size,
            order=order or self._order,
            policy=RetryPolicy(),
            limit=self._request.limit,
        )
        return EncodedScan(scan, self._dictionary_columns)


class EncodedScan:
    """A scan with some columns dictionary-encoded.

    Args:
        scan: The scan.
        columns: The names of these columns.
    """

    def __init__(self, scan: Scan, columns: Sequence[str] = ()) -> None:
        self._scan = scan
        self._columns = frozenset(columns)
        self.schema = self._encoded_schema(scan.schema)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        batches = iter(self._scan)
        if not self._columns:
            return batches
        return (self._encoded(batch, self.schema) for batch in batches)

    def to_reader(self) -> pa.RecordBatchReader:
        """The batches as a reader."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All rows."""
        return pa.Table.from_batches(iter(self), self.schema)

    def to_short_table(self) -> pa.Table:
        """All rows, with strings, binary values and lists of the types with 32-bit offsets."""
        short = pa.schema([field.with_type(_short(field.type)) for field in self._scan.schema])
        schema = self._encoded_schema(short)
        return pa.Table.from_batches(
            (
                self._encoded(piece.cast(short), schema)
                for batch in self._scan
                for piece in _below_offset_limit(batch)
            ),
            schema,
        )

    def _encoded_schema(self, schema: pa.Schema) -> pa.Schema:
        fields = [
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if field.name in self._columns
            else field
            for field in schema
        ]
        return pa.schema(fields, metadata=schema.metadata)

    def _encoded(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        columns = [
            column.dictionary_encode() if field.name in self._columns else column
            for field, column in zip(batch.schema, batch.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _below_offset_limit(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces whose strings 32-bit offsets can address."""
    if batch.nbytes < 2**31 or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _below_offset_limit(batch.slice(0, half))
    yield from _below_offset_limit(batch.slice(half))


def _short(kind: pa.DataType) -> pa.DataType:
    """The type with 32-bit offsets."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_short(field.type)) for field in kind.fields])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = kind.value_field
        return pa.list_(element.with_type(_short(element.type)))
    if pa.types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_short(key.type)), item.with_type(_short(item.type)))
    return kind
