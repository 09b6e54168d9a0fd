"""A planned write, its commit and its cleanup, for the write functions and the data source."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icestream.commit.landing import TableLanding, check_branch
from icestream.commit.new_table import NewTable
from icestream.commit.outcome.load_id import WRITE_IDS_KEY, find_load
from icestream.commit.schema_change import evolved, loosened_in_words
from icestream.errors import CommitUnknownError, IcestreamError, InvalidArgumentError
from icestream.operations.overwrite import row_changes_for
from icestream.operations.row_changes import NoRowChanges, Workers
from icestream.operations.upkeep.orphans import delete_write
from icestream.operations.write_files import write_target
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_options import WriteOptions
from icestream.report.write_report import WriteReport
from icestream.spark.arrow.frame_schema import refuse_case_clashes
from icestream.spark.tasks.task_write import TaskResult, TaskWrite
from icestream.spark.writing.write_jobs import abandon
from icestream.write.schema.schema_plan import plan_schema
from icestream.write.table_writer import Written
from icestream.write.target import WriteTarget


@dataclass(frozen=True, slots=True)
class FrameWriteOptions(WriteOptions):
    """The options of a write from Spark. The memory limit applies to each task.

    Attributes:
        mode: Whether the frame is appended, or replaces rows.
        where: For an overwrite: the filter of the rows to replace.
        partitions: For an overwrite: replace the partitions present in the frame.
        case_sensitive: Whether columns may differ only by case.
    """

    mode: Literal["append", "overwrite"]
    memory: int = field(kw_only=True)
    where: str | BooleanExpression | None = None
    partitions: Literal["dynamic"] | None = None
    case_sensitive: bool = False

    def check(self) -> None:
        """Refuse invalid values before anything is looked up.

        Raises:
            InvalidArgumentError: If an option is invalid. The message names it.
        """
        WriteOptions.check(self)
        if self.mode == "append" and (self.where is not None or self.partitions is not None):
            raise InvalidArgumentError("where and partitions are only for overwriting")


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A write that is ready to run: plain data, without a catalog.

    Attributes:
        options: The options of the write.
        target: The table when the write was planned, with the schema of the new files.
        schema_changes: Descriptions of the changes to the table's schema.
        columns_discarded: Columns of the frame that are not written.
        new_table: The table that the commit creates, if it does not exist.
        already: Whether the load was committed before, so that there is nothing to run.
    """

    options: FrameWriteOptions
    target: WriteTarget
    schema_changes: tuple[str, ...] = ()
    columns_discarded: tuple[str, ...] = ()
    new_table: NewTable | None = None
    already: bool = False
    _began: float = field(default_factory=time.time)

    @classmethod
    def into(cls, table: Table, stream: pa.Schema, options: FrameWriteOptions) -> PlannedWrite:
        """Plan a write into a table that exists.

        Raises:
            SchemaMismatchError: If the frame does not fit the table.
            InvalidArgumentError: If an option does not fit the table.
        """
        options.check()
        landing = TableLanding(table)
        metadata = landing.refresh()
        branch = options.branch or MAIN_BRANCH
        check_branch(metadata, branch, table=landing.name)
        target = write_target(table)
        if find_load(metadata, branch, options.load_id) is not None:
            return cls(options, target, already=True)
        row_changes_for(table, options.where, options.partitions)  # refuses invalid filters
        if not options.case_sensitive:
            refuse_case_clashes(stream, target.schema, table=target.table)
        plan = plan_schema(target, stream, mode=options.schema_mode)
        target = target.with_schema(plan.schema)
        return cls(options, target, plan.changes, plan.discarded)

    @classmethod
    def creating(
        cls, table: NewTable, stream: pa.Schema, options: FrameWriteOptions, catalog: Catalog
    ) -> PlannedWrite:
        """Plan a write whose commit creates the table.

        Raises:
            InvalidArgumentError: If an option needs an existing table.
        """
        options.check()
        table.check_branch(options.branch)
        if not options.case_sensitive:
            refuse_case_clashes(stream, None, table=table.name)
        target = write_target(table.table(catalog))
        return cls(options, target, (), table.discarded, table)

    @property
    def what(self) -> str:
        """What the write does, for Spark's plans and UI."""
        return f"{self.options.mode} to {self.target.table}"

    @property
    def task(self) -> TaskWrite:
        """The work of each task."""
        mode = self.options.schema_mode
        if self.new_table is not None:
            mode = "discard"  # the new table lacks columns without a type
        return TaskWrite(self.target, self.options.memory, mode)

    def commit(
        self,
        into: Table | Catalog,
        results: Sequence[TaskResult],
        workers: Workers | None = None,
    ) -> WriteReport:
        """Commit the files of the tasks, as one snapshot.

        Args:
            into: The table, or the catalog if the commit creates the table.
            results: The results of all tasks.
            workers: Rewrites files in which some rows are replaced; by default this process does.

        Raises:
            TableCreatedError: If another writer has created the table in the meantime.
            CommitConflictError: If the commit was refused because of another change.
            CommitUnknownError: If the outcome of the commit is unknown. No file is deleted.
        """
        written = Written.joined(result.written for result in results)
        schema = evolved(self.target, written.loosened)
        with undone_if_refused(self.target):
            if isinstance(into, Catalog):
                report = self._create(into, written)
            else:
                planned = None if self.already else self.target.metadata
                report = self._operation(into, workers).run_files(
                    written.files, schema, planned=planned, owned=True
                )
        retried = any(result.retried for result in results)
        table = into if isinstance(into, Table) else None
        delete_leftovers(table, self.target, report, written, retried=retried)
        return self._report(report, written, results)

    def abandon(self) -> None:
        """Delete all files that the tasks of this write have written. Never raises."""
        abandon(self.target)

    def _create(self, catalog: Catalog, written: Written) -> WriteReport:
        assert self.new_table is not None
        return self.new_table.create_with(
            catalog, lambda into: self._operation(into).run_files(written.files, None, owned=True)
        )

    def _operation(
        self, into: Table | Transaction, workers: Workers | None = None
    ) -> WriteOperation:
        options = self.options
        replaces = options.mode == "overwrite" and self.new_table is None
        return WriteOperation(
            into,
            Operation.OVERWRITE if replaces else Operation.APPEND,
            row_changes_for(into, options.where, options.partitions, workers)
            if replaces
            else NoRowChanges(),
            replace(options, schema_mode="freeze"),  # The files have the schema already.
        )

    def _report(
        self, report: WriteReport, written: Written, results: Sequence[TaskResult]
    ) -> WriteReport:
        """The report of the commit, completed with the results of the tasks."""
        completed = replace(
            report,
            memory_limit_bytes=self.options.memory,
            seconds=time.time() - self._began,
        )
        if report.already_committed:
            return completed
        loosened = loosened_in_words(self.target.schema, written.loosened)
        peaks = [result.peak_bytes for result in results]
        worker_peak, worker_base = max((result.worker for result in results), default=(0, 0))
        return replace(
            completed,
            bytes_spilled=report.bytes_spilled + written.bytes_spilled,
            schema_changes=(*self.schema_changes, *loosened),
            columns_discarded=self.columns_discarded,
            peak_bytes_held=max([report.peak_bytes_held, *peaks]),
            worker_peak_bytes=worker_peak,
            worker_base_bytes=worker_base,
        )


