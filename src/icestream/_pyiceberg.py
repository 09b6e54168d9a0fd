"""The one module that touches PyIceberg's private names.

Each name used here has a test in tests/unit/test_pyiceberg_private_names.py that fails when
PyIceberg changes it, so that moving to a new minor version is a matter of mending this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestWriterV2
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import TableRequirement, TableUpdate


class Metrics(Protocol):
    """What the metrics evaluator reads; a `DataFile` has it, and so does a row group of ours."""

    record_count: int
    value_counts: dict[int, int]
    null_value_counts: dict[int, int]
    nan_value_counts: dict[int, int]
    lower_bounds: dict[int, bytes]
    upper_bounds: dict[int, bytes]


def metrics_evaluator(
    schema: Schema, row_filter: BooleanExpression, case_sensitive: bool
) -> Callable[[Metrics], bool]:
    """A function that says whether rows with such metrics might match the filter."""
    evaluate: Callable[..., bool] = _InclusiveMetricsEvaluator(
        schema, row_filter, case_sensitive
    ).eval
    return evaluate


def equality_delete_paths(snapshot: Snapshot, io: FileIO) -> list[str]:
    """The equality delete files of a snapshot."""
    return [
        entry.data_file.file_path
        for manifest in snapshot.manifests(io)
        if manifest.content == ManifestContent.DELETES
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES
    ]


class DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files; PyIceberg's own writers know data files only."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def commit_to_catalog(
    table: Table, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
) -> None:
    """Commit once, without retries; the table object then has the new metadata.

    `Table` has no public way that also deletes old metadata files where the table asks for it.
    """
    table._do_commit(updates, requirements)
