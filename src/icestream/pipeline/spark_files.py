"""Files as a DataFrame: by Spark's own reader where that gives the same rows, else by ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from icestream.pipeline.bad_record import QUARANTINE_SCHEMA, BadRecord, refuse
from icestream.pipeline.file_columns import plain_type
from icestream.pipeline.file_rows import FileRows, said
from icestream.pipeline.load_input import LoadInput
from icestream.pipeline.quarantine import QuarantineRows
from icestream.pipeline.source_file import SourceFile, cut_files
from icestream.pipeline.text_format import CsvFormat
from icestream.spark.conversion import SparkBatches
from icestream.spark.cores import cores_of
from icestream.spark.packing import MOST_BYTES_PER_TASK, pack, wanted_tasks
from icestream.spark.task_failure import note_error
from icestream.spark.types import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SMALLEST_PART_BYTES = 8 << 20
_THREADS = 8
# Hadoop's paths have a syntax of their own: a file with other characters is read by icestream.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./=+,@~ -]+")


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """In a task: the rows of a pack of files.

    Attributes:
        rows: The reader.
        packs: All packs; a row of the frame has the number of one.
        passes_bad: Whether bad records are passed over.
        on_read: Called with a pack's number and its rows, once it is read.
    """

    rows: FileRows
    packs: tuple[tuple[SourceFile, ...], ...]
    passes_bad: bool
    on_read: Callable[[int, int], None] | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        convert = SparkBatches(self.rows.columns)
        on_bad = _pass_over if self.passes_bad else refuse
        with note_error():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    count = 0
                    for rows in self.rows.read(self.packs[number], on_bad):
                        count += rows.num_rows
                        yield convert(rows)
                        del rows
                    if self.on_read is not None:
                        self.on_read(number, count)


@dataclass(frozen=True, slots=True)
class ReadBad:
    """In a task: the bad records of a pack of files.

    Attributes:
        rows: The reader.
        packs: All packs.
        made: Makes rows of them.
    """

    rows: FileRows
    packs: tuple[tuple[SourceFile, ...], ...]
    made: QuarantineRows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`."""
        with note_error():
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from self.made.of_files(self.rows, self.packs[number])


@dataclass(slots=True)
class FilesFrame:
    """A frame of files.

    Attributes:
        frame: The frame.
        rows: How many rows it has, where footers tell.
    """

    frame: DataFrame
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class FileFrames:
    """Makes frames of files.

    Attributes:
        spark: The session.
        table: The table's name, for messages.
        passes_bad: Whether bad records are passed over.
    """

    spark: SparkSession = field(repr=False)
    table: str
    passes_bad: bool

    def frame(
        self, each: LoadInput, on_read: Callable[[int, int], None] | None = None
    ) -> FilesFrame:
        """The rows of a source.

        Args:
            each: The source, with its columns decided.
            on_read: Called in a task with the number and the rows of a pack that it has read.
        """
        assert each.files is not None
        assert each.columns is not None
        schema = spark_schema(each.columns, table=self.table)
        rows = _native_rows(each)
        if rows is not None:
            paths = [file.path for file in each.files.files]
            return FilesFrame(self.spark.read.schema(schema).parquet(*paths), rows)
        packs = self._packs(each)
        read = ReadFiles(each.rows, packs, self.passes_bad, on_read)
        return FilesFrame(self._numbers(packs).mapInArrow(read, schema))

    def bad(self, each: LoadInput, made: QuarantineRows) -> DataFrame:
        """The bad records of a source."""
        packs = self._packs(each)
        schema = spark_schema(QUARANTINE_SCHEMA, table=self.table)
        return self._numbers(packs).mapInArrow(ReadBad(each.rows, packs, made), schema)

    def _packs(self, each: LoadInput) -> tuple[tuple[SourceFile, ...], ...]:
        assert each.files is not None
        tasks = wanted_tasks(cores_of(self.spark))
        fair = max(_SMALLEST_PART_BYTES, each.files.bytes // tasks)
        cuts_csv = not CsvFormat.of(each.files.options).multiline
        parts: Any = cut_files(
            each.files.files, target_bytes=min(fair, MOST_BYTES_PER_TASK), cuts_csv=cuts_csv
        )
        return tuple(tuple(run) for run in pack(parts, tasks=tasks))  # type: ignore[arg-type]

    def _numbers(self, packs: tuple[tuple[SourceFile, ...], ...]) -> DataFrame:
        return self.spark.range(0, len(packs), 1, max(len(packs), 1))


def _native_rows(each: LoadInput) -> int | None:
    """How many rows there are, if Spark's own reader of Parquet gives the same; None if not.

    It takes a file's columns as they are: types that Spark has, of the same type in all files, on
    a disk that executors see. It passes over files whose names begin with `_` or `.`, and makes no
    columns of folders above the files that it is given.
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

    def rows_of(file: SourceFile) -> int | None:
        with said(file):
            metadata = pq.read_metadata(file.path)
        stored = metadata.schema.to_arrow_schema()
        is_same = all(
            _is_native(column.type) and plain_type(column.type) == wanted.get(column.name)
            for column in stored
        )
        return metadata.num_rows if is_same else None

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
    if types.is_list(kind) or types.is_large_list(kind):
        return _is_native(kind.value_type)
    if types.is_dictionary(kind):
        return _is_native(kind.value_type)
    if types.is_timestamp(kind):
        return kind.unit in ("us", "ms")
    same = kind == plain_type(kind) or types.is_large_string(kind) or types.is_large_binary(kind)
    return same and not types.is_time(kind) and not types.is_null(kind)


def _pass_over(bad: BadRecord) -> None:
    pass
