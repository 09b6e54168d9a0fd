"""Jobs that change the files of a table: a task changes the files of its share.

`RowWorkers` lets an operation on the driver have tasks read and rewrite files. The operation plans
the change and commits it, in the same way as without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.row_changes import RemovedRows
from icestream.operations.upkeep.orphans import delete_write
from icestream.operations.write_parts import Base, WorkerPart
from icestream.report.write_report import WriteReport
from icestream.spark.setup.settings import cores_of
from icestream.spark.tasks.file_shares import FileShare, file_shares
from icestream.spark.tasks.manifest_tasks import SparkManifests
from icestream.spark.tasks.packing import wanted_tasks
from icestream.spark.tasks.shares import map_shares
from icestream.spark.tasks.task_notes import measured_worker, note_base, note_error
from icestream.spark.tasks.task_write import ANSWER_PARTS, ANSWER_SCHEMA, answer, run_tasks
from icestream.spark.writing.removal_task import RemovalWork
from icestream.spark.writing.write_jobs import write_jobs
from icestream.write.target import WriteTarget, without_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class FileWork(Protocol):
    """The work of each task: plain data."""

    def apply(self, share: FileShare, *, task: int, attempt: int) -> WorkerPart:
        """Change the files of a share. After an error, no file is left."""
        ...


class RowWorkers:
    """Has tasks of Spark read and rewrite files for an operation on the driver.

    Args:
        spark: A session, classic or Spark Connect.
        memory_bytes: The memory limit of each task.
    """

    def __init__(self, spark: SparkSession, memory_bytes: int) -> None:
        self.spark = spark
        self.memory_bytes = memory_bytes
        self.manifests = SparkManifests(spark, memory_bytes)
        self._peak_bytes = 0
        self._worker = (0, 0)

    def remove(
        self, rows: RemovedRows, base: Base, files: KeptTasks, first_whole: int
    ) -> WorkerPart:
        """Remove rows of files: see `icestream.operations.row_changes.Workers`."""
        target = without_history(base.target)
        work = RemovalWork(target, base.branch, rows, first_whole, self.memory_bytes)
        sizes = [task.file.file_size_in_bytes for task in files]
        shares = file_shares(files, sizes, tasks=wanted_tasks(cores_of(self.spark)))
        changed = map_shares(self.spark, shares, Changed(work), ANSWER_SCHEMA)
        return self.run(changed, base, what="delete from")

    def run(self, answers: DataFrame, base: Base, *, what: str) -> WorkerPart:
        """Run a job whose tasks write files under the operation's id.

        Args:
            answers: A frame with the answers of the tasks.
            base: The table that the operation starts from.
            what: What the job does to the table, such as `delete from`.

        Returns:
            The result of all tasks. After an error, their files are deleted.
        """
        base.mark()
        with write_jobs(self.spark, base.target, f"{what} {base.target.table}"):
            parts, retried = run_tasks(answers, WorkerPart, *ANSWER_PARTS)
        part = WorkerPart.joined(parts, retried=retried)
        delete_unused(base.target, part)
        self._peak_bytes = max(self._peak_bytes, part.peak_bytes)
        self._worker = max(self._worker, part.worker)
        return part

    def completed(self, report: WriteReport) -> WriteReport:
        """The report of the operation, with the memory of the tasks."""
        if report.already_committed:
            return report
        worker_peak, worker_base = self._worker
        return replace(
            report,
            peak_bytes_held=max(report.peak_bytes_held, self._peak_bytes),
            worker_peak_bytes=max(worker_peak, report.worker_peak_bytes),
            worker_base_bytes=worker_base or report.worker_base_bytes,
        )


@dataclass(frozen=True, slots=True)
class Changed:
    """In a task: changes the files of its share, and returns one row with the result."""

    work: FileWork

    def __call__(self, number: int, encoded: bytes) -> Iterator[pa.RecordBatch]:
        """For `map_shares`."""
        from pyspark import TaskContext

        note_base()
        context = TaskContext.get()
        with note_error():
            part = self.work.apply(
                FileShare.of(encoded),
                task=number,
                attempt=context.taskAttemptId() if context else 0,
            )
        yield answer(replace(part, worker=measured_worker()))


def delete_unused(target: WriteTarget, part: WorkerPart) -> None:
    """Delete files of tasks that Spark ran again: the workers of failed tasks can't do it."""
    kept = [file.path for file in part.written.files]
    kept += [file.file_path for file in part.written.deletes]
    if part.retried and kept:
        delete_write(target, keep=kept)
