"""A task of an update: it reads the rows of its files that match a filter, with their places."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import FileScanTask

from icestream.memory.budget import Lease, MemoryBudget
from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.merge_work import FILE_FIELD, FILE_POSITION, PLACE_FIELDS
from icestream.operations.row_changes import filter_columns
from icestream.read.deletes.position_set import PositionSet
from icestream.read.project.row_filter import compile_filter
from icestream.spark.arrow.conversion import SparkBatches
from icestream.spark.tasks.file_shares import FileShare
from icestream.spark.tasks.task_notes import note_base, note_error
from icestream.write.target import WriteTarget

_Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """In a task: the rows of its files that match, as `MergeWork.apply` takes them.

    A row at `FILE_POSITION` with the packed task of a file comes before the rows of that file.

    Attributes:
        target: The table when the update began.
        branch: The branch.
        row_filter: The filter, which is false where it is null.
        columns: The columns to read.
        memory_bytes: The memory limit of this part of the task.
    """

    target: WriteTarget
    branch: str
    row_filter: BooleanExpression
    columns: tuple[str, ...]
    memory_bytes: int

    def __call__(self, number: int, encoded: bytes) -> Iterator[pa.RecordBatch]:
        """For `map_shares`."""
        note_base()
        with note_error():
            share = FileShare.of(encoded)
            live = LiveFiles(self.target, self.branch, MemoryBudget(self.memory_bytes))
            for n, (task, record) in enumerate(zip(share.files, share.files.records, strict=True)):
                yield from self._rows(live, task, share.first + n, record)

    def _rows(
        self, live: LiveFiles, task: FileScanTask, number: int, record: bytes
    ) -> Iterator[pa.RecordBatch]:
        if isinstance(self.row_filter, AlwaysTrue):
            yield from self._read(live, task, number, record, None)
            return
        lease = live.budget.force(0)
        try:
            positions = self._positions(live, task, lease)
            if len(positions):
                yield from self._read(live, task, number, record, [positions])
        finally:
            lease.release()

    def _read(
        self,
        live: LiveFiles,
        task: FileScanTask,
        number: int,
        record: bytes,
        chosen: list[PositionSet] | None,
    ) -> Iterator[pa.RecordBatch]:
        convert: SparkBatches | None = None
        for located in live.located([task], self.columns, chosen):
            if convert is None:
                convert = SparkBatches(located.rows.schema)
                nothing = [pa.nulls(1, field.type) for field in convert.schema]
                at = np.array([FILE_POSITION])
                yield _placed(nothing, convert.schema, number, at, pa.array([record], pa.binary()))
            rows, at = convert(located.rows), located.positions
            yield _placed(rows.columns, rows.schema, number, at, pa.nulls(len(at), pa.binary()))
            del located, rows

    def _positions(self, live: LiveFiles, task: FileScanTask, lease: Lease) -> PositionSet:
        """The positions of the rows that match. The lease grows with them."""
        columns = filter_columns(live.schema, self.row_filter)
        matches = compile_filter(self.row_filter, live.schema.select(*columns), True)
        positions = PositionSet()
        for located in live.located([task], columns):
            mask = pc.fill_null(matches(located.rows), False).to_numpy(zero_copy_only=False)
            positions.add(located.positions[mask])
            lease.resize(positions.nbytes)
            del located
        return positions


def _placed(
    columns: list[pa.Array],
    schema: pa.Schema,
    number: int,
    positions: _Positions,
    tasks: pa.Array,
) -> pa.RecordBatch:
    files = pa.array(np.full(len(positions), number, np.int32))
    fields = [field.with_nullable(True) for field in (*schema, *PLACE_FIELDS, FILE_FIELD)]
    return pa.RecordBatch.from_arrays(
        [*columns, files, pa.array(positions), tasks], schema=pa.schema(fields)
    )
