"""A change becomes manifests, a manifest list and a snapshot that is not in the table yet."""

from __future__ import annotations

import itertools
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DataFile,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from icestream.catalogs._pyiceberg.manifests import DeleteManifestWriter, exact_manifests, written
from icestream.commit.change import Change
from icestream.commit.snapshot.manifest_bins import ManifestMerge
from icestream.commit.snapshot.spec_schema import schema_for
from icestream.commit.snapshot.summary import summarize
from icestream.errors import CommitConflictError
from icestream.read.plan.manifests import MetadataFiles, metadata_files


@dataclass(frozen=True, slots=True)
class Produced:
    """A snapshot whose metadata is written, but not committed.

    Attributes:
        updates: The updates to send to the catalog.
        requirements: Their requirements.
        parent_id: The parent, the only snapshot that this one can be committed on.
        sequence_number: The snapshot's sequence number.
        manifest_list: The snapshot's manifest list.
        paths: All metadata files written for it, with the manifest list.
    """

    updates: tuple[TableUpdate, ...]
    requirements: tuple[TableRequirement, ...]
    parent_id: int | None
    sequence_number: int
    manifest_list: str
    paths: tuple[str, ...]


@dataclass(slots=True)
class Producer:
    """Writes the metadata of one attempt. Create a new one for each.

    Args:
        change: The change.
        metadata: The current table, with the change's new schema if it has one.
        io: Writes the files.
        snapshot_id: The same for every attempt, so that a lost answer can be looked up.
        table: The table's name, for messages.
    """

    change: Change
    metadata: TableMetadata
    io: FileIO
    snapshot_id: int
    table: str
    paths: list[str] = field(default_factory=list)
    _commit_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _files: MetadataFiles = field(init=False)
    _merge: ManifestMerge = field(init=False)

    def __post_init__(self) -> None:
        self._files = metadata_files(self.io, table=self.table)
        self._merge = ManifestMerge.of(self.metadata.properties)

    def produce(self) -> Produced:
        """Write manifests and the manifest list. After an error, delete the files in `paths`.

        Raises:
            CommitConflictError: If a file to be removed is no longer in the table.
        """
        branch = self.change.branch
        parent = self.metadata.snapshot_by_name(branch)
        parent_id = parent.snapshot_id if parent else None
        sequence_number = self.metadata.next_sequence_number()
        with exact_manifests():
            manifests, removed_deletes = self._manifests(parent)
        snapshot = Snapshot(
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            manifest_list=self._write_list(manifests, parent_id),
            sequence_number=sequence_number,
            summary=summarize(self.change, self.metadata, parent, removed_deletes),
            schema_id=self.metadata.current_schema_id,
        )
        moved = move_branch(self.metadata, branch, self.snapshot_id)
        return Produced(
            updates=(AddSnapshotUpdate(snapshot=snapshot), moved),
            requirements=(AssertRefSnapshotId(ref=branch, snapshot_id=parent_id),),
            parent_id=parent_id,
            sequence_number=sequence_number,
            manifest_list=snapshot.manifest_list,
            paths=tuple(self.paths),
        )

    def _manifests(self, parent: Snapshot | None) -> tuple[list[ManifestFile], list[DataFile]]:
        """All manifests of the new snapshot, and the delete files that it drops."""
        before = self._files.manifests_of(parent) if parent else []
        of = {
            content: [m for m in before if m.content == content and _is_live(m)]
            for content in ManifestContent
        }
        data = self._without(of[ManifestContent.DATA], self.change.removed)
        added = self._write_added(self.change.added, ManifestContent.DATA)
        deletes, removed = self._live_deletes(of[ManifestContent.DELETES], data)
        added_deletes = self._write_added(self.change.added_deletes, ManifestContent.DELETES)
        kept = {manifest.manifest_path for manifest in before}
        return (
            added + self._merged(data, kept) + added_deletes + self._merged(deletes, kept),
            removed,
        )

    def _merged(self, manifests: list[ManifestFile], kept: set[str]) -> list[ManifestFile]:
        """The manifests, with many small ones merged into one.

        Only manifests that this change does not touch are merged. The others name the files that
        the change adds and removes, which later commits look up.
        """
        touched = [manifest for manifest in manifests if manifest.manifest_path not in kept]
        waiting = [manifest for manifest in manifests if manifest.manifest_path in kept]
        groups = self._merge.bins(waiting)
        return touched + [g[0] if len(g) == 1 else self._rewrite(g, set()) for g in groups]

    def _live_deletes(
        self, manifests: list[ManifestFile], data: list[ManifestFile]
    ) -> tuple[list[ManifestFile], list[DataFile]]:
        """The delete manifests that still apply: a delete file applies only to older data."""
        removed = list(self.change.removed_deletes)
        if self.change.removed and manifests:
            oldest = min(
                (m.min_sequence_number for m in data if _is_live(m)),
                default=self.metadata.next_sequence_number(),
            )
            named = {file.file_path for file in removed}
            for manifest in manifests:
                if manifest.min_sequence_number >= oldest:
                    continue
                for entry in self._files.entries(manifest):
                    sequence = entry.sequence_number or 0
                    if sequence < oldest and entry.data_file.file_path not in named:
                        removed.append(entry.data_file)
        return self._without(manifests, removed), removed

    def _without(
        self, manifests: list[ManifestFile], removed: Sequence[DataFile]
    ) -> list[ManifestFile]:
        """The manifests with some files marked as removed; other manifests are kept."""
        left = Counter(file.file_path for file in removed)  # a file may be in the table twice
        specs = {file.spec_id for file in removed}
        result = []
        for manifest in manifests:
            here: Counter[str] = Counter()
            if left and manifest.partition_spec_id in specs:
                paths = (entry.data_file.file_path for entry in self._files.entries(manifest))
                here.update(path for path in paths if path in left)
            result.append(self._rewrite([manifest], set(here)) if here else manifest)
            left -= here
        if left:
            raise CommitConflictError(
                f"{len(left)} files of {self.table} that this change replaces were removed by "
                f"another commit, such as {min(left)}. Nothing was changed; start again"
            )
        return result

    def _rewrite(self, manifests: list[ManifestFile], removed: set[str]) -> ManifestFile:
        """One manifest with the files of several; some files are marked as removed.

        The manifests are read entry by entry, because they may be large.
        """
        first = manifests[0]
        with written(self._writer(first.content, first.partition_spec_id)) as writer:
            for manifest in manifests:
                for entry in self._files.entries(manifest):
                    if entry.data_file.file_path in removed:
                        writer.delete(entry)
                    else:
                        writer.existing(entry)
        return writer.to_manifest_file()

    def _write_added(
        self, files: Sequence[DataFile], content: ManifestContent
    ) -> list[ManifestFile]:
        """One manifest per partition spec, or several if one would exceed the target size."""
        by_spec: dict[int, list[DataFile]] = defaultdict(list)
        for file in files:
            by_spec[file.spec_id or 0].append(file)
        manifests = []
        for spec_id, group in by_spec.items():
            waiting = iter(group)
            for first in waiting:
                with written(self._writer(content, spec_id)) as writer:
                    for file in itertools.chain([first], waiting):
                        writer.add_entry(self._entry(file))
                        if writer.tell() >= self._merge.target_bytes:
                            break
                manifests.append(writer.to_manifest_file())
        return manifests

    def _entry(self, file: DataFile) -> ManifestEntry:
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED,
            snapshot_id=self.snapshot_id,
            sequence_number=None,
            file_sequence_number=None,
            data_file=file,
        )

    def _writer(self, content: ManifestContent, spec_id: int) -> ManifestWriter:
        spec = self.metadata.specs()[spec_id]
        schema = schema_for(self.metadata, spec)
        path = self._new_path(f"{self._commit_id}-m{next(self._numbers)}.avro")
        settings = self.io.new_output(path), self.snapshot_id, self._compression
        if content == ManifestContent.DELETES:
            return DeleteManifestWriter(spec, schema, *settings)
        return write_manifest(self.metadata.format_version, spec, schema, *settings)

    def _write_list(self, manifests: list[ManifestFile], parent_id: int | None) -> str:
        path = self._new_path(f"snap-{self.snapshot_id}-0-{self._commit_id}.avro")
        manifest_list = write_manifest_list(
            format_version=self.metadata.format_version,
            output_file=self.io.new_output(path),
            snapshot_id=self.snapshot_id,
            parent_snapshot_id=parent_id,
            sequence_number=self.metadata.next_sequence_number(),
            avro_compression=self._compression,
        )
        with written(manifest_list) as writer:
            writer.add_manifests(manifests)
        return path

    def _new_path(self, name: str) -> str:
        locations = load_location_provider(self.metadata.location, self.metadata.properties)
        path = locations.new_metadata_location(name)
        self.paths.append(path)
        return path

    @property
    def _compression(self) -> AvroCompressionCodec:
        codec: AvroCompressionCodec = self.metadata.properties.get(  # type: ignore[assignment]
            TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
        )
        return codec


def move_branch(metadata: TableMetadata, branch: str, snapshot_id: int) -> SetSnapshotRefUpdate:
    """The update that moves a branch. It replaces the whole ref, so it repeats the retention."""
    before = metadata.refs.get(branch)
    return SetSnapshotRefUpdate(
        ref_name=branch,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=before.max_ref_age_ms if before else None,
        max_snapshot_age_ms=before.max_snapshot_age_ms if before else None,
        min_snapshots_to_keep=before.min_snapshots_to_keep if before else None,
    )


def _is_live(manifest: ManifestFile) -> bool:
    return manifest.has_added_files() or manifest.has_existing_files()
