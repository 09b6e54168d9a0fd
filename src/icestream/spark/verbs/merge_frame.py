"""`merge`: updates, deletes and inserts rows of a table by key, in one snapshot."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icestream.commit.in_flight import InFlightWrite
from icestream.commit.landing import TableLanding, check_branch
from icestream.commit.new_table import NewTable, TableCreatedError
from icestream.commit.outcome.load_id import find_load
from icestream.commit.outcome.retry import run_again
from icestream.commit.schema_change import (
    SchemaConflictError,
    evolved,
    loosened_in_words,
)
from icestream.errors import CredentialsExpiredError
from icestream.memory.budget import MemoryBudget
from icestream.operations.kept_tasks import KeptTasks
from icestream.operations.live_files import LiveFiles
from icestream.operations.merge.keys.key_hash import KeyHash
from icestream.operations.merge.merge import bytes_read
from icestream.operations.merge.merge_options import (
    Isolation,
    MergeOptions,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.operations.merge.merge_plan import MergePlan, written_columns
from icestream.operations.merge.merge_work import MergeWork
from icestream.operations.write_files import write_target
from icestream.operations.write_operation import WriteOperation
from icestream.operations.write_parts import AppliedChanges, Base, WorkerPart
from icestream.read.plan.found_files import Statistics
from icestream.report.write_report import MergeReport, WriteReport
from icestream.spark.arrow.frame_schema import arrow_schema, refuse_case_clashes
from icestream.spark.setup.settings import cores_of
from icestream.spark.tasks.manifest_tasks import SparkManifests
from icestream.spark.writing.keyed_frame import KeyedFrame
from icestream.spark.writing.merge_job import run_merge
from icestream.spark.writing.table_write import (
    FrameWriteOptions,
    delete_leftovers,
    undone_if_refused,
)
from icestream.spark.writing.write_jobs import write_jobs
from icestream.spark.writing.written_frame import (
    Creation,
    FrameRows,
    Rows,
    find_table,
    frame_options,
)
from icestream.write.schema.schema_plan import SchemaMode, SchemaPlan, plan_schema
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def merge(
    frame: DataFrame,
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    on: Sequence[str] | str | None = None,
    when_matched: WhenMatched = "update",
    when_not_matched: WhenNotMatched = "insert",
    update_columns: Sequence[str] | None = None,
    delete_when: str | BooleanExpression | None = None,
    on_duplicate: OnDuplicate = "error",
    last_by: str | None = None,
    null_keys: NullKeys = "error",
    skip_unchanged: bool = True,
    write_mode: WriteMode | None = None,
    isolation: Isolation | None = None,
    memory: int | str | None = None,
    schema_mode: SchemaMode = "freeze",
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    load_id: str | None = None,
    create: bool = False,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
    table_properties: Mapping[str, str] | None = None,
) -> MergeReport:
    """Merge a DataFrame into a table by a key, as exactly one snapshot.

    The result is the same as that of `icestream.merge`, but Spark's tasks do the work: Spark joins
    the keys of both sides, and one task changes each file with matches. Keys and rows do not pass
    through the driver. Spark computes the frame once and keeps it during the merge, so it need not
    be deterministic.

    Args:
        frame: The rows to merge.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default catalog.
        on: Column or columns that form the key. See `icestream.merge` for this argument and those
            that are not listed here.
        on_duplicate: What to do with rows that have the same key. With `"last"` and no `last_by`,
            the order of the frame's partitions decides.
        memory: Memory limit of each task. By default the limit of `icestream.spark.session`.
        create: Whether to create the table if it does not exist, with the frame's columns and in
            the same commit. Keys are checked as for an existing table.
        partition_by: Partition fields of a new table.
        sort_by: Sort order of a new table.
        table_properties: Properties of a new table.

    Returns:
        A report of the merge. `peak_bytes_held` is the highest value of all tasks.

    Raises:
        DuplicateKeysError: If rows of the frame have the same key.
        InvalidDataError: If a key is null, or a value can't be stored.
        TaskFailedError: If tasks failed after all retries. The table was not changed.
        CommitConflictError: If another writer changed the same rows. This merge changed nothing.

    Memory: each running task stays within `memory`, in addition to Python and Spark themselves.
    """
    options = MergeOptions(
        on=on,
        when_matched=when_matched,
        when_not_matched=when_not_matched,
        update_columns=update_columns,
        delete_when=delete_when,
        on_duplicate=on_duplicate,
        last_by=last_by,
        null_keys=null_keys,
        skip_unchanged=skip_unchanged,
        write_mode=write_mode,
        isolation=isolation,
        schema_mode=schema_mode,
    )
    memory_bytes, case_sensitive = frame_options(frame, memory)
    write_options = FrameWriteOptions(
        "overwrite",
        memory=memory_bytes,
        schema_mode=schema_mode,
        branch=branch or MAIN_BRANCH,
        properties=properties,
        load_id=load_id,
        case_sensitive=case_sensitive,
    )
    creation = Creation.of(create, partition_by, sort_by, table_properties)
    return merge_rows(FrameRows(frame), table, catalog, options, write_options, creation=creation)


def merge_rows(
    rows: Rows,
    table: str | Table,
    catalog: str | Catalog | None,
    options: MergeOptions,
    write: FrameWriteOptions,
    *,
    creation: Creation | None,
) -> MergeReport:
    """Merge rows and commit the result, as one snapshot: see `merge`.

    The rows are read and merged again if another writer has changed the schema or created the table
    in the meantime, or if the credentials of the tasks expired.
    """
    options.check()
    write.check()
    stream = rows.schema

    def run() -> MergeReport:
        place = _Place.of(find_table(table, catalog, stream, creation))
        try:
            return _SparkMerge(rows, place, options, write).run()
        except CredentialsExpiredError:
            rows.renew()
            raise

    return run_again(run, on=(SchemaConflictError, TableCreatedError, CredentialsExpiredError))


@dataclass(frozen=True, slots=True)
class _Place:
    """The destination of a merge: an existing table, or one that the commit creates."""

    table: Table
    new: NewTable | None = None

    @classmethod
    def of(cls, table: Table | tuple[NewTable, Catalog]) -> _Place:
        if isinstance(table, Table):
            return cls(table)
        new, catalog = table
        return cls(new.table(catalog), new)

    def look(self, branch: str) -> None:
        """Refresh the table, and check that it has the branch."""
        if self.new is not None:
            self.new.check_branch(branch)
            return
        landing = TableLanding(self.table)
        check_branch(landing.refresh(), branch, table=landing.name)

    def options(self, options: MergeOptions) -> MergeOptions:
        if self.new is not None and self.new.discarded:
            return replace(options, schema_mode="discard")  # the new table lacks these columns
        return options

    def commit(self, load: Callable[[Table | Transaction], WriteReport]) -> WriteReport:
        if self.new is None:
            return load(self.table)
        return self.new.create_with(self.table.catalog, load)


class _TaskChanges:
    """The changes that the tasks have made."""

    shares = 1

    def __init__(self, applied: AppliedChanges) -> None:
        self._applied = applied

    def apply(self, base: Base, writer: TableWriter) -> AppliedChanges:
        return self._applied


class _SparkMerge:
    """One attempt at a merge."""

    def __init__(
        self, rows: Rows, place: _Place, options: MergeOptions, write: FrameWriteOptions
    ) -> None:
        self._began = time.monotonic()
        self._rows = rows
        self._place = place
        self._options = place.options(options)
        self._branch = write.branch or MAIN_BRANCH
        self._write = write
        self._source: KeyedFrame | None = None
        self._files: KeptTasks | None = None

    def run(self) -> MergeReport:
        try:
            return self._run()
        finally:
            if self._files is not None:
                self._files.close()

    def _run(self) -> MergeReport:
        self._place.look(self._branch)
        base = write_target(self._place.table)
        if find_load(base.metadata, self._branch, self._write.load_id) is not None:
            report = self._operation(self._place.table, AppliedChanges()).run_files((), None)
            return self._report(report, {"write_mode": self._options.write_mode or "copy-on-write"})
        known = base if self._place.new is None else None
        self._rows = self._rows.assigned(known, self._options.schema_mode)
        plan, schema_plan = self._plan(base)
        target = base.with_schema(schema_plan.schema)
        work = MergeWork(plan, target, self._branch, KeyHash(), self._write.memory)
        in_flight = InFlightWrite(target, operation="merge")
        with write_jobs(self._rows.spark, target, f"merge into {target.table}"):
            files, row_filter, part = self._run_jobs(work, in_flight)
        with undone_if_refused(target):
            report = self._commit(work, files, row_filter, part)
        in_flight.committed()
        table = self._place.table if self._place.new is None else None
        delete_leftovers(table, target, report, part.written, retried=part.retried)
        return self._report(report, self._facts(work, files, part), schema_plan, part)

    def _plan(self, base: WriteTarget) -> tuple[MergePlan, SchemaPlan]:
        stream = self._rows.schema
        if not self._write.case_sensitive:
            known = base.schema if self._place.new is None else None
            refuse_case_clashes(stream, known, table=base.table)
        columns = written_columns(self._options, stream, base)
        schema_plan = plan_schema(base, columns, mode=self._options.schema_mode)
        in_spark = arrow_schema(self._rows.columns)
        return MergePlan.of(self._options, in_spark, base, schema_plan.schema), schema_plan

    def _run_jobs(
        self, work: MergeWork, in_flight: InFlightWrite
    ) -> tuple[KeptTasks, BooleanExpression, WorkerPart]:
        self._source = source = KeyedFrame(self._rows, work)
        try:
            key_range = source.check()
            live = self._live(work)
            is_new = not work.plan.key.ids <= set(live.schema.field_ids)
            row_filter = AlwaysFalse() if is_new else key_range.filter()
            self._files = files = KeptTasks(
                live.budget, columns=work.plan.key.ids, column_sizes=work.plan.on_read
            )
            if not source.rows:
                return files, row_filter, WorkerPart()
            in_flight.mark()
            statistics = Statistics(work.plan.key.ids, column_sizes=work.plan.on_read)
            files.extend(live.tasks(live.ask(row_filter), statistics))
            spark = self._rows.spark
            return files, row_filter, run_merge(spark, source, work, files, cores_of(spark))
        finally:
            source.close()

    def _live(self, work: MergeWork) -> LiveFiles:
        manifests = SparkManifests(self._rows.spark, work.memory_bytes)
        return LiveFiles(work.target, work.branch, MemoryBudget(work.memory_bytes), manifests)

    def _commit(
        self, work: MergeWork, files: KeptTasks, row_filter: BooleanExpression, part: WorkerPart
    ) -> WriteReport:
        is_new = self._place.new is not None  # then nobody else can have changed it
        serializable = not is_new and self._options.is_serializable(work.target)
        applied = AppliedChanges(
            files=tuple(files[number].file for number in part.removed),
            deleted_from=tuple(files[number].file for number in part.deleted_from),
            deletes=part.written.deletes,
            rows=part.deleted,
            rows_kept=part.kept,
            rows_updated=part.updated,
            rows_unchanged=part.unchanged,
            bytes_spilled=part.written.bytes_spilled,
            conflict_filter=row_filter if serializable else None,
        )
        schema = evolved(work.target, part.written.loosened)
        planned = None if is_new else work.target.metadata
        return self._place.commit(
            lambda into: self._operation(into, applied).run_files(
                part.written.files, schema, planned=planned, owned=True
            )
        )

    def _operation(self, into: Table | Transaction, applied: AppliedChanges) -> WriteOperation:
        return WriteOperation(
            into,
            Operation.OVERWRITE,
            _TaskChanges(applied),
            replace(self._write, schema_mode="freeze"),  # The files have the schema already.
        )

    def _facts(self, work: MergeWork, files: KeptTasks, part: WorkerPart) -> dict[str, Any]:
        source = self._source
        assert source is not None
        rewritten = [files[n].file for n in (*part.removed, *part.deleted_from)]
        matching = source.rows - source.rows_superseded - part.unmatched
        return {
            "write_mode": "merge-on-read" if work.plan.on_read else "copy-on-write",
            "files_read": len(files),
            "files_kept": self._live(work).count_files() - len(part.removed),
            "bytes_read": bytes_read(files, work.plan, rewritten),
            "rows_superseded": source.rows_superseded,
            "target_duplicates": part.matched - matching if part.matched else 0,
        }

    def _report(
        self,
        report: WriteReport,
        facts: dict[str, Any],
        schema_plan: SchemaPlan | None = None,
        part: WorkerPart | None = None,
    ) -> MergeReport:
        known: dict[str, Any] = {each.name: getattr(report, each.name) for each in fields(report)}
        known["operation"] = "merge"
        known["seconds"] = time.monotonic() - self._began
        known["memory_limit_bytes"] = self._write.memory
        if schema_plan is not None and part is not None and not report.already_committed:
            loosened = loosened_in_words(schema_plan.schema, part.written.loosened)
            known["schema_changes"] = (*schema_plan.changes, *loosened)
            known["columns_discarded"] = schema_plan.discarded
            read_bytes = self._source.peak_bytes if self._source is not None else 0
            known["peak_bytes_held"] = max(part.peak_bytes, read_bytes)
            known["worker_peak_bytes"], known["worker_base_bytes"] = part.worker
        return MergeReport(**known, **facts)
