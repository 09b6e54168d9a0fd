"""The report of a load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from icestream.report.display import Displayed

LoadReportStatus = Literal["loaded", "already loaded", "unchanged"]
# 64 MB for the allocator's reserve, and 40 MB for pandas, which PyArrow imports when it first
# converts values of Python.
_ALLOWANCE_BYTES = 104_000_000


@dataclass(frozen=True, slots=True, repr=False)
class LoadReport(Displayed):
    """What a load read and wrote. Returned by `icestream.load`.

    Attributes:
        load: The load's name.
        into: The table.
        mode: `"append"`, `"replace"` or `"merge"`.
        engine: `"spark"`, `"local"` or `"iceberg-jar"`.
        engine_reason: Why this engine was chosen; None if the load names its engine.
        sources: Descriptions of the sources.
        branch: The branch that the load wrote to.
        load_id: The load's id, if it has one.
        snapshot_id: The snapshot that the load committed; None if nothing changed.
        already_committed: Whether a load with this id was committed before. If so, nothing was
            read or written, and the row counts are those of the earlier load.
        status: `"loaded"`, `"already loaded"` (see `already_committed`), or `"unchanged"` if
            nothing changed.
        created: Whether the load created the table.
        rows_read: Rows read before the transform, including bad records; None if unknown.
        rows_inserted: Rows added to the table.
        rows_updated: Rows changed by a merge.
        rows_unchanged: Rows of a merge that the table already had with the same values.
        rows_deleted: Rows deleted.
        rows_quarantined: Bad records stored in the quarantine table.
        quarantine: The quarantine table, if the load stored bad records.
        quarantine_snapshot_id: The snapshot committed to the quarantine table.
        files_read: Number of source files read, including the data files of tables.
        bytes_read: Size of these files in storage.
        files_added: Number of data files added.
        files_removed: Number of data files removed.
        bytes_written: Size of the data files added.
        bytes_spilled: Bytes written to temporary files.
        schema_changes: Descriptions of the changes to the table's schema.
        columns_discarded: Columns that were dropped.
        direct: Whether tasks of Spark read the sources themselves. Rows then pass through the JVM
            only in a merge, once.
        peak_bytes_held: Peak of the bytes counted against the limit; on Spark, in one task.
        memory_limit_bytes: The memory limit; on Spark, the limit of each task.
        peak_driver_bytes: Peak resident size of this process so far.
        peak_worker_bytes: Peak resident size of a Python worker of Spark; None if unknown.
        worker_base_bytes: Size of a worker before its work: Python, PyArrow, PySpark, icestream.
        stages: Seconds by stage, in order.
        seconds: Total duration.
        started_at: Start time in UTC, in ISO 8601.
        version: Version of icestream.
        report_file: Path of the stored report, if it is stored.
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
    direct: bool = False
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
    engine_reason: str | None = None

    @property
    def worker_bytes_at_most(self) -> int | None:
        """Memory to reserve for each worker, that is, each executor core; None if unknown.

        This is the sum of the base, the limit of a task, 64 MB for the allocator's reserve, and
        40 MB for pandas, which most workers import after the base is measured.
        """
        if self.worker_base_bytes is None:
            return None
        return self.worker_base_bytes + self.memory_limit_bytes + _ALLOWANCE_BYTES

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return {**asdict(self), "worker_bytes_at_most": self.worker_bytes_at_most}
