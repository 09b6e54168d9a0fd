"""Looking for orphans: what tables refer to, what lies in storage, and what is under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote_plus

from pyiceberg.table import Table
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata

from icestream.commit.landing import TableLanding
from icestream.errors import CatalogError, InvalidArgumentError
from icestream.memory import MemoryBudget
from icestream.report import OrphanFile
from icestream.upkeep.folder import Folder, StoredFile, is_hidden
from icestream.upkeep.markers import Markers
from icestream.upkeep.path_keys import folder_key, path_key
from icestream.upkeep.search.candidates import CHUNK_FILES, Candidates
from icestream.upkeep.search.catalog_tables import CatalogTable, CatalogTables, overlaps
from icestream.upkeep.search.metadata_file import MetadataFile
from icestream.upkeep.search.other_tables import OtherTables, SharedFoldersError
from icestream.upkeep.search.own_versions import OwnVersions
from icestream.upkeep.search.references import References
from icestream.upkeep.search.sharing import Sharing
from icestream.upkeep.search.verdicts import Judge, Verdict

_VERSION_HINT = "version-hint.text"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A file that nothing refers to.

    Attributes:
        file: The file.
        reason: Why it is one.
        write_id: The write that it was left by, if that is known.
    """

    file: StoredFile
    reason: Literal["in-flight", "unreferenced"]
    write_id: str | None

    def described(self) -> OrphanFile:
        """The same for a report."""
        file = self.file
        return OrphanFile(file.path, file.size_bytes, file.modified_ms, self.reason, self.write_id)


class OrphanSearch:
    """One look at a table and its storage.

    Memory: a share of the budget for what tables refer to, the rest of that on disk; and what
    listing a folder takes.

    Args:
        table: The table; it is refreshed.
        cutoff_ms: Files written later than this are too young.
        now_ms: The time.
        more_folders: Folders besides the location that hold nothing but the table's files.
        sharing: What the caller says about other tables.
        budget: What the search is on lease from.
    """

    def __init__(
        self,
        table: Table,
        cutoff_ms: int,
        now_ms: int,
        more_folders: tuple[str, ...],
        sharing: Sharing,
        budget: MemoryBudget,
    ) -> None:
        self.cutoff_ms = cutoff_ms
        self.files_listed = 0
        self.verdicts: Counter[Verdict] = Counter()
        self._now_ms = now_ms
        self._table = table
        self._sharing = sharing
        self._landing = TableLanding(table)
        self.name = self._landing.name
        metadata = self._landing.refresh()
        locations = load_location_provider(metadata.location, metadata.properties)
        self._data_folder = Folder(table.io, locations.data_path)
        self._metadata_folder = Folder(table.io, locations.metadata_path)
        self.folders = _outermost(
            Folder(table.io, location) for location in (metadata.location, *more_folders)
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
            table.io,
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
        """Find out what is unreferenced.

        References are read before the listing, so that it need not be kept, and again after it: a
        file committed in between is one. Markers come before the references, as a write that
        commits in between removes its marker.

        Args:
            twice: Whether to list again, for tables that were made in between: what is found is to
                be deleted.

        Raises:
            CatalogError: If another table may live here, or something can't be read.
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
                for file in folder.files():
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
        """The orphans, some thousands at a time; each time the table is looked at once more."""
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
        """Read what the table refers to now, if it is not the version that was read last."""
        self._landing.refresh()  # an error if it is another table by now
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
        """Files in storage that may be orphans; many are referred to."""
        for folder in self.folders:
            for file in folder.files():
                self.files_listed += 1
                if file.name == _VERSION_HINT:
                    continue
                self.others.look_at(file)
                if not is_hidden(file.relative, self._partition_names):
                    yield file
        self._look_at_far_metadata()
        # Elsewhere only files of our own unfinished writes are looked for.
        for folder in self._shared if len(markers) else ():
            for file in folder.files():
                self.files_listed += 1
                if not self._is_own(file) and markers.of(file.name) is not None:
                    yield file

    def _look_at_far_metadata(self) -> None:
        """Look at metadata files beside the table's own where these lie elsewhere."""
        far = (Folder(self._table.io, location) for location in self._own.locations)
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
            loaded = tables.load(seen.name)  # as it is now
            if loaded is None:
                continue
            name, uuid = ".".join(seen.name), str(loaded.metadata.table_uuid)
            if uuid in self._sharing.dropped:
                raise InvalidArgumentError(
                    f"dropped names {uuid}, which is {name} in the catalog: it is not dropped"
                )
            if not is_copy and not self._sharing.keeps_others:
                raise CatalogError(
                    f"{name} (id {uuid}) of the same catalog has its files in this table's "
                    f"folders, too: {loaded.location()}. They would be taken for orphans, so "
                    "nothing was called an orphan. Pass other_tables='keep' to keep them"
                )
            self.others.uuids.add(uuid)
            self._others_references.add(loaded)
            locations = load_location_provider(loaded.location(), loaded.metadata.properties)
            folder = Folder(self._table.io, locations.metadata_path)
            if folder.key != self._metadata_folder.key:
                self._other_folders.append(folder)

    def _writes_here(self, seen: CatalogTable) -> bool:
        location, *written = seen.folders
        return self._overlaps(location, written)

    def _overlaps(self, location: str, written: Iterable[str]) -> bool:
        """Whether a table, by its folders, may have files in this table's."""
        written = list(written)
        return any(
            _lies_in(location, own.key) or any(overlaps(folder, own.key) for folder in written)
            for own in self.folders
        )

    def _may_be_left(self, folder: str) -> bool:
        """Whether a folder may be another table's as a whole: not one that this table's are in."""
        own = (self._data_folder.key, self._metadata_folder.key)
        return any(top.holds(folder) for top in self.folders) and not any(
            _lies_in(key, folder) for key in own
        )

    def _is_own(self, file: StoredFile) -> bool:
        return any(folder.holds(file.key) for folder in self.folders)

    def _refuse_a_strange_location(self) -> None:
        """If not one file in storage is the table's, its paths are not what they seem."""
        expected = any(_is_in(self._metadata_folder, folder) for folder in self.folders)
        if len(self._candidates) and expected and not self._found_own:
            raise CatalogError(
                f"not one of the {self.files_listed} files below {self.folders[0].location} is "
                f"referred to by {self.name}, whose metadata should be there "
                f"({self._table.metadata_location}): its paths are written in a way that can't be "
                "matched, so nothing was called an orphan"
            )


def _outermost(folders: Iterable[Folder]) -> list[Folder]:
    """The folders without those that lie in another one of them."""
    kept: list[Folder] = []
    for folder in folders:
        if not any(_is_in(folder, other) for other in kept):
            kept = [other for other in kept if not _is_in(other, folder)] + [folder]
    return kept


def _is_in(folder: Folder, other: Folder) -> bool:
    return _lies_in(folder.key, other.key)


def _lies_in(folder: str, other: str) -> bool:
    """Whether a folder is another one, or lies in it."""
    return f"{folder}/".startswith(f"{other.rstrip('/')}/")


def _partition_names(metadata: TableMetadata) -> frozenset[str]:
    """Partition fields as they are written in paths."""
    names = [field.name for spec in metadata.partition_specs for field in spec.fields]
    return frozenset([*names, *map(quote_plus, names)])
