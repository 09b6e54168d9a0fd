"""One load, from the call to the settled commit: what append, overwrite and delete share."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icestream.commit.budgets import Budgets
from icestream.commit.change import Change, Counts, Key, SchemaChange
from icestream.commit.committer import Committed
from icestream.commit.handed_over import find_files
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.landing import check_branch, landing_of
from icestream.commit.load_id import (
    LOAD_ID_KEY,
    REPLACED_KEY,
    WRITE_IDS_KEY,
    CommittedLoad,
    check_load_id,
    find_load,
)
from icestream.commit.observed_commit import ObservedLoad
from icestream.commit.schema_change import SchemaConflictError, evolved, loosened_in_words
from icestream.errors import CredentialsExpiredError, InvalidArgumentError, MemoryBudgetError
from icestream.memory import MemoryBudget, as_budget
from icestream.report import WriteReport
from icestream.write.new_file import NewFile
from icestream.write.schema import SchemaMode
from icestream.write.source import ArrowSource, can_reopen, open_source
from icestream.write.table_writer import TableWriter, Written, refuse_unwritable
from icestream.write.target import WriteTarget

_LOAD_TRIES = 3
_NOTHING = Written()
_OUR_PROPERTIES = ("operation", LOAD_ID_KEY, WRITE_IDS_KEY, REPLACED_KEY)


@dataclass(frozen=True, slots=True)
class Removed:
    """Rows and files that a load takes out of the table.

    Attributes:
        files: Data files to remove.
        deleted_from: Data files that position deletes were written for.
        deletes: Delete files for them that were written elsewhere, before.
        rows: Rows that are gone for good.
        rows_kept: Rows that were written again.
        rows_updated: Those of them that have other values now.
        rows_unchanged: Rows that a merge found as they were to be.
        bytes_spilled: Bytes that went through temporary files on the way.
        conflict_filter: As of `Change`; likewise conflict_partitions.
        everything: Whether no row stays that was in the table before.
    """

    files: tuple[DataFile, ...] = ()
    deleted_from: tuple[DataFile, ...] = ()
    deletes: tuple[DataFile, ...] = ()
    rows: int = 0
    rows_kept: int = 0
    rows_updated: int = 0
    rows_unchanged: int = 0
    bytes_spilled: int = 0
    conflict_filter: BooleanExpression | None = None
    conflict_partitions: frozenset[Key] | None = None
    everything: bool = False


class Removal(Protocol):
    """Finds what a load removes, and writes the rows again that must stay."""

    @property
    def shares(self) -> int:
        """In how many parts the memory limit is cut: writing, reading, rows that wait."""
        ...

    def remove(self, base: Base, writer: TableWriter) -> Removed: ...


class Intake(Protocol):
    """Takes the stream in.

    Attributes:
        looks_late: Whether the table is looked at only after the stream has ended: then what others
            have committed until there is no conflict.
    """

    looks_late: bool

    def columns(self, stream: pa.Schema, target: WriteTarget) -> pa.Schema:
        """Those columns of the stream that are to be written."""
        ...

    def take(self, stream: ArrowSource, base: Base, writer: TableWriter) -> None: ...


class WrittenAsItComes:
    """Every row of the stream is written."""

    looks_late = False

    def columns(self, stream: pa.Schema, target: WriteTarget) -> pa.Schema:
        """All."""
        return stream

    def take(self, stream: ArrowSource, base: Base, writer: TableWriter) -> None:
        """Write the rows."""
        for batch in stream:
            writer.write(batch)
            del batch  # before the next one is made


@dataclass(frozen=True, slots=True)
class Base:
    """The table as a load was planned from it.

    Attributes:
        target: The table.
        snapshot_id: The head of the branch; None if it is empty.
        branch: The branch.
        operation: What the load does; the table may want another isolation for each.
        budgets: What reading, writing, and rows that wait for others may hold.
        files: Files that were written before, to be added by the same load.
    """

    target: WriteTarget
    snapshot_id: int | None
    branch: str
    operation: Operation
    budgets: Budgets
    files: tuple[NewFile, ...] = ()


@dataclass(slots=True)
class Load:
    """What the caller asked for.

    Args:
        into: The table, or a transaction in which the change is staged.
        operation: How the snapshot calls itself.
        removal: What is taken out of the table in the same snapshot.
        memory: The most bytes held.
        schema_mode: What to do where the stream's columns are not the table's.
        branch: Where the snapshot goes; the main branch by default.
        properties: For the snapshot's summary.
        load_id: Makes a second load with the same id a no-op.
        intake: How the stream is taken in.
        verb: What the caller calls it, if not as the operation.
    """

    into: Table | Transaction
    operation: Operation
    removal: Removal
    memory: int | str | MemoryBudget
    schema_mode: SchemaMode = "freeze"
    branch: str | None = None
    properties: Mapping[str, str] | None = None
    load_id: str | None = None
    intake: Intake = field(default_factory=WrittenAsItComes)
    verb: str | None = None
    _started: float = field(default_factory=time.monotonic)

    def run(self, source: object) -> WriteReport:
        """Write the stream and commit it, as one snapshot.

        A load is run again if the source can be opened again, and it lost against a change of the
        schema, or its credentials for storage expired in the middle of a file. On any error the
        table is as it was and the files written are deleted, except where it is not known whether
        the commit happened.
        """
        self._check()
        with self._observed() as observed:
            for last in (False,) * (_LOAD_TRIES - 1) + (True,):
                try:
                    with open_source(source) as stream:
                        return observed.done(self._run_once(stream))
                except (SchemaConflictError, CredentialsExpiredError):
                    if last or not can_reopen(source):
                        raise
        raise AssertionError("not reached")

    def _observed(self) -> ObservedLoad:
        return ObservedLoad(self.verb or self.operation.value, landing_of(self.into).name)

    def _check(self) -> None:
        check_load_id(self.load_id)
        if self.schema_mode not in ("freeze", "evolve", "discard"):
            raise InvalidArgumentError(
                f"schema_mode is {self.schema_mode!r}: give 'freeze', 'evolve' or 'discard'"
            )
        if self.branch == "":
            raise InvalidArgumentError("branch is empty: name a branch, or leave it out for main")
        check_properties(self.properties)

    def run_files(
        self,
        files: Sequence[NewFile],
        schema: SchemaChange | None,
        *,
        planned: TableMetadata | None = None,
    ) -> WriteReport:
        """Commit files that were written before, as one snapshot.

        Args:
            files: From `write_files`, here or elsewhere.
            schema: The schema that they were written with, if it is not the table's.
            planned: The table when the load began: what others have committed since may be a
                conflict, as it is for a stream. None: the table as it is now.
        """
        self._check()
        with self._observed() as observed:
            stream = open_source(iter(()))
            return observed.done(self._run_once(stream, Written.of(files), schema, planned))

    def _run_once(
        self,
        stream: ArrowSource,
        before: Written = _NOTHING,
        schema: SchemaChange | None = None,
        planned: TableMetadata | None = None,
    ) -> WriteReport:
        landing = landing_of(self.into)
        metadata = landing.refresh()
        branch = self.branch or MAIN_BRANCH
        head_id = check_branch(planned or metadata, branch, table=landing.name)
        target = landing.target(planned or metadata)
        refuse_unwritable(target)
        if (already := self._find(metadata, branch, target, before)) is not None:
            return self._already(already)
        in_flight = InFlightWrite(target, operation=self.operation.value)
        in_flight.take_over(before.files)
        budgets = Budgets.of(as_budget(self.memory), shares=self.removal.shares)
        columns = stream.schema and self.intake.columns(stream.schema, target)
        writer = TableWriter(
            target,
            arrow_schema=columns or schema_to_pyarrow(target.schema),
            schema_mode=self.schema_mode,
            budget=budgets.write,
            before_write=in_flight.mark,
        )
        committed = None
        try:
            base = Base(target, head_id, branch, self.operation, budgets, before.files)
            self.intake.take(stream, base, writer)
            if self.intake.looks_late:
                base = _newest(base, landing.refresh())
            removed = self.removal.remove(base, writer)
            written = writer.close()
            in_flight.add(file.path for file in written.files)
            in_flight.add(file.file_path for file in written.deletes)
            change = self._change(writer, written, before, removed, base, schema)
            if change.changes_something:
                if not before.files:  # They have markers.
                    in_flight.mark()  # Also where no data file was written: manifests will be.
                committed = landing.land(change, in_flight)
            else:
                landing.note(change)
        except BaseException as error:
            writer.abort()
            if isinstance(error, InvalidArgumentError):
                in_flight.give_back()  # the caller may mend the call, and commit them then
            in_flight.abandon()
            if isinstance(error, MemoryBudgetError):
                raise budgets.of_the_whole(error) from error
            raise
        written = replace(written, bytes_spilled=written.bytes_spilled + removed.bytes_spilled)
        return self._report(change, written, writer, committed, budgets)

    def _find(
        self, metadata: TableMetadata, branch: str, target: WriteTarget, before: Written
    ) -> CommittedLoad | None:
        found = find_load(metadata, branch, self.load_id)
        paths = [file.path for file in before.files]
        return found or find_files(metadata, branch, paths, _write_ids(before), target.io)

    def _already(self, load: CommittedLoad) -> WriteReport:
        return WriteReport(
            operation=self.operation.value,
            snapshot_id=load.snapshot_id,
            already_committed=True,
            rows_inserted=load.counts.rows_inserted,
            rows_updated=load.counts.rows_updated,
            rows_unchanged=load.counts.rows_unchanged,
            rows_deleted=load.counts.rows_deleted,
            files_added=load.counts.files_added,
            files_removed=load.counts.files_removed,
            bytes_written=load.counts.bytes_written,
            seconds=time.monotonic() - self._started,
        )

    def _change(
        self,
        writer: TableWriter,
        written: Written,
        before: Written,
        removed: Removed,
        base: Base,
        schema: SchemaChange | None,
    ) -> Change:
        rewrites = self.operation == Operation.DELETE and bool(written.files)
        deletes = (*removed.deletes, *written.deletes)
        schema = schema or evolved(writer.target, written.loosened)
        handed_over = frozenset(file.path for file in before.files)
        written = before + written
        return Change(
            operation=Operation.OVERWRITE if rewrites else self.operation,
            branch=base.branch,
            added=tuple(file.to_data_file() for file in written.files),
            removed=removed.files,
            added_deletes=deletes,
            deleted_from=removed.deleted_from,
            base_snapshot_id=base.snapshot_id,
            conflict_filter=removed.conflict_filter,
            conflict_partitions=removed.conflict_partitions,
            conflict_schema_id=base.target.metadata.current_schema_id,
            conflict_spec_id=base.target.spec.spec_id,
            schema=schema,
            properties=dict(self.properties or {})
            | ({REPLACED_KEY: "true"} if removed.everything else {}),
            load_id=self.load_id,
            write_ids=_write_ids(before),
            handed_over=handed_over,
            counts=Counts(
                rows_inserted=written.rows - removed.rows_kept,
                rows_updated=removed.rows_updated,
                rows_unchanged=removed.rows_unchanged,
                rows_deleted=removed.rows,
                files_added=len(written.files),
                files_removed=len(removed.files),
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
            rows_inserted=change.counts.rows_inserted,
            rows_updated=change.counts.rows_updated,
            rows_unchanged=change.counts.rows_unchanged,
            rows_deleted=change.counts.rows_deleted,
            files_added=change.counts.files_added,
            files_removed=change.counts.files_removed,
            delete_files_added=len(change.added_deletes),
            bytes_written=change.counts.bytes_written,
            bytes_spilled=written.bytes_spilled,
            schema_changes=(*writer.plan.changes, *loosened),
            columns_discarded=writer.plan.discarded,
            commit_attempts=committed.attempts if committed else 0,
            seconds=time.monotonic() - self._started,
            peak_bytes_held=budgets.whole.peak_bytes,
            memory_limit_bytes=budgets.whole.limit_bytes,
        )


def _newest(base: Base, metadata: TableMetadata) -> Base:
    """The table as it is now, if files can be written for it as for the table as it was."""

    def shape(metadata: TableMetadata) -> tuple[int, ...]:
        return metadata.current_schema_id, metadata.default_spec_id, metadata.format_version

    head = metadata.snapshot_by_name(base.branch)
    if head is None or shape(metadata) != shape(base.target.metadata):
        return base
    target = replace(base.target, metadata=metadata)
    return replace(base, target=target, snapshot_id=head.snapshot_id)


def check_properties(properties: Mapping[str, str] | None) -> None:
    """Refuse snapshot properties that can't be stored.

    Raises:
        InvalidArgumentError: Naming the first of them.
    """
    for key, value in (properties or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidArgumentError(
                f"properties has {key!r}: {value!r}: snapshot properties are strings"
            )
        if key in _OUR_PROPERTIES:
            raise InvalidArgumentError(f"properties has {key!r}, which every commit sets itself")


def _write_ids(files: Written) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file.write_id for file in files.files))
