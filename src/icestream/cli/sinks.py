"""Batches of a scan, written as Parquet, CSV, JSON lines, Arrow IPC or text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

import click
import pyarrow as pa

from icestream.cli.cells import SLICE_ROWS, dumps, flat, flat_schema, json_rows, text_rows
from icestream.cli.output_file import Output
from icestream.memory import MemoryBudget

OutputFormat = Literal["parquet", "csv", "json", "arrow", "text"]

SUFFIXES: dict[str, OutputFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "text",
}
_WIDEST_CELL = 40
_ROWS_MEASURED = 100


class Sink(Protocol):
    """Takes batches, and ends exactly once."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Write what comes at the end."""

    def abort(self) -> None:
        """Let go of what is held; the file has been stopped."""


def format_of(name: str) -> OutputFormat:
    """What a file's name says.

    Raises:
        click.UsageError: If it says nothing.
    """
    try:
        return SUFFIXES[Path(name).suffix.lower()]
    except KeyError:
        raise click.UsageError(
            f"the name {name!r} does not say what to write: end it with .parquet, .csv, .json or "
            ".arrow, or tell with --format"
        ) from None


def open_sink(
    format: OutputFormat | Literal["document"],
    file: Output,
    schema: pa.Schema,
    *,
    budget: MemoryBudget,
    is_pipe: bool,
) -> Sink:
    """A sink of a format.

    Args:
        format: Which; `document` is one JSON document with all rows and the report.
        file: Where to.
        schema: Of every batch.
        budget: For rows that wait until a Parquet row group is full.
        is_pipe: Whether nothing can be looked up in the file again: Arrow has a form for streams.
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


class ParquetSink:
    """Row groups as large as the budget allows.

    Memory: the rows of one row group, which are on lease from the budget, and a column of it,
    encoded.
    """

    def __init__(self, file: Output, schema: pa.Schema, budget: MemoryBudget) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._writer = pq.ParquetWriter(file, schema, compression="zstd", write_page_checksum=True)
        self._lease = budget.force(0)
        self._most_bytes = budget.limit_bytes // 2  # the other half for what is being encoded
        self._waiting: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Keep a batch until there are enough."""
        self._waiting.append(batch)
        self._lease.resize(self._lease.held_bytes + batch.get_total_buffer_size())
        if self._lease.held_bytes >= self._most_bytes:
            self._flush()

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Write the last row group and the footer."""
        self._flush()
        self._writer.close()

    def abort(self) -> None:
        """Let go of the rows."""
        self._waiting.clear()
        self._lease.release()
        with suppress(Exception):
            self._writer.close()
        self._writer.is_open = False  # or it would be closed again

    def _flush(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting.clear()
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=rows.num_rows)
        del rows
        self._lease.resize(0)


class ArrowSink:
    """An Arrow IPC file, or a stream where it goes into a pipe."""

    def __init__(self, file: Output, schema: pa.Schema, *, is_pipe: bool) -> None:
        make = pa.ipc.new_stream if is_pipe else pa.ipc.new_file
        self._writer = make(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        self._writer.write_batch(batch)

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Write the footer."""
        self._writer.close()

    def abort(self) -> None:
        """Let go of the file."""
        with suppress(Exception):
            self._writer.close()


class CsvSink:
    """CSV with a header."""

    def __init__(self, file: Output, schema: pa.Schema) -> None:
        import pyarrow.csv as csv

        self._is_flat = flat_schema(schema).equals(schema)
        self._writer = csv.CSVWriter(file, flat_schema(schema))

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        if self._is_flat:
            self._writer.write_batch(batch)
            return
        for start in range(0, batch.num_rows, SLICE_ROWS):
            self._writer.write_batch(flat(batch.slice(start, SLICE_ROWS)))

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Nothing is left to write."""
        self._writer.close()

    def abort(self) -> None:
        """Let go of the file."""
        with suppress(Exception):
            self._writer.close()


class JsonLinesSink:
    """A JSON object for each row, each on its line."""

    def __init__(self, file: Output) -> None:
        self._file = file

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        for rows in json_rows(batch):
            self._file.write(("\n".join(rows.to_pylist()) + "\n").encode())

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Nothing is left to write."""

    def abort(self) -> None:
        """Nothing is held."""


class JsonDocumentSink:
    """One document: `{"rows": [...], "report": {...}}`, written as the rows come."""

    def __init__(self, file: Output) -> None:
        self._file = file
        self._between = b'{"rows": ['

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        for rows in json_rows(batch):
            self._file.write(self._between + ",\n".join(rows.to_pylist()).encode())
            self._between = b",\n"

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Write the report."""
        start = b'{"rows": [' if self._between != b",\n" else b""
        self._file.write(start + f'], "report": {dumps(report())}}}\n'.encode())

    def abort(self) -> None:
        """Nothing is held."""


class TextSink:
    """Aligned columns; how wide they are is what the first rows need."""

    def __init__(self, file: Output, schema: pa.Schema) -> None:
        self._file = file
        self._names = list(schema.names)
        self._right = [_is_number(field.type) for field in schema]
        self._widths: list[int] | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        rows = text_rows(batch)
        while some := list(islice(rows, SLICE_ROWS)):
            if self._widths is None:
                self._begin(some[:_ROWS_MEASURED])
            self._file.write("".join(map(self._line, some)).encode())

    def close(self, report: Callable[[], dict[str, Any]]) -> None:
        """Write the header if there was no row."""
        if self._widths is None:
            self._begin([])

    def abort(self) -> None:
        """Nothing is held."""

    def _begin(self, rows: list[list[str]]) -> None:
        texts = zip(self._names, *rows, strict=True)
        self._widths = [min(_WIDEST_CELL, max(map(len, column))) for column in texts]
        self._file.write(self._line(self._names).encode())

    def _line(self, cells: list[str]) -> str:
        assert self._widths is not None
        shown = (
            f"{_cut(cell):>{width}}" if right else f"{_cut(cell):<{width}}"
            for cell, width, right in zip(cells, self._widths, self._right, strict=True)
        )
        return "  ".join(shown).rstrip() + "\n"


def _cut(cell: str) -> str:
    return cell if len(cell) <= _WIDEST_CELL else cell[: _WIDEST_CELL - 1] + "…"


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )
