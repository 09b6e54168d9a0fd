"""`health`: what a table is made of, from metadata alone."""

from __future__ import annotations

import heapq
import time
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.typedef import Record

from icestream.commit.change import partition_values
from icestream.commit.landing import TableLanding, check_branch
from icestream.errors import InvalidArgumentError
from icestream.report import HealthReport, PartitionHealth, SizeBucket
from icestream.upkeep.advice import advise
from icestream.upkeep.folder import Folder
from icestream.upkeep.manifest_entries import live_files, manifests_of
from icestream.upkeep.markers import Markers
from icestream.upkeep.sizes import small_below, target_bytes_of

# Bounds of the histogram, in target files.
_BOUNDS = (1 / 64, 1 / 16, 1 / 4, 3 / 4, 5 / 4, 2)
_LARGEST = 10
_DEAD_AFTER_MS = 60 * 60 * 1000


def health(table: Table, *, branch: str | None = None) -> HealthReport:
    """Tell what a table is made of: file sizes, deletes, partitions, snapshots, metadata.

    Only metadata is read: the branch's manifests, and the list of files in the metadata folder.

    Args:
        table: The table; it is refreshed.
        branch: The branch to look at; the main one by default.

    Returns:
        The facts, and advice in plain sentences, which is empty for a table in good order.

    Raises:
        CatalogError: If metadata can't be read.

    Memory: a few hundred bytes for each partition, and what reading manifests
        takes, of which a file leaves nothing.
    """
    if not isinstance(table, Table):
        raise InvalidArgumentError(f"the table is a {type(table).__name__}: give a PyIceberg Table")
    started = time.monotonic()
    landing = TableLanding(table)
    metadata = landing.refresh()
    name = branch or MAIN_BRANCH
    check_branch(metadata, name, table=landing.name)
    head = metadata.snapshot_by_name(name)
    manifests = list(manifests_of(table.io, head.manifest_list)) if head else []
    tally = _Tally(metadata)
    for manifest, file in live_files(table.io, manifests):
        tally.add(manifest, file)
    dead, in_flight = _writes(table)
    made_ms = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    report = HealthReport(
        table=landing.name,
        branch=name,
        snapshot_id=head.snapshot_id if head else None,
        format_version=metadata.format_version,
        **tally.facts(),
        snapshots=len(made_ms),
        oldest_snapshot_ms=min(made_ms, default=None),
        newest_snapshot_ms=max(made_ms, default=None),
        branches=_refs(metadata, SnapshotRefType.BRANCH),
        tags=_refs(metadata, SnapshotRefType.TAG),
        manifests=len(manifests),
        manifest_bytes=sum(manifest.manifest_length for manifest in manifests),
        metadata_bytes=len(table.io.new_input(table.metadata_location)),
        writes_in_flight=in_flight,
        writes_dead=dead,
    )
    return replace(report, advice=advise(report), seconds=time.monotonic() - started)


@dataclass(slots=True)
class _Partition:
    """What a partition amounts to."""

    values: Record | None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    small_files: int = 0
    small_bytes: int = 0


