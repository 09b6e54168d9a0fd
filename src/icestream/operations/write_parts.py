"""The parts that a verb gives to `WriteOperation`: an intake for the stream, and row changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation

from icestream.commit.change import Key
from icestream.operations.budget_shares import Budgets
from icestream.write.new_file import NewFile
from icestream.write.sources.arrow_source import ArrowSource
from icestream.write.table_writer import TableWriter, Written
from icestream.write.target import WriteTarget


@dataclass(frozen=True, slots=True)
class Base:
    """The table that an operation starts from.

    Attributes:
        target: The table.
        snapshot_id: The head of the branch; None if it is empty.
        branch: The branch.
        operation: The operation. A table can set an isolation level for each.
        budgets: The memory for reading, for writing, and for rows that wait.
        files: Files that were written earlier and that this operation commits.
        mark: Writes the marker of the operation. Call it before workers write files under the
            operation's id.
    """

    target: WriteTarget
    snapshot_id: int | None
    branch: str
    operation: Operation
    budgets: Budgets
    files: tuple[NewFile, ...] = ()
    mark: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """The changes that an operation makes to existing rows and files.

    Attributes:
        files: Data files to remove.
        deleted_from: Data files with rows that are deleted by position.
        deletes: Delete files for them that workers have written.
        written: Files that workers have written under the operation's id.
        rows: Rows that are deleted.
        rows_kept: Rows of removed files that were written again.
        rows_updated: Rows among them that got new values.
        rows_unchanged: Matching rows that already had the stream's values.
        bytes_spilled: Bytes that went through temporary files.
        conflict_filter: See `Change.conflict_filter`.
        conflict_partitions: See `Change.conflict_partitions`.
        everything: Whether the operation removes every row that was in the table.
    """

    files: tuple[DataFile, ...] = ()
    deleted_from: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    written: Written = field(default_factory=Written)
    rows: int = 0
    rows_kept: int = 0
    rows_updated: int = 0
    rows_unchanged: int = 0
    bytes_spilled: int = 0
    conflict_filter: BooleanExpression | None = None
    conflict_partitions: frozenset[Key] | None = None
    everything: bool = False


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """The result of one of the workers that change files of a table.

    Attributes:
        written: The files that it wrote, including delete files.
        removed: The numbers of the files that it rewrote.
        deleted_from: The numbers of the files with rows that were deleted by position.
        updated: Rows that got new values.
        deleted: Rows that were deleted.
        unchanged: Rows that already had the stream's values.
        kept: Rows of the table that were written again.
        matched: In a merge, rows of the table that match a row of the stream.
        unmatched: In a merge, rows of the stream that match nothing.
        peak_bytes: Maximum number of bytes held.
        retried: Whether earlier attempts of a worker may have left files.
        worker: The peak and the base of the process in bytes, if they were measured.
    """

    written: Written = field(default_factory=Written)
    removed: tuple[int, ...] = ()
    deleted_from: tuple[int, ...] = ()
    updated: int = 0
    deleted: int = 0
    unchanged: int = 0
    kept: int = 0
    matched: int = 0
    unmatched: int = 0
    peak_bytes: int = 0
    retried: bool = False
    worker: tuple[int, int] = (0, 0)

    @classmethod
    def joined(cls, parts: Sequence[WorkerPart], *, retried: bool) -> WorkerPart:
        """The results of all workers as one, in time linear in the number of files."""
        return cls(
            Written.joined(part.written for part in parts),
            tuple(number for part in parts for number in part.removed),
            tuple(number for part in parts for number in part.deleted_from),
            sum(part.updated for part in parts),
            sum(part.deleted for part in parts),
            sum(part.unchanged for part in parts),
            sum(part.kept for part in parts),
            sum(part.matched for part in parts),
            sum(part.unmatched for part in parts),
            max((part.peak_bytes for part in parts), default=0),
            retried,
            max((part.worker for part in parts), default=(0, 0)),
        )


class RowChanges(Protocol):
    """Changes existing rows; the rows that stay in a rewritten file are written again.

    Attributes:
        shares: The number of parts of the memory limit: 1 for writing only, 2 for writing and
            reading, 3 if rows wait as well.
    """

    @property
    def shares(self) -> int: ...

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges: ...


class Intake(Protocol):
    """Takes in the stream.

    Attributes:
        looks_late: Whether the operation reads the table only after the stream has ended. Then
            commits of others up to that point do not conflict.
    """

    looks_late: bool

    def columns(self, stream: pa.Schema, target: WriteTarget) -> pa.Schema:
        """The columns of the stream to write."""
        ...

    def take(self, stream: ArrowSource, base: Base, writer: TableWriter) -> None: ...


class WriteEveryRow:
    """The intake that writes every row of the stream as it arrives."""

    looks_late = False

    def columns(self, stream: pa.Schema, target: WriteTarget) -> pa.Schema:
        """All columns."""
        return stream

    def take(self, stream: ArrowSource, base: Base, writer: TableWriter) -> None:
        """Write the rows."""
        for batch in stream:
            writer.write(batch)
            del batch  # before the next one is made
