"""`health`: report the state of a table's files, from metadata alone."""

from __future__ import annotations

import heapq
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from icestream.catalogs.credentials import table_access
from icestream.catalogs.lookup import resolve_table
from icestream.commit.landing import TableLanding, check_branch
from icestream.errors import InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.operations.upkeep.advice import advise
from icestream.operations.upkeep.folder import Folder
from icestream.operations.upkeep.groups import small_below, target_bytes_of
from icestream.operations.upkeep.manifest_entries import (
    CONTENT,
    FILE_SIZE,
    PARTITION,
    RECORD_COUNT,
    ManifestEntries,
    stored_bytes,
)
from icestream.operations.upkeep.markers import Markers
from icestream.operations.upkeep.partition_sizes import Partitions, PartitionSizes
from icestream.read.plan.manifests import counts_files
from icestream.report.upkeep_report import HealthReport, PartitionHealth, SizeBucket

# Bounds of the histogram, as multiples of the target size.
_BOUNDS = (1 / 64, 1 / 16, 1 / 4, 3 / 4, 5 / 4, 2)
_LARGEST = 10
_COUNTED = (
    "files",
    "rows",
    "bytes",
    "small_files",
    "delete_files",
    "delete_bytes",
    "position_deletes",
    "equality_deletes",
    "manifests",
    "manifest_bytes",
)
_DEAD_AFTER_MS = 60 * 60 * 1000


def health(
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    branch: str | None = None,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
) -> HealthReport:
    """Report the state of a table: file sizes, deletes, partitions, snapshots, metadata.

    It reads only metadata: the branch's manifests, and the list of files in the metadata folder.

    Args:
        table: The table, which is refreshed, or its name such as `"db.t"`.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        branch: The branch to inspect; the main branch by default.
        memory: The limit in bytes, or a string such as `"64MB"`, or a budget to share.

    Returns:
        A report with figures and advice. A table in good order gets no advice.

    Raises:
        CatalogError: If metadata can't be read.
        CredentialsExpiredError: If the store's credentials have expired, and the catalog provides
            no new ones.

    Memory: at most the limit. Each partition takes 60 bytes, on disk beyond a quarter of the limit.
        The number of files does not matter.
    """
    table = resolve_table(table, catalog)
    if not isinstance(table, Table):
        raise InvalidArgumentError(
            f"the table is a {type(table).__name__}: give a name such as 'db.t', or a "
            "PyIceberg Table"
        )
    started = time.monotonic()
    landing = TableLanding(table)
    metadata = landing.refresh()
    name = branch or MAIN_BRANCH
    check_branch(metadata, name, table=landing.name)
    head = metadata.snapshot_by_name(name)
    with closing(_Tally(table, as_budget(memory))) as tally:
        if head is not None:
            tally.count(head)
        facts = tally.facts()
    dead, in_flight = _writes(table)
    made_ms = [snapshot.timestamp_ms for snapshot in metadata.snapshots]
    report = HealthReport(
        table=landing.name,
        branch=name,
        snapshot_id=head.snapshot_id if head else None,
        format_version=metadata.format_version,
        **facts,
        snapshots=len(made_ms),
        oldest_snapshot_ms=min(made_ms, default=None),
        newest_snapshot_ms=max(made_ms, default=None),
        branches=_refs(metadata, SnapshotRefType.BRANCH),
        tags=_refs(metadata, SnapshotRefType.TAG),
        metadata_bytes=stored_bytes(table_access(table), table.metadata_location),
        writes_in_flight=in_flight,
        writes_dead=dead,
    )
    return replace(report, advice=advise(report), seconds=time.monotonic() - started)


