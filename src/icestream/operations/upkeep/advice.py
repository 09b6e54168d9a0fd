"""Advice on a table, derived from its figures."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from icestream.memory.budget import format_bytes
from icestream.report.counted import counted
from icestream.report.upkeep_report import HealthReport

_MANY_SNAPSHOTS = 100
_MANY_MANIFESTS = 500
_SMALL_MANIFEST_BYTES = 1 << 20
_LARGE_METADATA_BYTES = 8 << 20
_MUCH_DELETED = 0.05
_MANY_DELETE_FILES = 0.1
_MANY_PARTITIONS = 10
_TINY_PARTITION = 0.05
_MOST_OF_IT = 0.5


def advise(report: HealthReport) -> tuple[str, ...]:
    """Sentences that say what to do about a table; none if it is in good order."""
    return (*_on_files(report), *_on_partitions(report), *_on_history(report))


def _on_files(report: HealthReport) -> Iterator[str]:
    if report.compactable_files:
        yield (
            f"{report.compactable_files:,} files are smaller than "
            f"{format_bytes(report.small_below_bytes)}, three quarters of the target size, and "
            "could be merged into fewer files: run ice.compact(table)"
        )
    if report.equality_deletes:
        yield (
            f"equality deletes hold {counted(report.equality_deletes, 'row')}, and icestream does "
            "not read them: rewrite the data files with the engine that wrote the deletes"
        )
    many = report.delete_files > max(10, _MANY_DELETE_FILES * report.files)
    if report.position_deletes and (report.delete_ratio >= _MUCH_DELETED or many):
        yield (
            f"every scan reads {counted(report.delete_files, 'delete file')}, which mark "
            f"{report.delete_ratio:.1%} of the rows as deleted: run ice.compact(table)"
        )


def _on_partitions(report: HealthReport) -> Iterator[str]:
    if report.partitions < _MANY_PARTITIONS:
        return
    mean_bytes = report.bytes // report.partitions
    if mean_bytes < _TINY_PARTITION * report.target_file_bytes:
        yield (
            f"{report.partitions:,} partitions have {format_bytes(mean_bytes)} on average, too "
            f"little for files of the target size of {format_bytes(report.target_file_bytes)}: "
            "use a coarser partitioning with table.update_spec()"
        )
    largest = report.largest_partitions[0]
    if largest.bytes > _MOST_OF_IT * report.bytes:
        yield (
            f"of {report.partitions:,} partitions, {largest.partition} alone holds "
            f"{largest.bytes / report.bytes:.0%} of the bytes: use a finer partitioning with "
            "table.update_spec()"
        )


def _on_history(report: HealthReport) -> Iterator[str]:
    if report.snapshots > _MANY_SNAPSHOTS and report.oldest_snapshot_ms is not None:
        oldest = datetime.fromtimestamp(report.oldest_snapshot_ms / 1000, UTC)
        yield (
            f"the table keeps {report.snapshots:,} snapshots and all their files, the oldest from "
            f"{oldest:%Y-%m-%d}: expire those that nobody needs with "
            "table.maintenance.expire_snapshots().older_than(...).commit(), then run "
            "ice.orphans(table, delete=True)"
        )
    if report.metadata_bytes > _LARGE_METADATA_BYTES:
        yield (
            f"the metadata file has {format_bytes(report.metadata_bytes)}, and every commit "
            "rewrites it: expire snapshots with table.maintenance.expire_snapshots()"
        )
    if (
        report.manifests > _MANY_MANIFESTS
        and report.manifest_bytes < _SMALL_MANIFEST_BYTES * report.manifests
    ):
        yield (
            f"every scan reads {report.manifests:,} manifests with "
            f"{format_bytes(report.manifest_bytes)} in total: load in larger steps, and merge them "
            "with an engine that rewrites manifests"
        )
    if report.writes_dead:
        yield (
            f"{counted(report.writes_dead, 'write')} probably died and may have left files: check "
            "ice.orphans(table), then run ice.orphans(table, delete=True)"
        )
