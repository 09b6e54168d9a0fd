"""What happened, as plain facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ScanReport:
    """What a scan did, or has done so far.

    Attributes:
        rows: Rows delivered.
        batches: Batches delivered.
        bytes: Arrow bytes delivered.
        files: Data files opened.
        files_planned: Data files that planning has found so far.
        row_groups_skipped: Row groups that statistics ruled out.
        retries: Reads that were tried again after a transient error.
        seconds: From the first `next()` to the end.
        seconds_to_first_batch: From the first `next()` to the first batch.
        peak_bytes_held: The most that the scan held at once, against its memory limit.
        memory_limit_bytes: That limit.
        streams: The most files or row groups decoded at once.
        finished: Whether the scan reached its end.
    """

    rows: int
    batches: int
    bytes: int
    files: int
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


@dataclass(frozen=True, slots=True)
class ScanExplanation:
    """What a scan is going to do, from metadata alone.

    Attributes:
        files: Data files after pruning.
        delete_files: Delete files that apply to them.
        rows: Rows in those files, before deletes and row filters.
        compressed_bytes: Their size in storage.
        columns: Columns that will be decoded (filter columns among them).
        order: `"task"` or `"arrival"`.
        batch_rows: Predicted rows in a batch.
        batch_bytes: Predicted Arrow bytes in a batch.
        streams: Predicted number of files or row groups decoded at once.
        stream_bytes: Predicted working set of one stream.
        buffer_bytes: What is left for finished batches that wait for the consumer.
        memory_limit_bytes: The limit.
        row_filter: The filter, as PyIceberg prints it.
        snapshot_id: The snapshot that is read; None for a table without one.
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


