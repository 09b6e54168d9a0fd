"""Which rows and columns of its sources a load writes, by declaration and not by SQL.

The rules are the same on every engine: batches of a source go in, batches of the load come out.

    rules = ColumnRules((SelectedColumn("price", "amount", pa.decimal128(10, 2)),), "amount > 0")
    ruled = rules.over(stream.schema)
    batches = map(ruled.convert, stream)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from icestream.errors import InvalidArgumentError, UnknownColumnError
from icestream.read.filters.fitting import near_column
from icestream.write.rules.exact_cast import ExactCast
from icestream.write.rules.stream_filter import (
    StreamFilter,
    decoded,
    field_at,
    field_path,
)
from icestream.write.schema.columns import empty_batch
from icestream.write.schema.types import plain
from icestream.write.sources.arrow_source import ArrowSource


@dataclass(frozen=True, slots=True)
class SelectedColumn:
    """One column that a load writes.

    Attributes:
        name: Its name in the table.
        source: The column of the source, or the path of a struct's field; None for a constant.
        kind: The type to cast it to; None for the type of the source or of the constant.
        value: The constant.
    """

    name: str
    source: str | None
    kind: pa.DataType | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """A row filter and a selection of columns: plain data, so executors can use it.

    Attributes:
        select: The columns to write; None for all columns of the source.
        where: The rows to write, as a filter over the source's columns; None for all rows.
    """

    select: tuple[SelectedColumn, ...] | None = None
    where: str | None = None

    def __bool__(self) -> bool:
        return self.select is not None or self.where is not None

    def over(self, stream: pa.Schema) -> RuledColumns:
        """The rules for a stream with these columns.

        Raises:
            UnknownColumnError: If the stream lacks a column.
            InvalidArgumentError: If a cast is not exact, or the filter does not fit.
        """
        row_filter = None if self.where is None else StreamFilter.of(self.where, stream)
        if self.select is None:
            return RuledColumns(stream, stream.names, row_filter, None)
        columns = [_column(each, stream) for each in self.select]
        needed = {path[0] for _, path, _ in columns if path}
        needed.update(() if row_filter is None else row_filter.columns)
        return RuledColumns(
            pa.schema([field for field, _, _ in columns]),
            [name for name in stream.names if name in needed],
            row_filter,
            [convert for _, _, convert in columns],
        )

    def schema(self, stream: pa.Schema) -> pa.Schema:
        """The columns that a stream with these columns becomes."""
        return self.over(stream).schema if self else stream

    def apply(self, source: ArrowSource) -> ArrowSource:
        """A stream that follows the rules.

        Memory: in addition to a batch of the source, the batch that it becomes.
        """
        if source.schema is None or not self:
            return source
        ruled = self.over(source.schema)
        return ArrowSource(ruled.schema, ruled.batches(iter(source)), source.close)


@dataclass(frozen=True, slots=True)
class RuledColumns:
    """Rules that are bound to the columns of a stream.

    Attributes:
        schema: The schema of the batches that come out.
        needed: The columns of the stream that are read, in its order.
        row_filter: Keeps rows.
        columns: Makes the columns from a batch; None if they stay as they are.
    """

    schema: pa.Schema
    needed: list[str]
    row_filter: StreamFilter | None
    columns: list[Callable[[pa.RecordBatch], pa.Array]] | None

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Apply the rules to a batch. It may have fewer columns, but all of `needed`.

        Raises:
            InvalidDataError: If a value does not fit the type that it is cast to.
        """
        if self.row_filter is not None:
            batch = batch.filter(self.row_filter.mask(batch))
        if self.columns is None:
            return batch
        arrays = [make(batch) for make in self.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Apply the rules to batches, and skip those without rows."""
        for batch in batches:
            converted = self.convert(batch)
            del batch
            if converted.num_rows:
                yield converted
            del converted


_Made = tuple[pa.Field, tuple[str, ...], Callable[[pa.RecordBatch], pa.Array]]


def _column(column: SelectedColumn, stream: pa.Schema) -> _Made:
    """The field of a column, its path in the stream, and what makes it."""
    if column.source is None:
        one = constant(column)
        return pa.field(column.name, one.type), (), lambda batch: _repeated(one, batch.num_rows)
    path = field_path(stream, column.source)
    if path is None:
        hint = near_column(column.source, stream.names)
        lacks = f"select names {column.source!r}, and the source has no such column"
        raise UnknownColumnError(f"{lacks}: {hint}")
    kind = field_at(empty_batch(stream), path).type
    if column.kind is None:
        return pa.field(column.name, kind), path, lambda batch: field_at(batch, path)
    values = plain(kind)
    cast = ExactCast(column.name, values, column.kind)
    wrapped = not values.equals(kind) and not isinstance(values, pa.BaseExtensionType)

    def convert(batch: pa.RecordBatch) -> pa.Array:
        array = field_at(batch, path)
        return cast(decoded(array) if wrapped else array)

    return pa.field(column.name, column.kind), path, convert


def constant(column: SelectedColumn) -> pa.Array:
    """The value of a constant column, as an array of one.

    Raises:
        InvalidArgumentError: If it has no type that Iceberg has, or does not fit its type.
    """
    if column.value is None:
        if column.kind is None:
            raise InvalidArgumentError(
                f"select gives {column.name!r} the value null: give its type, too"
            )
        return pa.nulls(1, column.kind)
    try:
        one = pa.array([column.value])
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidArgumentError(
            f"select gives {column.name!r} the value {column.value!r}: {error}"
        ) from error
    return one if column.kind is None else ExactCast(column.name, one.type, column.kind)(one)


def _repeated(one: pa.Array, rows: int) -> pa.Array:
    if isinstance(one, pa.ExtensionArray):
        return one.type.wrap_array(pa.repeat(one.storage[0], rows))
    return pa.repeat(one[0], rows)
