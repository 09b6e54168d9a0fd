"""Reports of scans: what a scan did, and what it is going to do."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from icestream.report.display import Displayed


@dataclass(frozen=True, slots=True, repr=False)
class ScanReport(Displayed):
    """What a scan did, or has done so far.

    Attributes:
        rows: Rows delivered.
        batches: Batches delivered.
        bytes: Arrow bytes delivered.
        files: Data files opened.
        compressed_bytes: The size of those files in storage.
        files_planned: Data files that the plan has produced so far.
        row_groups_skipped: Row groups that statistics ruled out.
        retries: Reads that were repeated after a transient error.
        seconds: Time from the first `next()` to the end.
        seconds_to_first_batch: Time from the first `next()` to the first batch.
        peak_bytes_held: Maximum number of bytes held at one time, as counted by the budget.
        memory_limit_bytes: The memory limit.
        streams: Maximum number of files or row groups decoded at the same time.
        finished: Whether the scan reached its end.
    """

    rows: int
    batches: int
    bytes: int
    files: int
    compressed_bytes: int
    files_planned: int
    row_groups_skipped: int
    retries: int
    seconds: float
    seconds_to_first_batch: float | None
    peak_bytes_held: int
    memory_limit_bytes: int
    streams: int
    finished: bool

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return asdict(self)


@dataclass(frozen=True, slots=True, repr=False)
class ScanExplanation(Displayed):
    """What a scan is going to do, predicted from metadata.

    Attributes:
        files: Data files after pruning.
        delete_files: Delete files that apply to them.
        rows: Rows in those files, before deletes and row filters.
        compressed_bytes: The size of those files in storage.
        columns: Columns that will be decoded, including those of the filter.
        order: `"task"` or `"arrival"`.
        batch_rows: Predicted rows in a batch.
        batch_bytes: Predicted Arrow bytes in a batch.
        streams: Predicted number of files or row groups decoded at the same time.
        stream_bytes: Predicted memory of one stream.
        buffer_bytes: Memory that remains for finished batches that wait for the consumer.
        memory_limit_bytes: The memory limit.
        row_filter: The filter as text, and `"true"` without one. `in` shows up to ten values.
        snapshot_id: The snapshot to read. None if the table has none.
    """

    files: int
    delete_files: int
    rows: int
    compressed_bytes: int
    columns: int
    order: str
    batch_rows: int
    batch_bytes: int
    streams: int
    stream_bytes: int
    buffer_bytes: int
    memory_limit_bytes: int
    row_filter: str
    snapshot_id: int | None

    def to_dict(self) -> dict[str, Any]:
        """The explanation as a dictionary that `json.dumps` takes."""
        return asdict(self)
