"""What a table's figures suggest to do, in plain sentences."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from icestream.memory import format_bytes
from icestream.report import HealthReport

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
    """Say what to do about a table; nothing, if it is in good order."""
    return (
        *_on_files(report),
        *_on_deletes(report),
        *_on_partitions(report),
        *_on_history(report),
        *_on_writes(report),
    )


def _on_files(report: HealthReport) -> Iterator[str]:
    if report.compactable_files:
        yield (
            f"{report.compactable_files:,} files are smaller than "
            f"{format_bytes(report.small_below_bytes)}, three quarters of the target size, and "
            "could be fewer: run ice.compact(table)"
        )


def _on_deletes(report: HealthReport) -> Iterator[str]:
    if report.equality_deletes:
        yield (
            f"{report.equality_deletes:,} rows are deleted by value, which icestream does not "
            "read: rewrite the data files with the engine that wrote the deletes"
        )
    many = report.delete_files > max(10, _MANY_DELETE_FILES * report.files)
    if report.position_deletes and (report.delete_ratio >= _MUCH_DELETED or many):
        yield (
            f"{report.delete_files:,} delete files mark {report.delete_ratio:.1%} of the rows as "
            "deleted, and every scan reads them: run ice.compact(table)"
        )


def _on_partitions(report: HealthReport) -> Iterator[str]:
    if report.partitions < _MANY_PARTITIONS:
        return
    mean_bytes = report.bytes // report.partitions
    if mean_bytes < _TINY_PARTITION * report.target_file_bytes:
        yield (
            f"{report.partitions:,} partitions have {format_bytes(mean_bytes)} on average, so that "
            f"files can't come near the target of {format_bytes(report.target_file_bytes)}: "
            "partition by something coarser with table.update_spec()"
        )
    largest = report.largest_partitions[0]
    if largest.bytes > _MOST_OF_IT * report.bytes:
        yield (
            f"the partition {largest.partition} holds {largest.bytes / report.bytes:.0%} of the "
            f"bytes of {report.partitions:,}: partition by something finer with table.update_spec()"
        )


def _on_history(report: HealthReport) -> Iterator[str]:
    if report.snapshots > _MANY_SNAPSHOTS and report.oldest_snapshot_ms is not None:
        oldest = datetime.fromtimestamp(report.oldest_snapshot_ms / 1000, UTC)
        yield (
            f"{report.snapshots:,} snapshots are kept, the oldest of {oldest:%Y-%m-%d}, with all "
            "their files: expire those that nobody needs with "
            "table.maintenance.expire_snapshots().older_than(...).commit(), then run "
            "ice.orphans(table, delete=True)"
        )
    if report.metadata_bytes > _LARGE_METADATA_BYTES:
        yield (
            f"the metadata file has {format_bytes(report.metadata_bytes)} and every commit writes "
            "it anew: expire snapshots with table.maintenance.expire_snapshots()"
        )
    if (
        report.manifests > _MANY_MANIFESTS
        and report.manifest_bytes < _SMALL_MANIFEST_BYTES * report.manifests
    ):
        yield (
            f"{report.manifests:,} manifests of {format_bytes(report.manifest_bytes)} in all are "
            "read one by one to plan a scan: load in larger steps, and merge them with an engine "
            "that rewrites manifests"
        )


def _on_writes(report: HealthReport) -> Iterator[str]:
    if report.writes_dead:
        yield (
            f"{report.writes_dead:,} writes seem to have died and left files: see "
            "ice.orphans(table), then run ice.orphans(table, delete=True)"
        )
