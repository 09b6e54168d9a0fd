"""The search for orphans: compares files in storage with references and running writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote_plus

from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata

from icestream.catalogs.credentials import table_access
from icestream.commit.landing import TableLanding
from icestream.errors import CatalogError, InvalidArgumentError
from icestream.memory.budget import MemoryBudget
from icestream.operations.upkeep.folder import Folder, Storage, StoredFile, is_hidden
from icestream.operations.upkeep.markers import Markers
from icestream.operations.upkeep.orphan_search.candidates import CHUNK_FILES, Candidates
from icestream.operations.upkeep.orphan_search.catalog_tables import (
    CatalogTable,
    CatalogTables,
    lies_in,
    overlaps,
)
from icestream.operations.upkeep.orphan_search.metadata_file import MetadataFile
from icestream.operations.upkeep.orphan_search.other_tables import (
    OtherTables,
    SharedFoldersError,
    Sharing,
)
from icestream.operations.upkeep.orphan_search.own_versions import OwnVersions
from icestream.operations.upkeep.orphan_search.references import References
from icestream.operations.upkeep.orphan_search.verdicts import Judge, Verdict
from icestream.operations.upkeep.path_keys import folder_key, path_key
from icestream.report.upkeep_report import OrphanFile

_VERSION_HINT = "version-hint.text"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that nothing refers to.

    Attributes:
        file: The file.
        reason: Why it is an orphan.
        write_id: The write that left it, if that is known.
    """

    file: StoredFile
    reason: Literal["in-flight", "unreferenced"]
    write_id: str | None

    def described(self) -> OrphanFile:
        """The orphan as an entry of a report."""
        file = self.file
        return OrphanFile(file.path, file.size_bytes, file.modified_ms, self.reason, self.write_id)


