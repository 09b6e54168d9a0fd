"""The writer of a table: streams of rows in, data files out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.manifest import DataFile

from icestream.errors import UnsupportedFeatureError, WriterClosedError
from icestream.memory.allocator import shorten_decay
from icestream.memory.budget import MemoryBudget
from icestream.memory.machine import cores
from icestream.write.new_file import NewFile
from icestream.write.parquet.data_paths import DataPaths
from icestream.write.parquet.encode_pool import EncodePool
from icestream.write.parquet.parquet_settings import ParquetSettings
from icestream.write.partition.partitioner import Partitioner
from icestream.write.position_deletes import PositionDeletes
from icestream.write.schema.conform import Conformer
from icestream.write.schema.schema_plan import SchemaMode, SchemaPlan, plan_schema
from icestream.write.target import WriteTarget
from icestream.write.writers.partitioned_writer import PartitionedWriter
from icestream.write.writers.unpartitioned_writer import UnpartitionedWriter
from icestream.write.writers.write_context import WriteContext

_MOST_THREADS = 4
_PIECES_PER_BUDGET = 16


@dataclass(frozen=True, slots=True)
class Written:
    """The files of a write, not committed yet.

    Attributes:
        files: The data files.
        rows: Number of rows in them.
        bytes: Their total size in storage.
        bytes_spilled: Bytes written to temporary files.
        deletes: Position delete files.
        loosened: Ids of required fields that hold nulls (only with `schema_mode="evolve"`).
    """

    files: tuple[NewFile, ...] = ()
    rows: int = 0
    bytes: int = 0
    bytes_spilled: int = 0
    loosened: frozenset[int] = frozenset()
    deletes: tuple[DataFile, ...] = ()

    @classmethod
    def of(cls, files: Iterable[NewFile]) -> Written:
        """The sum of files that were written elsewhere."""
        listed = tuple(files)
        return cls(listed, sum(file.rows for file in listed), sum(file.bytes for file in listed))

    @classmethod
    def joined(cls, parts: Iterable[Written]) -> Written:
        """The results of several writes as one, in time linear in the number of files."""
        listed = tuple(parts)
        return cls(
            tuple(file for part in listed for file in part.files),
            sum(part.rows for part in listed),
            sum(part.bytes for part in listed),
            sum(part.bytes_spilled for part in listed),
            frozenset().union(*(part.loosened for part in listed)),
            tuple(file for part in listed for file in part.deletes),
        )


class _Files(Protocol):
    """Rows of the file schema go in, files come out."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> list[NewFile]: ...

    def abort(self) -> None: ...


class _NoFiles:
    """Counts rows instead of writing them."""

    def __init__(self) -> None:
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows

    def close(self) -> list[NewFile]:
        return []

    def abort(self) -> None:
        return


class _NoDeletes:
    """Takes positions, and writes no delete files."""

    def add(self, data_file: DataFile, positions: npt.NDArray[np.int64]) -> None:
        return

    def close(self) -> list[DataFile]:
        return []

    def abort(self) -> None:
        return