class _Tally:
    """Counts the files of a snapshot.

    Args:
        table: The table.
        budget: The budget that partitions are charged to.
    """

    def __init__(self, table: Table, budget: MemoryBudget) -> None:
        self._entries = ManifestEntries(table_access(table), budget)
        self._metadata = table.metadata
        self._target_bytes = target_bytes_of(table.metadata.properties, table.metadata.schema())
        self._small_below = small_below(self._target_bytes)
        self._bounds = [int(self._target_bytes * share) for share in _BOUNDS]
        self._buckets = [[0, 0] for _ in (*_BOUNDS, None)]
        self._partitions = PartitionSizes(budget)
        self._snapshot: Snapshot | None = None
        self._counts: Counter[str] = Counter()

    def close(self) -> None:
        """Drop everything."""
        self._partitions.close()

    def count(self, snapshot: Snapshot) -> None:
        """Count the files of a snapshot."""
        self._snapshot = snapshot
        places = _Places()
        manifests = places.follow(self._manifests())
        fields = (PARTITION, RECORD_COUNT, FILE_SIZE, CONTENT)
        for manifest, values in self._entries.values(manifests, *fields):
            place = places.of(manifest)
            if manifest.content == ManifestContent.DATA:
                self._count_data(values, manifest.partition_spec_id, *place)
            else:
                self._count_delete(values)

    def _listed(self) -> Iterator[ManifestFile]:
        head = self._snapshot
        if head is None:
            return iter(())
        return self._entries.manifests(head.manifest_list, has_files=counts_files(head))

    def _manifests(self) -> Iterator[ManifestFile]:
        for manifest in self._listed():
            self._counts["manifests"] += 1
            self._counts["manifest_bytes"] += manifest.manifest_length
            yield manifest

    def _count_data(self, values: Record, spec_id: int, manifest: int, entry: int) -> None:
        partition, rows, size = values[0], values[1], values[2]
        self._counts["files"] += 1
        self._counts["rows"] += rows
        self._counts["bytes"] += size
        bucket = self._buckets[bisect_right(self._bounds, size)]
        bucket[0] += 1
        bucket[1] += size
        is_small = size < self._small_below
        self._counts["small_files"] += is_small
        # Hash a text: Python's hashes of numbers are not random, and -1 and -2 have the same hash.
        key = hash(f"{spec_id} {[partition[n] for n in range(len(partition))]!r}")
        self._partitions.add(
            key,
            rows=rows,
            size=size,
            is_small=is_small,
            spec_id=spec_id,
            manifest=manifest,
            entry=entry,
        )

    def _count_delete(self, values: Record) -> None:
        self._counts["delete_files"] += 1
        self._counts["delete_bytes"] += values[2]
        by_value = values[3] == DataFileContent.EQUALITY_DELETES.value
        self._counts["equality_deletes" if by_value else "position_deletes"] += values[1]

    def facts(self) -> dict[str, Any]:
        """The figures on files, deletes, partitions and manifests."""
        sums = _PartitionSums(self._metadata.default_spec_id, self._target_bytes)
        for some in self._partitions.partitions():
            sums.add(some)
        counts = self._counts
        mean = counts["bytes"] / sums.count if sums.count else 0
        return {
            **{name: counts[name] for name in _COUNTED},
            "target_file_bytes": self._target_bytes,
            "small_below_bytes": self._small_below,
            "compactable_files": sums.compactable_files(),
            "file_sizes": tuple(
                SizeBucket(below, files, size)
                for below, (files, size) in zip([*self._bounds, None], self._buckets, strict=True)
            ),
            "delete_ratio": counts["position_deletes"] / counts["rows"] if counts["rows"] else 0.0,
            "partitions": sums.count,
            "largest_partitions": tuple(self._described(sums.largest)),
            "skew": float(sums.largest[0]["bytes"] / mean) if mean else 0.0,
        }

    def _described(self, largest: Sequence[Any]) -> Iterator[PartitionHealth]:
        """Partitions with their names, read again from their first manifest entries."""
        wanted = {(int(row["manifest"]), int(row["entry"])) for row in largest}
        values: dict[tuple[int, int], Record] = {}
        numbers = {manifest for manifest, _ in wanted}
        if wanted:
            for number, manifest in enumerate(self._listed()):
                if number in numbers:
                    entries = self._entries.values([manifest], PARTITION)
                    for entry, (_, read) in enumerate(entries):
                        if (number, entry) in wanted:
                            values[number, entry] = read[0]
        for row in largest:
            place = (int(row["manifest"]), int(row["entry"]))
            yield self._named(values[place], row)

    def _named(self, values: Record, row: Any) -> PartitionHealth:
        try:
            spec = self._metadata.specs()[int(row["spec_id"])]
            named = spec.partition_to_path(values, self._metadata.schema())
        except Exception:  # The column may have been dropped, or the manifest list be damaged.
            named = str(values)
        return PartitionHealth(
            partition=named if spec.fields else "",
            spec_id=spec.spec_id,
            files=int(row["files"]),
            small_files=int(row["small_files"]),
            rows=int(row["rows"]),
            bytes=int(row["bytes"]),
        )


class _Places:
    """Numbers manifests and their entries, even if manifests are read ahead."""

    def __init__(self) -> None:
        self._coming: deque[tuple[str, int]] = deque()
        self._path: str | None = None
        self._manifest = self._entry = 0

    def follow(self, manifests: Iterable[ManifestFile]) -> Iterator[ManifestFile]:
        """Pass on the manifests, and record their numbers."""
        for number, manifest in enumerate(manifests):
            self._coming.append((manifest.manifest_path, number))
            yield manifest

    def of(self, manifest: ManifestFile) -> tuple[int, int]:
        """The numbers of the manifest and of its next entry."""
        if manifest.manifest_path != self._path:
            while self._path != manifest.manifest_path:  # A manifest may have no entries.
                self._path, self._manifest = self._coming.popleft()
            self._entry = -1
        self._entry += 1
        return self._manifest, self._entry


class _PartitionSums:
    """The figures on all partitions together."""

    def __init__(self, default_spec_id: int, target_bytes: int) -> None:
        self.count = 0
        self.largest: list[Any] = []
        self._default_spec_id = default_spec_id
        self._target_bytes = target_bytes
        self._compactable = 0
        self._older_files = self._older_bytes = 0

    def add(self, some: Partitions) -> None:
        """Add partitions."""
        self.count += len(some)
        order = np.argsort(some["bytes"], kind="stable")[::-1][:_LARGEST]
        largest = [*self.largest, *some[order].copy()]
        self.largest = heapq.nlargest(_LARGEST, largest, key=lambda row: int(row["bytes"]))
        is_current = some["spec_id"] == self._default_spec_id
        files, size = some["small_files"], some["small_bytes"]
        fewer = (files > 1) & (-(-size // self._target_bytes) < files)
        self._compactable += int(files[is_current & fewer].sum())
        self._older_files += int(files[~is_current].sum())
        self._older_bytes += int(size[~is_current].sum())

    def compactable_files(self) -> int:
        """The number of small files that `compact` would merge; files of older specs are pooled."""
        older = self._older_files
        fewer = -(-self._older_bytes // self._target_bytes) < older
        return self._compactable + (older if older > 1 and fewer else 0)


def _writes(table: Table) -> tuple[int, int]:
    """The number of writes that seem to have died, and the number with a marker."""
    metadata = table.metadata
    locations = load_location_provider(metadata.location, metadata.properties)
    folder = Folder(table_access(table), locations.metadata_path)
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
