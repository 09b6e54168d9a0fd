"""Which files are rewritten together, so that each commit is worth its work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask

from icestream.commit.change import partition_values
from icestream.upkeep.sizes import small_below

# What one commit rewrites at most, so that a conflict costs no more than that.
_TARGETS_PER_GROUP = 10
_FILES_PER_GROUP = 10_000


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are read, written again and replaced by one snapshot.

    Attributes:
        tasks: The files with the deletes that apply to them, in the order in which they are read.
    """

    tasks: tuple[FileScanTask, ...]

    @property
    def bytes(self) -> int:
        """Their size in storage."""
        return sum(task.file.file_size_in_bytes for task in self.tasks)

    @property
    def rows(self) -> int:
        """Rows in the files, deleted ones among them."""
        return sum(task.file.record_count for task in self.tasks)

    @property
    def has_deletes(self) -> bool:
        """Whether rows of any of the files are deleted."""
        return any(task.delete_files for task in self.tasks)

    def has_only(self, spec_id: int) -> bool:
        """Whether all files are of one partition spec."""
        return all(task.file.spec_id == spec_id for task in self.tasks)


@dataclass(frozen=True, slots=True)
class Grouping:
    """How files are put together.

    Args:
        target_bytes: How large files are to be.
        min_files: How many small files of a partition are worth a rewrite.
        spec_id: The partition spec that files are written under.
        selects: Whether a file is to be looked at.
    """

    target_bytes: int
    min_files: int
    spec_id: int
    selects: Callable[[DataFile], bool] = lambda file: True

    def groups(self, tasks: Iterable[FileScanTask]) -> list[Group]:
        """Small files and files with deletes, partition by partition, packed into groups.

        Files of one partition keep their order. Those of an older spec are put together whatever
        their partition, as their rows may go to the same partitions now.
        """
        by_partition: dict[object, list[FileScanTask]] = {}
        for task in tasks:
            if self._is_wanted(task):
                by_partition.setdefault(self._key(task.file), []).append(task)
        pieces = (
            piece
            for listed in by_partition.values()
            for piece in self._packed(Group((task,)) for task in listed)
            if self._is_worth_it(piece)
        )
        # Small pieces of several partitions go together: a snapshot for each would be too many.
        return list(self._packed(pieces))

    def _is_wanted(self, task: FileScanTask) -> bool:
        small = task.file.file_size_in_bytes < small_below(self.target_bytes)
        return (small or bool(task.delete_files)) and self.selects(task.file)

    def _key(self, file: DataFile) -> object:
        return partition_values(file) if file.spec_id == self.spec_id else None

    def _is_worth_it(self, piece: Group) -> bool:
        if piece.has_deletes:
            return True
        files_after = -(-piece.bytes // self.target_bytes)
        return len(piece.tasks) >= max(2, self.min_files) and files_after < len(piece.tasks)

    def _packed(self, pieces: Iterable[Group]) -> Iterator[Group]:
        """Join pieces, in their order, as long as they fit into a group."""
        joined: list[FileScanTask] = []
        joined_bytes = 0
        for piece in pieces:
            fits = (
                joined_bytes + piece.bytes <= _TARGETS_PER_GROUP * self.target_bytes
                and len(joined) + len(piece.tasks) <= _FILES_PER_GROUP
            )
            if joined and not fits:
                yield Group(tuple(joined))
                joined, joined_bytes = [], 0
            joined.extend(piece.tasks)
            joined_bytes += piece.bytes
        if joined:
            yield Group(tuple(joined))
