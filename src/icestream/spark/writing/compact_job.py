"""The jobs of a compaction: tasks rewrite the parts of a group of files."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.table import TableProperties

from icestream.commit.in_flight import InFlightWrite
from icestream.errors import MemoryBudgetError
from icestream.memory.budget import MemoryBudget
from icestream.operations.budget_shares import Budgets
from icestream.operations.live_files import LiveFiles
from icestream.operations.upkeep.compact import rewrite
from icestream.operations.upkeep.groups import TARGETS_PER_GROUP, Group
from icestream.operations.write_parts import WorkerPart
from icestream.report.upkeep_report import CompactReport
from icestream.spark.setup.settings import cores_of
from icestream.spark.tasks.file_shares import FileShare
from icestream.spark.tasks.manifest_tasks import SparkManifests
from icestream.spark.tasks.packing import wanted_tasks
from icestream.spark.tasks.shares import map_shares
from icestream.spark.tasks.task_write import ANSWER_PARTS, ANSWER_SCHEMA, run_tasks
from icestream.spark.writing.rewrite_job import Changed, delete_unused
from icestream.spark.writing.write_jobs import write_jobs
from icestream.write.table_writer import Written
from icestream.write.target import WriteTarget, without_history

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Each part may end with one file below the target size.
_TARGETS_PER_PART = 4


class CompactWorkers:
    """Has tasks of Spark rewrite groups of files.

    A group is one snapshot and one job. Groups are larger than in one process, so that every job
    keeps all cores busy.

    Args:
        spark: A session, classic or Spark Connect.
        memory_bytes: The memory limit of each task.
    """

    def __init__(self, spark: SparkSession, memory_bytes: int) -> None:
        self._spark = spark
        self._memory_bytes = memory_bytes
        self._peak_bytes = 0
        self.manifests = SparkManifests(spark, memory_bytes)
        tasks = wanted_tasks(cores_of(spark))
        self.targets_per_group = max(TARGETS_PER_GROUP, tasks * _TARGETS_PER_PART)

    def rewrite(
        self, target: WriteTarget, branch: str, group: Group, mark: Callable[[], None]
    ) -> Written:
        """Rewrite a group: see `icestream.operations.upkeep.compact.GroupWorkers`."""
        if not group.files:
            return Written()
        work = _GroupWork(without_history(target), branch, self._memory_bytes)
        target_bytes = int(target.properties[TableProperties.WRITE_TARGET_FILE_SIZE_BYTES])
        shares = _parts(group, target_bytes * _TARGETS_PER_PART)
        answers = map_shares(self._spark, shares, Changed(work), ANSWER_SCHEMA)
        mark()
        with write_jobs(self._spark, target, f"compact {target.table}"):
            parts, retried = run_tasks(answers, WorkerPart, *ANSWER_PARTS)
        part = WorkerPart.joined(parts, retried=retried)
        delete_unused(target, part)
        self._peak_bytes = max(self._peak_bytes, part.peak_bytes)
        return part.written

    def completed(self, report: CompactReport) -> CompactReport:
        """The report, with the memory of the tasks."""
        return replace(report, peak_bytes_held=max(report.peak_bytes_held, self._peak_bytes))


@dataclass(frozen=True, slots=True)
class _GroupWork:
    """The work of each task: plain data."""

    target: WriteTarget
    branch: str
    memory_bytes: int

    def apply(self, share: FileShare, *, task: int, attempt: int) -> WorkerPart:
        """Rewrite the files of a part. After an error, no file is left."""
        budgets = Budgets.of(MemoryBudget(self.memory_bytes), shares=2)
        target = self.target.for_task(task, attempt)
        in_flight = InFlightWrite(target, operation="replace", shared=True)
        live = LiveFiles(target, self.branch, budgets.scan)
        try:
            written = rewrite(live, share.files, target, budgets.write, in_flight.mark)
        except MemoryBudgetError as error:
            raise budgets.of_the_whole(error) from error
        return WorkerPart(written=written, peak_bytes=budgets.whole.peak_bytes)


def _parts(group: Group, most_bytes: int) -> list[bytes]:
    """Cut a group into runs of files of about the same size, each encoded for `FileShare.of`."""
    count = max(1, min(len(group.files), -(-group.bytes // most_bytes)))
    wanted = -(-group.bytes // count)
    runs: list[list[bytes]] = [[]]
    filled = 0
    for record, task in zip(group.files, group.tasks, strict=True):
        if filled >= wanted:
            runs.append([])
            filled = 0
        runs[-1].append(record)
        filled += task.file.file_size_in_bytes
    return [zlib.compress(pickle.dumps((0, run)), 1) for run in runs]