class TableWriter:
    """Writes streams of rows to data files of a table.

    Args:
        target: The table. Its schema is replaced if the stream evolves it.
        arrow_schema: The stream's schema, checked before anything is written.
        schema_mode: What to do if the stream's columns differ from the table's.
        budget: Limits the Arrow bytes held.
        before_write: Called each time before rows are written.
        keep_order: Whether the files of an unpartitioned table keep the order of the rows, so that
            one file is filled at a time.
        dry_run: Whether to count rows, and write no file.

    Attributes:
        plan: The change of the table's schema.
        target: The table with the new schema.
        file_schema: The schema of rows in files.
        partitioner: Finds the partition of each row.

    Raises:
        SchemaMismatchError: If the stream does not fit the table.
        UnsupportedFeatureError: If the table can't be written.

    Memory: Arrow bytes held stay within the budget, whatever the stream's length and batch sizes.
    """

    def __init__(
        self,
        target: WriteTarget,
        *,
        arrow_schema: pa.Schema,
        schema_mode: SchemaMode,
        budget: MemoryBudget,
        before_write: Callable[[], None] = lambda: None,
        keep_order: bool = False,
        dry_run: bool = False,
    ) -> None:
        refuse_unwritable(target)
        self.plan: SchemaPlan = plan_schema(target, arrow_schema, mode=schema_mode)
        self.target = target.with_schema(self.plan.schema)
        self._mode = schema_mode
        self._budget = budget
        self._before_write = before_write
        self._keep_order = keep_order
        conformer = self._conformer(arrow_schema)
        self._conformers = {arrow_schema: conformer}
        self.file_schema = conformer.file_schema
        self._settings = ParquetSettings.of(target.properties, self.plan.schema)
        self.partitioner = Partitioner(self.plan.schema, target.spec)
        self._pool: EncodePool | None = None
        self._counted = _NoFiles() if dry_run else None
        self._files: _Files | None = self._counted
        self._deletes = _NoDeletes() if dry_run else PositionDeletes(target)
        self._ended = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows of the stream, or of the table itself."""
        self._assert_open()
        if batch.num_rows == 0:
            return
        conformer = self._conformer_of(batch)
        most_bytes = max(1, self._budget.limit_bytes // _PIECES_PER_BUDGET)
        for piece in conformer.pieces(batch, max_bytes=most_bytes):
            self._before_write()
            self._opened(conformer.file_schema).write(piece)

    def write_conformed(self, batch: pa.RecordBatch) -> None:
        """Write rows from `conform`."""
        self._assert_open()
        if batch.num_rows:
            self._before_write()
            self._opened(batch.schema).write(batch)

    def delete_rows(self, data_file: DataFile, positions: npt.NDArray[np.int64]) -> None:
        """Delete rows of a file with a position delete file.

        Args:
            data_file: The file. Delete all rows of one file before those of the next.
            positions: The positions of the rows in it, ascending.
        """
        self._assert_open()
        self._before_write()
        self._deletes.add(data_file, positions)

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to the schema of files."""
        return self._conformer_of(batch).convert(batch)

    def close(self) -> Written:
        """Finish all files."""
        if self._ended:
            raise WriterClosedError("this writer has ended already")
        try:
            files = tuple(self._files.close()) if self._files is not None else ()
            if self._pool is not None:
                self._pool.close()
            deletes = tuple(self._deletes.close())
        except BaseException:
            self.abort()
            raise
        self._ended = True
        written = Written.of(files)
        if self._counted is not None:
            written = replace(written, rows=self._counted.rows)
        return replace(
            written,
            deletes=deletes,
            bytes_spilled=getattr(self._files, "spilled_bytes", 0),
            loosened=frozenset().union(*(c.loosened for c in self._conformers.values())),
        )

    def abort(self) -> None:
        """Delete all files. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        with ExitStack() as last:  # each step runs, even if Ctrl-C interrupts the one before
            if self._pool is not None:
                last.callback(self._pool.close)
            last.callback(self._deletes.abort)
            if self._files is not None:
                last.callback(self._files.abort)
            if self._pool is not None:
                last.callback(self._pool.cancel)

    def _assert_open(self) -> None:
        if self._ended:
            raise WriterClosedError("this writer has ended: create a new one")

    def _conformer(self, arrow_schema: pa.Schema) -> Conformer:
        return Conformer(arrow_schema, self.plan.schema, mode=self._mode, table=self.target.table)

    def _conformer_of(self, batch: pa.RecordBatch) -> Conformer:
        conformer = self._conformers.get(batch.schema)
        if conformer is None:
            conformer = self._conformers[batch.schema] = self._conformer(batch.schema)
        return conformer

    def _opened(self, file_schema: pa.Schema) -> _Files:
        if self._files is None:
            shorten_decay()
            one_by_one = self._keep_order and not self.target.spec.fields
            threads = 1 if one_by_one else min(cores(), _MOST_THREADS)
            self._pool = EncodePool(threads)
            self._files = self._open(file_schema, self._pool)
        return self._files

    def _open(self, file_schema: pa.Schema, pool: EncodePool) -> _Files:
        target = self.target
        paths = DataPaths(target)
        context = WriteContext(target, self._settings, file_schema, self._budget, pool, paths)
        if target.sort_order.fields or target.spec.fields:
            return PartitionedWriter(context, self.partitioner)
        return UnpartitionedWriter(context)


def refuse_unwritable(target: WriteTarget) -> None:
    """Refuse tables that PyIceberg can't commit to.

    Raises:
        UnsupportedFeatureError: If the table has format version 3.
    """
    version = target.metadata.format_version
    if version > 2:
        raise UnsupportedFeatureError(
            f"{target.table} has format version {version}: icestream reads it, but writes only "
            "versions 1 and 2, as PyIceberg 0.12 can't commit to it. Write it with another engine, "
            "or create a table with format-version 2"
        )
