"""Groups of small files that are rewritten together in one commit."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask

from icestream.commit.change import partition_values
from icestream.memory.budget import parse_bytes
from icestream.operations.kept_tasks import pack_task, packed_bytes, unpack_task
from icestream.write.parquet.parquet_settings import ParquetSettings

_SMALL = 0.75
# Limits for one commit, because a conflict wastes all of its work.
TARGETS_PER_GROUP = 10
_FILES_PER_GROUP = 10_000
_SINGLE_BYTES = 150  # per group of one file, in addition to the file's description


@dataclass(frozen=True, slots=True)
class Group:
    """Files that are rewritten and replaced in one snapshot.

    Attributes:
        files: The packed tasks of the files, in the order of reading.
        bytes: The stored size of the files.
        rows: The number of rows in the files, including deleted ones.
        has_deletes: Whether any of the files has deleted rows.
        spec_ids: The partition specs of the files.
    """

    files: tuple[builtins.bytes, ...] = ()
    bytes: int = 0
    rows: int = 0
    has_deletes: bool = False
    spec_ids: frozenset[int] = frozenset()

    @classmethod
    def of(cls, task: FileScanTask) -> Group:
        """A group of one file."""
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
        """Several groups as one, in the given order."""
        return cls(
            tuple(file for piece in pieces for file in piece.files),
            sum(piece.bytes for piece in pieces),
            sum(piece.rows for piece in pieces),
            any(piece.has_deletes for piece in pieces),
            frozenset().union(*(piece.spec_ids for piece in pieces)),
        )

    @property
    def tasks(self) -> tuple[FileScanTask, ...]:
        """The files with their delete files; unpacked on each access."""
        return tuple(unpack_task(file) for file in self.files)

    def has_only(self, spec_id: int) -> bool:
        """Whether all files have this partition spec."""
        return self.spec_ids <= {spec_id}


@dataclass(frozen=True, slots=True)
class Grouping:
    """Divides files into groups.

    Args:
        target_bytes: The target size of files.
        min_files: Minimum number of small files in a partition to rewrite them.
        spec_id: The partition spec of new files.
        targets_per_group: Maximum size of a group, in target sizes.
        selects: Whether a file is considered at all.
        charge: Called with the memory that the description of each chosen file takes.
    """

    target_bytes: int
    min_files: int
    spec_id: int
    targets_per_group: int = TARGETS_PER_GROUP
    selects: Callable[[DataFile], bool] = lambda file: True
    charge: Callable[[int], None] = lambda count: None

    def groups(self, tasks: Iterable[FileScanTask]) -> list[Group]:
        """Small files and files with deletes, in groups, partition by partition.

        Files of one partition keep their order. Files of an older spec are grouped across
        partitions, because their rows may now belong to the same partition.
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
        # Small pieces of several partitions share a group, to limit the number of snapshots.
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
        """Join consecutive pieces that fit into one group."""
        joined: list[Group] = []
        joined_bytes = joined_files = 0
        for piece in pieces:
            fits = (
                joined_bytes + piece.bytes <= self.targets_per_group * self.target_bytes
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


def target_bytes_of(
    properties: Mapping[str, str], schema: Schema, wanted: int | str | None = None
) -> int:
    """The target size of files, from the caller or else from the table's properties.

    Raises:
        InvalidArgumentError: If the size is invalid.
    """
    if wanted is not None:
        return parse_bytes(wanted, name="target_file_bytes")
    return ParquetSettings.of(dict(properties), schema).target_file_bytes


def small_below(target_bytes: int) -> int:
    """The size below which a file should be merged with others."""
    return int(target_bytes * _SMALL)