class OrphanSearch:
    """One search of a table's storage.

    Memory: references take a share of the budget, and go to disk beyond it. In addition, the
    memory for listing a folder.

    Args:
        table: The table; it is refreshed.
        cutoff_ms: Files written after this time are too young.
        now_ms: The current time.
        more_folders: Folders outside the location that hold only the table's files.
        sharing: The options on other tables.
        budget: The budget that the search is charged to.
        storage: Lists the folders.
    """

    def __init__(
        self,
        table: Table,
        cutoff_ms: int,
        now_ms: int,
        more_folders: tuple[str, ...],
        sharing: Sharing,
        budget: MemoryBudget,
        storage: Storage,
    ) -> None:
        self.cutoff_ms = cutoff_ms
        self._storage = storage
        self.files_listed = 0
        self.verdicts: Counter[Verdict] = Counter()
        self._now_ms = now_ms
        self._table = table
        self._sharing = sharing
        self._landing = TableLanding(table)
        self.name = self._landing.name
        metadata = self._landing.refresh()
        locations = load_location_provider(metadata.location, metadata.properties)
        self._io = table_access(table)
        self._data_folder = Folder(self._io, locations.data_path)
        self._metadata_folder = Folder(self._io, locations.metadata_path)
        self.folders = _outermost(
            Folder(self._io, location) for location in (metadata.location, *more_folders)
        )
        self._shared = [
            folder
            for folder in (self._data_folder, self._metadata_folder)
            if not any(_is_in(folder, own) for own in self.folders)
        ]
        self.references = References(budget)
        self._others_references = References(budget, beyond=self.references)
        self._own = OwnVersions(table, budget)
        self.others = OtherTables(
            self._io,
            self._own,
            self._others_references,
            sharing,
            budget,
            self._concerns,
            self._may_be_left,
        )
        self._candidates = Candidates([*self.folders, *self._shared], budget)
        self._other_folders: list[Folder] = []
        self._found_own = False
        self._partition_names = _partition_names(metadata)
        self._seen_version = ""

    def close(self) -> None:
        """Drop everything."""
        self._candidates.close()
        self.references.close()
        self._others_references.close()

    def look(self, *, twice: bool) -> None:
        """Find the unreferenced files.

        References are read before the listing, so that the listing need not be kept. They are read
        again after it, because files may be committed in between. Markers are read before the
        references, because a write removes its marker when it commits.

        Args:
            twice: Whether to list again before files are deleted, to find tables that were created
                in between.

        Raises:
            CatalogError: If another table may have files here, or metadata can't be read.
        """
        self._take_in_references()
        listed: list[StoredFile] = []
        for file in self._unreferenced(self._read_markers()):
            listed.append(file)
            if len(listed) >= CHUNK_FILES:
                self._candidates.add(self._still_unreferenced(listed))
                listed = []
        self._candidates.add(self._still_unreferenced(listed))
        self._refuse_a_strange_location()
        self._judge_others()
        if len(self._candidates) or self._sharing.dropped:
            self._ask_the_catalog()
        if twice and len(self._candidates):
            for folder in self.folders:
                for file in self._storage.files(folder):
                    self.others.look_at(file)
            self._look_at_far_metadata()
            self._judge_others()
        self._markers = self._read_markers()
        self._judge = Judge(
            self._markers,
            self._metadata_folder,
            self.cutoff_ms,
            self._now_ms,
            [Markers.read(folder, self._table.metadata) for folder in self._other_folders],
        )
        self._take_in_references()
        for files in self._candidates.chunks():
            self._judge.look_at(self._still_unreferenced(files))

    def orphans(self) -> Iterator[list[Orphan]]:
        """The orphans, in chunks of some thousands. The table is refreshed before each chunk."""
        for files in self._candidates.chunks():
            self._take_in_references()
            yield list(self._among(files))

    def _among(self, files: list[StoredFile]) -> Iterator[Orphan]:
        unreferenced = self._still_unreferenced(files)
        others = self._others_references.hold(unreferenced)
        names = self.references.name(unreferenced)
        for file, is_kept, is_named in zip(unreferenced, others, names, strict=True):
            is_others = is_kept or is_named or self.others.hold(file.key)
            verdict: Verdict = "others" if is_others else self._judge.verdict(file)
            if verdict == "unreferenced" and not self._is_own(file):
                verdict = "others"
            self.verdicts[verdict] += 1
            if verdict in ("in-flight", "unreferenced"):
                marker = self._markers.of(file.name)
                yield Orphan(file, verdict, marker.write_id if marker else None)

    def _take_in_references(self) -> None:
        """Read the current references of the table, unless its version is unchanged."""
        self._landing.refresh()  # Raises an error if the name now belongs to another table.
        if self._table.metadata_location != self._seen_version:
            self.references.add(self._table)
            self._own.add(self._table)
            self._seen_version = self._table.metadata_location

    def _still_unreferenced(self, files: list[StoredFile]) -> list[StoredFile]:
        held = self.references.hold(files)
        self._found_own = self._found_own or self.references.hold_any_path(files)
        return [file for file, is_held in zip(files, held, strict=True) if not is_held]

    def _read_markers(self) -> Markers:
        return Markers.read(
            self._metadata_folder,
            self._table.metadata,
            others=self.others.uuids,
            dropped=self._sharing.dropped,
            is_shared=self._metadata_folder in self._shared,
        )

    def _unreferenced(self, markers: Markers) -> Iterator[StoredFile]:
        """Files in storage that may be orphans; many of them are referenced."""
        for folder in self.folders:
            for file in self._storage.files(folder):
                self.files_listed += 1
                if file.name == _VERSION_HINT:
                    continue
                self.others.look_at(file)
                if not is_hidden(file.relative, self._partition_names):
                    yield file
        self._look_at_far_metadata()
        # In shared folders, look only for files of our own unfinished writes.
        for folder in self._shared if len(markers) else ():
            for file in self._storage.files(folder):
                self.files_listed += 1
                if not self._is_own(file) and markers.of(file.name) is not None:
                    yield file

    def _look_at_far_metadata(self) -> None:
        """Look at metadata files next to the table's own ones outside its folders."""
        far = (Folder(self._io, location) for location in self._own.locations)
        for folder in (self._metadata_folder, *far):
            if not any(_is_in(folder, own) for own in self.folders):
                for file in folder.files(recursive=False):
                    self.others.look_at(file)

    def _concerns(self, read: MetadataFile) -> bool:
        """Whether the table of a metadata file may have files in this table's folders."""
        if any(own.holds(path_key(read.path)) for own in self.folders):
            return True
        written = [folder_key(location) for location in read.written_folders]
        location = folder_key(read.location)
        return self._overlaps(location, written)

    def _judge_others(self) -> None:
        try:
            self.others.judge()
        except SharedFoldersError as shared:
            tables = CatalogTables(self._table).all()
            names = {seen.table_uuid: ".".join(seen.name) for seen in tables}
            raise shared.refusal(self.name, names) from None

    def _ask_the_catalog(self) -> None:
        """Look for tables of the same catalog that have files in this table's folders."""
        tables = CatalogTables(self._table)
        for seen in tables.all():
            is_copy = seen.table_uuid == self._own.table_uuid
            if not (is_copy or seen.table_uuid in self._sharing.dropped or self._writes_here(seen)):
                continue
            loaded = tables.load(seen.name)  # the current version
            if loaded is None:
                continue
            name, uuid = ".".join(seen.name), str(loaded.metadata.table_uuid)
            if uuid in self._sharing.dropped:
                raise InvalidArgumentError(
                    f"dropped names {uuid}, but the catalog still has this table as {name}: leave "
                    "it out"
                )
            if not is_copy and not self._sharing.keeps_others:
                raise CatalogError(
                    f"{name} (id {uuid}) of the same catalog also has files in this table's "
                    f"folders: {loaded.location()}. They would look like orphans, so no file was "
                    "reported as an orphan. Pass other_tables='keep' to keep them"
                )
            self.others.uuids.add(uuid)
            self._others_references.add(loaded)
            locations = load_location_provider(loaded.location(), loaded.metadata.properties)
            folder = Folder(self._io, locations.metadata_path)
            if folder.key != self._metadata_folder.key:
                self._other_folders.append(folder)

    def _writes_here(self, seen: CatalogTable) -> bool:
        location, *written = seen.folders
        return self._overlaps(location, written)

    def _overlaps(self, location: str, written: Iterable[str]) -> bool:
        """Whether a table with these folders may have files in this table's folders."""
        written = list(written)
        return any(
            lies_in(location, own.key) or any(overlaps(folder, own.key) for folder in written)
            for own in self.folders
        )

    def _may_be_left(self, folder: str) -> bool:
        """Whether a folder may belong to another table alone: it has no folder of this table."""
        own = (self._data_folder.key, self._metadata_folder.key)
        return any(top.holds(folder) for top in self.folders) and not any(
            lies_in(key, folder) for key in own
        )

    def _is_own(self, file: StoredFile) -> bool:
        return any(folder.holds(file.key) for folder in self.folders)

    def _refuse_a_strange_location(self) -> None:
        """Refuse to continue if no stored file belongs to the table: its paths do not match."""
        expected = any(_is_in(self._metadata_folder, folder) for folder in self.folders)
        if len(self._candidates) and expected and not self._found_own:
            raise CatalogError(
                f"{self.name} refers to none of the {self.files_listed} files below "
                f"{self.folders[0].location}, where its metadata should be "
                f"({self._table.metadata_location}): its paths can't be matched with the files, so "
                "no file was reported as an orphan"
            )


def _outermost(folders: Iterable[Folder]) -> list[Folder]:
    """The folders that are not inside another one of them."""
    kept: list[Folder] = []
    for folder in folders:
        if not any(_is_in(folder, other) for other in kept):
            kept = [other for other in kept if not _is_in(other, folder)] + [folder]
    return kept


def _is_in(folder: Folder, other: Folder) -> bool:
    return lies_in(folder.key, other.key)


def _partition_names(metadata: TableMetadata) -> frozenset[str]:
    """The names of partition fields, as they appear in paths."""
    names = [field.name for spec in metadata.partition_specs for field in spec.fields]
    return frozenset([*names, *map(quote_plus, names)])
