"""`merge`: rows of a DataFrame update, delete or join the rows of a table, in one snapshot."""

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
from icestream.commit.kept_tasks import KeptTasks
from icestream.commit.landing import TableLanding, check_branch
from icestream.commit.live_files import LiveFiles
from icestream.commit.load import Base, Load, Removed, check_properties
from icestream.commit.load_id import check_load_id, find_load
from icestream.commit.new_table import NewTable, TableCreatedError
from icestream.commit.schema_change import (
    SchemaConflictError,
    evolved,
    loosened_in_words,
)
from icestream.commit.write_files import write_target
from icestream.errors import CredentialsExpiredError
from icestream.memory import MemoryBudget
from icestream.report import MergeReport, WriteReport
from icestream.spark.cores import cores_of
from icestream.spark.frame_schema import arrow_schema, refuse_case_clashes
from icestream.spark.keyed_frame import KeyedFrame
from icestream.spark.merge_job import run_merge
from icestream.spark.table_write import abandon, delete_leftovers, undone_if_refused
from icestream.spark.task_failure import driver_error
from icestream.spark.written_frame import Creation, find_table, frame_options
from icestream.upsert.key_hash import KeyHash
from icestream.upsert.merge import bytes_read
from icestream.upsert.merge_plan import MergePlan, written_columns
from icestream.upsert.merge_work import MergePart, MergeWork
from icestream.upsert.options import (
    Isolation,
    MergeOptions,
    NullKeys,
    OnDuplicate,
    WhenMatched,
    WhenNotMatched,
    WriteMode,
)
from icestream.write.schema import SchemaMode, SchemaPlan, check_mode, plan_schema
from icestream.write.table_writer import TableWriter
from icestream.write.target import WriteTarget

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TRIES = 3


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

    The same rows as `icestream.merge` gives, by many tasks: Spark joins the keys of both sides, and
    each file with matches is changed by one task. No key and no row comes to the driver. The frame
    is computed once and kept by Spark for the time of the merge, so that it need not be
    deterministic.

    Args:
        frame: The rows.
        table: A name such as `"db.t"`, or a PyIceberg table.
        catalog: A PyIceberg catalog, its name in PyIceberg's configuration, or None for the
            default one.
        on: The key; this and all that follows is as of `icestream.merge`.
        on_duplicate: With `"last"` and no `last_by` the order of the frame's partitions counts.
        memory: What each task may hold; what `icestream.spark.session` was given by default.
        create: Whether to create the table if it is not there, from the frame's columns and in the
            same commit, as `append` does; likewise partition_by, sort_by and table_properties. The
            same keys are refused as with a table that is there.

    Returns:
        What happened. `peak_bytes_held` is that of the task which held most.

    Raises:
        DuplicateKeysError: If rows of the frame have the same key.
        InvalidDataError: If a key is null, or a value can't be stored.
        TaskFailedError: If tasks failed for good. The table is as it was.
        CommitConflictError: If others have changed the same rows meanwhile. Nothing was changed.

    Memory: each running task stays within `memory`, beside Python and Spark themselves.
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
    options.check()
    check_mode(schema_mode)
    check_load_id(load_id)
    check_properties(properties)
    memory_bytes, case_sensitive = frame_options(frame, memory)
    creation = Creation.of(create, partition_by, sort_by, table_properties)
    stream = arrow_schema(frame.schema)
    told = _Told(branch or MAIN_BRANCH, properties, load_id, memory_bytes, case_sensitive)
    for last in (False,) * (_TRIES - 1) + (True,):
        found = find_table(table, catalog, stream, creation)
        try:
            return _SparkMerge(frame, _Place.of(found), options, told).run()
        except (SchemaConflictError, TableCreatedError, CredentialsExpiredError):
            if last:
                raise
    raise AssertionError("not reached")