@dataclass(slots=True)
class _Tally:
    """Counts files as they go by."""

    metadata: TableMetadata
    target_bytes: int = 0
    bounds: list[int] = field(default_factory=list)
    files: int = 0
    rows: int = 0
    bytes: int = 0
    small_files: int = 0
    delete_files: int = 0
    delete_bytes: int = 0
    position_deletes: int = 0
    equality_deletes: int = 0
    buckets: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in (*_BOUNDS, None)])
    partitions: dict[tuple[int, Any], _Partition] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.target_bytes = target_bytes_of(self.metadata.properties, self.metadata.schema())
        self.bounds = [int(self.target_bytes * share) for share in _BOUNDS]

    def add(self, manifest: ManifestFile, file: DataFile) -> None:
        """Count a file."""
        if manifest.content == ManifestContent.DATA:
            self._add_data(file)
        else:
            self._add_delete(file)

    def _add_data(self, file: DataFile) -> None:
        size, rows = file.file_size_in_bytes, file.record_count
        self.files += 1
        self.rows += rows
        self.bytes += size
        bucket = self.buckets[bisect_right(self.bounds, size)]
        bucket[0] += 1
        bucket[1] += size
        key = (file.spec_id or 0, partition_values(file))
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = _Partition(file.partition)
        partition.files += 1
        partition.rows += rows
        partition.bytes += size
        if size < small_below(self.target_bytes):
            self.small_files += 1
            partition.small_files += 1
            partition.small_bytes += size

    def _add_delete(self, file: DataFile) -> None:
        self.delete_files += 1
        self.delete_bytes += file.file_size_in_bytes
        if file.content == DataFileContent.EQUALITY_DELETES:
            self.equality_deletes += file.record_count
        else:
            self.position_deletes += file.record_count

    def facts(self) -> dict[str, Any]:
        """What the report says of files, deletes and partitions."""
        largest = heapq.nlargest(_LARGEST, self.partitions.items(), key=lambda item: item[1].bytes)
        mean = self.bytes / len(self.partitions) if self.partitions else 0
        return {
            "files": self.files,
            "rows": self.rows,
            "bytes": self.bytes,
            "target_file_bytes": self.target_bytes,
            "small_below_bytes": small_below(self.target_bytes),
            "small_files": self.small_files,
            "compactable_files": self._compactable_files(),
            "file_sizes": tuple(
                SizeBucket(below, files, size)
                for below, (files, size) in zip([*self.bounds, None], self.buckets, strict=True)
            ),
            "delete_files": self.delete_files,
            "delete_bytes": self.delete_bytes,
            "position_deletes": self.position_deletes,
            "equality_deletes": self.equality_deletes,
            "delete_ratio": self.position_deletes / self.rows if self.rows else 0.0,
            "partitions": len(self.partitions),
            "largest_partitions": tuple(
                self._described(spec_id, partition) for (spec_id, _), partition in largest
            ),
            "skew": largest[0][1].bytes / mean if mean else 0.0,
        }

    def _compactable_files(self) -> int:
        """Small files that `compact` would make fewer; those of older specs go together."""
        together: dict[Any, list[int]] = {}
        for (spec_id, values), partition in self.partitions.items():
            key = values if spec_id == self.metadata.default_spec_id else None
            files_and_bytes = together.setdefault(key, [0, 0])
            files_and_bytes[0] += partition.small_files
            files_and_bytes[1] += partition.small_bytes
        return sum(
            files
            for files, size in together.values()
            if files > 1 and -(-size // self.target_bytes) < files
        )

    def _described(self, spec_id: int, partition: _Partition) -> PartitionHealth:
        spec = self.metadata.specs()[spec_id]
        try:
            named = spec.partition_to_path(partition.values, self.metadata.schema())  # type: ignore[arg-type]
        except Exception:  # its column may have been dropped
            named = str(partition.values)
        return PartitionHealth(
            partition=named if spec.fields else "",
            spec_id=spec_id,
            files=partition.files,
            small_files=partition.small_files,
            rows=partition.rows,
            bytes=partition.bytes,
        )


def _writes(table: Table) -> tuple[int, int]:
    """How many writes seem to have died, and how many have a marker."""
    metadata = table.metadata
    locations = load_location_provider(metadata.location, metadata.properties)
    folder = Folder(table.io, locations.metadata_path)
    markers = [m for m in Markers.read(folder, metadata) if m.is_ours]
    now_ms = time.time_ns() // 1_000_000
    dead = [
        marker
        for marker in markers
        if not marker.is_live(now_ms) and now_ms - marker.renewed_ms > _DEAD_AFTER_MS
    ]
    return len(dead), len(markers)


def _refs(metadata: TableMetadata, kind: SnapshotRefType) -> tuple[str, ...]:
    return tuple(sorted(n for n, ref in metadata.refs.items() if ref.snapshot_ref_type == kind))