@dataclass(frozen=True, slots=True)
class WriteReport:
    """What a write did to the table.

    Attributes:
        operation: `"append"`, `"overwrite"`, `"delete"` or `"replace"`.
        snapshot_id: The snapshot that it made; None if there was nothing to change.
        already_committed: Whether a load with the same id had been committed before: then nothing
            was written, and the counts are those of that load.
        rows_inserted: Rows written that are new to the table.
        rows_updated: Rows that have other values now.
        rows_unchanged: Rows that a merge found as they were to be, and left alone.
        rows_deleted: Rows removed from the table.
        files_added: Data files that the snapshot added.
        files_removed: Data files that it removed.
        delete_files_added: Position delete files that it added.
        bytes_written: The size in storage of the files added.
        bytes_spilled: Bytes that went through temporary files on the way.
        schema_changes: What was changed in the table's schema, in words.
        columns_discarded: Columns of the stream that were dropped.
        commit_attempts: How often the commit was tried.
        seconds: From the call to the end.
        peak_bytes_held: The most that the write held at once, against its memory limit.
        memory_limit_bytes: That limit.
        worker_peak_bytes: On Spark, the resident size of the largest Python worker; 0 if not known.
        worker_base_bytes: What that worker took before its work: Python, PyArrow, icestream.
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


@dataclass(frozen=True, slots=True)
class MergeReport(WriteReport):
    """What a merge did to the table; further to what every write reports.

    Attributes:
        write_mode: `"copy-on-write"` or `"merge-on-read"`.
        files_read: Data files whose keys were read; statistics ruled the others out.
        files_kept: Data files that were there before and still are.
        bytes_read: The size in storage of what was read: key columns, and the files that change.
        rows_superseded: Rows of the stream that did not count, as a later one had the same key.
        target_duplicates: Rows of the table that matched and whose key an earlier one has, too.
    """

    write_mode: str = "copy-on-write"
    files_read: int = 0
    files_kept: int = 0
    bytes_read: int = 0
    rows_superseded: int = 0
    target_duplicates: int = 0


@dataclass(frozen=True, slots=True)
class OrphanFile:
    """A file in storage that the table does not refer to.

    Attributes:
        path: Where it is.
        bytes: Its size.
        modified_ms: When it was last written, in milliseconds since 1970.
        reason: `"in-flight"` if an unfinished write left it, else `"unreferenced"`.
        write_id: That write.
    """

    path: str
    bytes: int
    modified_ms: int | None
    reason: Literal["in-flight", "unreferenced"]
    write_id: str | None = None


@dataclass(frozen=True, slots=True)
class OrphansReport:
    """What `orphans` found, and did.

    Attributes:
        table: The table.
        folders: The folders that were searched as the table's own.
        files: The orphans, or as many of them as a quarter of the memory limit holds.
        count: How many there are.
        bytes: Their size.
        files_deleted: How many of them were deleted.
        bytes_deleted: The size of those.
        not_deleted: Orphans that could not be deleted, although it was asked for; 10,000 at most.
        kept_young: Unreferenced files that are not old enough.
        kept_in_flight: Files that belong, or may belong, to a write that is under way.
        kept_for_others: Files that only other tables, or other catalogs' versions of this one,
            refer to or may own; and files with the name of one that the table refers to elsewhere.
        files_listed: Files in storage that were looked at.
        files_referenced: Files that the table refers to, its metadata among them.
        nested_tables: Folders below the location that belong to other tables as a whole.
        copies: Metadata files with this table's id that were never its version in this catalog: of
            a lost commit, or of another catalog. What they refer to is kept.
        written_before_ms: Only files written before this moment count as orphans.
        seconds: From the call to the end.
    """

    table: str
    folders: tuple[str, ...]
    files: tuple[OrphanFile, ...]
    count: int
    bytes: int
    files_deleted: int
    bytes_deleted: int
    not_deleted: tuple[str, ...]
    kept_young: int
    kept_in_flight: int
    kept_for_others: int
    files_listed: int
    files_referenced: int
    nested_tables: tuple[str, ...]
    copies: int
    written_before_ms: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CompactReport:
    """What a compaction did to the table.

    Attributes:
        table: The table.
        branch: The branch that was worked on.
        snapshot_ids: The snapshots that it made, one for each group committed.
        groups: Groups of files that were worth a rewrite.
        groups_refused: Those left as they are, because others changed their files meanwhile.
        conflicts: Why, for each of them.
        files_removed: Data files that were replaced.
        files_added: Data files that replaced them.
        delete_files_removed: Delete files that applied to nothing any more.
        rows_rewritten: Rows in the new files.
        rows_deleted: Rows in the replaced files that had been deleted before.
        bytes_removed: The size in storage of the data files replaced.
        bytes_written: The size in storage of those added.
        bytes_spilled: Bytes that went through temporary files on the way.
        seconds: From the call to the end.
        peak_bytes_held: The most that reading and writing held at once, against the memory limit.
        memory_limit_bytes: That limit.
    """

    table: str
    branch: str
    snapshot_ids: tuple[int, ...]
    groups: int
    groups_refused: int
    conflicts: tuple[str, ...]
    files_removed: int
    files_added: int
    delete_files_removed: int
    rows_rewritten: int
    rows_deleted: int
    bytes_removed: int
    bytes_written: int
    bytes_spilled: int
    seconds: float
    peak_bytes_held: int
    memory_limit_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class SizeBucket:
    """How many data files are of about a size.

    Attributes:
        below_bytes: Files smaller than this, and not in the bucket before; None for the largest.
        files: How many.
        bytes: Their size together.
    """

    below_bytes: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """One partition.

    Attributes:
        partition: As in `day=2024-01-01/country=de`; empty for an unpartitioned table.
        spec_id: The partition spec that it is of.
        files: Its data files.
        small_files: Those of them that are small.
        rows: Rows in them.
        bytes: Their size.
    """

    partition: str
    spec_id: int
    files: int
    small_files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class HealthReport:
    """What a table is made of, and what to do about it.

    Attributes:
        table: The table.
        branch: The branch that was looked at.
        snapshot_id: Its head; None if it is empty.
        format_version: The table's.
        files: Data files.
        rows: Rows in them, deleted ones among them.
        bytes: Their size.
        target_file_bytes: How large files should be.
        small_below_bytes: The size below which a file is small.
        small_files: How many are.
        compactable_files: Small files that could be fewer: others are alone in their partition.
        file_sizes: Data files by size, relative to the target.
        delete_files: Position and equality delete files, and deletion vectors.
        delete_bytes: Their size.
        position_deletes: Rows that are deleted by position.
        equality_deletes: Rows in equality delete files.
        delete_ratio: Rows deleted by position, relative to all rows.
        partitions: How many there are, of all specs.
        largest_partitions: Those with the most bytes, at most ten.
        skew: How much larger the largest one is than the average.
        snapshots: How many the table keeps.
        oldest_snapshot_ms: When the oldest was made, in milliseconds since 1970.
        newest_snapshot_ms: When the newest was made.
        branches: Names.
        tags: Names.
        manifests: Manifests of the branch's head.
        manifest_bytes: Their size.
        metadata_bytes: The size of the current metadata file.
        writes_in_flight: Writes of icestream's that are under way, or died.
        writes_dead: Those of them that seem to have died.
        advice: What to do, in plain sentences.
        seconds: How long it took to find out.
    """

    table: str
    branch: str
    snapshot_id: int | None
    format_version: int
    files: int
    rows: int
    bytes: int
    target_file_bytes: int
    small_below_bytes: int
    small_files: int
    compactable_files: int
    file_sizes: tuple[SizeBucket, ...]
    delete_files: int
    delete_bytes: int
    position_deletes: int
    equality_deletes: int
    delete_ratio: float
    partitions: int
    largest_partitions: tuple[PartitionHealth, ...]
    skew: float
    snapshots: int
    oldest_snapshot_ms: int | None
    newest_snapshot_ms: int | None
    branches: tuple[str, ...]
    tags: tuple[str, ...]
    manifests: int
    manifest_bytes: int
    metadata_bytes: int
    writes_in_flight: int
    writes_dead: int
    advice: tuple[str, ...] = ()
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The report as a dictionary that `json.dumps` takes."""
        return asdict(self)
