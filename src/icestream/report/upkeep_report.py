"""Reports of table maintenance: orphans, compaction and health."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from icestream.report.display import Displayed


@dataclass(frozen=True, slots=True)
class OrphanFile:
    """A file in storage that the table does not refer to.

    Attributes:
        path: The location of the file.
        bytes: Its size.
        modified_ms: When it was last written, in milliseconds since 1970.
        reason: `"in-flight"` if an unfinished write left the file, else `"unreferenced"`.
        write_id: The id of that write.
    """

    path: str
    bytes: int
    modified_ms: int | None
    reason: Literal["in-flight", "unreferenced"]
    write_id: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class OrphansReport(Displayed):
    """What `orphans` found and deleted.

    Attributes:
        table: The table.
        folders: The folders that belong to the table and were searched.
        files: The orphans, or as many of them as fit a quarter of the memory limit.
        count: Number of orphans.
        bytes: Total size of the orphans.
        files_deleted: Number of orphans that were deleted.
        bytes_deleted: Total size of the deleted orphans.
        not_deleted: Paths of up to 10,000 orphans that could not be deleted.
        kept_young: Unreferenced files that are not old enough.
        kept_in_flight: Files that belong, or may belong, to a write that is in progress.
        kept_for_others: Files that only other tables, or versions of this table in other catalogs,
            refer to or may own. Files whose name the table refers to in another folder count, too.
        files_listed: Files in storage that were checked.
        files_referenced: Files that the table refers to, including its metadata.
        nested_tables: Folders below the location that belong entirely to other tables.
        copies: Metadata files with this table's id that were never its version in this catalog.
            They come from a lost commit or from another catalog. Files that they refer to are kept.
        written_before_ms: Only files written before this time count as orphans, in milliseconds
            since 1970.
        seconds: Time from the call to the end.
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


@dataclass(frozen=True, slots=True, repr=False)
class CompactReport(Displayed):
    """What a compaction did to the table.

    Attributes:
        table: The table.
        branch: The branch that was compacted.
        snapshot_ids: The snapshots that were committed, one for each group.
        groups: Groups of files that were selected for a rewrite.
        groups_refused: Groups that were skipped because their files changed concurrently.
        conflicts: The reason for each skipped group.
        files_removed: Data files that were replaced.
        files_added: Data files that were written in their place.
        delete_files_removed: Delete files that no longer applied to any file.
        rows_rewritten: Rows in the new files.
        rows_deleted: Rows of the replaced files that had been deleted before.
        bytes_removed: The size in storage of the replaced data files.
        bytes_written: The size in storage of the new data files.
        bytes_spilled: Bytes that were spilled to temporary files.
        seconds: Time from the call to the end.
        peak_bytes_held: Maximum number of bytes held at one time, as counted by the budget.
        memory_limit_bytes: The memory limit.
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
    """The number of data files in a range of sizes.

    Attributes:
        below_bytes: The upper end of the range. None for the last bucket.
        files: Number of files.
        bytes: Total size of the files.
    """

    below_bytes: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """The data files of one partition.

    Attributes:
        partition: Such as `day=2024-01-01/country=de`. Empty for an unpartitioned table.
        spec_id: The partition spec of the partition.
        files: Number of data files.
        small_files: Number of small data files.
        rows: Rows in the data files.
        bytes: Total size of the data files.
    """

    partition: str
    spec_id: int
    files: int
    small_files: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, repr=False)
class HealthReport(Displayed):
    """The files, deletes, partitions and metadata of a table, with advice.

    Attributes:
        table: The table.
        branch: The branch that was examined.
        snapshot_id: The head of the branch. None if the branch is empty.
        format_version: The format version of the table.
        files: Number of data files.
        rows: Rows in the data files, including deleted rows.
        bytes: Total size of the data files.
        target_file_bytes: The target size of data files.
        small_below_bytes: The size below which a file counts as small.
        small_files: Number of small files.
        compactable_files: Small files that compaction can combine, because their partition has
            more than one.
        file_sizes: Data files by size, relative to the target.
        delete_files: Position and equality delete files, and deletion vectors.
        delete_bytes: Total size of the delete files.
        position_deletes: Rows that are deleted by position.
        equality_deletes: Rows in equality delete files.
        delete_ratio: Rows deleted by position, relative to all rows.
        partitions: Number of partitions, under all specs.
        largest_partitions: The ten largest partitions by bytes.
        skew: Size of the largest partition, relative to the average.
        snapshots: Number of snapshots that the table keeps.
        oldest_snapshot_ms: The time of the oldest snapshot, in milliseconds since 1970.
        newest_snapshot_ms: The time of the newest snapshot, in milliseconds since 1970.
        branches: The names of the branches.
        tags: The names of the tags.
        manifests: Number of manifests of the branch's head.
        manifest_bytes: Total size of these manifests.
        metadata_bytes: The size of the current metadata file.
        writes_in_flight: Writes by icestream that have not ended, including dead ones.
        writes_dead: Those of them whose process seems to have died.
        advice: Recommended actions, as sentences.
        seconds: Time that the examination took.
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
