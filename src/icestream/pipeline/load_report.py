"""What a load did, as plain facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

LoadReportStatus = Literal["loaded", "already loaded", "unchanged"]
_ALLOWANCE_BYTES = 64_000_000


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load read, and did to the table.

    Attributes:
        load: The load's name.
        into: The table.
        mode: `"append"`, `"replace"` or `"merge"`.
        engine: `"spark"` or `"local"`.
        sources: What was read, in words.
        branch: The branch that got the snapshot.
        load_id: The load's id, if it has one.
        snapshot_id: The snapshot that it made; None if there was nothing to change.
        already_committed: Whether a load with this id had been committed before: then nothing was
            read or written, and counts of rows are those of that load.
        status: `"loaded"`; `"already loaded"`, as `already_committed` says; or `"unchanged"`, if
            there was nothing to change.
        created: Whether the load created the table.
        rows_read: Rows that sources gave, bad ones among them, before the transform; None where
            that is not known.
        rows_inserted: Rows that are new to the table.
        rows_updated: Rows that have other values now.
        rows_unchanged: Rows that a merge found as they were to be.
        rows_deleted: Rows removed.
        rows_quarantined: Bad records that went to the quarantine table.
        quarantine: That table, if any went there.
        quarantine_snapshot_id: The snapshot that they made there.
        files_read: Files of the sources.
        bytes_read: Their size in storage.
        files_added: Data files that the snapshot added.
        files_removed: Data files that it removed.
        bytes_written: The size of the files added.
        bytes_spilled: Bytes that went through temporary files.
        schema_changes: What was changed in the table's schema, in words.
        columns_discarded: Columns that were dropped.
        peak_bytes_held: The most that was held at once against the limit; on Spark by one task.
        memory_limit_bytes: That limit; on Spark it is each task's.
        peak_driver_bytes: The largest resident size of this process so far.
        peak_worker_bytes: The largest resident size of a Python worker of Spark; None where not
            known.
        worker_base_bytes: What a worker took before its work: Python, PyArrow, PySpark, icestream.
        stages: Seconds by stage, in their order.
        seconds: All of it.
        started_at: When it began, in UTC, as ISO 8601 writes it.
        version: Of icestream.
        report_file: Where the report is stored, if it is.
    """

    load: str
    into: str
    mode: str
    engine: str
    sources: tuple[str, ...] = ()
    branch: str | None = None
    load_id: str | None = None
    snapshot_id: int | None = None
    already_committed: bool = False
    status: LoadReportStatus = "loaded"
    created: bool = False
    rows_read: int | None = None
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_unchanged: int = 0
    rows_deleted: int = 0
    rows_quarantined: int = 0
    quarantine: str | None = None
    quarantine_snapshot_id: int | None = None
    files_read: int = 0
    bytes_read: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_written: int = 0
    bytes_spilled: int = 0
    schema_changes: tuple[str, ...] = ()
    columns_discarded: tuple[str, ...] = ()
    peak_bytes_held: int = 0
    memory_limit_bytes: int = 0
    peak_driver_bytes: int | None = None
    peak_worker_bytes: int | None = None
    worker_base_bytes: int | None = None
    stages: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    started_at: str = ""
    version: str = ""
    report_file: str | None = None

    @property
    def worker_bytes_at_most(self) -> int | None:
        """The room to plan for each worker, and so for each core of an executor; None if unknown.

        The base, the limit of a task, and 64 MB that an allocator keeps beside the bytes in use.
        """
        if self.worker_base_bytes is None:
            return None
        return self.worker_base_bytes + self.memory_limit_bytes + _ALLOWANCE_BYTES

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return {**asdict(self), "worker_bytes_at_most": self.worker_bytes_at_most}
