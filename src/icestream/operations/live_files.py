"""The data files of a branch, and their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask

from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.read.deletes.position_set import PositionSet
from icestream.read.located import Located, read_located
from icestream.read.plan.found_files import NO_STATISTICS, ManifestWorkers, Statistics
from icestream.read.plan.scan_plan import plan_tasks
from icestream.read.request import ScanRequest, request
from icestream.read.scan import read_tasks
from icestream.write.target import WriteTarget


@dataclass(frozen=True, slots=True)
class LiveFiles:
    """Finds and reads the files of a branch, as they were when the operation began.

    Args:
        target: The table.
        branch: The branch.
        budget: The memory budget for reading.
        workers: Read data manifests; by default this process does.
    """

    target: WriteTarget
    branch: str
    budget: MemoryBudget
    workers: ManifestWorkers | None = None

    @property
    def schema(self) -> Schema:
        """The table's schema, without the columns that the operation adds."""
        return self.target.metadata.schema()

    def ask(self, where: str | BooleanExpression | None = None) -> ScanRequest:
        """A scan request for the rows that a filter selects.

        Raises:
            InvalidArgumentError: If the filter does not fit the table.
        """
        exists = self.branch in self.target.metadata.refs
        return request(self._scan(), where=where, branch=self.branch if exists else None)

    def tasks(
        self,
        scan: ScanRequest,
        statistics: Statistics = NO_STATISTICS,
    ) -> Iterator[FileScanTask]:
        """The data files that may have rows for a request, one by one, with their delete files.

        The statistics of tasks take much memory: put tasks that you keep into `KeptTasks`.

        Args:
            scan: The request.
            statistics: The statistics that you need. With workers, tasks lack others.
        """
        if self.branch not in self.target.metadata.refs:
            return iter(())
        return plan_tasks(scan, budget=self.budget, workers=self.workers, statistics=statistics)

    def rows(
        self, tasks: Sequence[FileScanTask], columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some files, without deleted ones."""
        if not tasks:
            return
        with read_tasks(self._request(columns), tasks, self.budget) as batches:
            yield from batches

    def located(
        self,
        tasks: Sequence[FileScanTask],
        columns: Sequence[str] | None = None,
        positions: Sequence[npt.NDArray[np.int64] | PositionSet] | None = None,
    ) -> Iterator[Located]:
        """The rows of some files, without deleted ones, with their positions, file by file.

        Args:
            tasks: The files.
            columns: The columns to read; all by default.
            positions: The rows to read of each file; all by default.
        """
        scan = self._request(columns)
        return read_located(scan, tasks, budget=self.budget, positions=positions)

    def selected(self, columns: Sequence[str]) -> Schema:
        """The schema of rows with only these columns, in the table's order."""
        return self._request(columns).context.schema

    def _request(self, columns: Sequence[str] | None) -> ScanRequest:
        """A scan request for some columns, in the table's order."""
        scan = self._scan()
        return request(scan if columns is None else scan.select(*columns))

    def count_files(self) -> int:
        """The number of data files in the branch.

        The snapshot summary of the branch's head usually has it. Otherwise the files are counted.
        """
        head = self.target.metadata.snapshot_by_name(self.branch)
        if head is None:
            return 0
        known = head.summary.additional_properties if head.summary is not None else {}
        if "total-data-files" in known:
            return int(known["total-data-files"])
        return sum(1 for _ in self.tasks(self.ask()))

    def count(self, tasks: Sequence[FileScanTask]) -> int:
        """The number of rows in the files; only files with deletes are read."""
        rows: int = sum(task.file.record_count for task in tasks if not task.delete_files)
        with closing(KeptTasks(self.budget)) as deleted:
            deleted.extend(task for task in tasks if task.delete_files)
            for batch in self.rows(deleted, [self._narrowest_column()]):
                rows += batch.num_rows
        return rows

    def _narrowest_column(self) -> str:
        primitive = (f.name for f in self.schema.fields if f.field_type.is_primitive)
        return next(primitive, self.schema.fields[0].name)

    def _scan(self) -> DataScan:
        return DataScan(
            table_metadata=self.target.metadata,
            io=self.target.io,
            table_identifier=tuple(self.target.table.split(".")),
        )
