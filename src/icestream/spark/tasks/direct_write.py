"""Tasks that read their share of the sources and write it, so that no row passes through the JVM.

In a merge they do not write the rows. They add keys, and give the rows to Spark for the join.

A share is a list of files, parts of files, and splits of tables. Spark sends each task its own
share (`shares.py`). The reader and the writer of a task have one memory budget.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

import pyarrow as pa

from icestream.memory.budget import MemoryBudget
from icestream.operations.budget_shares import Budgets
from icestream.read.order import TaskOrder
from icestream.read.scan import read_splits
from icestream.read.split import Split
from icestream.spark.arrow.conversion import SparkBatches
from icestream.spark.tasks.shares import shares_in
from icestream.spark.tasks.task_notes import note_base, note_error
from icestream.spark.tasks.task_write import TaskWrite, answer
from icestream.write.rules.column_rules import ColumnRules
from icestream.write.rules.duckdb_query import DuckdbQuery
from icestream.write.sources.arrow_source import ArrowSource
from icestream.write.sources.bad_record import BadRecord, refuse
from icestream.write.sources.batch_columns import fit_batch
from icestream.write.sources.file_rows import FileRows
from icestream.write.sources.source_file import SourceFile

RowsTask = Callable[[Iterable[pa.RecordBatch], MemoryBudget | None], Iterator[pa.RecordBatch]]
"""In a task: what to do with its rows, given the budget that reading them is charged to, if any."""


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A piece of a source: a file, a part of a file, or a split of a table.

    Attributes:
        source: The number of the source.
        piece: What to read.
    """

    source: int
    piece: SourceFile | Split

    @property
    def bytes(self) -> int:
        """The size in storage."""
        return self.piece.bytes


def encode_share(parts: Sequence[SourcePart]) -> bytes:
    """A share as bytes. Compressed, because the pieces of a source are very similar."""
    return zlib.compress(pickle.dumps(list(parts)), 1)


def decode_share(share: bytes) -> list[SourcePart]:
    """The parts of a share."""
    parts: list[SourcePart] = pickle.loads(zlib.decompress(share))
    return parts


@dataclass(frozen=True, slots=True)
class SourceReader:
    """Reads parts of all sources as rows with the same columns: plain data.

    Attributes:
        columns: The columns of all sources together. A column that a source lacks is null.
        files: The readers of file sources, by the number of the source.
        passes_bad: Whether to skip bad records.
        for_spark: Whether to convert types as Spark does: UUIDs to text, fixed bytes to binary.
        rules: The rows and columns that are written.
        query: SQL over these rows and columns.
    """

    columns: pa.Schema
    files: Mapping[int, FileRows] = field(default_factory=dict)
    passes_bad: bool = False
    for_spark: bool = False
    rules: ColumnRules = field(default_factory=ColumnRules)
    query: DuckdbQuery | None = None

    @property
    def output(self) -> pa.Schema:
        """The columns after the rules and the query."""
        columns = self.rules.schema(self.columns)
        return columns if self.query is None else self.query.schema(columns)

    def own_bytes(self, memory_bytes: int) -> int:
        """The part of a limit that is not for DuckDB."""
        return memory_bytes - (0 if self.query is None else self.query.memory_bytes)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches that are written."""
        return SparkBatches(self.output).schema if self.for_spark else self.output

    def read(
        self,
        parts: Iterable[SourcePart],
        budget: MemoryBudget,
        of_tables: MemoryBudget | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Read parts, one after the other, with all rows and columns.

        Args:
            parts: The parts.
            budget: The budget that reading is charged to.
            of_tables: The budget for tables, if it differs.

        Memory: half of the budget for files; for tables, all of theirs.
        """
        for source, group in groupby(parts, key=lambda part: part.source):
            own = of_tables if of_tables is not None and source not in self.files else budget
            for batch in self._read(source, [part.piece for part in group], own):
                fitted = fit_batch(batch, self.columns)
                del batch
                yield fitted
                del fitted

    def shape(self, batches: Iterator[pa.RecordBatch]) -> ArrowSource:
        """The rows and columns that are written, from those that were read.

        Memory: in addition to a batch, the batch that it becomes; and the limit of the query.
        """
        source = ArrowSource(self.columns, batches, batches.close)  # type: ignore[attr-defined]
        source = self.rules.apply(source)
        if self.query is not None:
            source = self.query.over(source)
        if not self.for_spark:
            return source
        assert source.schema is not None
        convert = SparkBatches(source.schema)
        return ArrowSource(convert.schema, map(convert, source), source.close)

    def _read(
        self, source: int, pieces: list[SourceFile | Split], budget: MemoryBudget
    ) -> Iterator[pa.RecordBatch]:
        rows = self.files.get(source)
        if rows is not None:
            files = (piece for piece in pieces if isinstance(piece, SourceFile))
            yield from rows.read(files, _pass_over if self.passes_bad else refuse, budget)
            return
        splits = [piece for piece in pieces if isinstance(piece, Split)]
        with read_splits(splits, memory=budget, order=TaskOrder()) as batches:
            yield from batches


