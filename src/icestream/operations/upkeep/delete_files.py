"""Finds the delete files of a branch that no longer apply to any data file."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata

from icestream.operations.upkeep.manifest_entries import ManifestEntries
from icestream.read.plan.manifests import counts_files


class AppliedDeletes:
    """Records which delete files apply to which data files.

    A position delete file names its data files, and all of them are older than itself. Once they
    are gone it has no effect, because it never applies to files that are added later.

    Args:
        live: Every delete file of the branch.
    """

    def __init__(self, live: Iterable[DataFile]) -> None:
        self._waiting: dict[str, set[str]] = {}
        self._files: dict[str, DataFile] = {file.file_path: file for file in live}

    def add(self, task: FileScanTask) -> None:
        """Add a data file of the branch, with the delete files that may apply to it."""
        for delete in task.delete_files:
            self._files.setdefault(delete.file_path, delete)
            self._waiting.setdefault(delete.file_path, set()).add(task.file.file_path)

    def useless_without(self, gone: Iterable[str]) -> tuple[DataFile, ...]:
        """The delete files that have no effect once these data files are also gone."""
        without = set(gone)
        return tuple(
            file for path, file in self._files.items() if self._waiting.get(path, set()) <= without
        )

    def forget(self, data_files: Iterable[str], delete_files: Iterable[DataFile]) -> None:
        """Forget the files that a commit removed."""
        removed = set(data_files)
        for waiting in self._waiting.values():
            waiting -= removed
        for file in delete_files:
            self._files.pop(file.file_path, None)


def live_delete_files(
    metadata: TableMetadata, branch: str, entries: ManifestEntries
) -> list[DataFile]:
    """All delete files of a branch."""
    head = metadata.snapshot_by_name(branch)
    if head is None:
        return []
    manifests = entries.manifests(head.manifest_list, has_files=counts_files(head))
    return list(entries.files(m for m in manifests if m.content == ManifestContent.DELETES))
