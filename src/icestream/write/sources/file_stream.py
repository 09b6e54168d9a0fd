"""Files as one stream of Arrow batches, one file after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.write.sources.bad_record import BadRecord
from icestream.write.sources.batch_columns import fit_batch
from icestream.write.sources.file_columns import KnownTypes, columns_of, partition_columns
from icestream.write.sources.file_rows import FileRows
from icestream.write.sources.formats import FILE_FORMATS, FileFormat
from icestream.write.sources.source_file import find_files
from icestream.write.sources.text.text_format import CSV_OPTIONS, CsvFormat


class SourceFiles:
    """Files of all formats as a stream, in the order given: read as a load reads them.

    Columns are matched by name. A column that a file lacks is null there. Where the types of a
    column differ between files, the wider type is used.

    Args:
        names: Paths, globs (`**` matches folders), or folders. All files of a folder with a known
            format are read, except those whose names start with `_` or `.`.
        format: The files' format; by default their names show it. CSV and JSON files may be
            compressed (`.csv.gz`).
        types: The table's schema. Text is read in the table's types; types of other columns are
            guessed from the first lines of the files.
        hive_partitions: Whether folder names such as `year=2025` become columns.
        memory: The limit of the load that reads the files, or its budget. Half of it is for
            reading.
        options: Options of the CSV reader, and of the store (`s3.endpoint`).

    Attributes:
        schema: The schema of every batch.
        paths: The files.
        bytes: Their total size.
        files_read: Number of files opened so far, for progress.
        rows_read: Number of rows read so far.
        is_read: Whether all rows were read.

    Raises:
        SourceError: If there are no files, or a file can't be read.
        SchemaMismatchError: If the columns of two files do not fit together.
        MemoryBudgetError: If a Parquet, ORC or Arrow file can't be read in half of the limit.

    Memory: half of the limit for Parquet, ORC and Arrow files; 1 MB blocks of text.
    """

    def __init__(
        self,
        names: Sequence[str | os.PathLike[str]],
        *,
        format: FileFormat | None = None,
        types: pa.Schema | None = None,
        hive_partitions: bool = True,
        memory: int | str | MemoryBudget = DEFAULT_MEMORY,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if format is not None and format not in FILE_FORMATS:
            raise InvalidArgumentError(
                f"format is {format!r}: give one of {', '.join(FILE_FORMATS)}"
            )
        unknown = [key for key in options or {} if "." not in key and key not in CSV_OPTIONS]
        if unknown:
            raise InvalidArgumentError(
                f"there is no reader option {unknown[0]!r}: give one of {', '.join(CSV_OPTIONS)}"
            )
        paths = tuple(os.fspath(name) for name in names)
        query = _Query(paths, format, hive_partitions, options or {})
        self._budget = as_budget(memory)
        limit = self._budget.limit_bytes
        # A merge would write columns that the files lack as nulls.
        known = KnownTypes(table=types, fills=False)
        source = find_files(query, {})
        columns = columns_of(source, known, limit)
        self._files = source.files
        self._rows = FileRows(
            columns,
            source.store,
            CsvFormat.of(source.options),
            partition_columns(source, known),
            limit,
        )
        self.paths = tuple(Path(each.path) for each in source.files)
        self.bytes = source.bytes
        self.files_read = 0
        self.rows_read = 0
        self.is_read = False
        self.schema = self._rows.columns

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for file in self._files:
            self.files_read += 1
            for batch in self._rows.read([file], _refuse, self._budget):
                fitted = fit_batch(batch, self.schema)
                self.rows_read += batch.num_rows
                del batch
                yield fitted
                del fitted
        self.is_read = True

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, slots=True)
class _Query:
    """Which files to list."""

    paths: tuple[str, ...]
    format: str | None
    hive_partitions: bool
    options: Mapping[str, Any] = field(repr=False)


def _refuse(bad: BadRecord) -> None:
    raise bad.error(
        "Fix it, or load with mode='merge' and bad_records='quarantine' to set such lines aside"
    )
