"""The rows of files as Arrow batches, in bounded memory: the same in this process and in tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.csv as pacsv

from icestream.errors import MemoryBudgetError, SourceError
from icestream.memory import MemoryBudget, format_bytes
from icestream.pipeline.bad_record import OnBad, refuse
from icestream.pipeline.file_store import FileStore
from icestream.pipeline.source_file import SourceFile
from icestream.pipeline.text_format import CsvFormat, CsvParser, JsonParser
from icestream.pipeline.text_lines import (
    BLOCK_BYTES,
    LINE_COST,
    MOST_LINE_BYTES,
    Block,
    LineReader,
    Parse,
    blocks,
    first_lines,
)
from icestream.redaction import redact
from icestream.write.hive_partition import PartitionColumns
from icestream.write.source_files import fit_batch
from icestream.write.stored_batches import stored_batches

Opened = tuple[pa.Schema, Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class FileRows:
    """Reads files as rows of one schema: plain data, which may travel to executors.

    Attributes:
        schema: The columns that files have; what a file lacks is null.
        store: How files are opened.
        csv: How CSV is written.
        partitions: The columns that their folders hold.
        most_line_bytes: How long a line of text may be.
    """

    schema: pa.Schema
    store: FileStore = field(repr=False)
    csv: CsvFormat = field(default_factory=CsvFormat)
    partitions: PartitionColumns = field(default_factory=PartitionColumns)
    most_line_bytes: int = MOST_LINE_BYTES

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
        """The rows of files, one file after the other.

        Args:
            files: Files, or parts of them.
            on_bad: Gets lines of text that can't be read; by default that is an error.
            budget: What is charged while long lines are parsed.

        Raises:
            SourceError: If a file can't be read.
            MemoryBudgetError: If a line is too long for the limit.

        Memory: a few pages of each column of a Parquet file; a block of 1 MB of text, or four
            times the longest line; a batch of an IPC file; some rows of an ORC file.
        """
        for file in files:
            if not file.bytes:
                continue
            put = self.partitions.put(file.partitions, file.path)
            with said(file):
                for batch in self._file(file, on_bad, budget):
                    yield put(batch)
                    del batch

    def _file(
        self, file: SourceFile, on_bad: OnBad, budget: MemoryBudget | None
    ) -> Iterator[pa.RecordBatch]:
        if file.format == "json":
            yield from self._lines(file, JsonParser(self.schema), on_bad, budget)
        elif file.format == "csv":
            yield from self._csv(file, on_bad, budget)
        else:
            with opened_file(file, self.store) as (_, batches):
                for batch in batches:
                    yield fit_batch(batch, self.schema)
                    del batch

    def _lines(
        self, file: SourceFile, parse: Parse, on_bad: OnBad, budget: MemoryBudget | None
    ) -> LineReader:
        most = self.most_line_bytes
        return LineReader(file, self.store, parse, self.schema, on_bad, most, budget)

    def _csv(
        self, file: SourceFile, on_bad: OnBad, budget: MemoryBudget | None
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
                f"{file.path!r} has a column {unknown[0]!r} that files looked at before do not "
                "have: name it in schema=, or load the file on its own"
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
        """Records that may have line breaks: of a bad one, no line is known.

        Raises:
            MemoryBudgetError: If a record is longer than a quarter of what a line may be: Arrow
                holds two blocks, and a record must fit into one.
        """
        csv = self.csv
        block_bytes = max(self.most_line_bytes // 4, BLOCK_BYTES)
        read = pacsv.ReadOptions(use_threads=False, block_size=block_bytes)
        if csv.columns is not None:
            read.column_names = list(csv.columns)
            read.skip_rows = 1 if csv.header else 0
        types = {each.name: each.type for each in self.schema}
        with self.store.open_stream(file.path) as stream:
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
                raise _too_long(file, block_bytes, self.most_line_bytes) from error


def _too_long(file: SourceFile, block_bytes: int, most_line_bytes: int) -> MemoryBudgetError:
    limit = most_line_bytes * LINE_COST
    needed = max(2 * limit, 2 * block_bytes * 4 * LINE_COST)
    return MemoryBudgetError(
        f"a record of {redact(file.path)!r} has more than {format_bytes(block_bytes)}, too much "
        f"for a memory limit of {format_bytes(limit)} with option multiline: raise memory to "
        f"{format_bytes(needed)} or more, or check whether a quote is not closed",
        needed_bytes=needed,
        limit_bytes=limit,
    )


@contextmanager
def opened_file(file: SourceFile, store: FileStore) -> Iterator[Opened]:
    """A Parquet, ORC or Arrow file, with its schema."""
    with said(file):
        handle = store.open_file(file.path)
        schema, batches, close = stored_batches(file.format, handle)
    try:
        yield schema, batches
    finally:
        close()


@contextmanager
def said(file: SourceFile) -> Iterator[None]:
    """Errors of a file's reader, with its name."""
    try:
        yield
    except pa.ArrowCancelled:
        raise
    except (pa.ArrowException, OSError, UnicodeError) as error:
        text = redact(" ".join(str(error).split()))
        raise SourceError(
            f"{redact(file.path)!r} can't be read: {text}. Mend or leave out the file"
        ) from error
