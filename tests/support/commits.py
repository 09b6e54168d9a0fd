"""One-snapshot commits of any mix of data and delete files, on version-2 and version-3 tables.

PyIceberg 0.12 has no row-delta producer, puts all added files into one manifest under the current
spec, and refuses to write version 3. The producer here groups files by spec and content, writes
version-3 manifests and row ids itself, and then commits through the table's real catalog.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import pyarrow as pa
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.snapshots import (
    Operation,
    SnapshotSummaryCollector,
    Summary,
    update_snapshot_summaries,
)
from pyiceberg.table.update import AddSnapshotUpdate, UpdatesAndRequirements
from pyiceberg.table.update import snapshot as snapshot_module
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import IcebergBaseModel

from tests.support.manifests import (
    DataManifestWriterV3,
    DeleteManifestWriterV2,
    DeleteManifestWriterV3,
    ManifestListWriterV3,
    field_of,
    read_entries_v3,
    read_first_row_ids,
)


def data_files(table: Table) -> list[DataFile]:
    """Return the live data files of the table's current snapshot, in manifest order."""
    return [
        entry.data_file
        for manifest in _manifests(table, ManifestContent.DATA)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]


def data_file_paths(table: Table) -> list[str]:
    """Return the paths of the live data files, in the order in which they were committed."""
    entries = [
        entry
        for manifest in _manifests(table, ManifestContent.DATA)
        for entry in manifest.fetch_manifest_entry(table.io)
    ]
    entries.sort(key=lambda entry: entry.sequence_number or 0)
    return [entry.data_file.file_path for entry in entries]


def delete_entries(table: Table) -> list[ManifestEntry]:
    """Return the live delete entries of the current snapshot as version-3 records."""
    return [
        entry
        for manifest in _manifests(table, ManifestContent.DELETES)
        for entry in read_entries_v3(table.io, manifest)
    ]


def _manifests(table: Table, content: ManifestContent) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    manifests = snapshot.manifests(table.io) if snapshot else []
    return [manifest for manifest in manifests if manifest.content == content]


def commit_files(
    table: Table,
    added_data_files: Iterable[DataFile] = (),
    added_delete_files: Iterable[DataFile] = (),
    *,
    replaced_delete_entries: Iterable[ManifestEntry] = (),
) -> None:
    """Commit data and delete files as ONE snapshot and refresh `table`.

    Each file goes into a manifest of its own spec (`DataFile.spec_id`). On a version-3 table the
    delete files must be version-3 records. `replaced_delete_entries` come from `delete_entries`.
    """
    added_data, added_deletes = list(added_data_files), list(added_delete_files)
    operation = Operation.DELETE
    if added_data:
        operation = Operation.OVERWRITE if added_deletes else Operation.APPEND
    table.refresh()
    with v3_metadata_writes() if table.format_version >= 3 else nullcontext():
        transaction = table.transaction()
        producer = _RowDelta(operation, transaction, table.io)
        for data_file in [*added_data, *added_deletes]:
            producer.append_data_file(data_file)
        producer.replaced.extend(replaced_delete_entries)
        producer.commit()
        transaction.commit_transaction()
    table.refresh()


def append_arrow(table: Table, rows: pa.Table) -> None:
    """Append rows as PyIceberg's `append` does; on version-3 tables too, where that one raises."""
    table.refresh()
    written = list(_dataframe_to_data_files(table.metadata, rows, table.io))
    for data_file in written:
        data_file.spec_id = table.spec().spec_id  # `DataFile.from_args` drops the one it is given
    commit_files(table, written)


@contextmanager
def v3_metadata_writes() -> Iterator[None]:
    """Let PyIceberg write version-3 table metadata while the context is open."""
    allowed = IcebergBaseModel.model_dump_json
    with mock.patch.object(TableMetadataV3, "model_dump_json", allowed):
        yield


