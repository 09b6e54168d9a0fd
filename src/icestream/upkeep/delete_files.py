"""The delete files of a branch, and when the last file that one applies to is gone."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from icestream.upkeep.manifest_entries import live_files, manifests_of


class AppliedDeletes:
    """Which delete files apply to which data files.

    A position delete file names the data files it is for, all of them older than itself, so that it
    does nothing once these are gone: files that are added later are never among them.

    Args:
        tasks: Every data file of the branch, with the delete files that may apply to it.
        live: Every delete file of the branch.
    """

    def __init__(self, tasks: Iterable[FileScanTask], live: Iterable[DataFile]) -> None:
        self._waiting: dict[str, set[str]] = {}
        self._files: dict[str, DataFile] = {file.file_path: file for file in live}
        for task in tasks:
            self.note(task)

    def note(self, task: FileScanTask) -> None:
        """Take in one more data file of the branch."""
        for delete in task.delete_files:
            self._files.setdefault(delete.file_path, delete)
            self._waiting.setdefault(delete.file_path, set()).add(task.file.file_path)

    def useless_without(self, gone: Iterable[str]) -> tuple[DataFile, ...]:
        """The delete files that do nothing any more if these data files are gone, too."""
        without = set(gone)
        return tuple(
            file for path, file in self._files.items() if self._waiting.get(path, set()) <= without
        )

    def forget(self, data_files: Iterable[str], delete_files: Iterable[DataFile]) -> None:
        """Note what a commit removed."""
        removed = set(data_files)
        for waiting in self._waiting.values():
            waiting -= removed
        for file in delete_files:
            self._files.pop(file.file_path, None)


def live_delete_files(metadata: TableMetadata, io: FileIO, branch: str) -> list[DataFile]:
    """The delete files of a branch as it is."""
    head = metadata.snapshot_by_name(branch)
    manifests = manifests_of(io, head.manifest_list) if head else []
    deletes = [m for m in manifests if m.content == ManifestContent.DELETES]
    return [file for _, file in live_files(io, deletes)]
