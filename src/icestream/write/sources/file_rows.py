"""The rows of files as Arrow batches, read the same way in this process and in Spark tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.csv as pacsv

from icestream.catalogs.redaction import redact
from icestream.errors import SourceError
from icestream.memory.budget import (
    DEFAULT_MEMORY,
    MemoryBudget,
    format_bytes,
    over_limit,
    parse_bytes,
)
from icestream.write.sources.bad_record import OnBad, refuse
from icestream.write.sources.file_store import FileStore
from icestream.write.sources.file_stream import fit_batch, read_errors
from icestream.write.sources.hive_partition import PartitionColumns
from icestream.write.sources.source_file import SourceFile
from icestream.write.sources.stored_batches import ReadingShare, StoredFile
from icestream.write.sources.text_format import CsvFormat, CsvParser, JsonParser
from icestream.write.sources.text_lines import (
    BLOCK_BYTES,
    LINE_COST,
    Block,
    LineReader,
    Parse,
    blocks,
    first_lines,
    line_limit,
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
        csv = self.csv
        if csv.multiline:
            yield from self._csv_records(file)
            return
        most = self.most_line_bytes
        head = b"" if csv.columns is not None else first_lines(file, self.store, 1, most)
        names = csv.names(head.partition(b"\n")[0], path=file.path)
        wanted = set(self.schema.names)
        unknown = [name for name in names if name not in wanted]
        if unknown:
            raise SourceError(
                f"{file.path!r} has a column {unknown[0]!r} that the sampled files do not have: "
                "name it in schema=, or load the file on its own"
            )
        parse = CsvParser(csv, names, self.schema)
        reader = self._lines(file, parse, on_bad, budget)
        skips = csv.header and file.start == 0
        for block in blocks(file, self.store, most):
            if skips:
                _, _, text = block.text.partition(b"\n")
                block = Block(text, block.line + 1)
                skips = False
            yield from reader.read(block)
            del block

    def _csv_records(self, file: SourceFile) -> Iterator[pa.RecordBatch]:
        """Read records that may contain line breaks; the line of a bad record is not known.

        Raises:
            MemoryBudgetError: If a record is longer than a quarter of the maximum line length:
                Arrow holds two blocks, and a record must fit into one.
        """
        csv = self.csv
        block_bytes = max(self.most_line_bytes // 4, BLOCK_BYTES)
        read = pacsv.ReadOptions(use_threads=False, block_size=block_bytes)
        if csv.columns is not None:
            read.column_names = list(csv.columns)
            read.skip_rows = 1 if csv.header else 0
        types = {each.name: each.type for each in self.schema}
        with file.open_stream(self.store) as stream:
            try:
                reader = pacsv.open_csv(
                    stream,
                    read_options=read,
                    parse_options=csv.parse_options(),
                    convert_options=csv.convert_options(types),
                )
                with reader:
                    for batch in reader:
                        yield fit_batch(batch, self.schema)
                        del batch
            except pa.ArrowInvalid as error:
                if "straddl" not in str(error):
                    raise
                limit = self.most_line_bytes * LINE_COST
                raise over_limit(
                    f"with option multiline, a record of {redact(file.path)!r} has more than "
                    f"{format_bytes(block_bytes)}",
                    needed_bytes=max(2 * limit, 2 * block_bytes * 4 * LINE_COST),
                    limit_bytes=limit,
                    otherwise="check whether a quote is not closed",
                ) from error


def stored_file(
    file: SourceFile,
    store: FileStore,
    share: ReadingShare,
    columns: frozenset[str] | None = None,
) -> StoredFile:
    """A Parquet, ORC or Arrow file, or a part of a Parquet file."""
    opens = partial(file.open, store)
    return StoredFile(file.format, file.path, opens, share, file.start, file.end, columns)
