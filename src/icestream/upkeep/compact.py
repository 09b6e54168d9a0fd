"""`compact`: small files and deleted rows are rewritten into files of the right size."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import FileScanTask, Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icestream.commit.change import Change, Counts
from icestream.commit.committer import Committed
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.kept_tasks import KeptBytes
from icestream.commit.landing import TableLanding, check_branch
from icestream.commit.live_files import LiveFiles
from icestream.commit.load import check_properties
from icestream.errors import CommitConflictError, CorruptFileError, InvalidArgumentError
from icestream.memory import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.read.file_test import file_test
from icestream.report import CompactReport
from icestream.upkeep.delete_files import AppliedDeletes, live_delete_files
from icestream.upkeep.groups import Group, Grouping
from icestream.upkeep.sizes import target_bytes_of
from icestream.write.table_writer import TableWriter, Written, refuse_unwritable
from icestream.write.target import WriteTarget

_log = logging.getLogger(__name__)


def compact(
    table: Table,
    *,
    where: str | BooleanExpression | None = None,
    target_file_bytes: int | str | None = None,
    min_files: int = 2,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    progress: Callable[[CompactReport], None] | None = None,
) -> CompactReport:
    """Rewrite small files, and files with deleted rows, into files of the target size.

    Small is what is below three quarters of the target. Rows stay in their partitions, in the
    table's sort order or else in the order of their files; files of an older partition spec are
    written under the current one. Delete files that apply to nothing any more are removed. No row
    is added or lost but those that were deleted before.

    Work is done in groups of up to ten target files, each of which is one snapshot, so that an
    interruption or a conflict costs one group at most. Appends that others commit meanwhile are no
    conflict. Where rows of a group's files are deleted meanwhile, the group is left as it is, and
    the report says so. Nothing to do, no snapshot.

    Args:
        table: The table.
        where: Only files that might hold such rows are rewritten, whole.
        target_file_bytes: How large files are to be; `write.target-file-size-bytes` by default.
        min_files: How many small files a partition must have for them to be rewritten. Files with
            deleted rows always are.
        memory: The most bytes held: one half for reading, one for writing.
        branch: The branch to work on; the main one by default.
        properties: For the snapshots' summaries.
        progress: Called before the first group and after each with what has happened so far.

    Returns:
        What happened.

    Raises:
        CommitConflictError: If there was work and every group of it was refused beside other
            changes; nothing was changed.
        CommitUnknownError: If it is not known whether a commit happened.

    Memory: Arrow bytes held and the descriptions of the files that are rewritten, some 400 bytes
        each, stay within `memory`.
    """
    if not isinstance(table, Table):
        raise InvalidArgumentError(
            f"the table is a {type(table).__name__}: give a PyIceberg Table; compaction makes "
            "several snapshots and can't be staged in a transaction"
        )
    if isinstance(min_files, bool) or not isinstance(min_files, int) or min_files < 1:
        raise InvalidArgumentError(f"min_files is {min_files!r}: give a number from 1 on")
    check_properties(properties)
    budget = as_budget(memory)
    half = max(1, budget.limit_bytes // 2)
    compaction = _Compaction(
        table,
        branch or MAIN_BRANCH,
        dict(properties or {}),
        read_budget=MemoryBudget(half, whole=budget),
        write_budget=MemoryBudget(half, whole=budget),
    )
    with closing(compaction):
        compaction.plan(where, target_file_bytes, min_files)
        for _ in compaction.run():
            if progress is not None:
                progress(compaction.report(budget.limit_bytes))
    return compaction.report(budget.limit_bytes)


@dataclass(slots=True)
class _Done:
    """What has been done so far."""

    groups: int = 0
    snapshot_ids: list[int] = field(default_factory=list)
    conflicts: list[CommitConflictError] = field(default_factory=list)
    files_removed: int = 0
    files_added: int = 0
    delete_files_removed: int = 0
    rows: int = 0
    rows_deleted: int = 0
    bytes_removed: int = 0
    bytes_written: int = 0
    bytes_spilled: int = 0


class _Compaction:
    """One run: planned once, then group by group."""

    def __init__(
        self,
        table: Table,
        branch: str,
        properties: dict[str, str],
        *,
        read_budget: MemoryBudget,
        write_budget: MemoryBudget,
    ) -> None:
        self._started = time.monotonic()
        self._table = table
        self._branch = branch
        self._properties = properties
        self._read_budget = read_budget
        self._write_budget = write_budget
        self._landing = TableLanding(table)
        metadata = self._landing.refresh()
        self._base_snapshot_id = check_branch(metadata, branch, table=self._landing.name)
        self._target = WriteTarget.of(table)
        refuse_unwritable(self._target)
        self._live = LiveFiles(self._target, branch, read_budget)
        self._done = _Done()
        self._groups: list[Group] = []
        self._descriptions = KeptBytes(read_budget)
        self._deletes = AppliedDeletes((), ())

    def plan(
        self,
        where: str | BooleanExpression | None,
        target_file_bytes: int | str | None,
        min_files: int,
    ) -> None:
        """Decide which files are rewritten, from metadata alone."""
        target = self._target
        wanted_bytes = target_bytes_of(target.properties, target.schema, target_file_bytes)
        size = {TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: str(wanted_bytes)}
        changed = target.metadata.model_copy(update={"properties": {**target.properties, **size}})
        self._target = replace(target, metadata=changed)
        row_filter = self._live.ask(where).context.row_filter
        # All files, as only so it is known when a delete file is no longer needed.
        deletes = live_delete_files(target.metadata, target.io, self._branch)
        self._deletes = AppliedDeletes((), deletes)
        grouping = Grouping(
            wanted_bytes, min_files, target.spec.spec_id, charge=self._descriptions.add
        )
        if where is not None:
            selects = file_test(target.metadata, row_filter, case_sensitive=True)
            grouping = replace(grouping, selects=selects)
        self._groups = grouping.groups(self._noted(self._live.tasks(self._live.ask())))

    def _noted(self, tasks: Iterable[FileScanTask]) -> Iterator[FileScanTask]:
        """The tasks, while what is deleted from each is written down."""
        for task in tasks:
            self._deletes.note(task)
            yield task

    def close(self) -> None:
        """Give back what the plan took."""
        self._descriptions.close()

    def run(self) -> Iterator[None]:
        """Rewrite group after group, a step each; what is refused is left as it is."""
        self._done.groups = len(self._groups)
        yield
        for group in self._groups or self._nothing_but_deletes():
            try:
                self._rewrite(group)
            except CommitConflictError as error:
                _log.debug("a group of %s files was refused: %s", len(group.files), error)
                self._done.conflicts.append(error)
            yield
        if self._done.conflicts and not self._done.snapshot_ids:
            raise self._done.conflicts[0]

    def _nothing_but_deletes(self) -> list[Group]:
        """Delete files that apply to nothing are worth a commit of their own."""
        return [Group()] if self._deletes.useless_without(()) else []

    def _rewrite(self, group: Group) -> None:
        target = replace(self._target, write_id=str(uuid.uuid4()))
        in_flight = InFlightWrite(target, operation=Operation.REPLACE.value)
        writer = self._writer(target, in_flight)
        try:
            for batch in self._live.rows(group.tasks):
                writer.write(batch)
                del batch  # before the next one is made
            written = writer.close()
            in_flight.add(file.path for file in written.files)
            _check_rows(group, written)
            if self._is_no_better(group, written):
                in_flight.abandon()
                return
            change = self._change(group, written)
            committed = self._landing.land(change, in_flight)
        except BaseException:
            writer.abort()
            in_flight.abandon()
            raise
        self._note(group, written, change, committed)

    def _writer(self, target: WriteTarget, in_flight: InFlightWrite) -> TableWriter:
        return TableWriter(
            target,
            arrow_schema=schema_to_pyarrow(target.schema),
            schema_mode="freeze",
            budget=self._write_budget,
            before_write=in_flight.mark,
            keep_order=True,
        )

    def _is_no_better(self, group: Group, written: Written) -> bool:
        """Whether there would be as many files as before, of the same rows and spec."""
        return (
            bool(group.files)
            and not group.has_deletes
            and group.has_only(self._target.spec.spec_id)
            and len(written.files) >= len(group.files)
        )

    def _change(self, group: Group, written: Written) -> Change:
        removed = tuple(task.file for task in group.tasks)
        return Change(
            operation=Operation.REPLACE,
            branch=self._branch,
            added=tuple(file.to_data_file() for file in written.files),
            removed=removed,
            removed_deletes=self._deletes.useless_without(file.file_path for file in removed),
            base_snapshot_id=self._base_snapshot_id,
            # No rows were read but those of the group: what others add is no conflict. A filter
            # that nothing matches has the history looked at where no file is removed.
            conflict_filter=None if removed else AlwaysFalse(),
            properties=self._properties,
            counts=Counts(
                files_added=len(written.files),
                files_removed=len(removed),
                bytes_written=written.bytes,
            ),
        )

    def _note(self, group: Group, written: Written, change: Change, committed: Committed) -> None:
        self._deletes.forget((f.file_path for f in change.removed), change.removed_deletes)
        done = self._done
        done.snapshot_ids.append(committed.snapshot_id)
        done.files_removed += len(group.files)
        done.files_added += len(written.files)
        done.rows += written.rows
        done.rows_deleted += group.rows - written.rows
        done.bytes_removed += group.bytes
        done.bytes_written += written.bytes
        done.bytes_spilled += written.bytes_spilled
        done.delete_files_removed += self._delete_files_removed(committed.snapshot_id)

    def _delete_files_removed(self, snapshot_id: int) -> int:
        snapshot = self._table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None or snapshot.summary is None:
            return 0
        return int(snapshot.summary.additional_properties.get("removed-delete-files", 0))

    def report(self, memory_limit_bytes: int) -> CompactReport:
        """What happened."""
        done = self._done
        return CompactReport(
            table=self._landing.name,
            branch=self._branch,
            snapshot_ids=tuple(done.snapshot_ids),
            groups=done.groups,
            groups_refused=len(done.conflicts),
            conflicts=tuple(str(conflict) for conflict in done.conflicts),
            files_removed=done.files_removed,
            files_added=done.files_added,
            delete_files_removed=done.delete_files_removed,
            rows_rewritten=done.rows,
            rows_deleted=done.rows_deleted,
            bytes_removed=done.bytes_removed,
            bytes_written=done.bytes_written,
            bytes_spilled=done.bytes_spilled,
            seconds=time.monotonic() - self._started,
            peak_bytes_held=self._read_budget.peak_bytes + self._write_budget.peak_bytes,
            memory_limit_bytes=memory_limit_bytes,
        )


def _check_rows(group: Group, written: Written) -> None:
    """Every row that was not deleted must have been written again."""
    tasks = group.tasks
    expected = sum(task.file.record_count for task in tasks if not task.delete_files)
    right = written.rows == expected if not group.has_deletes else expected <= written.rows
    if right and written.rows <= group.rows:
        return
    raise CorruptFileError(
        f"files that should hold {group.rows} rows gave {written.rows}: the table's metadata is "
        f"wrong about one of them, such as {_first_path(tasks)}. Nothing was changed",
        path=_first_path(tasks),
    )


def _first_path(tasks: tuple[FileScanTask, ...]) -> str:
    return str(tasks[0].file.file_path) if tasks else ""
