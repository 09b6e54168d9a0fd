"""`compact`: rewrite small files and files with deleted rows into files of the target size."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysFalse, BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.table import FileScanTask, Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation

from icestream.catalogs.arrow_io import schema_to_pyarrow
from icestream.catalogs.lookup import resolve_table
from icestream.commit.change import Change, Counts
from icestream.commit.committer import Committed
from icestream.commit.in_flight import InFlightWrite
from icestream.commit.landing import TableLanding, check_branch
from icestream.errors import CommitConflictError, CorruptFileError, InvalidArgumentError
from icestream.memory.budget import DEFAULT_MEMORY, MemoryBudget, as_budget
from icestream.operations.kept_tasks import KeptBytes
from icestream.operations.live_files import LiveFiles
from icestream.operations.upkeep.delete_files import AppliedDeletes, live_delete_files
from icestream.operations.upkeep.groups import Group, Grouping, target_bytes_of
from icestream.operations.upkeep.manifest_entries import ManifestEntries
from icestream.operations.write_options import check_properties
from icestream.read.plan.file_predicate import file_test
from icestream.read.plan.found_files import NO_STATISTICS, ManifestWorkers, Statistics
from icestream.report.upkeep_report import CompactReport
from icestream.write.table_writer import TableWriter, Written, refuse_unwritable
from icestream.write.target import WriteTarget

_log = logging.getLogger(__name__)


def compact(
    table: str | Table,
    *,
    catalog: str | Catalog | None = None,
    where: str | BooleanExpression | None = None,
    target_file_bytes: int | str | None = None,
    min_files: int = 2,
    memory: int | str | MemoryBudget = DEFAULT_MEMORY,
    branch: str | None = None,
    properties: Mapping[str, str] | None = None,
    progress: Callable[[CompactReport], None] | None = None,
    dry_run: bool = False,
) -> CompactReport:
    """Rewrite small files, and files with deleted rows, into files of the target size.

    A file is small if it is below three quarters of the target size. Rows stay in their partitions,
    in the table's sort order or, without one, in the order of their files. Files of an older
    partition spec are rewritten under the current one. Delete files that no longer apply to any
    data file are removed. The rows of the table do not change.

    The work is done in groups of up to ten target files. Each group is one snapshot, so that an
    interruption or a conflict costs at most one group. Concurrent appends do not conflict. If a
    concurrent commit deletes rows of a group's files, the group is skipped and the report says so.
    If there is nothing to do, there is no snapshot.

    Args:
        table: The table, or its name such as `"db.t"`.
        catalog: The catalog of a table that is given by its name: a PyIceberg catalog, its name in
            PyIceberg's configuration, or None for the default one.
        where: Rewrite only files that may hold rows matching this filter. All rows of these files
            are kept.
        target_file_bytes: The target size of files; `write.target-file-size-bytes` by default.
        min_files: Minimum number of small files in a partition to rewrite them. Files with deleted
            rows are always rewritten.
        memory: Maximum number of bytes held: half for reading, half for writing.
        branch: The branch to compact; the main branch by default.
        properties: Properties for the snapshots' summaries.
        progress: Called with a report before the first group and after each group.
        dry_run: Whether to report what would be rewritten, and change nothing. Only metadata is
            read, so the report counts the rows of the files including deleted ones, and no new
            files.

    Returns:
        A report.

    Raises:
        CommitConflictError: If every group conflicted with concurrent changes; nothing was changed.
        CommitUnknownError: If a commit may or may not have happened.

    Memory: Arrow bytes held, and descriptions of the files to rewrite (about 400 bytes each), stay
        within `memory`.
    """
    if progress is not None and not callable(progress):
        raise InvalidArgumentError(
            f"progress is {progress!r}: pass a function that takes a CompactReport, or in a "
            "notebook icestream.integrations.notebook.NotebookProgress()"
        )
    table = resolve_table(table, catalog)
    return run_compaction(
        table,
        where=where,
        target_file_bytes=target_file_bytes,
        min_files=min_files,
        memory=memory,
        branch=branch,
        properties=properties,
        progress=progress,
        dry_run=dry_run,
    )


class GroupWorkers(Protocol):
    """Rewrites groups in other processes.

    Attributes:
        targets_per_group: Maximum size of a group, in target sizes.
        manifests: Reads data manifests in other processes.
    """

    targets_per_group: int

    @property
    def manifests(self) -> ManifestWorkers: ...

    def rewrite(
        self, target: WriteTarget, branch: str, group: Group, mark: Callable[[], None]
    ) -> Written:
        """Write the rows of a group to new files.

        Args:
            target: The table, with the id for the new files.
            branch: The branch.
            group: The files to rewrite.
            mark: Writes the marker of the rewrite. Called before workers write files.

        Returns:
            The new files. After an error, no file is left.
        """
        ...


def run_compaction(
    table: Table,
    *,
    where: str | BooleanExpression | None,
    target_file_bytes: int | str | None,
    min_files: int,
    memory: int | str | MemoryBudget,
    branch: str | None,
    properties: Mapping[str, str] | None,
    progress: Callable[[CompactReport], None] | None,
    workers: GroupWorkers | None = None,
    dry_run: bool = False,
) -> CompactReport:
    """`compact`, with workers that rewrite groups; by default this process does."""
    if not isinstance(table, Table):
        raise InvalidArgumentError(
            f"the table is a {type(table).__name__}: give a name or a PyIceberg Table; "
            "compaction creates several snapshots and can't be staged in a transaction"
        )
    if isinstance(min_files, bool) or not isinstance(min_files, int) or min_files < 1:
        raise InvalidArgumentError(f"min_files is {min_files!r}: give a whole number of at least 1")
    check_properties(properties)
    budget = as_budget(memory)
    half = max(1, budget.limit_bytes // 2)
    compaction = _Compaction(
        table,
        branch or MAIN_BRANCH,
        dict(properties or {}),
        read_budget=MemoryBudget(half, whole=budget),
        write_budget=MemoryBudget(half, whole=budget),
        workers=workers,
    )
    with closing(compaction):
        compaction.plan(where, target_file_bytes, min_files)
        if dry_run:
            return compaction.planned(budget.limit_bytes)
        for _ in compaction.run():
            if progress is not None:
                progress(compaction.report(budget.limit_bytes))
    return compaction.report(budget.limit_bytes)


@dataclass(slots=True)
class _Totals:
    """The sums over all groups so far, named as in the report."""

    files_removed: int = 0
    files_added: int = 0
    delete_files_removed: int = 0
    rows_rewritten: int = 0
    rows_deleted: int = 0
    bytes_removed: int = 0
    bytes_written: int = 0
    bytes_spilled: int = 0


class _Compaction:
    """One compaction: planned once, then run group by group."""

    def __init__(
        self,
        table: Table,
        branch: str,
        properties: dict[str, str],
        *,
        read_budget: MemoryBudget,
        write_budget: MemoryBudget,
        workers: GroupWorkers | None,
    ) -> None:
        self._workers = workers
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
        manifests = None if workers is None else workers.manifests
        self._live = LiveFiles(self._target, branch, read_budget, manifests)
        self._totals = _Totals()
        self._snapshot_ids: list[int] = []
        self._conflicts: list[CommitConflictError] = []
        self._groups: list[Group] = []
        self._descriptions = KeptBytes(read_budget)
        self._deletes = AppliedDeletes(())

    def plan(
        self,
        where: str | BooleanExpression | None,
        target_file_bytes: int | str | None,
        min_files: int,
    ) -> None:
        """Select the files to rewrite, from metadata alone."""
        target = self._target
        wanted_bytes = target_bytes_of(target.properties, target.schema, target_file_bytes)
        size = {TableProperties.WRITE_TARGET_FILE_SIZE_BYTES: str(wanted_bytes)}
        changed = target.metadata.model_copy(update={"properties": {**target.properties, **size}})
        self._target = replace(target, metadata=changed)
        row_filter = self._live.ask(where).context.row_filter
        # All files are planned, to learn when a delete file is no longer needed.
        entries = ManifestEntries(target.io, self._read_budget)
        self._deletes = AppliedDeletes(live_delete_files(target.metadata, self._branch, entries))
        grouping = Grouping(
            wanted_bytes, min_files, target.spec.spec_id, charge=self._descriptions.add
        )
        if self._workers is not None:
            grouping = replace(grouping, targets_per_group=self._workers.targets_per_group)
        statistics = NO_STATISTICS
        if where is not None:
            used = extract_field_ids(bind(self._live.schema, row_filter, True))
            statistics = Statistics(columns=frozenset(used))
            selects = file_test(target.metadata, row_filter, case_sensitive=True)
            grouping = replace(grouping, selects=selects)
        self._groups = grouping.groups(
            self._recorded(self._live.tasks(self._live.ask(), statistics))
        )

    def _recorded(self, tasks: Iterable[FileScanTask]) -> Iterator[FileScanTask]:
        """Pass on the tasks, and record the delete files of each."""
        for task in tasks:
            self._deletes.add(task)
            yield task

    def close(self) -> None:
        """Release the memory of the plan."""
        self._descriptions.close()

    def planned(self, memory_limit_bytes: int) -> CompactReport:
        """The report of a dry run."""
        files = (task.file.file_path for group in self._groups for task in group.tasks)
        totals = self._totals
        totals.delete_files_removed = len(self._deletes.useless_without(files))
        for group in self._groups:
            totals.files_removed += len(group.files)
            totals.rows_rewritten += group.rows
            totals.bytes_removed += group.bytes
        return self.report(memory_limit_bytes)

    def run(self) -> Iterator[None]:
        """Rewrite one group per step; skip groups that conflict."""
        yield
        only_deletes = [Group()] if self._deletes.useless_without(()) else []
        for group in self._groups or only_deletes:
            try:
                self._rewrite(group)
            except CommitConflictError as error:
                _log.debug("a group of %s files was refused: %s", len(group.files), error)
                self._conflicts.append(error)
            yield
        if self._conflicts and not self._snapshot_ids:
            raise self._conflicts[0]

    def _rewrite(self, group: Group) -> None:
        target = replace(self._target, write_id=str(uuid.uuid4()))
        in_flight = InFlightWrite(target, operation=Operation.REPLACE.value)
        try:
            if self._workers is None:
                tasks = group.tasks
                written = rewrite(self._live, tasks, target, self._write_budget, in_flight.mark)
            else:
                written = self._workers.rewrite(target, self._branch, group, in_flight.mark)
            in_flight.add(file.path for file in written.files)
            _check_rows(group, written)
            if self._is_no_gain(group, written):
                in_flight.abandon()
                return
            change = self._change(group, written)
            committed = self._landing.land(change, in_flight)
        except BaseException:
            in_flight.abandon()
            raise
        self._count(group, written, change, committed)

    def _is_no_gain(self, group: Group, written: Written) -> bool:
        """Whether the rewrite would save no file, apply no deletes and change no spec."""
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
            # Only rows of the group were read, so concurrently added rows do not conflict. If no
            # file is removed, a filter without matches still makes the commit check the history.
            conflict_filter=None if removed else AlwaysFalse(),
            properties=self._properties,
            counts=Counts(
                files_added=len(written.files),
                files_removed=len(removed),
                bytes_written=written.bytes,
            ),
        )

    def _count(self, group: Group, written: Written, change: Change, committed: Committed) -> None:
        self._deletes.forget((f.file_path for f in change.removed), change.removed_deletes)
        self._snapshot_ids.append(committed.snapshot_id)
        totals = self._totals
        totals.files_removed += len(group.files)
        totals.files_added += len(written.files)
        totals.rows_rewritten += written.rows
        totals.rows_deleted += group.rows - written.rows
        totals.bytes_removed += group.bytes
        totals.bytes_written += written.bytes
        totals.bytes_spilled += written.bytes_spilled
        totals.delete_files_removed += self._delete_files_removed(committed.snapshot_id)

    def _delete_files_removed(self, snapshot_id: int) -> int:
        snapshot = self._table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None or snapshot.summary is None:
            return 0
        return int(snapshot.summary.additional_properties.get("removed-delete-files", 0))

    def report(self, memory_limit_bytes: int) -> CompactReport:
        """The report, so far."""
        return CompactReport(
            table=self._landing.name,
            branch=self._branch,
            snapshot_ids=tuple(self._snapshot_ids),
            groups=len(self._groups),
            groups_refused=len(self._conflicts),
            conflicts=tuple(str(conflict) for conflict in self._conflicts),
            **asdict(self._totals),
            seconds=time.monotonic() - self._started,
            peak_bytes_held=self._read_budget.peak_bytes + self._write_budget.peak_bytes,
            memory_limit_bytes=memory_limit_bytes,
        )


def rewrite(
    live: LiveFiles,
    tasks: Sequence[FileScanTask],
    target: WriteTarget,
    budget: MemoryBudget,
    mark: Callable[[], None],
) -> Written:
    """Write the rows of some files to new files, in their order or in the table's sort order.

    Args:
        live: Reads the files.
        tasks: The files.
        target: The table.
        budget: The memory budget for writing.
        mark: Called before each file is written.

    Returns:
        The new files. After an error, none of them is left.
    """
    writer = TableWriter(
        target,
        arrow_schema=schema_to_pyarrow(target.schema),
        schema_mode="freeze",
        budget=budget,
        before_write=mark,
        keep_order=True,
    )
    try:
        for batch in live.rows(tasks):
            writer.write(batch)
            del batch  # before the next one is made
        return writer.close()
    except BaseException:
        writer.abort()
        raise


def _check_rows(group: Group, written: Written) -> None:
    """Check that every row that is not deleted was written."""
    tasks = group.tasks
    expected = sum(task.file.record_count for task in tasks if not task.delete_files)
    right = written.rows == expected if not group.has_deletes else expected <= written.rows
    if right and written.rows <= group.rows:
        return
    path = str(tasks[0].file.file_path) if tasks else ""
    raise CorruptFileError(
        f"the metadata says that some files hold {group.rows} rows, but reading them gave "
        f"{written.rows}: it is wrong about one of them, such as {path}. Nothing was changed",
        path=path,
    )
