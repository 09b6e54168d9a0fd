"""Reads the rows that were appended to a table between two snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation, Snapshot

from icestream.errors import StreamError
from icestream.memory.budget import MemoryBudget, as_budget
from icestream.pipeline.inputs.load_input import TablePoint
from icestream.pipeline.request.source_spec import SourceSpec
from icestream.read.plan.manifests import added_entries
from icestream.read.request import ScanRequest, request
from icestream.read.scan import Scan, read_tasks, scan
from icestream.report.scan_report import ScanExplanation


def scan_point(
    source: SourceSpec,
    point: TablePoint,
    *,
    memory: int | MemoryBudget,
    needed: frozenset[str] | None = None,
) -> Scan | None:
    """Scan a table at a snapshot, or its new rows. Return None if there are no new files.

    Args:
        source: The source, with its filter and columns.
        point: The snapshot, and the snapshot to start after.
        memory: Memory limit of planning and reading.
        needed: The columns that the load needs; None for all columns of the source.

    Memory: manifests are read while files are read, and not held in memory as a whole.

    Raises:
        StreamError: If the new rows can't be determined.
    """
    budget = as_budget(memory)
    columns = source.columns
    if needed is not None and columns is None:
        names = schema_scan(source, point).schema.names
        columns = tuple(name for name in names if name in needed) or tuple(names[:1])
    if not point.is_increment:
        return scan(
            point.table,
            where=source.where,
            columns=columns,
            snapshot_id=point.snapshot_id,
            memory=budget,
        )
    new_rows = request(
        point.table, where=source.where, columns=columns, snapshot_id=point.snapshot_id
    )
    files = _NewFiles(new_rows, tuple(_between(point, source.text)), budget)
    return None if files.is_empty() else read_tasks(new_rows, files, budget)


def schema_scan(source: SourceSpec, point: TablePoint) -> Scan:
    """A scan that is used for its schema only."""
    return scan(point.table, columns=source.columns, snapshot_id=point.snapshot_id)


def explained_point(source: SourceSpec, point: TablePoint, memory: int) -> ScanExplanation | None:
    """What reading a table at a snapshot, or its new rows, would take. None if there are none."""
    scanned = None if point.snapshot_id is None else scan_point(source, point, memory=memory)
    return None if scanned is None else scanned.explain()


@dataclass(frozen=True, slots=True)
class _NewFiles:
    """The files that snapshots have added. Each iteration reads the manifests.

    Attributes:
        request: The request of the scan.
        snapshots: The snapshots, oldest first.
        budget: The memory budget.
    """

    request: ScanRequest
    snapshots: tuple[Snapshot, ...]
    budget: MemoryBudget

    def __iter__(self) -> Iterator[FileScanTask]:
        io, name = self.request.data_scan.io, self.request.context.table
        for snapshot in self.snapshots:
            for entry in added_entries(io, snapshot, table=name, budget=self.budget):
                yield FileScanTask(entry.data_file, residual=AlwaysTrue())

    def is_empty(self) -> bool:
        """Whether there are no files."""
        return next(iter(self), None) is None


def _between(point: TablePoint, name: str) -> list[Snapshot]:
    """The snapshots after `since` that append rows, oldest first."""
    again = "load it once with mode='replace' and without incremental, then start a new checkpoint"
    appends: list[Snapshot] = []
    metadata = point.table.metadata
    current = None if point.snapshot_id is None else metadata.snapshot_by_id(point.snapshot_id)
    while current is not None and current.snapshot_id != point.since:
        operation = current.summary.operation if current.summary else None
        if operation is Operation.APPEND:
            appends.append(current)
        elif operation is not Operation.REPLACE:  # a compaction does not change rows
            raise StreamError(
                f"snapshot {current.snapshot_id} of {name} changes or deletes rows, and an "
                f"incremental load only reads rows that were added: {again}"
            )
        parent = current.parent_snapshot_id
        current = None if parent is None else metadata.snapshot_by_id(parent)
        if current is None and (parent is not None or point.since is not None):
            raise StreamError(
                f"the history of {name} no longer contains snapshot {point.since}, the last one "
                f"that was loaded: it has expired, or the table was rolled back; {again}"
            )
    return appends[::-1]
