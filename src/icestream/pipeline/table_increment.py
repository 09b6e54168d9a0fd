"""What was appended to a table between two of its snapshots."""

from __future__ import annotations

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import FileScanTask
from pyiceberg.table.snapshots import Operation, Snapshot

from icestream.errors import StreamError
from icestream.pipeline.load_input import TablePoint
from icestream.pipeline.source_spec import SourceSpec
from icestream.read.manifests import added_entries
from icestream.read.plan import TaskSplits
from icestream.read.request import request
from icestream.read.scan import Scan, read_splits, scan
from icestream.read.split import Split


def scan_point(source: SourceSpec, point: TablePoint, **options: object) -> Scan | None:
    """A scan of a table at its point; None if there is nothing to read.

    Args:
        source: Which rows and columns.
        point: Which snapshot, and since when.
        **options: For `icestream.scan`, such as memory.

    Raises:
        StreamError: If what is new can't be told.
    """
    if not point.is_increment:
        return scan(
            point.table,
            where=source.where,
            columns=source.columns,
            snapshot_id=point.snapshot_id,
            **options,  # type: ignore[arg-type]
        )
    splits = new_splits(source, point)
    return read_splits(splits, **options) if splits else None  # type: ignore[arg-type]


def schema_scan(source: SourceSpec, point: TablePoint) -> Scan:
    """A scan that is only asked for its schema."""
    return scan(point.table, columns=source.columns, snapshot_id=point.snapshot_id)


def new_splits(source: SourceSpec, point: TablePoint) -> list[Split]:
    """The files that were appended since the point's older snapshot."""
    table = point.table
    asked = request(
        table, where=source.where, columns=source.columns, snapshot_id=point.snapshot_id
    )
    splits: list[Split] = []
    for snapshot in _between(point, source.text):
        tasks = (
            FileScanTask(entry.data_file, residual=AlwaysTrue())
            for entry in added_entries(table.io, snapshot, table=asked.context.table)
        )
        splits += TaskSplits(asked, tasks)
    return splits


def _between(point: TablePoint, name: str) -> list[Snapshot]:
    """The snapshots after `since`, oldest first, that bring rows."""
    again = "load it once with mode='replace' and without incremental, then start a new checkpoint"
    found: list[Snapshot] = []
    metadata = point.table.metadata
    current = None if point.snapshot_id is None else metadata.snapshot_by_id(point.snapshot_id)
    while current is not None and current.snapshot_id != point.since:
        operation = current.summary.operation if current.summary else None
        if operation is Operation.APPEND:
            found.append(current)
        elif operation is not Operation.REPLACE:  # a compaction has the same rows
            raise StreamError(
                f"snapshot {current.snapshot_id} of {name} changes or deletes rows, and an "
                f"incremental load only knows of rows that are added: {again}"
            )
        parent = current.parent_snapshot_id
        current = None if parent is None else metadata.snapshot_by_id(parent)
        if current is None and (parent is not None or point.since is not None):
            raise StreamError(
                f"the history of {name} does not lead back to snapshot {point.since}, up to which "
                f"it was loaded: it has expired, or the table was rolled back; {again}"
            )
    return found[::-1]
