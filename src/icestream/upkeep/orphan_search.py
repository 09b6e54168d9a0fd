"""Looking for orphans: what the table refers to, what lies in storage, and what is under way."""

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
from icestream.report import OrphanFile
from icestream.upkeep.folder import Folder, StoredFile, is_hidden
from icestream.upkeep.markers import Marker, Markers
from icestream.upkeep.nested_tables import NestedTables
from icestream.upkeep.references import References

_VERSION_HINT = "version-hint.text"

Verdict = Literal["in-flight", "unreferenced", "young", "live", "foreign"]


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

    Args:
        table: The table; it is refreshed.
        cutoff_ms: Files written later than this are too young.
        now_ms: The time.
        more_folders: Folders besides the location that hold nothing but the table's files.

    Raises:
        InvalidArgumentError: If the table is none.
    """

    def __init__(
        self, table: Table, cutoff_ms: int, now_ms: int, more_folders: tuple[str, ...]
    ) -> None:
        if not isinstance(table, Table):
            raise InvalidArgumentError(
                f"the table is a {type(table).__name__}: give a PyIceberg Table"
            )
        self.cutoff_ms = cutoff_ms
        self.files_listed = 0
        self.verdicts: Counter[Verdict] = Counter()
        self.references = References()
        self._now_ms = now_ms
        self._table = table
        self._landing = TableLanding(table)
        self.name = self._landing.name
        metadata = self._landing.refresh()
        self._uuid = metadata.table_uuid
        locations = load_location_provider(metadata.location, metadata.properties)
        self._metadata_folder = Folder(table.io, locations.metadata_path)
        self.folders = _outermost(
            Folder(table.io, location) for location in (metadata.location, *more_folders)
        )
        self._shared = [
            folder
            for folder in (Folder(table.io, locations.data_path), self._metadata_folder)
            if not any(_is_in(folder, own) for own in self.folders)
        ]
        own = Folder(table.io, metadata.location).key
        self.nested = NestedTables(table.io, str(self._uuid), own)
        self._found_own = False
        self._partition_names = _partition_names(metadata)

    def run(self) -> list[Orphan]:
        """Find the orphans.

        References are read before the listing, so that it need not be kept, and again after it: a
        file committed in between is one. Markers come before the references, as a write that
        commits in between removes its marker.
        """
        self.references.add(self._table)
        markers = self._read_markers()
        files = list(self._unreferenced(markers))
        self._refuse_a_strange_location(files)
        markers = self._read_markers()
        self._landing.refresh()  # an error if it is another table by now
        self.references.add(self._table)
        judge = _Judge(markers, self._metadata_folder, self.cutoff_ms, self._now_ms)
        files = [file for file in files if file.key not in self.references]
        judge.look_at(files)
        result = []
        for file in files:
            verdict = "foreign" if self.nested.holds(file.key) else judge.verdict(file)
            if verdict == "unreferenced" and not self._is_own(file):
                verdict = "foreign"
            self.verdicts[verdict] += 1
            if verdict in ("in-flight", "unreferenced"):
                marker = markers.of(file.name)
                result.append(Orphan(file, verdict, marker.write_id if marker else None))
        return result

    def _read_markers(self) -> Markers:
        return Markers.read(self._metadata_folder, self._table.metadata)

    def _unreferenced(self, markers: Markers) -> Iterator[StoredFile]:
        """Files in storage that the table did not refer to when it was first looked at."""
        for folder in self.folders:
            for file in folder.files():
                self.files_listed += 1
                if file.key in self.references:
                    self._found_own = True
                    continue
                if file.name == _VERSION_HINT:
                    continue
                self.nested.look_at(file)
                if not is_hidden(file.relative, self._partition_names):
                    yield file
        # Elsewhere only files of our own unfinished writes are looked for.
        for folder in self._shared if len(markers) else ():
            for file in folder.files():
                self.files_listed += 1
                known = file.key in self.references or self._is_own(file)
                if not known and markers.of(file.name) is not None:
                    yield file

    def _is_own(self, file: StoredFile) -> bool:
        return any(folder.holds(file.key) for folder in self.folders)

    def _refuse_a_strange_location(self, files: list[StoredFile]) -> None:
        """If not one file in storage is the table's, its paths are not what they seem."""
        expected = any(_is_in(self._metadata_folder, folder) for folder in self.folders)
        if files and expected and not self._found_own:
            raise CatalogError(
                f"not one of the {self.files_listed} files below {self.folders[0].location} is "
                f"referred to by {self.name}, whose metadata should be there "
                f"({self._table.metadata_location}): its paths are written in a way that can't be "
                "matched, so nothing was called an orphan"
            )


class _Judge:
    """Says what an unreferenced file is."""

    def __init__(
        self, markers: Markers, metadata_folder: Folder, cutoff_ms: int, now_ms: int
    ) -> None:
        self._markers = markers
        self._metadata_folder = metadata_folder
        self._cutoff_ms = cutoff_ms
        self._now_ms = now_ms
        self._newest_ms: dict[str, int] = {}
        self._first_live_start_ms = min(
            (marker.started_ms for marker in markers if marker.is_live(now_ms)), default=None
        )

    def look_at(self, files: list[StoredFile]) -> None:
        """Learn how old each write's newest file is: it is a sign of life, too."""
        for file in files:
            marker = self._markers.of(file.name)
            if marker is not None:
                newest = self._newest_ms.get(marker.write_id, 0)
                self._newest_ms[marker.write_id] = max(newest, file.modified_ms or self._now_ms)

    def verdict(self, file: StoredFile) -> Verdict:
        marker = self._markers.of(file.name)
        if marker is not None:
            return self._verdict_on_write(marker)
        if file.modified_ms is None or file.modified_ms > self._cutoff_ms:
            return "young"
        live = self._first_live_start_ms
        if live is not None and file.modified_ms >= live and self._metadata_folder.holds(file.key):
            return "live"  # perhaps a manifest of the write's commit: they don't carry its id
        return "unreferenced"

    def _verdict_on_write(self, marker: Marker) -> Verdict:
        if not marker.is_ours:
            return "foreign"
        if marker.is_live(self._now_ms):
            return "live"
        sign_ms = max(marker.renewed_ms, self._newest_ms.get(marker.write_id, 0))
        return "young" if sign_ms > self._cutoff_ms else "in-flight"


def _outermost(folders: Iterable[Folder]) -> list[Folder]:
    """The folders without those that lie in another one of them."""
    kept: list[Folder] = []
    for folder in folders:
        if not any(_is_in(folder, other) for other in kept):
            kept = [other for other in kept if not _is_in(other, folder)] + [folder]
    return kept


def _is_in(folder: Folder, other: Folder) -> bool:
    return folder.key == other.key or other.holds(folder.key)


def _partition_names(metadata: TableMetadata) -> frozenset[str]:
    """Partition fields as they are written in paths."""
    names = [field.name for spec in metadata.partition_specs for field in spec.fields]
    return frozenset([*names, *map(quote_plus, names)])
