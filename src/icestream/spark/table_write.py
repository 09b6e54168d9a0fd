"""A write planned on the driver, and its commit: what the helpers and the data source share."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
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
from icestream.commit.load import Load, check_properties
from icestream.commit.load_id import WRITE_IDS_KEY, check_load_id, find_load
from icestream.commit.new_table import NewTable
from icestream.commit.overwrite import removal_of
from icestream.commit.removal import NothingRemoved
from icestream.commit.schema_change import evolved, loosened_in_words
from icestream.commit.write_files import write_target
from icestream.errors import CommitUnknownError, IcestreamError, InvalidArgumentError
from icestream.report import WriteReport
from icestream.spark.frame_schema import refuse_case_clashes
from icestream.spark.task_write import TaskResult, TaskWrite
from icestream.upkeep.orphans import delete_write
from icestream.write.schema import SchemaMode, check_mode, plan_schema
from icestream.write.table_writer import Written
from icestream.write.target import WriteTarget

# Spark tells of a failed job while other tasks of it still run, for a moment.
_CLEAN_UP_WAITS = (0.0, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What the caller of a write asked for.

    Attributes:
        mode: What becomes of the rows that are there.
        where: Of an overwrite: which rows go.
        partitions: Of an overwrite: the partitions that the frame has rows for go.
        memory_bytes: What each task may hold.
        schema_mode: As of `icestream.append`; likewise branch, properties and load_id.
        case_sensitive: Whether columns may differ by case only.
    """

    mode: Literal["append", "overwrite"]
    memory_bytes: int
    where: str | BooleanExpression | None = None
    partitions: Literal["dynamic"] | None = None
    schema_mode: SchemaMode = "freeze"
    branch: str | None = None
    properties: Mapping[str, str] | None = None
    load_id: str | None = None
    case_sensitive: bool = False

    def check(self) -> None:
        """Refuse what can't be, before anything is looked up.

        Raises:
            InvalidArgumentError: Naming the argument.
        """
        check_load_id(self.load_id)
        check_properties(self.properties)
        check_mode(self.schema_mode)
        if self.branch == "":
            raise InvalidArgumentError("branch is empty: name a branch, or leave it out for main")
        if self.mode == "append" and (self.where is not None or self.partitions is not None):
            raise InvalidArgumentError("where and partitions are for overwriting")


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A write that is ready to run: plain data, which holds no catalog.

    Attributes:
        options: What the caller asked for.
        target: The table as it was planned, with the schema that files are to have.
        schema_changes: What becomes of the table's schema, in words.
        columns_discarded: Columns of the frame that are not written.
        new_table: The table to be created by the commit, if there is none.
        already: Whether the load was committed before: then there is nothing to run.
    """

    options: WriteOptions
    target: WriteTarget
    schema_changes: tuple[str, ...] = ()
    columns_discarded: tuple[str, ...] = ()
    new_table: NewTable | None = None
    already: bool = False
    _began: float = field(default_factory=time.time)

    @classmethod
    def into(cls, table: Table, stream: pa.Schema, options: WriteOptions) -> PlannedWrite:
        """Plan a write into a table that exists.

        Raises:
            SchemaMismatchError: If the frame does not fit the table.
            InvalidArgumentError: If an option does not fit it.
        """
        options.check()
        landing = TableLanding(table)
        metadata = landing.refresh()
        branch = options.branch or MAIN_BRANCH
        check_branch(metadata, branch, table=landing.name)
        target = write_target(table)
        if find_load(metadata, branch, options.load_id) is not None:
            return cls(options, target, already=True)
        removal_of(table, options.where, options.partitions)  # refuses what makes no sense
        if not options.case_sensitive:
            refuse_case_clashes(stream, target.schema, table=target.table)
        plan = plan_schema(target, stream, mode=options.schema_mode)
        target = target.with_schema(plan.schema)
        return cls(options, target, plan.changes, plan.discarded)

    @classmethod
    def creating(
        cls, table: NewTable, stream: pa.Schema, options: WriteOptions, catalog: Catalog
    ) -> PlannedWrite:
        """Plan a write whose commit creates the table.

        Raises:
            InvalidArgumentError: If an option needs a table that is there.
        """
        options.check()
        table.check_branch(options.branch)
        if not options.case_sensitive:
            refuse_case_clashes(stream, None, table=table.name)
        target = write_target(table.table(catalog))
        return cls(options, target, (), table.discarded, table)

    @property
    def task(self) -> TaskWrite:
        """What each task does."""
        mode = self.options.schema_mode
        if self.new_table is not None:
            mode = "discard"  # of columns without a type, which the table did not get
        return TaskWrite(self.target, self.options.memory_bytes, mode)

    def commit(self, into: Table | Catalog, results: Sequence[TaskResult]) -> WriteReport:
        """Commit what the tasks wrote, as one snapshot.

        Args:
            into: The table; or its catalog, if the table is to be created.
            results: Of all tasks.

        Raises:
            TableCreatedError: If somebody else created the table meanwhile.
            CommitConflictError: If it was refused beside another change.
            CommitUnknownError: If it is not known whether it happened; no file is deleted.
        """
        written = sum((result.written for result in results), Written())
        schema = evolved(self.target, written.loosened)
        with undone_if_refused(self.target):
            if isinstance(into, Catalog):
                report = self._create(into, written)
            else:
                planned = None if self.already else self.target.metadata
                report = self._load(into).run_files(written.files, schema, planned=planned)
        retried = any(result.retried for result in results)
        table = into if isinstance(into, Table) else None
        delete_leftovers(table, self.target, report, written, retried=retried)
        return self._told(report, written, results)

    def abandon(self) -> None:
        """Delete whatever the tasks of this write have written. Never raises."""
        abandon(self.target)

    def _create(self, catalog: Catalog, written: Written) -> WriteReport:
        assert self.new_table is not None
        transaction = self.new_table.transaction(catalog)
        report = self._load(transaction).run_files(written.files, None)
        self.new_table.create(transaction, catalog, report.snapshot_id)
        return report

    def _load(self, into: Table | Transaction) -> Load:
        options = self.options
        replaces = options.mode == "overwrite" and self.new_table is None
        return Load(
            into,
            Operation.OVERWRITE if replaces else Operation.APPEND,
            removal_of(into, options.where, options.partitions) if replaces else NothingRemoved(),
            memory=options.memory_bytes,
            branch=options.branch,
            properties=options.properties,
            load_id=options.load_id,
        )

    def _told(
        self, report: WriteReport, written: Written, results: Sequence[TaskResult]
    ) -> WriteReport:
        """The report of the commit, with what is known of the tasks."""
        told = replace(
            report,
            memory_limit_bytes=self.options.memory_bytes,
            seconds=time.time() - self._began,
        )
        if report.already_committed:
            return told
        loosened = loosened_in_words(self.target.schema, written.loosened)
        peaks = [result.peak_bytes for result in results]
        worker_peak, worker_base = max((result.worker for result in results), default=(0, 0))
        return replace(
            told,
            bytes_spilled=report.bytes_spilled + written.bytes_spilled,
            schema_changes=(*self.schema_changes, *loosened),
            columns_discarded=self.columns_discarded,
            peak_bytes_held=max([report.peak_bytes_held, *peaks]),
            worker_peak_bytes=worker_peak,
            worker_base_bytes=worker_base,
        )


def abandon(target: WriteTarget) -> None:
    """Delete whatever the tasks of a write have written. Never raises."""
    for seconds in _CLEAN_UP_WAITS:
        time.sleep(seconds)
        delete_write(target)


@contextmanager
def undone_if_refused(target: WriteTarget) -> Iterator[None]:
    """Delete the files of a write whose commit is refused.

    Not after anything else, such as Ctrl-C: it may have come when the catalog had said yes. Where
    the commit itself knows better it has deleted its files, and `orphans` finds the rest.
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
    """Delete files that tasks have written and the commit did not take.

    Args:
        table: The table, as it is after the commit; None if that has created it.
        target: The write.
        report: What the commit said.
        written: The files that were committed.
        retried: Whether tasks failed on the way: a worker is killed then, and leaves its files.
    """
    if table is not None and report.already_committed:
        # By somebody else? It may as well have been these very files, and an answer that was lost.
        snapshot = table.metadata.snapshot_by_id(report.snapshot_id or 0)
        summary = snapshot.summary if snapshot else None
        if summary is not None and target.write_id not in (summary[WRITE_IDS_KEY] or ""):
            delete_write(target)
    elif retried and (written.files or written.deletes):
        kept = [file.path for file in written.files]
        kept += [file.file_path for file in written.deletes]
        delete_write(target, keep=kept)
