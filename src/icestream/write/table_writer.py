"""Streams in, data files out: the whole write side behind one writer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.manifest import DataFile

from icestream.allocator import shorten_decay
from icestream.errors import UnsupportedFeatureError, WriterClosedError
from icestream.machine import cores
from icestream.memory import MemoryBudget
from icestream.write.conform import Conformer
from icestream.write.encode_pool import EncodePool
from icestream.write.new_file import NewFile
from icestream.write.parquet_settings import ParquetSettings
from icestream.write.partition import Partitioner
from icestream.write.partitioned_writer import PartitionedWriter
from icestream.write.position_deletes import PositionDeletes
from icestream.write.schema import SchemaMode, SchemaPlan, plan_schema
from icestream.write.sorted_writer import SortedWriter
from icestream.write.target import WriteTarget
from icestream.write.unpartitioned_writer import UnpartitionedWriter

_MOST_THREADS = 4
_PIECES_PER_BUDGET = 16


@dataclass(frozen=True, slots=True)
class Written:
    """What a write left in storage, not committed yet.

    Attributes:
        files: The data files.
        rows: Rows in them.
        bytes: Their size in storage.
        bytes_spilled: Bytes that went through temporary files.
        deletes: Position delete files.
        loosened: Ids of required fields that turned out to hold nulls (`schema_mode="evolve"`).
    """

    files: tuple[NewFile, ...] = ()
    rows: int = 0
    bytes: int = 0
    bytes_spilled: int = 0
    loosened: frozenset[int] = frozenset()
    deletes: tuple[DataFile, ...] = ()

    @classmethod
    def of(cls, files: Iterable[NewFile]) -> Written:
        """Files that were written elsewhere."""
        listed = tuple(files)
        return cls(listed, sum(file.rows for file in listed), sum(file.bytes for file in listed))

    def __add__(self, other: Written) -> Written:
        return Written(
            self.files + other.files,
            self.rows + other.rows,
            self.bytes + other.bytes,
            self.bytes_spilled + other.bytes_spilled,
            self.loosened | other.loosened,
            self.deletes + other.deletes,
        )


class _Files(Protocol):
    """Rows of the file schema go in, files come out."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> list[NewFile]: ...

    def abort(self) -> None: ...


class TableWriter:
    """Writes streams of rows to data files of a table.

    Args:
        target: The table. Its schema may be replaced by one that the stream makes necessary.
        arrow_schema: The stream's schema. Checked before anything is written.
        schema_mode: What to do where the stream's columns are not the table's.
        budget: Bounds the Arrow bytes held.
        before_write: Called before rows are written, each time.
        keep_order: Whether the files of an unpartitioned table are to hold the rows in the order
            they came, file by file; then one of them is filled at a time.

    Attributes:
        plan: What the stream means for the table's schema.
        target: The table with that schema.
        file_schema: What rows look like in files.
        partitioner: Tells the rows' partitions.

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
        self._files: _Files | None = None
        self._deletes = PositionDeletes(target)
        self._ended = False

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows: of the stream, or of the table itself."""
        if self._ended:
            raise WriterClosedError("this writer has ended: make a new one")
        if batch.num_rows == 0:
            return
        conformer = self._conformer_of(batch)
        most_bytes = max(1, self._budget.limit_bytes // _PIECES_PER_BUDGET)
        for piece in conformer.pieces(batch, max_bytes=most_bytes):
            self._before_write()
            self._opened(conformer.file_schema).write(piece)

    def write_conformed(self, batch: pa.RecordBatch) -> None:
        """Take rows as `conform` gives them."""
        if self._ended:
            raise WriterClosedError("this writer has ended: make a new one")
        if batch.num_rows:
            self._before_write()
            self._opened(batch.schema).write(batch)

    def delete_rows(self, data_file: DataFile, positions: npt.NDArray[np.int64]) -> None:
        """Delete rows of a file by a position delete file, which readers apply.

        Args:
            data_file: The file; all rows of one are given before those of the next.
            positions: Where they are in it, ascending.
        """
        if self._ended:
            raise WriterClosedError("this writer has ended: make a new one")
        self._before_write()
        self._deletes.add(data_file, positions)

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as files hold them."""
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
        return replace(
            Written.of(files),
            deletes=deletes,
            bytes_spilled=getattr(self._files, "spilled_bytes", 0),
            loosened=frozenset().union(*(c.loosened for c in self._conformers.values())),
        )

    def abort(self) -> None:
        """Delete whatever was written. A second call does nothing."""
        if self._ended:
            return
        self._ended = True
        if self._pool is not None:
            self._pool.cancel()
        if self._files is not None:
            self._files.abort()
        self._deletes.abort()
        if self._pool is not None:
            self._pool.close()

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
            self._pool = EncodePool(threads, self._budget)
            self._files = self._open(file_schema, self._pool)
        return self._files

    def _open(self, file_schema: pa.Schema, pool: EncodePool) -> _Files:
        parts = {
            "settings": self._settings,
            "file_schema": file_schema,
            "budget": self._budget,
            "pool": pool,
        }
        if self.target.sort_order.fields:
            return SortedWriter(self.target, partitioner=self.partitioner, **parts)
        if self.target.spec.fields:
            return PartitionedWriter(self.target, partitioner=self.partitioner, **parts)
        return UnpartitionedWriter(self.target, **parts)


def refuse_unwritable(target: WriteTarget) -> None:
    """Refuse tables that PyIceberg can't commit to.

    Raises:
        UnsupportedFeatureError: If the table has format version 3.
    """
    version = target.metadata.format_version
    if version > 2:
        raise UnsupportedFeatureError(
            f"{target.table} has format version {version}: icestream reads it and writes versions "
            "1 and 2, as PyIceberg 0.12 can't commit to it. Write it with another engine, or make "
            "a table with format-version 2"
        )
