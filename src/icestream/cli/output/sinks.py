"""Sinks write the batches of a scan as Parquet, CSV, JSON lines, Arrow IPC or text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any, Literal

import click
import pyarrow as pa

from icestream.cli.output.cells import (
    NULL,
    SLICE_ROWS,
    dumps,
    flat,
    flat_schema,
    json_rows,
    text_rows,
)
from icestream.cli.output.output_file import Output
from icestream.cli.output.text import has_colors, ids_as_text, paint
from icestream.memory.budget import MemoryBudget
from icestream.write.sources.formats import OutputFormat, output_format_of

_WIDEST_CELL = 40
_ROWS_MEASURED = 100


class Sink:
    """Writes batches. It ends exactly once, with `close` or `abort`."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        raise NotImplementedError

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Write the end of the output, if it has one."""

    def abort(self) -> None:
        """Release memory, if the sink holds any. The output was stopped before."""


def format_of(name: str) -> OutputFormat:
    """Return the format for the suffix of a file name.

    Raises:
        click.UsageError: If the suffix is unknown.
    """
    format_ = output_format_of(name)
    if format_ is None:
        raise click.UsageError(
            f"the name {name!r} does not say which format to write: end it with .parquet, .csv, "
            ".json or .arrow, or pass --format"
        )
    return format_


def open_sink(
    format: OutputFormat | Literal["document"],
    file: Output,
    schema: pa.Schema,
    *,
    budget: MemoryBudget,
    is_pipe: bool,
) -> Sink:
    """Open the sink for a format.

    Args:
        format: The format. `document` is one JSON document with all rows and the report.
        file: The output.
        schema: Schema of the batches.
        budget: Budget for rows that wait until a Parquet row group is full.
        is_pipe: Whether the output is a pipe, which gets Arrow's stream format.
    """
    if format == "parquet":
        return ParquetSink(file, schema, budget)
    if format == "arrow":
        return ArrowSink(file, schema, is_pipe=is_pipe)
    if format == "csv":
        return CsvSink(file, schema)
    if format == "json":
        return JsonLinesSink(file)
    if format == "document":
        return JsonDocumentSink(file)
    return TextSink(file, schema)


class ParquetSink(Sink):
    """Writes Parquet with row groups as large as the budget allows.

    Memory: the rows of one row group, on lease from the budget, and one encoded column of them.
    """

    def __init__(self, file: Output, schema: pa.Schema, budget: MemoryBudget) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
        self._lease = budget.force(0)
        self._most_bytes = budget.limit_bytes // 2  # the other half is for encoding
        self._waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep a batch until the row group is large enough."""
        self._waiting.append(batch)
        self._lease.resize(self._lease.held_bytes + batch.get_total_buffer_size())
        if self._lease.held_bytes >= self._most_bytes:
            self._flush()

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Write the last row group and the footer."""
        self._flush()
        self._writer.close()

    def abort(self) -> None:
        self._waiting.clear()
        self._lease.release()
        with suppress(Exception):
            self._writer.close()
        self._writer.is_open = False  # else the writer closes itself again

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting.clear()
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        del rows
        self._lease.resize(0)


class _WriterSink(Sink):
    """Writes with one of Arrow's writers."""

    _writer: Any

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        self._writer.close()

    def abort(self) -> None:
        with suppress(Exception):
            self._writer.close()


class ArrowSink(_WriterSink):
    """Writes an Arrow IPC file, or an Arrow IPC stream into a pipe."""

    def __init__(self, file: Output, schema: pa.Schema, *, is_pipe: bool) -> None:
        open_writer = pa.ipc.new_stream if is_pipe else pa.ipc.new_file
        self._writer = open_writer(file, schema)


class CsvSink(_WriterSink):
    """Writes CSV with a header."""

    def __init__(self, file: Output, schema: pa.Schema) -> None:
        import pyarrow.csv as csv

        self._is_flat = flat_schema(schema).equals(schema)
        self._writer = csv.CSVWriter(file, flat_schema(schema))

    def write(self, batch: pa.RecordBatch) -> None:
        if self._is_flat:
            self._writer.write_batch(batch)
            return
        for start in range(0, batch.num_rows, SLICE_ROWS):
            self._writer.write_batch(flat(batch.slice(start, SLICE_ROWS)))


class JsonLinesSink(Sink):
    """Writes one JSON object per line."""

    def __init__(self, file: Output) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        for rows in json_rows(batch):
            self._file.write(("\n".join(rows.to_pylist()) + "\n").encode())


class JsonDocumentSink(Sink):
    """Writes one document, `{"rows": [...], "report": {...}}`, while the rows arrive."""

    def __init__(self, file: Output) -> None:
        self._file = file
        self._between = b'{"rows": ['

    def write(self, batch: pa.RecordBatch) -> None:
        for rows in json_rows(batch):
            self._file.write(self._between + ",\n".join(rows.to_pylist()).encode())
            self._between = b",\n"

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        start = b'{"rows": [' if self._between != b",\n" else b""
        self._file.write(start + f'], "report": {dumps(ids_as_text(report()))}}}\n'.encode())


class TextSink(Sink):
    """Writes aligned columns. The first rows determine their widths."""

    def __init__(self, file: Output, schema: pa.Schema) -> None:
        self._file = file
        self._names = list(schema.names)
        self._right = [_is_number(field.type) for field in schema]
        self._widths: list[int] | None = None
        self._has_colors = has_colors(sys.stdout)

    def write(self, batch: pa.RecordBatch) -> None:
        rows = text_rows(batch)
        while some := list(islice(rows, SLICE_ROWS)):
            if self._widths is None:
                self._begin(some[:_ROWS_MEASURED])
            self._file.write("".join(map(self._line, some)).encode())

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Write the header if there was no row."""
        if self._widths is None:
            self._begin([])

    def _begin(self, rows: list[list[str]]) -> None:
        texts = zip(self._names, *rows, strict=True)
        self._widths = [min(_WIDEST_CELL, max(map(len, column))) for column in texts]
        self._file.write(self._line(self._names).encode())

    def _line(self, cells: list[str]) -> str:
        assert self._widths is not None
        shown = (
            self._padded(cell, width, right)
            for cell, width, right in zip(cells, self._widths, self._right, strict=True)
        )
        return "  ".join(shown).rstrip() + "\n"

    def _padded(self, cell: str, width: int, right: bool) -> str:
        padded = f"{_cut(cell):>{width}}" if right else f"{_cut(cell):<{width}}"
        return paint(padded, "dim") if self._has_colors and cell is NULL else padded


def _cut(cell: str) -> str:
    return cell if len(cell) <= _WIDEST_CELL else cell[: _WIDEST_CELL - 1] + "…"


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
