"""Tables that lie below another table's location."""

from __future__ import annotations

import posixpath

from pyiceberg.io import FileIO
from pyiceberg.serializers import FromInputFile

from icestream.upkeep.folder import StoredFile


class NestedTables:
    """Finds folders that belong to another table, by the metadata files in them.

    Args:
        io: How metadata files are read.
        table_uuid: The table itself; its own metadata may lie in several folders.
        location_key: Its location, as `path_key` has it: neither that nor a folder above it is
            another table's.
    """

    def __init__(self, io: FileIO, table_uuid: str, location_key: str) -> None:
        self._io = io
        self._table_uuid = table_uuid
        self._location_key = location_key
        self._newest: dict[str, StoredFile] = {}
        self._judged: dict[str, bool] = {}

    def look_at(self, file: StoredFile) -> None:
        """Note a file that this table does not refer to, if it is a table's metadata."""
        if not file.name.endswith((".metadata.json", ".metadata.json.gz")):
            return
        folder = posixpath.dirname(file.key)
        if posixpath.basename(folder) == "metadata":
            folder = posixpath.dirname(folder)
        if f"{self._location_key}/".startswith(f"{folder}/"):
            return
        before = self._newest.get(folder)
        if before is None or (before.modified_ms or 0) <= (file.modified_ms or 0):
            self._newest[folder] = file

    def holds(self, key: str) -> bool:
        """Whether a path lies in another table's folder. Ask when all files were looked at."""
        folder = posixpath.dirname(key)
        while self._newest and folder != "/":
            if folder in self._newest and self._is_foreign(folder):
                return True
            folder = posixpath.dirname(folder)
        return False

    def found(self) -> tuple[str, ...]:
        """The folders that turned out to be other tables'."""
        return tuple(sorted(f for f, is_foreign in self._judged.items() if is_foreign))

    def _is_foreign(self, folder: str) -> bool:
        """A folder with metadata of another table, or with some that can't be read."""
        if folder not in self._judged:
            try:
                metadata = FromInputFile.table_metadata(
                    self._io.new_input(self._newest[folder].path)
                )
                self._judged[folder] = str(metadata.table_uuid) != self._table_uuid
            except Exception:
                self._judged[folder] = True
        return self._judged[folder]
