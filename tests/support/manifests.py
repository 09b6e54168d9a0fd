"""Manifest writers that PyIceberg lacks: delete manifests, and everything of format version 3.

PyIceberg 0.12 hard-codes DATA content in its manifest writers and has none for version 3. It also
reads every manifest with the version-2 record schema, which drops `referenced_data_file`,
`content_offset`, `content_size_in_bytes` and `first_row_id`; `read_entries_v3` keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriterV2,
    PartitionFieldSummary,
)

_FIELD_POSITIONS_V3 = {field.name: pos for pos, field in enumerate(DATA_FILE_TYPE[3].fields)}
_FIRST_ROW_ID = len(MANIFEST_LIST_FILE_SCHEMAS[3].fields) - 1


class DeleteManifestWriterV2(ManifestWriterV2):
    """A version-2 manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class DataManifestWriterV3(ManifestWriterV2):
    """A version-3 manifest of data files; takes version-2 `DataFile` records."""

    @property
    def version(self) -> int:
        return 3


class DeleteManifestWriterV3(DeleteManifestWriterV2):
    """A version-3 manifest of delete files; takes version-3 `DataFile` records."""

    @property
    def version(self) -> int:
        return 3

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._with_partition(3),
            record_schema=self._with_partition(3),
            schema_name="manifest_entry",
            metadata=self._meta,
        )


class ManifestListWriterV3(ManifestListWriterV2):
    """A version-3 manifest list that gives row ids to data manifests which have none yet.

    Args:
        first_row_ids: The ids already given to manifests of earlier snapshots, by manifest path.
        next_row_id: The table's next row id before this commit; `next_row_id` after.
    """

    def __init__(
        self,
        output_file: OutputFile,
        snapshot_id: int,
        parent_snapshot_id: int | None,
        sequence_number: int,
        compression: Any,
        *,
        first_row_ids: Mapping[str, int],
        next_row_id: int,
    ) -> None:
        super().__init__(output_file, snapshot_id, parent_snapshot_id, sequence_number, compression)
        self._format_version = 3
        self._meta = {**self._meta, "format-version": "3", "first-row-id": str(next_row_id)}
        self._first_row_ids = first_row_ids
        self.next_row_id = next_row_id

    def __enter__(self) -> ManifestListWriterV3:
        schema = MANIFEST_LIST_FILE_SCHEMAS[3]
        self._writer = AvroOutputFile[ManifestFile](
            output_file=self._output_file,
            record_schema=schema,
            file_schema=schema,
            schema_name="manifest_file",
            metadata=self._meta,
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        prepared = copy(super().prepare_manifest(manifest_file))
        first_row_id = None
        if prepared.content == ManifestContent.DATA:
            first_row_id = self._first_row_ids.get(prepared.manifest_path)
            if first_row_id is None:
                first_row_id = self.next_row_id
                added, existing = prepared.added_rows_count, prepared.existing_rows_count
                self.next_row_id += (added or 0) + (existing or 0)
        prepared._data = [*prepared._data[:_FIRST_ROW_ID], first_row_id]
        return prepared


def read_first_row_ids(io: FileIO, manifest_list: str) -> dict[str, int]:
    """Return the first row id of each data manifest in a list of any version, where it has one."""
    with AvroFile[ManifestFile](
        io.new_input(manifest_list),
        MANIFEST_LIST_FILE_SCHEMAS[3],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as manifests:
        return {
            manifest.manifest_path: manifest._data[_FIRST_ROW_ID]
            for manifest in manifests
            if manifest._data[_FIRST_ROW_ID] is not None
        }


def read_entries_v3(io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Read a manifest's live entries with the version-3 record schema, all fields kept."""
    with AvroFile[ManifestEntry](
        io.new_input(manifest.manifest_path),
        MANIFEST_ENTRY_SCHEMAS[3],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as entries:
        live = [entry for entry in entries if entry.status != ManifestEntryStatus.DELETED]
    for entry in live:
        if entry.sequence_number is None:
            entry.sequence_number = manifest.sequence_number
            entry.file_sequence_number = manifest.sequence_number
        if entry.snapshot_id is None:
            entry.snapshot_id = manifest.added_snapshot_id
        entry.data_file.spec_id = manifest.partition_spec_id
    return live


def field_of(data_file: DataFile, name: str) -> Any:
    """Return a field of a version-3 `DataFile` record for which PyIceberg has no property."""
    return data_file._data[_FIELD_POSITIONS_V3[name]]