class _RowDelta(_FastAppendFiles):
    """A snapshot producer for data and delete files of any spec."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.replaced: list[ManifestEntry] = []

    @property
    def _is_v3(self) -> bool:
        return self._transaction.table_metadata.format_version >= 3

    def _manifests(self) -> list[ManifestFile]:
        groups: dict[tuple[int, bool], list[ManifestEntry]] = defaultdict(list)
        for data_file in self._added_data_files:
            is_delete = data_file.content != DataFileContent.DATA
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=self._snapshot_id,
                sequence_number=None,
                file_sequence_number=None,
                data_file=data_file,
            )
            groups[data_file.spec_id, is_delete].append(entry)
        added = [
            self._write_manifest(spec_id, is_delete, entries)
            for (spec_id, is_delete), entries in groups.items()
        ]
        kept = [self._without_replaced(manifest) for manifest in self._existing_manifests()]
        return added + [manifest for manifest in kept if manifest is not None]

    def _without_replaced(self, manifest: ManifestFile) -> ManifestFile | None:
        """Return the manifest, or one rewritten with the replaced entries marked as deleted."""
        if not self.replaced or manifest.content != ManifestContent.DELETES:
            return manifest
        gone = {_delete_key(entry.data_file) for entry in self.replaced}
        entries = read_entries_v3(self._io, manifest)
        if not any(_delete_key(entry.data_file) in gone for entry in entries):
            return manifest
        for entry in entries:
            is_gone = _delete_key(entry.data_file) in gone
            entry.status = ManifestEntryStatus.DELETED if is_gone else ManifestEntryStatus.EXISTING
            if is_gone:
                entry.snapshot_id = self._snapshot_id
        return self._write_manifest(manifest.partition_spec_id, True, entries)

    def _write_manifest(
        self, spec_id: int, is_delete: bool, entries: list[ManifestEntry]
    ) -> ManifestFile:
        with self._writer_for(spec_id, is_delete) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _writer_for(self, spec_id: int, is_delete: bool) -> ManifestWriter:
        if not is_delete and not self._is_v3:
            return self.new_manifest_writer(self.spec(spec_id))
        writer = DeleteManifestWriterV2
        if self._is_v3:
            writer = DeleteManifestWriterV3 if is_delete else DataManifestWriterV3
        return writer(
            self.spec(spec_id),
            self.schema(),
            self.new_manifest_output(),
            self._snapshot_id,
            self._compression,
        )

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        metadata = self._transaction.table_metadata
        collector = SnapshotSummaryCollector()
        for data_file in self._added_data_files:
            spec = metadata.specs()[data_file.spec_id]
            collector.add_file(data_file, metadata.schema(), spec)
        for entry in self.replaced:
            spec = metadata.specs()[entry.data_file.spec_id]
            collector.remove_file(entry.data_file, metadata.schema(), spec)
        parent = metadata.snapshot_by_id(self._parent_snapshot_id or -1)
        return update_snapshot_summaries(
            summary=Summary(operation=self._operation, **collector.build()),
            previous_summary=parent.summary if parent is not None else None,
        )

    def _commit(self) -> UpdatesAndRequirements:
        if not self._is_v3:
            return super()._commit()
        metadata = self._transaction.table_metadata
        parent = metadata.snapshot_by_id(self._parent_snapshot_id or -1)
        first_row_id = metadata.next_row_id or 0
        list_writer: list[ManifestListWriterV3] = []

        def write_list_v3(**arguments: object) -> ManifestListWriterV3:
            arguments.pop("format_version")
            arguments["compression"] = arguments.pop("avro_compression")
            known = read_first_row_ids(self._io, parent.manifest_list) if parent else {}
            list_writer.append(
                ManifestListWriterV3(
                    **arguments,  # type: ignore[arg-type]
                    first_row_ids=known,
                    next_row_id=first_row_id,
                )
            )
            return list_writer[0]

        with mock.patch.object(snapshot_module, "write_manifest_list", write_list_v3):
            (add_snapshot, *others), requirements = super()._commit()
        # PyIceberg leaves `added-rows` out, which would reset the table's next-row-id to null.
        rows = {
            "first_row_id": first_row_id,
            "added_rows": list_writer[0].next_row_id - first_row_id,
        }
        snapshot = add_snapshot.snapshot.model_copy(update=rows)
        return (AddSnapshotUpdate(snapshot=snapshot), *others), requirements


def _delete_key(data_file: DataFile) -> tuple[str, int | None]:
    """Identify a delete file; deletion vectors in one Puffin file differ by their offset."""
    return data_file.file_path, field_of(data_file, "content_offset")
