"""The rows of files as Arrow batches, read the same way in this process and in Spark tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from icestream.errors import SourceError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, parse_bytes
from icestream.write.sources.bad_record import OnBad, refuse
from icestream.write.sources.batch_columns import fit_batch, read_errors
from icestream.write.sources.file_store import FileStore
from icestream.write.sources.hive_partition import PartitionColumns
from icestream.write.sources.source_file import SourceFile
from icestream.write.sources.stored_batches import ReadingShare, StoredFile
from icestream.write.sources.text.text_content import HEAD_BYTES, fitted_csv
from icestream.write.sources.text.text_format import CsvFormat, CsvParser, JsonParser
from icestream.write.sources.text.text_lines import (
    Block,
    LineReader,
    Parse,
    blocks,
    first_lines,
    line_limit,
    record_blocks,
    records,
    whole_file,
)


@dataclass(frozen=True, slots=True)
class FileRows:
    """Reads files as rows of one schema: plain data, so executors can use it.

    Attributes:
        schema: The columns of the files; a column that a file lacks is null.
        store: Opens the files.
        csv: The syntax of CSV files.
        partitions: The columns in the names of their folders.
        memory_bytes: The memory limit of the load, or of each task.
        needed: The columns that are read from Parquet files; None for all. Rows may lack others.
    """

    schema: pa.Schema
    store: FileStore = field(repr=False)
    csv: CsvFormat = field(default_factory=CsvFormat)
    partitions: PartitionColumns = field(default_factory=PartitionColumns)
    memory_bytes: int = parse_bytes(DEFAULT_MEMORY)
    needed: frozenset[str] | None = None

    @property
    def most_line_bytes(self) -> int:
        """Maximum length of a line of text."""
        return line_limit(self.memory_bytes)

    @property
    def columns(self) -> pa.Schema:
        """All columns of the rows."""
        return self.partitions.over(self.schema)

    def read(
        self,
        files: Iterable[SourceFile],
        on_bad: OnBad = refuse,
        budget: MemoryBudget | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows of files, one file after the other.

        Args:
            files: Files, or parts of them.
            on_bad: Called with each line of text that can't be read; raises an error by default.
            budget: The budget that reading is charged to; by default a new one with the limit.

        Raises:
            SourceError: If a file can't be read, or was changed since it was listed.
            MemoryBudgetError: If a line is too long for the limit, or if reading a Parquet, ORC or
                Arrow file takes more than half of it.

        Memory: half of the limit for a Parquet, ORC or Arrow file; for text, a block of 1 MB or
            four times the longest line.
        """
        budget = budget if budget is not None else MemoryBudget(self.memory_bytes)
        for file in files:
            if not file.bytes:
                continue
            put = self.partitions.put(file.partitions, file.path)
            with read_errors(file.path):
                for batch in self._file(file, on_bad, budget):
                    yield put(batch)
                    del batch
                file.check_unchanged()

    def _file(
        self, file: SourceFile, on_bad: OnBad, budget: MemoryBudget
    ) -> Iterator[pa.RecordBatch]:
        if file.format == "json":
            yield from self._lines(file, JsonParser(self.schema), on_bad, budget)
        elif file.format == "csv":
            yield from self._csv(file, on_bad, budget)
        else:
            stored = stored_file(file, self.store, ReadingShare(budget), self.needed)
            schema = self._needed_schema()
            with closing(stored.batches()) as batches:
                for batch in batches:
                    yield fit_batch(batch, schema)
                    del batch

    def _needed_schema(self) -> pa.Schema:
        if self.needed is None:
            return self.schema
        wanted = [field for field in self.schema if field.name in self.needed]
        return pa.schema(wanted or [self.schema.field(0)])

    def _lines(
        self, file: SourceFile, parse: Parse, on_bad: OnBad, budget: MemoryBudget
    ) -> LineReader:
        most = self.most_line_bytes
        return LineReader(file, self.store, parse, self.schema, on_bad, most, budget)

    def _csv(
        self, file: SourceFile, on_bad: OnBad, budget: MemoryBudget
    ) -> Iterator[pa.RecordBatch]:
        csv, most = self.csv, self.most_line_bytes
        head = first_lines(file, self.store, HEAD_BYTES, most, csv.encoding)
        csv = fitted_csv(csv, head, file.path)
        if csv.multiline and file.start:
            return  # The first part reads all records.
        names = csv.names(head.partition(b"\n")[0], path=file.path)
        wanted = set(self.schema.names)
        unknown = [name for name in names if name not in wanted]
        if unknown:
            raise SourceError(
                f"{file.path!r} has a column {unknown[0]!r} that the sampled files do not have: "
                "name it in schema=, or load the file on its own"
            )
        reader = self._lines(file, CsvParser(csv, names, self.schema), on_bad, budget)
        if csv.multiline:
            file = whole_file(file)
            reader.split = partial(records, csv=csv)
        skips = csv.header and file.start == 0
        for block in self._csv_blocks(file, csv):
            if skips:
                _, _, text = block.text.partition(b"\n")
                block = Block(text, block.line + 1)
                skips = False
            yield from reader.read(block)
            del block

    def _csv_blocks(self, file: SourceFile, csv: CsvFormat) -> Iterator[Block]:
        most = self.most_line_bytes
        lines = blocks(file, self.store, most, csv.encoding)
        return record_blocks(lines, csv, file.path, most) if csv.multiline else lines


def stored_file(
    file: SourceFile,
    store: FileStore,
    share: ReadingShare,
    columns: frozenset[str] | None = None,
) -> StoredFile:
    """A Parquet, ORC or Arrow file, or a part of a Parquet file."""
    opens = partial(file.open, store)
    return StoredFile(file.format, file.path, opens, share, file.start, file.end, columns)
