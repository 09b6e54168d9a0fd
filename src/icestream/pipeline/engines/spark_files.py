"""Reads files as a DataFrame, with Spark's reader if it returns the same rows as icestream's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import ceil
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import pyarrow as pa

from icestream.memory.budget import MemoryBudget
from icestream.pipeline.inputs.load_input import LoadInput
from icestream.pipeline.inputs.quarantine import QuarantineRows
from icestream.spark.arrow.conversion import SparkBatches
from icestream.spark.arrow.types import spark_schema
from icestream.spark.setup.settings import cores_of
from icestream.spark.tasks.direct_write import SourcePart, decode_share, encode_share
from icestream.spark.tasks.packing import MOST_BYTES_PER_TASK, pack, wanted_tasks
from icestream.spark.tasks.planned_frame import type_bytes
from icestream.spark.tasks.shares import shares_frame, shares_in
from icestream.spark.tasks.task_notes import note_error
from icestream.write.sources.bad_record import QUARANTINE_SCHEMA, BadRecord, refuse
from icestream.write.sources.batch_columns import read_errors
from icestream.write.sources.file_columns import plain_type
from icestream.write.sources.file_rows import FileRows, stored_file
from icestream.write.sources.source_file import SourceFile, cut_files
from icestream.write.sources.stored_batches import ReadingShare
from icestream.write.sources.text.text_format import CsvFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SMALLEST_PART_BYTES = 8 << 20
_THREADS = 8
_ROW_BYTES = 8
_SHARE_ROW_BYTES = _ROW_BYTES + 8 + 100  # a number, and binary
# Other characters may be special in Hadoop's paths. icestream reads such files itself.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=+,@~ -]+")


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Reads the rows of a share of the files, in a task.

    Attributes:
        rows: The reader.
        passes_bad: Whether to skip bad records.
        on_read: Called with the number of a share and its row count after it was read.
    """

    rows: FileRows
    passes_bad: bool
    on_read: Callable[[int, int], None] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        convert = SparkBatches(self.rows.columns)
        on_bad = _pass_over if self.passes_bad else refuse
        with note_error():
            for number, share in shares_in(batches):
                count = 0
                for rows in self.rows.read(_files_in(share), on_bad):
                    count += rows.num_rows
                    yield convert(rows)
                    del rows
                if self.on_read is not None:
                    self.on_read(number, count)


@dataclass(frozen=True, slots=True)
class ReadBad:
    """Reads the bad records of a share of the files, in a task.

    Attributes:
        rows: The reader.
        bad: Converts bad records to rows.
    """

    rows: FileRows
    bad: QuarantineRows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        with note_error():
            for _, share in shares_in(batches):
                yield from self.bad.of_files(self.rows, _files_in(share))


@dataclass(slots=True)
class FilesFrame:
    """The DataFrame of some files.

    Attributes:
        frame: The DataFrame.
        rows: Number of rows, if the footers record it; else None.
    """

    frame: DataFrame
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class FileFrames:
    """Creates DataFrames from files.

    Attributes:
        spark: The session.
        table: The table's name, for messages.
        passes_bad: Whether to skip bad records.
    """

    spark: SparkSession = field(repr=False)
    table: str
    passes_bad: bool

    def frame(
        self, each: LoadInput, on_read: Callable[[int, int], None] | None = None
    ) -> FilesFrame:
        """The rows of a source.

        Args:
            each: The source, with known columns.
            on_read: Called in a task with the number and the row count of each pack.
        """
        assert each.files is not None
        assert each.columns is not None
        schema = spark_schema(each.columns, table=self.table)
        rows = _native_rows(each)
        if rows is not None:
            paths = [file.path for file in each.files.files]
            return FilesFrame(self.spark.read.schema(schema).parquet(*paths), rows)
        read = ReadFiles(each.rows, self.passes_bad, on_read)
        return FilesFrame(self._shares(each, schema).mapInArrow(read, schema))

    def bad(self, each: LoadInput, rows: QuarantineRows) -> DataFrame:
        """The bad records of a source."""
        schema = spark_schema(QUARANTINE_SCHEMA, table=self.table)
        return self._shares(each, schema).mapInArrow(ReadBad(each.rows, rows), schema)

    def _shares(self, each: LoadInput, schema: StructType) -> DataFrame:
        """A frame with one task for each share of the files.

        Spark must not take the files for small, because it would broadcast them in a join. It
        scales the size of this frame by the assumed sizes of rows before and after `mapInArrow`.
        """
        assert each.files is not None
        tasks = wanted_tasks(cores_of(self.spark))
        fair = max(_SMALLEST_PART_BYTES, each.files.bytes // tasks)
        cuts_csv = CsvFormat.of(each.files.options).can_be_cut
        parts = cut_files(
            each.files.files, target_bytes=min(fair, MOST_BYTES_PER_TASK), cuts_csv=cuts_csv
        )
        shares = [
            encode_share([SourcePart(0, part) for part in run]) for run in pack(parts, tasks=tasks)
        ]
        scale = _SHARE_ROW_BYTES / (_ROW_BYTES + type_bytes(schema))
        return shares_frame(self.spark, shares, assumed_bytes=ceil(each.files.bytes * scale))


def _files_in(share: bytes) -> list[SourceFile]:
    pieces = (part.piece for part in decode_share(share))
    return [piece for piece in pieces if isinstance(piece, SourceFile)]


def _native_rows(each: LoadInput) -> int | None:
    """The number of rows, if Spark's Parquet reader returns the same rows as icestream; else None.

    Spark's reader needs types that Spark supports, and the same types in all files. It skips files
    whose names begin with `_` or `.`, and does not turn folder names into columns.
    """
    assert each.files is not None
    assert each.columns is not None
    if each.partitions.schema.names:
        return None
    for file in each.files.files:
        if file.format != "parquet" or not _PLAIN_PATH.fullmatch(file.path):
            return None
        if PurePosixPath(file.path).name.startswith(("_", ".")):
            return None
    wanted = {column.name: column.type for column in each.columns}
    store, share = each.files.store, ReadingShare(MemoryBudget(each.memory_bytes))

    def rows_of(file: SourceFile) -> int | None:
        with read_errors(file.path):
            stored = stored_file(file, store, share).parquet_columns()
        is_same = all(
            _is_native(column.type) and plain_type(column.type) == wanted.get(column.name)
            for column in stored.columns
        )
        return stored.rows if is_same else None

    total = 0
    with ThreadPoolExecutor(_THREADS) as pool:
        for rows in pool.map(rows_of, each.files.files):
            if rows is None:
                pool.shutdown(wait=False, cancel_futures=True)
                return None
            total += rows
    return total


def _is_native(kind: pa.DataType) -> bool:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return False
    if types.is_struct(kind):
        return all(_is_native(each.type) for each in kind)
    if types.is_map(kind):
        return _is_native(kind.key_type) and _is_native(kind.item_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_dictionary(kind):
        return _is_native(kind.value_type)
    if types.is_timestamp(kind):
        return kind.unit in ("us", "ms")
    same = kind == plain_type(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    return same and not types.is_time(kind) and not types.is_null(kind)


def _pass_over(bad: BadRecord) -> None:
    pass