@dataclass(frozen=True, slots=True)
class _Told:
    """What the caller said beside the options of a merge."""

    branch: str
    properties: Mapping[str, str] | None
    load_id: str | None
    memory_bytes: int
    case_sensitive: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a merge goes: into a table that is there, or one that its commit creates."""

    table: Table
    new: NewTable | None = None

    @classmethod
    def of(cls, found: Table | tuple[NewTable, Catalog]) -> _Place:
        if isinstance(found, Table):
            return cls(found)
        new, catalog = found
        return cls(new.table(catalog), new)

    def look(self, branch: str) -> None:
        """See the table as it is now, and whether it has the branch."""
        if self.new is not None:
            self.new.check_branch(branch)
            return
        landing = TableLanding(self.table)
        check_branch(landing.refresh(), branch, table=landing.name)

    def options(self, options: MergeOptions) -> MergeOptions:
        if self.new is not None and self.new.discarded:
            return replace(options, schema_mode="discard")  # columns that the table did not get
        return options

    def commit(self, load: Callable[[Table | Transaction], WriteReport]) -> WriteReport:
        if self.new is None:
            return load(self.table)
        transaction = self.new.transaction(self.table.catalog)
        report = load(transaction)
        self.new.create(transaction, self.table.catalog, report.snapshot_id)
        return report


class _Removal:
    """What the tasks have taken out of the table already."""

    shares = 1

    def __init__(self, removed: Removed) -> None:
        self._removed = removed

    def remove(self, base: Base, writer: TableWriter) -> Removed:
        return self._removed


class _SparkMerge:
    """One try of a merge."""

    def __init__(self, frame: DataFrame, place: _Place, options: MergeOptions, told: _Told) -> None:
        self._began = time.monotonic()
        self._frame = frame
        self._place = place
        self._options = place.options(options)
        self._told = told
        self._source: KeyedFrame | None = None

    def run(self) -> MergeReport:
        told = self._told
        self._place.look(told.branch)
        base = write_target(self._place.table)
        if find_load(base.metadata, told.branch, told.load_id) is not None:
            report = self._load(self._place.table, Removed()).run_files((), None)
            return self._report(report, {"write_mode": self._options.write_mode or "copy-on-write"})
        plan, schema_plan = self._plan(base)
        target = base.with_schema(schema_plan.schema)
        work = MergeWork(plan, target, told.branch, KeyHash(), (), told.memory_bytes)
        in_flight = InFlightWrite(target, operation="merge")
        try:
            work, row_filter, part = self._run_jobs(work, in_flight)
        except BaseException as error:
            abandon(target)
            shown = driver_error(error, what=f"merging into {target.table}")
            if shown is error:
                raise
            raise shown from error
        with undone_if_refused(target):
            report = self._commit(work, row_filter, part)
        in_flight.committed()
        table = self._place.table if self._place.new is None else None
        delete_leftovers(table, target, report, part.written, retried=part.retried)
        return self._report(report, self._facts(work, part), schema_plan, part)

    def _plan(self, base: WriteTarget) -> tuple[MergePlan, SchemaPlan]:
        stream = arrow_schema(self._frame.schema)
        if not self._told.case_sensitive:
            known = base.schema if self._place.new is None else None
            refuse_case_clashes(stream, known, table=base.table)
        columns = written_columns(self._options, stream, base)
        schema_plan = plan_schema(base, columns, mode=self._options.schema_mode)
        return MergePlan.of(self._options, stream, base, schema_plan.schema), schema_plan

    def _run_jobs(
        self, work: MergeWork, in_flight: InFlightWrite
    ) -> tuple[MergeWork, BooleanExpression, MergePart]:
        self._source = source = KeyedFrame(self._frame, work)
        try:
            key_range = source.check()
            live = self._live(work)
            is_new = not work.plan.key.ids <= set(live.schema.field_ids)
            row_filter = AlwaysFalse() if is_new else key_range.filter()
            if not source.rows:
                return work, row_filter, MergePart()
            in_flight.mark()
            files = KeptTasks(None, columns=work.plan.key.ids, column_sizes=work.plan.on_read)
            files.extend(live.tasks(live.ask(row_filter)))
            work = MergeWork(
                work.plan, work.target, work.branch, work.key_hash, files, work.memory_bytes
            )
            spark = self._frame.sparkSession
            return work, row_filter, run_merge(spark, source, work, cores_of(spark))
        finally:
            source.close()

    def _live(self, work: MergeWork) -> LiveFiles:
        return LiveFiles(work.target, work.branch, MemoryBudget(work.memory_bytes))

    def _commit(
        self, work: MergeWork, row_filter: BooleanExpression, part: MergePart
    ) -> WriteReport:
        is_new = self._place.new is not None  # then nobody else can be in the way
        serializable = not is_new and self._options.is_serializable(work.target)
        removed = Removed(
            files=tuple(work.files[number].file for number in part.removed),
            deleted_from=tuple(work.files[number].file for number in part.deleted_from),
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
            lambda into: self._load(into, removed).run_files(
                part.written.files, schema, planned=planned
            )
        )

    def _load(self, into: Table | Transaction, removed: Removed) -> Load:
        return Load(
            into,
            Operation.OVERWRITE,
            _Removal(removed),
            memory=self._told.memory_bytes,
            branch=self._told.branch,
            properties=self._told.properties,
            load_id=self._told.load_id,
        )

    def _facts(self, work: MergeWork, part: MergePart) -> dict[str, Any]:
        source = self._source
        assert source is not None
        rewritten = [work.files[n].file for n in (*part.removed, *part.deleted_from)]
        matching = source.rows - source.rows_superseded - part.unmatched
        return {
            "write_mode": "merge-on-read" if work.plan.on_read else "copy-on-write",
            "files_read": len(work.files),
            "files_kept": self._live(work).count_files() - len(part.removed),
            "bytes_read": bytes_read(work.files, work.plan, rewritten),
            "rows_superseded": source.rows_superseded,
            "target_duplicates": part.matched - matching if part.matched else 0,
        }

    def _report(
        self,
        report: WriteReport,
        facts: dict[str, Any],
        schema_plan: SchemaPlan | None = None,
        part: MergePart | None = None,
    ) -> MergeReport:
        known: dict[str, Any] = {each.name: getattr(report, each.name) for each in fields(report)}
        known["operation"] = "merge"
        known["seconds"] = time.monotonic() - self._began
        known["memory_limit_bytes"] = self._told.memory_bytes
        if schema_plan is not None and part is not None and not report.already_committed:
            loosened = loosened_in_words(schema_plan.schema, part.written.loosened)
            known["schema_changes"] = (*schema_plan.changes, *loosened)
            known["columns_discarded"] = schema_plan.discarded
            known["peak_bytes_held"] = part.peak_bytes
            known["worker_peak_bytes"], known["worker_base_bytes"] = part.worker
        return MergeReport(**known, **facts)
