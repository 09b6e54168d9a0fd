"""A task that removes rows: it reads its share of the files and rewrites those that keep rows."""

from __future__ import annotations

from dataclasses import dataclass

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.commit.in_flight import InFlightWrite
from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget
from icestream.operations.budget_shares import Budgets
from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.live_files import LiveFiles
from icestream.operations.row_changes import RemovedRows
from icestream.operations.write_parts import WorkerPart
from icestream.spark.tasks.file_shares import FileShare
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget


@dataclass(frozen=True, slots=True)
class RemovalWork:
    """The work of each task that removes rows: plain data.

    Attributes:
        target: The table when the operation began.
        branch: The branch.
        rows: The rows to remove.
        first_whole: The number of the first file whose rows are all removed.
        memory_bytes: The memory limit of a task.
    """

    target: WriteTarget
    branch: str
    rows: RemovedRows
    first_whole: int
    memory_bytes: int

    def apply(self, share: FileShare, *, task: int, attempt: int) -> WorkerPart:
        """Remove the rows of some files.

        Args:
            share: The files.
            task: The number of this task.
            attempt: The number of this task's attempt.

        Returns:
            The result. After an error, no file is left.

        Memory: half of `memory_bytes` each for reading and for writing.
        """
        budgets = Budgets.of(MemoryBudget(self.memory_bytes), shares=2)
        target = self.target.for_task(task, attempt)
        in_flight = InFlightWrite(target, operation="delete", shared=True)
        writer = TableWriter(
            target,
            arrow_schema=schema_to_pyarrow(target.schema),
            schema_mode="freeze",
            budget=budgets.write,
            before_write=in_flight.mark,
        )
        first, records = share.first, share.files.records
        cut = max(0, self.first_whole - first)
        undecided, whole = KeptTasks.of(records[:cut]), KeptTasks.of(records[cut:])
        try:
            live = LiveFiles(target, self.branch, budgets.scan)
            applied = self.rows.remove(live, writer, undecided, whole)
            written = writer.close()
        except BaseException as error:
            writer.abort()
            in_flight.abandon()
            if isinstance(error, MemoryBudgetError):
                raise budgets.of_the_whole(error) from error
            raise
        numbers = {path: first + number for number, path in enumerate(share.files.paths())}
        return WorkerPart(
            written=written,
            removed=tuple(numbers[file.file_path] for file in applied.files),
            deleted_from=tuple(numbers[file.file_path] for file in applied.deleted_from),
            deleted=applied.rows,
            kept=applied.rows_kept,
            peak_bytes=budgets.whole.peak_bytes,
        )
