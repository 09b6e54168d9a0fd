"""Which files are rewritten together, so that each commit is worth its work."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask

from icestream.commit.change import partition_values
from icestream.commit.kept_tasks import pack_task, packed_bytes, unpack_task
from icestream.upkeep.sizes import small_below

# What one commit rewrites at most, so that a conflict costs no more than that.
_TARGETS_PER_GROUP = 10
_FILES_PER_GROUP = 10_000
_SINGLE_BYTES = 150  # of a group of one file, beside the file's description


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are read, written again and replaced by one snapshot.

    Attributes:
        files: The files with the deletes that apply to them, packed, in the order in which they are
            read.
        bytes: Their size in storage.
        rows: Rows in the files, deleted ones among them.
        has_deletes: Whether rows of any of the files are deleted.
        spec_ids: The partition specs of the files.
    """

    files: tuple[builtins.bytes, ...] = ()
    bytes: int = 0
    rows: int = 0
    has_deletes: bool = False
    spec_ids: frozenset[int] = frozenset()

    @classmethod
    def of(cls, task: FileScanTask) -> Group:
        """A single file."""
        file = task.file
        return cls(
            (pack_task(task),),
            file.file_size_in_bytes,
            file.record_count,
            bool(task.delete_files),
            frozenset((file.spec_id,)),
        )

    @classmethod
    def joined(cls, pieces: Sequence[Group]) -> Group:
        """Several groups as one, in their order."""
        return cls(
            tuple(file for piece in pieces for file in piece.files),
            sum(piece.bytes for piece in pieces),
            sum(piece.rows for piece in pieces),
            any(piece.has_deletes for piece in pieces),
            frozenset().union(*(piece.spec_ids for piece in pieces)),
        )

    @property
    def tasks(self) -> tuple[FileScanTask, ...]:
        """The files with the deletes that apply to them; made anew each time."""
        return tuple(unpack_task(file) for file in self.files)

    def has_only(self, spec_id: int) -> bool:
        """Whether all files are of one partition spec."""
        return self.spec_ids <= {spec_id}


@dataclass(frozen=True, slots=True)
class Grouping:
    """How files are put together.

    Args:
        target_bytes: How large files are to be.
        min_files: How many small files of a partition are worth a rewrite.
        spec_id: The partition spec that files are written under.
        selects: Whether a file is to be looked at.
        charge: Called with the bytes that the description of each chosen file takes.
    """

    target_bytes: int
    min_files: int
    spec_id: int
    selects: Callable[[DataFile], bool] = lambda file: True
    charge: Callable[[int], None] = lambda count: None

    def groups(self, tasks: Iterable[FileScanTask]) -> list[Group]:
        """Small files and files with deletes, partition by partition, packed into groups.

        Files of one partition keep their order. Those of an older spec are put together whatever
        their partition, as their rows may go to the same partitions now.
        """
        by_partition: dict[object, list[Group]] = {}
        for task in tasks:
            if self._is_wanted(task):
                single = Group.of(task)
                self.charge(packed_bytes(single.files[0]) + _SINGLE_BYTES)
                by_partition.setdefault(self._key(task.file), []).append(single)
        pieces = (
            piece
            for listed in by_partition.values()
            for piece in self._packed(listed)
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
        return len(piece.files) >= max(2, self.min_files) and files_after < len(piece.files)

    def _packed(self, pieces: Iterable[Group]) -> Iterator[Group]:
        """Join pieces, in their order, as long as they fit into a group."""
        joined: list[Group] = []
        joined_bytes = joined_files = 0
        for piece in pieces:
            fits = (
                joined_bytes + piece.bytes <= _TARGETS_PER_GROUP * self.target_bytes
                and joined_files + len(piece.files) <= _FILES_PER_GROUP
            )
            if joined and not fits:
                yield Group.joined(joined)
                joined, joined_bytes, joined_files = [], 0, 0
            joined.append(piece)
            joined_bytes += piece.bytes
            joined_files += len(piece.files)
        if joined:
            yield Group.joined(joined)