@dataclass(frozen=True, slots=True)
class DirectWrite:
    """The work of a task that reads and writes: plain data, the same for all tasks.

    Attributes:
        write: Writes rows.
        reader: Reads the parts of a share.
        on_read: Called with the number of a share and its row count after it was read.

    Memory: the Arrow bytes of reader and writer together stay within the limit of `write`. With a
        query, half of the limit is for DuckDB.
    """

    write: TaskWrite
    reader: SourceReader
    on_read: Callable[[int, int], None] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: yields one row with the result."""
        budget = MemoryBudget(self.reader.own_bytes(self.write.memory_bytes))
        with note_error():  # DuckDB reads the first rows here
            source = self.reader.shape(self._rows(batches, budget))
        yield answer(self.write.write(source, budget))

    def _rows(
        self, batches: Iterable[pa.RecordBatch], budget: MemoryBudget
    ) -> Iterator[pa.RecordBatch]:
        for number, share in shares_in(batches):
            count = 0
            for rows in self.reader.read(decode_share(share), budget):
                count += rows.num_rows
                yield rows
                del rows
            if self.on_read is not None:
                self.on_read(number, count)


@dataclass(frozen=True, slots=True)
class DirectMap:
    """The work of a task that reads its share and gives the rows to Spark: plain data.

    Attributes:
        task: What to do with the rows.
        reader: Reads the parts of a share.
        schema: The columns of the rows, in types of Spark.
        memory_bytes: The memory limit of the task.
        on_read: Called with the number of a share and its row count after it was read.

    Memory: reading takes half of the limit. With a query, half of the limit is for DuckDB, and
        reading takes half of the rest.
    """

    task: RowsTask
    reader: SourceReader
    schema: pa.Schema
    memory_bytes: int
    on_read: Callable[[int, int], None] | None = None

    def __call__(self, number: int, share: bytes) -> Iterator[pa.RecordBatch]:
        """For `map_shares`."""
        note_base()
        budget = MemoryBudget(self.reader.own_bytes(self.memory_bytes))
        reader = replace(self.reader, for_spark=True)
        with note_error():  # DuckDB reads the first rows here
            source = reader.shape(self._rows(number, share, budget))
        with source:
            yield from self.task((fit_batch(batch, self.schema) for batch in source), budget)

    def _rows(self, number: int, share: bytes, budget: MemoryBudget) -> Iterator[pa.RecordBatch]:
        count = 0
        of_tables = Budgets.of(budget, shares=2).scan
        for rows in self.reader.read(decode_share(share), budget, of_tables):
            count += rows.num_rows
            yield rows
            del rows
        if self.on_read is not None:
            self.on_read(number, count)


def _pass_over(bad: BadRecord) -> None:
    pass
