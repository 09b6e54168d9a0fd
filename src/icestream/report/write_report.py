"""Reports of writes: what a write or a merge changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from icestream.report.display import Displayed


@dataclass(frozen=True, slots=True, repr=False)
class WriteReport(Displayed):
    """What a write did to the table.

    Attributes:
        operation: `"append"`, `"overwrite"`, `"delete"`, `"replace"` or `"update"`.
        snapshot_id: The snapshot that was committed. None if nothing changed.
        already_committed: Whether a load with the same id was committed before. Then nothing was
            written, and the counts are those of that load.
        rows_inserted: Rows that were added to the table.
        rows_updated: Rows whose values changed.
        rows_unchanged: Rows that a merge did not change, because they already had the new values.
        rows_deleted: Rows that were removed from the table.
        files_added: Data files that the snapshot added.
        files_removed: Data files that the snapshot removed.
        delete_files_added: Position delete files that the snapshot added.
        bytes_written: The size in storage of the added files.
        bytes_removed: The size in storage of the removed data files.
        bytes_spilled: Bytes that were spilled to temporary files.
        schema_changes: The changes of the table's schema, as text.
        columns_discarded: Columns of the stream that were dropped.
        commit_attempts: Number of attempts to commit.
        seconds: Time from the call to the end.
        peak_bytes_held: Maximum number of bytes held at one time, as counted by the budget.
        memory_limit_bytes: The memory limit.
        worker_peak_bytes: On Spark, the resident size of the largest Python worker. 0 if unknown.
        worker_base_bytes: The resident size of that worker before its work: Python, PyArrow and
            icestream.
    """

    operation: str
    snapshot_id: int | None
    already_committed: bool = False
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_unchanged: int = 0
    rows_deleted: int = 0
    files_added: int = 0
    files_removed: int = 0
    delete_files_added: int = 0
    bytes_written: int = 0
    bytes_removed: int = 0
    bytes_spilled: int = 0
    schema_changes: tuple[str, ...] = ()
    columns_discarded: tuple[str, ...] = ()
    commit_attempts: int = 0
    seconds: float = 0.0
    peak_bytes_held: int = 0
    memory_limit_bytes: int = 0
    worker_peak_bytes: int = 0
    worker_base_bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return asdict(self)


@dataclass(frozen=True, slots=True, repr=False)
class MergeReport(WriteReport):
    """What a merge did to the table, in addition to what every write reports.

    Attributes:
        write_mode: `"copy-on-write"` or `"merge-on-read"`.
        files_read: Data files whose keys were read; statistics ruled the others out.
        files_kept: Data files of the table that the merge did not remove.
        bytes_read: The size in storage of what was read: key columns, and files to rewrite.
        rows_superseded: Rows of the stream that a later row with the same key replaced.
        target_duplicates: Matched rows with the same key as an earlier row of the table.
    """

    write_mode: str = "copy-on-write"
    files_read: int = 0
    files_kept: int = 0
    bytes_read: int = 0
    rows_superseded: int = 0
    target_duplicates: int = 0
