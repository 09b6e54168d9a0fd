"""The summary of a snapshot: added, removed and total counts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from pyiceberg.manifest import DataFile
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import (
    Operation,
    Snapshot,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)

from icestream.commit.change import Change
from icestream.commit.outcome.load_id import LOAD_ID_KEY, WRITE_IDS_KEY
from icestream.commit.outcome.retry import whole_number
from icestream.commit.snapshot.spec_schema import schema_for
from icestream.read.distant_years import any_year


def summarize(
    change: Change,
    metadata: TableMetadata,
    parent: Snapshot | None,
    removed_deletes: Sequence[DataFile],
) -> Summary:
    """The summary of the snapshot that a change makes on top of its parent."""
    limit = whole_number(
        metadata.properties,
        TableProperties.WRITE_PARTITION_SUMMARY_LIMIT,
        TableProperties.WRITE_PARTITION_SUMMARY_LIMIT_DEFAULT,
    )
    collector = SnapshotSummaryCollector(partition_summary_limit=limit)
    specs = {spec_id: any_year(spec) for spec_id, spec in metadata.specs().items()}
    schemas = {spec_id: schema_for(metadata, spec) for spec_id, spec in specs.items()}
    for file in chain(change.added, change.added_deletes):
        collector.add_file(file, schemas[file.spec_id or 0], specs[file.spec_id or 0])
    for file in chain(change.removed, removed_deletes):
        collector.remove_file(file, schemas[file.spec_id or 0], specs[file.spec_id or 0])
    extra = dict(change.properties)
    if change.load_id is not None:
        extra[LOAD_ID_KEY] = change.load_id
    if change.write_ids:
        extra[WRITE_IDS_KEY] = ",".join(change.write_ids)
    # PyIceberg refuses to total a replace; its totals follow the same rule as an overwrite's.
    replaces = change.operation == Operation.REPLACE
    totalled = update_snapshot_summaries(
        Summary(
            operation=Operation.OVERWRITE if replaces else change.operation,
            **{**extra, **collector.build()},
        ),
        previous_summary=parent.summary if parent else None,
    )
    if not replaces:
        return totalled
    counts = {key: totalled[key] for key in totalled.additional_properties}
    return Summary(operation=Operation.REPLACE, **counts)
