"""One write, from the call to the finished commit: the code that all verbs share."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.commit.change import Change, Counts, SchemaChange
from icestream.commit.committer import Committed
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.landing import check_branch, landing_of
from icestream.commit.observed_commit import ObservedWrite
from icestream.commit.outcome.load_id import (
    REPLACED_KEY,
    CommittedWrite,
    find_files,
    find_load,
)
from icestream.commit.outcome.retry import run_again
from icestream.commit.schema_change import SchemaConflictError, evolved, loosened_in_words
from icestream.errors import CredentialsExpiredError, MemoryBudgetError
from icestream.memory.budget import as_budget
from icestream.operations.budget_shares import Budgets
from icestream.operations.write_options import WriteOptions
from icestream.operations.write_parts import AppliedChanges, Base, Intake, RowChanges, WriteEveryRow
from icestream.report.write_report import WriteReport
from icestream.write.new_file import NewFile
from icestream.write.sources.arrow_source import ArrowSource, can_reopen, open_source
from icestream.write.table_writer import TableWriter, Written, refuse_unwritable
from icestream.write.target import WriteTarget

_NOTHING = Written()


@dataclass(slots=True)
class WriteOperation:
    """One write, from the call to the finished commit. All verbs run through it.

    Args:
        into: The table, or a transaction in which the change is staged.
        operation: The operation that the snapshot records.
        changes: The changes to existing rows, in the same snapshot.
        options: The options of the caller.
        intake: How the stream is taken in.
        verb: The name of the verb, if it differs from the operation.
    """

    into: Table | Transaction
    operation: Operation
    changes: RowChanges
    options: WriteOptions
    intake: Intake = field(default_factory=WriteEveryRow)
    verb: str | None = None
    _started: float = field(default_factory=time.monotonic)

    def run(self, source: object) -> WriteReport:
        """Write the stream and commit it, as one snapshot.

        If the source can be opened again, the operation runs again after a concurrent schema change
        and after the storage credentials expire in the middle of a file. After an error the table
        is unchanged and the new files are deleted, unless the commit may have happened.
        """
        self.options.check()
        if self.options.dry_run:
            return self._run_stream(source)
        with self._observed() as observed:
            report = run_again(
                lambda: self._run_stream(source),
                on=(SchemaConflictError, CredentialsExpiredError),
                if_possible=can_reopen(source),
            )
            return observed.done(report)

    def _run_stream(self, source: object) -> WriteReport:
        with open_source(source) as stream:
            return self._run_once(stream)

    def _observed(self) -> ObservedWrite:
        return ObservedWrite(self.verb or self.operation.value, landing_of(self.into).name)

    def run_files(
        self,
        files: Sequence[NewFile],
        schema: SchemaChange | None,
        *,
        planned: TableMetadata | None = None,
        owned: bool = False,
    ) -> WriteReport:
        """Commit files that were written before, as one snapshot.

        Args:
            files: Files from `write_files`, in this process or elsewhere.
            schema: The change to the schema of the files, if it differs from the table's.
            planned: The table when the write began, so that later commits can conflict, as they do
                with a stream; the current table by default.
            owned: Whether no other call commits the files. Then they are deleted if the commit is
                refused.
        """
        self.options.check()
        with self._observed() as observed:
            stream = open_source(iter(()))
            before = Written.of(files)
            return observed.done(self._run_once(stream, before, schema, planned, owned=owned))

    def _run_once(
        self,
        stream: ArrowSource,
        before: Written = _NOTHING,
        schema: SchemaChange | None = None,
        planned: TableMetadata | None = None,
        *,
        owned: bool = False,
    ) -> WriteReport:
        landing = landing_of(self.into)
        metadata = landing.refresh(for_append=self.operation == Operation.APPEND)
        branch = self.options.branch or MAIN_BRANCH
        head_id = check_branch(planned or metadata, branch, table=landing.name)
        target = landing.target(planned or metadata)
        refuse_unwritable(target)
        if (already := self._find(metadata, branch, target, before)) is not None:
            return self._already(already)
        in_flight = InFlightWrite(target, operation=self.operation.value)
        in_flight.take_over(before.files, owned=owned)
        budgets = Budgets.of(as_budget(self.options.memory), shares=self.changes.shares)
        columns = stream.schema and self.intake.columns(stream.schema, target)
        dry_run = self.options.dry_run
        mark = _no_marker if dry_run else in_flight.mark
        writer = TableWriter(
            target,
            arrow_schema=columns or schema_to_pyarrow(target.schema),
            schema_mode=self.options.schema_mode,
            budget=budgets.write,
            before_write=mark,
            dry_run=dry_run,
        )
        committed = None
        try:
            base = Base(target, head_id, branch, self.operation, budgets, before.files, mark)
            self.intake.take(stream, base, writer)
            if self.intake.looks_late:
                base = _newest(base, landing.refresh())
            applied = self.changes.apply(base, writer)
            written = Written.joined((writer.close(), applied.written))
            in_flight.add(file.path for file in written.files)
            in_flight.add(file.file_path for file in written.deletes)
            change = self._change(writer, written, before, applied, base, schema)
            if dry_run:
                pass
            elif change.changes_something:
                if not before.files:  # Those files already have markers.
                    in_flight.mark()  # Even without data files, the commit writes manifests.
                committed = landing.land(change, in_flight)
            else:
                landing.note(change)
        except BaseException as error:
            writer.abort()
            in_flight.abandon()
            if isinstance(error, MemoryBudgetError):
                raise budgets.of_the_whole(error) from error
            raise
        written = replace(written, bytes_spilled=written.bytes_spilled + applied.bytes_spilled)
        return self._report(change, written, writer, committed, budgets)

    def _find(
        self, metadata: TableMetadata, branch: str, target: WriteTarget, before: Written
    ) -> CommittedWrite | None:
        committed = find_load(metadata, branch, self.options.load_id)
        paths = [file.path for file in before.files]
        return committed or find_files(metadata, branch, paths, _write_ids(before), target.io)

    def _already(self, write: CommittedWrite) -> WriteReport:
        return WriteReport(
            operation=self.operation.value,
            snapshot_id=write.snapshot_id,
            already_committed=True,
            **asdict(write.counts),
            seconds=time.monotonic() - self._started,
        )

    def _change(
        self,
        writer: TableWriter,
        written: Written,
        before: Written,
        applied: AppliedChanges,
        base: Base,
        schema: SchemaChange | None,
    ) -> Change:
        rewrites = self.operation == Operation.DELETE and bool(written.files)
        deletes = (*applied.deletes, *written.deletes)
        schema = schema or evolved(writer.target, written.loosened)
        written = Written.joined((before, written))
        return Change(
            operation=Operation.OVERWRITE if rewrites else self.operation,
            branch=base.branch,
            added=tuple(file.to_data_file() for file in written.files),
            removed=applied.files,
            added_deletes=deletes,
            deleted_from=applied.deleted_from,
            base_snapshot_id=base.snapshot_id,
            conflict_filter=applied.conflict_filter,
            conflict_partitions=applied.conflict_partitions,
            conflict_schema_id=base.target.metadata.current_schema_id,
            conflict_spec_id=base.target.spec.spec_id,
            schema=schema,
            properties=dict(self.options.properties or {})
            | ({REPLACED_KEY: "true"} if applied.everything else {}),
            load_id=self.options.load_id,
            write_ids=_write_ids(before),
            written_paths=frozenset(file.path for file in before.files),
            counts=Counts(
                rows_inserted=written.rows - applied.rows_kept,
                rows_updated=applied.rows_updated,
                rows_unchanged=applied.rows_unchanged,
                rows_deleted=applied.rows,
                files_added=len(written.files),
                files_removed=len(applied.files),
                bytes_written=written.bytes + sum(file.file_size_in_bytes for file in deletes),
            ),
        )

    def _report(
        self,
        change: Change,
        written: Written,
        writer: TableWriter,
        committed: Committed | None,
        budgets: Budgets,
    ) -> WriteReport:
        if committed is not None and committed.already is not None:
            return self._already(committed.already)
        loosened = loosened_in_words(writer.plan.schema, written.loosened)
        return WriteReport(
            operation=change.operation.value,
            snapshot_id=committed.snapshot_id if committed else None,
            **asdict(change.counts),
            delete_files_added=len(change.added_deletes),
            bytes_removed=sum(file.file_size_in_bytes for file in change.removed),
            bytes_spilled=written.bytes_spilled,
            schema_changes=(*writer.plan.changes, *loosened),
            columns_discarded=writer.plan.discarded,
            commit_attempts=committed.attempts if committed else 0,
            seconds=time.monotonic() - self._started,
            peak_bytes_held=budgets.whole.peak_bytes,
            memory_limit_bytes=budgets.whole.limit_bytes,
        )


def _no_marker() -> None:
    """Write no marker: a dry run writes no files."""


def _newest(base: Base, metadata: TableMetadata) -> Base:
    """The current table, if schema, spec and format version are unchanged; else the base."""

    def shape(metadata: TableMetadata) -> tuple[int, ...]:
        return metadata.current_schema_id, metadata.default_spec_id, metadata.format_version

    head = metadata.snapshot_by_name(base.branch)
    if head is None or shape(metadata) != shape(base.target.metadata):
        return base
    target = replace(base.target, metadata=metadata)
    return replace(base, target=target, snapshot_id=head.snapshot_id)


def _write_ids(files: Written) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file.write_id for file in files.files))