@contextmanager
def undone_if_refused(target: WriteTarget) -> Iterator[None]:
    """Delete the files of a write whose commit is refused.

    The files stay after any other exception, such as Ctrl-C, because the catalog may have accepted
    the commit. The commit deletes its files itself if that is safe, and `orphans` finds the rest.
    """
    try:
        yield
    except CommitUnknownError:
        raise
    except IcestreamError:
        delete_write(target)
        raise


def delete_leftovers(
    table: Table | None,
    target: WriteTarget,
    report: WriteReport,
    written: Written,
    *,
    retried: bool,
) -> None:
    """Delete files that tasks have written but that the commit did not use.

    Args:
        table: The table after the commit, or None if the commit created it.
        target: The write.
        report: The report of the commit.
        written: The files that were committed.
        retried: Whether Spark ran tasks again. It kills the workers of failed tasks, and their
            files remain.
    """
    if table is not None and report.already_committed:
        # Delete them only if another write was committed: the catalog's reply to an earlier attempt
        # with these very files may have been lost.
        snapshot = table.metadata.snapshot_by_id(report.snapshot_id or 0)
        summary = snapshot.summary if snapshot else None
        if summary is not None and target.write_id not in (summary[WRITE_IDS_KEY] or ""):
            delete_write(target)
    elif retried and (written.files or written.deletes):
        kept = [file.path for file in written.files]
        kept += [file.file_path for file in written.deletes]
        delete_write(target, keep=kept)
